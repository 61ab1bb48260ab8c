"""An elementwise map with a fused epilogue: bias, GELU, residual and scale in one pass over memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, numpy_dtype, random, run_example

import tilewright
import tilewright.language as T


def gelu_bias_residual(M, N, block_M=16, block_N=512, dtype="float32", scale=0.5):
    """Y = gelu(X + bias) * scale + R, with gelu(v) = v · (1 + erf(v / √2)) / 2."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        bias: T.Tensor((N,), dtype),
        R: T.Tensor((M, N), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            for i, j in T.Parallel(block_M, block_N):
                row = by * block_M + i
                column = bx * block_N + j
                v = T.cast(X[row, column], "float32") + T.cast(bias[column], "float32")
                gelu = v * (1.0 + T.erf(v * math.sqrt(0.5))) * 0.5
                Y[row, column] = gelu * scale + T.cast(R[row, column], "float32")

    return main


def reference(x: np.ndarray, bias: np.ndarray, residual: np.ndarray, scale: float = 0.5) -> np.ndarray:
    """The same in float64."""
    v = x.astype(np.float64) + bias.astype(np.float64)
    erf = np.vectorize(math.erf, otypes=[np.float64])
    return v * (1 + erf(v * math.sqrt(0.5))) * 0.5 * scale + residual.astype(np.float64)


def case(target: str, m: int, n: int, dtype: str) -> Case:
    """Random operands."""
    kernel = tilewright.compile(gelu_bias_residual(m, n, dtype=dtype), out_idx=-1, target=target)
    x, b, r = random((m, n), dtype, 1), random((n,), dtype, 2), random((m, n), dtype, 3)
    nbytes = 3.0 * m * n * numpy_dtype(dtype).itemsize
    return Case("gelu+bias+residual", f"{m}x{n}", dtype, lambda: kernel(x, b, r), reference(x, b, r), nbytes, "GB/s")


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, 1000, 333, dtype)
        yield case(target, 256 if quick else 1024, 4096, dtype)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"gelu+bias+residual": tilewright.compile(gelu_bias_residual(1024, 4096), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("elementwise with a fused epilogue", cases, kernels))
