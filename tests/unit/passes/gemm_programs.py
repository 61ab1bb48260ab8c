"""Tile programs with gemms for the tests."""

from __future__ import annotations

from dataclasses import replace

import tilewright.language as T
from tilewright.target import Target
from tilewright.targets.cpu.arch import resolve


def cpu(arch="avx512") -> Target:
    """An architecture with caches of its own, not the host's."""
    return replace(resolve(arch), cache_bytes=(48 << 10, 1 << 20, 32 << 20))


def matmul(
    m,
    n,
    k,
    block=(32, 32, 16),
    dtype="float32",
    accumulator="float32",
    *,
    transpose_a=False,
    transpose_b=False,
    result="",
):
    """The quick start's matrix product: staged tiles, a pipelined loop, a result in registers."""
    block_m, block_n, block_k = block

    @T.prim_func
    def product(
        A: T.Tensor((k, m) if transpose_a else (m, k), dtype),
        B: T.Tensor((n, k) if transpose_b else (k, n), dtype),
        C: T.Tensor((m, n), result or accumulator),
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_k, block_m) if transpose_a else (block_m, block_k), dtype)
            B_shared = T.alloc_shared((block_n, block_k) if transpose_b else (block_k, block_n), dtype)
            C_local = T.alloc_fragment((block_m, block_n), accumulator)
            T.clear(C_local)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=2):
                if transpose_a:
                    T.copy(A[step * block_k, by * block_m], A_shared)
                else:
                    T.copy(A[by * block_m, step * block_k], A_shared)
                if transpose_b:
                    T.copy(B[bx * block_n, step * block_k], B_shared)
                else:
                    T.copy(B[step * block_k, bx * block_n], B_shared)
                T.gemm(A_shared, B_shared, C_local, transpose_A=transpose_a, transpose_B=transpose_b)
            T.copy(C_local, C[by * block_m, bx * block_n])

    return product


def dynamic_matmul(block=(16, 32, 16)):
    """Sizes known at launch only."""
    block_m, block_n, block_k = block
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def product(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_m, block_k), "float32")
            B_shared = T.alloc_shared((block_k, block_n), "float32")
            C_local = T.alloc_fragment((block_m, block_n), "float32")
            T.clear(C_local)
            for step in T.Pipelined(T.ceildiv(k, block_k)):
                T.copy(A[by * block_m, step * block_k], A_shared)
                T.copy(B[step * block_k, bx * block_n], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_m, bx * block_n])

    return product
