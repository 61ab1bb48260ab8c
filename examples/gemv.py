"""Matrix times vector: memory-bound, one block for a band of rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, random, run_example

import tilewright
import tilewright.language as T


def gemv(M, N, block_M=16, block_N=1024, dtype="float32"):
    """y = A · x for row-major A (M×N)."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), x: T.Tensor((N,), dtype), y: T.Tensor((M,), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=128) as bx:
            partial = T.alloc_fragment((block_M, block_N), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.clear(total)
            for k in T.serial(T.ceildiv(N, block_N)):
                for i, j in T.Parallel(block_M, block_N):
                    a = T.cast(A[bx * block_M + i, k * block_N + j], "float32")
                    partial[i, j] = a * T.cast(x[k * block_N + j], "float32")
                T.reduce_sum(partial, total, dim=1, clear=False)
            T.copy(total, y[bx * block_M])

    return main


def case(target: str, m: int, n: int, dtype: str) -> Case:
    """Random matrix and vector."""
    kernel = tilewright.compile(gemv(m, n, dtype=dtype), out_idx=-1, target=target)
    a, x = random((m, n), dtype, 1), random((n,), dtype, 2)
    expected = a.astype(np.float64) @ x.astype(np.float64)
    return Case("GEMV", f"{m}x{n}", dtype, lambda: kernel(a, x), expected, float(a.nbytes), "GB/s", n)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes."""
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, 1000, 333, dtype)
        yield case(target, 1024 if quick else 8192, 4096, dtype)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"GEMV": tilewright.compile(gemv(8192, 4096), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("GEMV", cases, kernels))
