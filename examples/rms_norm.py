"""RMS normalisation with a weight."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, numpy_dtype, random, run_example

import tilewright
import tilewright.language as T


def rms_norm(M, N, block_M=1, dtype="float32", epsilon=1e-5):
    """Y[i, :] = X[i, :] / sqrt(mean(X[i, :]²) + epsilon) * W."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), W: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            for i, j in T.Parallel(block_M, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, scale, dim=1)
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + epsilon)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * scale[i] * W[j]
            T.copy(x, Y[bx * block_M, 0])

    return main


def case(target: str, m: int, n: int, dtype: str) -> Case:
    """Random rows and weights."""
    kernel = tilewright.compile(rms_norm(m, n, dtype=dtype), out_idx=-1, target=target)
    x, w = random((m, n), dtype, 1), random((n,), dtype, 2)
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * w.astype(np.float64)
    nbytes = 2.0 * m * n * numpy_dtype(dtype).itemsize
    return Case("RMSNorm", f"{m}x{n}", dtype, lambda: kernel(x, w), expected, nbytes, "GB/s", n)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, 1000, 333, dtype)
        yield case(target, 512 if quick else 8192, 4096, dtype)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"RMSNorm": tilewright.compile(rms_norm(8192, 4096), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("RMSNorm", cases, kernels))
