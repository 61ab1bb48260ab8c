"""Blocks of matrix products that fit their tensors."""

from __future__ import annotations

import numpy as np
import pytest
from gemm_programs import cpu, dynamic_matmul, matmul

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Gemm
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.fit_blocks import fit_blocks
from tilewright.passes.inline_index import inline_index
from tilewright.simulator.reference import run

OPTIONS = CompileOptions(verify=True)


def fitted(func):
    """The program as the pass gets it, and what it makes of it."""
    before = inline_index(func, cpu(), OPTIONS)
    after = fit_blocks(before, cpu(), OPTIONS)
    verify(after)
    return before, after


def tile(func):
    """Rows and columns of the result of the program's gemm."""
    (gemm,) = [n for n in walk(func) if isinstance(n, Gemm)]
    return gemm.c.buffer.const_shape()


def test_rows_and_columns():
    text = print_func(fitted(matmul(777, 77, 333, (128, 128, 32)))[1])
    assert [line.strip() for line in text.splitlines()[5:]] == [
        "launch (bx < 1, by < 7) threads(128):",
        "alloc A_shared: float32[112, 32] shared",
        "alloc B_shared: float32[32, 80] shared",
        "alloc C_local: float32[112, 80] fragment",
        "fill C_local = 0.0",
        "for step in pipelined(11, stages=2):",
        "copy A[by * 112 +: 112, step * 32 +: 32] -> A_shared",
        "copy B[step * 32 +: 32, bx * 80 +: 80] -> B_shared",
        "gemm C_local += A_shared @ B_shared",
        "copy C_local -> C[by * 112 +: 112, bx * 80 +: 80]",
    ]


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [((65, 70, 40), (24, 32)), ((33, 33, 40), (20, 32)), ((3, 5, 7), (4, 16)), ((64, 64, 8), (32, 32))],
)
def test_the_meaning_stays(sizes, wanted, transpose_a, transpose_b):
    before, after = fitted(matmul(*sizes, transpose_a=transpose_a, transpose_b=transpose_b))
    rows = -(-wanted[0] // 16) * 16 if transpose_a else wanted[0]  # A's rows are vectors then
    assert tile(after) == (rows, wanted[1])
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-2, 3, p.const_shape()).astype("f4") for p in before.params)
    got = c.copy()
    run(before, [a, b, c])
    run(after, [a, b, got])
    np.testing.assert_array_equal(c, got)


def with_end(end, grid=(3, 3)):
    """A product of 70 × 70 in blocks of 32 × 32, with `end(c, C, bx, by)` after its K loop."""

    @T.prim_func
    def program(A: T.Tensor((70, 40), "float32"), B: T.Tensor((40, 70), "float32"), C: T.Tensor((70, 70), "float32")):
        with T.Kernel(*grid, threads=32) as (bx, by):
            a = T.alloc_shared((32, 8), "float32")
            b = T.alloc_shared((8, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(5):
                T.copy(A[by * 32, step * 8], a)
                T.copy(B[step * 8, bx * 32], b)
                T.gemm(a, b, c)
            end(c, C, bx, by)

    return program


@T.macro
def copied(c, C, bx, by):
    T.copy(c, C[by * 32, bx * 32])


@T.macro
def copied_twice(c, C, bx, by):
    T.copy(c, C[by * 32, bx * 32])
    T.copy(c, C[by * 32, bx * 32])


@T.macro
def changed(c, C, bx, by):
    for i, j in T.Parallel(32, 32):
        c[i, j] = c[i, j] + i
    T.copy(c, C[by * 32, bx * 32])


@T.macro
def copied_elsewhere(c, C, bx, by):
    T.copy(c, C[by * 32 + 1, bx * 32])


@T.macro
def copied_apart(c, C, bx, by):
    T.copy(c, C[by * 40, bx * 32])


@T.macro
def a_part_is_copied(c, C, bx, by):
    T.copy(c[0:16, 0:32], C[by * 32 : by * 32 + 16, bx * 32 : bx * 32 + 32])


@T.macro
def copied_to_the_diagonal(c, C, bx, by):
    T.copy(c, C[by * 32, bx * 32 + by])


def test_the_program_of_the_refusals_fits():
    assert tile(fitted(with_end(copied))[1]) == (24, 32)
    assert tile(fitted(with_end(copied_twice))[1]) == (24, 32)


@pytest.mark.parametrize(
    "end", [changed, copied_elsewhere, copied_apart, a_part_is_copied, copied_to_the_diagonal], ids=lambda e: e.__name__
)
def test_blocks_stay(end):
    before, after = fitted(with_end(end))
    assert after is before


def test_blocks_that_do_not_cover_the_tensor_stay():
    before, after = fitted(with_end(copied, grid=(2, 3)))
    assert after is before


def test_blocks_of_tensors_with_sizes_known_at_launch_stay():
    before, after = fitted(dynamic_matmul())
    assert after is before
