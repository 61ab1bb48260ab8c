"""Matrix products on the host's CPU against float64 and the reference evaluator."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.simulator.reference import run

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import RUNNABLE


def matmul(m, n, k, block, dtype, accumulator, transpose_a=False, transpose_b=False, stages=3):
    block_m, block_n, block_k = block

    @T.prim_func
    def product(
        A: T.Tensor((k, m) if transpose_a else (m, k), dtype),
        B: T.Tensor((n, k) if transpose_b else (k, n), dtype),
        C: T.Tensor((m, n), accumulator),
    ):
        with T.Kernel(T.ceildiv(n, block_n), T.ceildiv(m, block_m), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_k, block_m) if transpose_a else (block_m, block_k), dtype)
            B_shared = T.alloc_shared((block_n, block_k) if transpose_b else (block_k, block_n), dtype)
            C_local = T.alloc_fragment((block_m, block_n), accumulator)
            T.clear(C_local)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=stages):
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


def operands(m, n, k, dtype, transpose_a, transpose_b):
    rng = np.random.default_rng(m + 7 * n + 49 * k)
    kind = as_dtype(dtype)
    shapes = ((k, m) if transpose_a else (m, k), (n, k) if transpose_b else (k, n))
    if kind.is_int:
        low, high = kind.int_range()
        return [rng.integers(low, high + 1, s).astype(kind.numpy) for s in shapes]
    return [rng.standard_normal(s).astype(kind.numpy) for s in shapes]


# Unit roundoff of the sum's dtype; the error of a sum of k products is below k times that times the sum of magnitudes.
ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11}


def check(m, n, k, block, dtype, accumulator, transpose_a=False, transpose_b=False, *, target="cpu", stages=3):
    func = matmul(m, n, k, block, dtype, accumulator, transpose_a, transpose_b, stages)
    kernel = tilewright.compile(func, target=target)
    a, b = operands(m, n, k, dtype, transpose_a, transpose_b)
    c = np.full((m, n), 99).astype(as_dtype(accumulator).numpy)
    kernel(a, b, c)
    left, right = (a.T if transpose_a else a), (b.T if transpose_b else b)
    if as_dtype(accumulator).is_int:
        exact = left.astype(np.int64) @ right.astype(np.int64)
        np.testing.assert_array_equal(c, exact.astype(c.dtype))  # modulo the accumulator's range
        return
    left, right = left.astype(np.float64), right.astype(np.float64)
    magnitude = np.abs(left) @ np.abs(right)
    sums = ROUNDOFF["float64" if accumulator == "float64" else "float32"] * (k + 2) * magnitude
    # A float16 result is rounded after every step of the K loop.
    steps = -(-k // block[2]) if accumulator == "float16" else 1
    rounded = ROUNDOFF[accumulator] * (np.abs(left @ right) if steps == 1 else steps * magnitude)
    error = np.abs(c.astype(np.float64) - left @ right)
    assert (error <= sums + rounded + 1e-7).all(), error.max()


DTYPES = [
    ("float64", "float64"),
    ("float32", "float32"),
    ("float16", "float32"),
    ("float16", "float16"),
    ("bfloat16", "float32"),
    ("float8_e4m3fn", "float32"),
    ("float8_e4m3fnuz", "float32"),
    ("float8_e5m2", "float32"),
    ("float8_e5m2fnuz", "float32"),
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int16", "int32"),
    ("int32", "int32"),
    ("uint32", "int64"),
    ("int64", "int64"),
    ("uint8", "uint32"),
]


@pytest.mark.parametrize(("dtype", "accumulator"), DTYPES)
def test_odd_sizes(dtype, accumulator):
    check(1000, 77, 333, (64, 64, 32), dtype, accumulator)


@pytest.mark.parametrize(("dtype", "accumulator"), DTYPES)
@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, True), (True, False), (True, True)])
def test_dtypes_and_transposes(dtype, accumulator, transpose_a, transpose_b):
    check(75, 77, 333, (32, 48, 24), dtype, accumulator, transpose_a, transpose_b)


@pytest.mark.parametrize("target", [f"cpu:{arch}" for arch in RUNNABLE])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "float8_e4m3fn", "int8"])
def test_instruction_sets(target, dtype):
    accumulator = {"float64": "float64", "int8": "int32"}.get(dtype, "float32")
    check(130, 77, 600, (64, 32, 32), dtype, accumulator, target=target)


@pytest.mark.parametrize(
    "sizes", [(127, 128, 512), (129, 128, 512), (128, 127, 512), (128, 129, 512), (128, 128, 511), (128, 128, 513)]
)
def test_a_tail_in_one_dimension(sizes):
    check(*sizes, (64, 64, 32), "float32", "float32")


@pytest.mark.parametrize("stages", range(5))
@pytest.mark.parametrize("sizes", [(96, 96, 640), (97, 95, 641)])
def test_stages(stages, sizes):
    check(*sizes, (32, 64, 16), "float16", "float32", stages=stages)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("sizes", [(256, 256, 512), (130, 190, 250)])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_transposes(transpose_a, transpose_b, sizes, dtype):
    check(*sizes, (128, 64, 32), dtype, "float32", transpose_a, transpose_b)


@pytest.mark.parametrize(
    "block", [(128, 128, 32), (128, 128, 64), (64, 64, 32), (256, 256, 32), (16, 256, 8), (13, 11, 7)]
)
def test_tile_shapes(block):
    check(512, 384, 640, block, "float32", "float32")


@pytest.mark.parametrize("sizes", [(0, 64, 64), (64, 0, 64), (64, 64, 0), (1, 1, 1)])
def test_smallest_sizes(sizes):
    check(*sizes, (32, 32, 16), "float32", "float32")


@pytest.mark.parametrize("sizes", [(96, 160, 640), (97, 161, 333)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_not_a_number_and_infinity_spread_as_in_the_reference(sizes, dtype):
    m, n, k = sizes
    func = matmul(m, n, k, (64, 64, 32), dtype, "float32")
    rng = np.random.default_rng(5)
    kind = as_dtype(dtype).numpy
    a, b = rng.integers(-3, 4, (m, k)).astype(kind), rng.integers(-3, 4, (k, n)).astype(kind)
    a[3, 5], a[70, k - 1], b[0, 7], b[k // 2, n - 1], b[k - 1, 0] = np.nan, np.inf, -np.inf, np.nan, np.inf
    got, expected = np.zeros((m, n), np.float32), np.zeros((m, n), np.float32)
    tilewright.compile(func, target="cpu")(a, b, got)
    run(func, [a, b, expected])
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(got).any() and np.isinf(got).any() and np.isfinite(got).any()


def test_sizes_known_at_launch_share_one_kernel():
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")
    kernel = tilewright.compile(matmul(m, n, k, (64, 64, 32), "float32", "float32"), target="cpu")
    for sizes in ((1000, 77, 333), (64, 64, 2048), (1, 1, 1), (5, 0, 3), (3, 5, 0)):
        a, b = operands(*sizes, "float32", False, False)
        c = np.full((sizes[0], sizes[1]), 99, np.float32)
        kernel(a, b, c)
        np.testing.assert_allclose(c, a.astype(np.float64) @ b, atol=1e-4 * (1 + sizes[2] ** 0.5))
