"""Joined blocks of matrix products."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_programs import cpu, dynamic_matmul, matmul

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.coarsen_blocks import coarsen_blocks
from tilewright.passes.inline_index import inline_index
from tilewright.simulator.reference import run


def target(cores=1):
    return replace(cpu(), extras=(("cores", cores),))


def coarsened(func, cores=1):
    func = inline_index(func, target(cores), CompileOptions())
    result = coarsen_blocks(func, target(cores), CompileOptions())
    verify(result)
    return result


def grid(func):
    (launch,) = func.launches()
    return tuple(int(e) for e in launch.grid)


def same_result(func, result):
    rng = np.random.default_rng(2)
    inputs = [rng.integers(-2, 3, p.const_shape()).astype(p.dtype.numpy) for p in func.params]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(func, expected)
    run(result, got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left, right)


def test_two_by_two():
    text = print_func(coarsened(matmul(1024, 1024, 1024, (128, 128, 32)), cores=2))
    assert [line.strip() for line in text.splitlines()[5:]] == [
        "launch (bx < 4, by < 4) threads(128) swizzle(4, row):",
        "alloc A_shared: float32[256, 32] shared",
        "alloc B_shared: float32[32, 256] shared",
        "alloc C_local: float32[256, 256] fragment",
        "fill C_local = 0.0",
        "for step in pipelined(32, stages=2):",
        "copy A[by * 256 +: 256, step * 32 +: 32] -> A_shared",
        "copy B[step * 32 +: 32, bx * 256 +: 256] -> B_shared",
        "gemm C_local += A_shared @ B_shared",
        "for row in serial(2):",
        "for column in serial(2):",
        "copy C_local[row * 128 +: 128, column * 128 +: 128]"
        " -> C[(by * 2 + row) * 128 +: 128, (bx * 2 + column) * 128 +: 128]",
    ]


@pytest.mark.parametrize(
    ("cores", "expected"), [(1, (2, 2)), (2, (4, 2)), (4, (4, 4)), (64, (8, 8))], ids=lambda v: str(v)
)
def test_enough_blocks_stay_for_every_core(cores, expected):
    func = matmul(512, 512, 64, (64, 64, 32))
    assert sorted(grid(coarsened(func, cores)), reverse=True) == sorted(expected, reverse=True)


@pytest.mark.parametrize("more", [{}, {"transpose_a": True}, {"transpose_b": True}, {"dtype": "float16"}])
@pytest.mark.parametrize("sizes", [(64, 96, 40), (61, 90, 33)])
def test_the_meaning_stays(sizes, more):
    func = matmul(*sizes, (16, 16, 16), **more)
    result = coarsened(func)
    assert grid(result) != grid(func)
    same_result(func, result)


def test_an_epilogue_runs_for_each_block():
    @T.prim_func
    def program(
        A: T.Tensor((64, 32), "float32"),
        B: T.Tensor((32, 96), "float32"),
        bias: T.Tensor((96,), "float32"),
        C: T.Tensor((64, 96), "float32"),
        largest: T.Tensor((64, 6), "float32"),
    ):
        with T.Kernel(6, 4, threads=32) as (bx, by):
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            own = T.alloc_shared((16,), "float32")
            top = T.alloc_fragment((16,), "float32")
            T.copy(bias[bx * 16], own)
            T.clear(c)
            for k in T.Pipelined(2):
                T.copy(A[by * 16, k * 16], a)
                T.copy(B[k * 16, bx * 16], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(16, 16):
                c[i, j] = T.max(c[i, j] + own[j], 0.0)
            T.reduce_max(c, top, dim=1)
            for i in T.Parallel(16):
                largest[by * 16 + i, bx] = top[i]
            T.copy(c, C[by * 16, bx * 16])

    result = coarsened(program)
    assert grid(result) != grid(program)
    same_result(program, result)


def odd_grid():
    return matmul(48, 48, 32, (16, 16, 16))


def unknown_grid():
    return dynamic_matmul()


def program_with(body):
    @T.prim_func
    def program(A: T.Tensor((64, 32), "float32"), B: T.Tensor((32, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(4, 4, threads=32) as (bx, by):
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.clear(c)
            for k in T.Pipelined(2):
                body(A, B, C, a, b, c, bx, by, k)
            T.copy(c, C[by * 16, bx * 16])

    return program


def two_users_of_a_block_index():
    def body(A, B, C, a, b, c, bx, by, k):
        T.copy(A[by * 16, k * 16], a)
        T.copy(B[(k + by) % 2 * 16, bx * 16], b)
        T.gemm(a, b, c)

    return program_with(body)


def overlapping_blocks():
    def body(A, B, C, a, b, c, bx, by, k):
        T.copy(A[by * 8, k * 16], a)
        T.copy(B[k * 16, bx * 16], b)
        T.gemm(a, b, c)

    return program_with(body)


def a_result_read_beyond_its_edge():
    @T.prim_func
    def program(A: T.Tensor((64, 32), "float32"), B: T.Tensor((32, 64), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(4, 4, threads=32) as (bx, by):
            a = T.alloc_shared((16, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((16, 16), "float32")
            T.clear(c)
            for k in T.Pipelined(2):
                T.copy(A[by * 16, k * 16], a)
                T.copy(B[k * 16, bx * 16], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(16, 16):
                C[by * 16 + i, bx * 16 + j] = c[i, j] + c[i, j + 1]

    return program


@pytest.mark.parametrize(
    "make",
    [odd_grid, unknown_grid, two_users_of_a_block_index, overlapping_blocks, a_result_read_beyond_its_edge],
    ids=lambda make: make.__name__,
)
def test_blocks_stay_apart(make):
    func = inline_index(make(), target(), CompileOptions())
    result = coarsened(func)
    assert print_func(result).replace(" swizzle(4, row)", "") == print_func(func)
