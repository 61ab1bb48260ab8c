"""Batched matrix multiplication with either operand stored transposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, random, run_example

import tilewright
import tilewright.language as T


def batched_matmul(batch, M, N, K, transpose_A, transpose_B, block_M=64, block_N=64, block_K=32, dtype="float32"):
    """C[b] = op(A[b]) · op(B[b]); a transposed operand is stored K×M or N×K."""
    A_shape = (batch, K, M) if transpose_A else (batch, M, K)
    B_shape = (batch, N, K) if transpose_B else (batch, K, N)

    @T.prim_func
    def main(A: T.Tensor(A_shape, dtype), B: T.Tensor(B_shape, dtype), C: T.Tensor((batch, M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), batch, threads=128) as (bx, by, bz):
            A_shared = T.alloc_shared((block_K, block_M) if transpose_A else (block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_N, block_K) if transpose_B else (block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                if transpose_A:
                    T.copy(A[bz, k * block_K, by * block_M], A_shared)
                else:
                    T.copy(A[bz, by * block_M, k * block_K], A_shared)
                if transpose_B:
                    T.copy(B[bz, bx * block_N, k * block_K], B_shared)
                else:
                    T.copy(B[bz, k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_A, transpose_B=transpose_B)
            T.copy(C_local, C[bz, by * block_M, bx * block_N])

    return main


def case(target: str, batch: int, m: int, n: int, k: int, ta: bool, tb: bool, dtype: str) -> Case:
    """One transposition on random data."""
    kernel = tilewright.compile(batched_matmul(batch, m, n, k, ta, tb, dtype=dtype), out_idx=-1, target=target)
    a = random((batch, k, m) if ta else (batch, m, k), dtype, 1)
    b = random((batch, n, k) if tb else (batch, k, n), dtype, 2)
    left = a.astype(np.float64).swapaxes(1, 2) if ta else a.astype(np.float64)
    right = b.astype(np.float64).swapaxes(1, 2) if tb else b.astype(np.float64)
    name = f"batched matmul {'T' if ta else 'N'}{'T' if tb else 'N'}"
    work = 2.0 * batch * m * n * k
    return Case(name, f"{batch}x{m}x{n}x{k}", dtype, lambda: kernel(a, b), left @ right, work, "GFLOP/s", k)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """All four transpositions, odd and even sizes."""
    for ta in (False, True):
        for tb in (False, True):
            yield case(target, 3, 130, 77, 95, ta, tb, "float16")
            size = 256 if quick else 512
            yield case(target, 8, size, size, size, ta, tb, "float32")


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    program = batched_matmul(8, 512, 512, 512, False, True)
    return {"batched matmul NT": tilewright.compile(program, out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("batched and transposed matmul", cases, kernels))
