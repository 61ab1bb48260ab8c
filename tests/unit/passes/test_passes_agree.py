"""Lowered programs mean what the tile programs mean: both run in the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.simulator.reference import run
from tilewright.target import Target

TARGETS = {bits: Target("cpu", vector_bits=bits, vector_registers=16) for bits in (128, 512)}


def values(shape, dtype, seed):
    generator = np.random.default_rng(seed)
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.is_int:
        low, high = (0, 50) if dtype.kind == "uint" else (-50, 50)
        return generator.integers(low, high, shape).astype(dtype.numpy)
    made = generator.standard_normal(shape)
    flat = made.reshape(-1)
    for position, special in enumerate((np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40)):
        if flat.size > 40 * (position + 1):
            flat[37 * (position + 1)] = special
    return made.astype(dtype.numpy)


def test_tile_programs_are_valid():
    @T.prim_func
    def program(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=64) as _:
            for i, j in T.Parallel(8, 8):
                A[i, j] = A[i, j] + 1.0

    verify(program)


def agree(func, *, exact=True, vector_bits=512):
    verify(func)
    lowered = lower_cpu(func, TARGETS[vector_bits], CompileOptions(verify=True))
    assert lowered.level == "lowered"
    text = print_func(lowered)
    assert "parallel" not in text and "copy" not in text.replace("copy_", ""), text
    inputs = [values(p.const_shape(), p.dtype, seed) for seed, p in enumerate(func.params)]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(func, expected)
    run(lowered, got)
    for left, right in zip(expected, got, strict=True):
        left, right = left.astype(np.float64), right.astype(np.float64)
        if exact:
            np.testing.assert_array_equal(left, right)
        else:
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
    return text


DTYPES = ["float32", "float64", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "int8", "uint16", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [(45, 77), (32, 64)])
def test_copy_with_tails_and_casts(dtype, size):
    M, N = size

    @T.prim_func
    def program(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 16), threads=64) as (bx, by):
            tile = T.alloc_shared((16, 32), dtype)
            wide = T.alloc_fragment((16, 32), "float32")
            T.copy(A[by * 16, bx * 32], tile)
            T.copy(tile, wide)
            T.copy(wide, B[by * 16, bx * 32])

    text = agree(program)
    assert ("where" in text) == (size == (45, 77))


@pytest.mark.parametrize("bits", [128, 512])
def test_transpose_fill_and_permuted_reads(bits):
    @T.prim_func
    def program(A: T.Tensor((37, 21), "float32"), B: T.Tensor((21, 37), "float32"), C: T.Tensor((21, 37), "float32")):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((37, 21), "float32")
            b = T.alloc_shared((21, 37), "float32")
            T.fill(b, 3.0)
            T.copy(A, a)
            T.transpose(a, b)
            T.copy(b, B)
            for i, j in T.Parallel(21, 37):
                C[i, j] = a[j, i] * 2.0

    agree(program, vector_bits=bits)


@pytest.mark.parametrize("op", ["sum", "max", "min", "abssum", "absmax"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
@pytest.mark.parametrize(("shape", "dim"), [((5, 77), 1), ((5, 77), 0), ((3, 4, 6), 1), ((4, 128), 1), ((1, 3), 1)])
@pytest.mark.parametrize("clear", [True, False])
def test_reductions(op, dtype, shape, dim, clear):
    kept = tuple(s for d, s in enumerate(shape) if d != dim)

    @T.prim_func
    def program(A: T.Tensor(shape, dtype), B: T.Tensor(kept, dtype)):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_fragment(shape, dtype)
            b = T.alloc_fragment(kept, dtype)
            T.copy(A, a)
            T.copy(B, b)
            getattr(T, f"reduce_{op}")(a, b, dim=dim, clear=clear)
            T.copy(b, B)

    lowered = lower_cpu(program, TARGETS[512], CompileOptions(verify=True))
    inputs = [values(p.const_shape(), p.dtype, seed) for seed, p in enumerate(program.params)]
    finite = [np.where(np.isfinite(x.astype(np.float64)), x, x.dtype.type(1)) for x in inputs]
    for data in (inputs, finite):
        expected, got = [x.copy() for x in data], [x.copy() for x in data]
        run(program, expected)
        run(lowered, got)
        tolerance = 1e-2 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(
            expected[1].astype(np.float64), got[1].astype(np.float64), rtol=tolerance, atol=tolerance
        )


@pytest.mark.parametrize("op", ["bitand", "bitor", "bitxor"])
def test_bit_reductions_and_truth(op):
    @T.prim_func
    def program(A: T.Tensor((5, 40), "int32"), B: T.Tensor((5,), "int32"), C: T.Tensor((2,), "int32")):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_fragment((5, 40), "int32")
            b = T.alloc_fragment((5,), "int32")
            T.copy(A, a)
            getattr(T, f"reduce_{op}")(a, b)
            T.copy(b, B)
            C[0] = T.cast(T.any_of(a), "int32")
            C[1] = T.cast(T.all_of(a), "int32")

    agree(program)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("op", ["cumsum", "cummax"])
def test_scans(op, dim, reverse):
    @T.prim_func
    def program(A: T.Tensor((7, 33), "int32")):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((7, 33), "int32")
            T.copy(A, a)
            getattr(T, op)(a, dim=dim, reverse=reverse)
            T.copy(a, A)

    agree(program)


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(("dtype", "accumulate"), [("float32", "float32"), ("float16", "float32"), ("int8", "int32")])
def test_gemm(transpose_a, transpose_b, dtype, accumulate):
    M, N, K = 19, 35, 11

    @T.prim_func
    def program(
        A: T.Tensor((K, M) if transpose_a else (M, K), dtype),
        B: T.Tensor((N, K) if transpose_b else (K, N), dtype),
        C: T.Tensor((M, N), accumulate),
    ):
        with T.Kernel(1, threads=64) as _:
            a = T.alloc_shared((K, M) if transpose_a else (M, K), dtype)
            b = T.alloc_shared((N, K) if transpose_b else (K, N), dtype)
            c = T.alloc_fragment((M, N), accumulate)
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a, b, c, transpose_A=transpose_a, transpose_B=transpose_b)
            T.copy(c, C)

    lowered = lower_cpu(program, TARGETS[512], CompileOptions(verify=True))
    generator = np.random.default_rng(0)
    inputs = [generator.integers(-5, 5, p.const_shape()).astype(p.dtype.numpy) for p in program.params]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(program, expected)
    run(lowered, got)
    np.testing.assert_array_equal(expected[2], got[2])


def test_branches_become_masks_and_private_scalars_vectors():
    @T.prim_func
    def program(A: T.Tensor((50,), "float32"), B: T.Tensor((50,), "float32")):
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(50):
                total = T.alloc_var("float32", 0.0)
                for k in T.serial(3):
                    if A[i] > 0.0:
                        total = total + A[i]
                    else:
                        total = total - T.cast(k, "float32")
                if i % 3 == 0:
                    B[i] = total

    text = agree(program, exact=False)
    assert "x16" in text


def test_what_has_no_vector_form_stays_scalar():
    @T.prim_func
    def program(A: T.Tensor((40,), "int32"), B: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64) as _:
            for i in T.Parallel(40):
                T.atomic_add(B[A[i] % 8], 1)
            for i in T.Parallel(40):
                count = T.alloc_var("int32", 0)
                while count < i:
                    count = count + 3
                A[i] = count

    agree(program)


def test_reducers_join_lanes():
    @T.prim_func
    def program(A: T.Tensor((9, 50), "int32"), B: T.Tensor((9,), "int32")):
        with T.Kernel(1, threads=64) as _:
            total = T.alloc_reducer((9,), "int32", op="sum")
            T.fill(total, 0)
            for i, j in T.Parallel(9, 50):
                total[i] += A[i, j]
            T.finalize_reducer(total)
            T.copy(total, B)

    agree(program)


def test_sizes_known_at_launch():
    m, n = T.dynamic("m"), T.dynamic("n")

    @T.prim_func
    def program(A: T.Tensor((m, n), "float32"), B: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 8), threads=64) as (bx, by):
            tile = T.alloc_shared((8, 32), "float32")
            T.copy(A[by * 8, bx * 32], tile)
            for i, j in T.Parallel(8, 32):
                tile[i, j] = tile[i, j] + 1.0
            T.copy(tile, B[by * 8, bx * 32])

    lowered = lower_cpu(program, TARGETS[512], CompileOptions(verify=True))
    for shape in ((21, 77), (8, 32), (0, 5), (1, 1)):
        data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        out = np.zeros(shape, np.float32)
        run(lowered, [data, out])
        np.testing.assert_array_equal(out, data + 1)


def test_out_of_range_reads_give_the_safe_value():
    @T.prim_func
    def program(A: T.Tensor((10,), "float32"), B: T.Tensor((40,), "float32")):
        with T.Kernel(1, threads=64) as _:
            T.annotate_safe_value({A: -1.0})
            for i in T.Parallel(40):
                B[i] = A[i - 20]

    agree(program)


def test_each_iteration_has_its_own_copy_of_an_outer_scalar():
    @T.prim_func
    def program(A: T.Tensor((40,), "int32"), B: T.Tensor((40,), "int32"), C: T.Tensor((8,), "int32")):
        with T.Kernel(1, threads=64) as _:
            total = T.alloc_var("int32", 7)
            pair = T.alloc_local((2,), "int32")
            pair[0] = 1
            pair[1] = 2
            for i in T.Parallel(40):
                total = total + A[i]
                pair[0] = pair[1] + A[i]
                B[i] = total * pair[0]
            for i in T.Parallel(40):
                total = A[i] + 1
                T.atomic_add(C[i % 8], total)

    agree(program)
