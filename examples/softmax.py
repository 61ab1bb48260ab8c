"""Softmax over the rows of a matrix."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, numpy_dtype, random, run_example

import tilewright
import tilewright.language as T


def softmax(M, N, block_M=1, dtype="float32"):
    """Y[i, :] = exp(X[i, :] - max) / sum, with `block_M` rows a block."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, row_max, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - row_max[i])
            T.reduce_sum(x, row_sum, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / row_sum[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


def reference(x: np.ndarray) -> np.ndarray:
    """Softmax in float64."""
    x = x.astype(np.float64)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def case(target: str, m: int, n: int, dtype: str) -> Case:
    """Softmax of random rows."""
    kernel = tilewright.compile(softmax(m, n, dtype=dtype), out_idx=-1, target=target)
    x = random((m, n), dtype, 1)
    nbytes = 2.0 * m * n * numpy_dtype(dtype).itemsize
    return Case("softmax", f"{m}x{n}", dtype, lambda: kernel(x), reference(x), nbytes, "GB/s", n)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, 1000, 333, dtype)
        yield case(target, 512 if quick else 8192, 4096, dtype)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"softmax": tilewright.compile(softmax(8192, 4096), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("softmax", cases, kernels))
