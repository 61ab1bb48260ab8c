"""Lowered gemms mean what the gemms mean: both programs run in the reference evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_programs import cpu, dynamic_matmul, matmul

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Gemm
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.simulator.reference import run


def integers(shape, dtype, seed):
    """Small integers: their products and sums are exact in every dtype used here, so that any order gives one result."""
    low = 0 if dtype.kind == "uint" else -3
    return np.random.default_rng(seed).integers(low, 4, shape).astype(dtype.numpy)


def lowered(func, arch="avx512"):
    result = lower_cpu(func, cpu(arch), CompileOptions(verify=True))
    assert not any(isinstance(node, Gemm) for node in walk(result))
    return result


def agree(func, arch="avx512", shapes=None):
    """Both programs on the same inputs; returns the lowered text."""
    program = lowered(func, arch)
    shapes = shapes or [p.const_shape() for p in func.params]
    inputs = [integers(shape, p.dtype, seed) for seed, (shape, p) in enumerate(zip(shapes, func.params, strict=True))]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(func, expected)
    run(program, got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))
    return print_func(program)


def is_register_blocked(text):
    return "acc" in text and "float32x16" in text


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("arch", ["avx512", "avx2", "neon", "sse2"])
def test_transposes_with_tails(transpose_a, transpose_b, arch):
    text = agree(matmul(19, 45, 21, (16, 32, 8), transpose_a=transpose_a, transpose_b=transpose_b), arch)
    assert " acc[" in text
    assert ("fma(" in text) == (arch != "sse2")


@pytest.mark.parametrize(
    ("dtype", "accumulator"),
    [
        ("float64", "float64"),
        ("float16", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("float8_e4m3fn", "float32"),
        ("float8_e5m2fnuz", "float32"),
        ("int8", "int32"),
        ("uint8", "int32"),
        ("int32", "int64"),
    ],
)
@pytest.mark.parametrize("transpose_b", [False, True])
def test_dtypes(dtype, accumulator, transpose_b):
    text = agree(matmul(20, 40, 24, (16, 32, 8), dtype, accumulator, transpose_b=transpose_b))
    assert " acc[" in text


@pytest.mark.parametrize("block", [(1, 16, 4), (7, 5, 3), (16, 48, 8), (30, 17, 7), (5, 100, 1)])
def test_block_shapes(block):
    agree(matmul(31, 53, 22, block))


@pytest.mark.parametrize("sizes", [(16, 32, 32), (5, 35, 270), (1, 1, 1), (40, 40, 0), (0, 40, 16)])
def test_sizes_known_at_launch(sizes):
    m, n, k = sizes
    agree(dynamic_matmul(), shapes=[(m, k), (k, n), (m, n)])


def test_steps_beyond_the_tensors():
    """19 steps of 16 are joined 10 at a time: the last one lies beyond both tensors."""
    text = agree(matmul(8, 16, 300, (8, 16, 16)))
    assert "serial(2)" in text and "19 - " not in text


def test_steps_left_over():
    """19 steps of 16 are joined 10 at a time, and 9 are left, because the tensors do not end there."""

    @T.prim_func
    def program(A: T.Tensor((8, 310), "float32"), B: T.Tensor((310, 16), "float32"), C: T.Tensor((8, 16), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((8, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((8, 16), "float32")
            T.clear(c)
            for step in T.Pipelined(19):
                T.copy(A[0, step * 16], a)
                T.copy(B[step * 16, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    assert "min(10, 19 - " in agree(program)


def test_regions_and_clear_accum():
    @T.prim_func
    def program(
        A: T.Tensor((4, 24, 20), "float32"), B: T.Tensor((20, 64), "float32"), C: T.Tensor((24, 64), "float32")
    ):
        with T.Kernel(2, threads=32) as bx:
            a = T.alloc_shared((4, 24, 20), "float32")
            b = T.alloc_shared((20, 64), "float32")
            c = T.alloc_fragment((24, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a[2, 4:16, 2:18], b[2:18, 32:64], c[3:15, 0:32])
            T.gemm(a[1, 0:12, 0:20], b[0:20, 0:32], c[12:24, 32:64], clear_accum=True)
            if bx == 1:
                T.copy(c, C)

    agree(program)


def test_operands_that_reach_beyond_their_buffers():
    @T.prim_func
    def program(A: T.Tensor((16, 16), "float32"), B: T.Tensor((16, 16), "float32"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            for k in T.serial(4):
                T.gemm(
                    a[k * 3 : k * 3 + 8, k * 5 : k * 5 + 8],
                    b[k * 5 : k * 5 + 8, k * 4 : k * 4 + 8],
                    c[k * 3 : k * 3 + 8, k * 4 : k * 4 + 8],
                )
            T.copy(c, C)

    agree(program)


def test_a_result_of_one_gemm_feeds_another():
    """As in attention: the first result is rounded to float16 and is the second's left operand."""

    @T.prim_func
    def program(
        Q: T.Tensor((16, 8), "float16"),
        K: T.Tensor((64, 8), "float16"),
        V: T.Tensor((64, 16), "float16"),
        Out: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            q = T.alloc_shared((16, 8), "float16")
            k = T.alloc_shared((16, 8), "float16")
            v = T.alloc_shared((16, 16), "float16")
            s = T.alloc_fragment((16, 16), "float32")
            p = T.alloc_fragment((16, 16), "float16")
            o = T.alloc_fragment((16, 16), "float32")
            T.copy(Q, q)
            T.clear(o)
            for step in T.Pipelined(4, num_stages=2):
                T.copy(K[step * 16, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                T.copy(s, p)
                T.copy(V[step * 16, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out)

    text = agree(program)
    assert "shuffle" in text, "K is transposed while it is staged"


def test_not_a_number_and_infinity():
    func = matmul(24, 40, 48)
    program = lowered(func)
    rng = np.random.default_rng(3)
    a, b = rng.integers(-3, 4, (24, 48)).astype("f4"), rng.integers(-3, 4, (48, 40)).astype("f4")
    a[3, 5], a[7, 40], b[2, 7], b[9, 39], b[47, 0] = np.nan, np.inf, -np.inf, np.nan, np.inf
    expected, got = np.zeros((24, 40), "f4"), np.zeros((24, 40), "f4")
    run(func, [a, b, expected])
    run(program, [a, b, got])
    np.testing.assert_array_equal(expected, got)
    assert np.isnan(got).any() and np.isfinite(got).any()
