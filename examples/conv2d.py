"""2D convolution as a matrix product over gathered patches (im2col)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, random, run_example

import tilewright
import tilewright.language as T


def conv2d(batch, H, W, C, F, kernel_size=3, stride=1, padding=1, block_M=64, block_N=64, block_K=32, dtype="float32"):
    """Y (batch, H', W', F) from X (batch, H, W, C) and weights (kernel, kernel, C, F); zeros outside the image."""
    out_H = (H + 2 * padding - kernel_size) // stride + 1
    out_W = (W + 2 * padding - kernel_size) // stride + 1
    M, K = batch * out_H * out_W, kernel_size * kernel_size * C

    @T.prim_func
    def main(
        X: T.Tensor((batch, H, W, C), dtype),
        weights: T.Tensor((K, F), dtype),
        Y: T.Tensor((M, F), dtype),
    ):
        with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            patches = T.alloc_shared((block_M, block_K), dtype)
            weights_shared = T.alloc_shared((block_K, block_N), dtype)
            out = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(out)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                for i, j in T.Parallel(block_M, block_K):
                    m = by * block_M + i
                    r = k * block_K + j
                    y = m // out_W % out_H * stride + r // (kernel_size * C) - padding
                    x = m % out_W * stride + r // C % kernel_size - padding
                    inside = m < M and r < K and 0 <= y < H and 0 <= x < W
                    patches[i, j] = T.if_then_else(inside, X[m // (out_H * out_W), y, x, r % C], T.cast(0, dtype))
                T.copy(weights[k * block_K, bx * block_N], weights_shared)
                T.gemm(patches, weights_shared, out)
            T.copy(out, Y[by * block_M, bx * block_N])

    return main


def reference(x: np.ndarray, weights: np.ndarray, kernel_size: int, stride: int, padding: int) -> np.ndarray:
    """The convolution in float64."""
    x = np.pad(x.astype(np.float64), ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel_size, kernel_size), axis=(1, 2))
    patches = windows[:, ::stride, ::stride].transpose(0, 1, 2, 4, 5, 3)
    return patches.reshape(-1, weights.shape[0]) @ weights.astype(np.float64)


def case(target: str, batch: int, h: int, w: int, c: int, f: int, stride: int, dtype: str) -> Case:
    """Random image and weights."""
    kernel = tilewright.compile(conv2d(batch, h, w, c, f, stride=stride, dtype=dtype), out_idx=-1, target=target)
    x, weights = random((batch, h, w, c), dtype, 1), random((9 * c, f), dtype, 2)
    expected = reference(x, weights, 3, stride, 1)
    work = 2.0 * expected.size * 9 * c
    size = f"{batch}x{h}x{w}x{c} -> {f}, stride {stride}"
    return Case("conv2d 3x3", size, dtype, lambda: kernel(x, weights), expected, work, "GFLOP/s", 9 * c)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes, strides 1 and 2."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, 2, 17, 23, 7, 19, 2, dtype)
    side = 32 if quick else 64
    yield case(target, 4, side, side, 64, 128, 1, "float32")


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"conv2d": tilewright.compile(conv2d(4, 64, 64, 64, 128), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("2D convolution by im2col", cases, kernels))
