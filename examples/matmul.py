"""Matrix multiplication: the explicit tile program, and the declarative listing that becomes the same kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, random, run_example

import tilewright
import tilewright.language as T
from tilewright import block_size, grid, shared_memory
from tilewright.language import float16, float32

B, K, N = tilewright.sizes("B K N")


def matmul(M, N, K, block_M=128, block_N=128, block_K=32, dtype="float32", accum_dtype="float32", out_dtype=None):
    """C = A · B for row-major A (M×K), B (K×N)."""
    out_dtype = out_dtype or dtype

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), out_dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_M, block_K), dtype)
            B_shared = T.alloc_shared((block_K, block_N), dtype)
            C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                T.copy(A[by * block_M, k * block_K], A_shared)
                T.copy(B[k * block_K, bx * block_N], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_M, bx * block_N])

    return main


@tilewright.kernel
def matmul_kernel(A: float16[B, K], B: float16[K, N], C: float16[B, N]):
    """The listing with sizes as names: staging and block size are hints, the loops say what is computed."""
    block_size(128, 128)
    shared_A = shared_memory(float16, [block_size[0], K])
    shared_B = shared_memory(float16, [K, block_size[1]])
    for i in range(block_size[0]):
        for j in range(block_size[1]):
            acc = 0.0
            for k in range(K):
                acc += shared_A[i, k] * shared_B[k, j]
            C[i, j] = acc


@tilewright.kernel
def matmul_plain(A: float32[B, K], B: float32[K, N], C: float32[B, N]):
    """The same without any hint."""
    for i, j in grid(B, N):
        acc = float32(0)
        for k in range(K):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc


def explicit_case(target: str, m: int, n: int, k: int, dtype: str, accumulate: str = "float32") -> Case:
    """The explicit program on random data."""
    out = accumulate if dtype.startswith(("int", "uint", "float8")) else dtype
    kernel = tilewright.compile(
        matmul(m, n, k, dtype=dtype, accum_dtype=accumulate, out_dtype=out), out_idx=-1, target=target
    )
    a, b = random((m, k), dtype, 1), random((k, n), dtype, 2)
    expected = a.astype(np.float64) @ b.astype(np.float64)
    size, work = f"{m}x{n}x{k}", 2.0 * m * n * k
    return Case("matmul", size, dtype, lambda: kernel(a, b), expected, work, "GFLOP/s", k, accumulate, out)


def declarative_case(name: str, function: Any, target: str, m: int, n: int, k: int, dtype: str) -> Case:
    """A declarative kernel on random data."""
    a, b = random((m, k), dtype, 1), random((k, n), dtype, 2)
    c = np.empty((m, n), a.dtype)
    expected = a.astype(np.float64) @ b.astype(np.float64)

    def call() -> np.ndarray:
        function(a, b, c, target=target)
        return c

    return Case(name, f"{m}x{n}x{k}", dtype, call, expected, 2.0 * m * n * k, "GFLOP/s", k)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd sizes in every dtype, then large ones."""
    dtypes = ("float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    for dtype in dtypes:
        yield explicit_case(target, 1000, 77, 333, dtype)
    yield explicit_case(target, 1000, 77, 333, "float64", "float64")
    yield explicit_case(target, 1000, 77, 333, "int8", "int32")
    yield declarative_case("declarative, staged", matmul_kernel, target, 1000, 77, 333, "float16")
    yield declarative_case("declarative", matmul_plain, target, 1000, 77, 333, "float32")
    size = 512 if quick else 2048
    yield explicit_case(target, size, size, size, "float32")
    yield declarative_case("declarative", matmul_plain, target, size, size, size, "float32")
    yield explicit_case(target, size, size, size, "bfloat16")


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"matmul 1024x1024x1024 float32": tilewright.compile(matmul(1024, 1024, 1024), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("matrix multiplication", cases, kernels))
