"""Joined loops: when they are joined, what is left of the tiles between them, and that the meaning stays."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Alloc, Let, Parallel, Reduce
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.passes.fuse_loops import fuse_loops
from tilewright.passes.lower_tiles import lower_tiles
from tilewright.simulator.reference import run
from tilewright.target import Target

TARGET = Target("cpu", vector_bits=512, vector_registers=32)
OPTIONS = CompileOptions(verify=True)


def fused(func):
    result = fuse_loops(lower_tiles(func.replace(level="lowering"), TARGET, OPTIONS), TARGET, OPTIONS)
    verify(result)
    return result


def count(func, kind):
    return sum(isinstance(node, kind) for node in walk(func.body))


def agree(func, *arrays):
    lowered = lower_cpu(func, TARGET, OPTIONS)
    results = []
    for version in (func, fused(func), lowered):
        given = [np.array(a) for a in arrays]
        run(version, given)
        results.append(given)
    for got in results[1:]:
        for left, right in zip(results[0], got, strict=True):
            np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


def row_program(op, clear=True, shape=(3, 40), dtype="float32"):
    M, N = shape

    @T.prim_func
    def program(X: T.Tensor((M, N), dtype), R: T.Tensor((M,), "float32"), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(M, threads=64) as bx:
            x = T.alloc_fragment((1, N), "float32")
            square = T.alloc_fragment((1, N), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(R[bx], total)
            T.copy(X[bx, 0], x)
            for i, j in T.Parallel(1, N):
                square[i, j] = x[i, j] * 2.0
            getattr(T, f"reduce_{op}")(square, total, dim=1, clear=clear)
            for i, j in T.Parallel(1, N):
                x[i, j] = x[i, j] + total[i]
            T.copy(x, Y[bx, 0])
            T.copy(total, R[bx])

    return program


@pytest.mark.parametrize("op", ["sum", "max", "min", "abssum", "absmax"])
@pytest.mark.parametrize("clear", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_rows_become_two_loops(op, clear, dtype):
    program = row_program(op, clear, dtype=dtype)
    result = fused(program)
    assert count(result, Reduce) == 0
    assert count(result, Parallel) == 2, print_func(result)
    names = {node.buffer.name for node in walk(result.body) if isinstance(node, Alloc)}
    assert "square" not in names
    generator = np.random.default_rng(0)
    x = generator.standard_normal((3, 40)).astype(dtype)
    r = generator.standard_normal(3).astype(np.float32)
    agree(program, x, r, np.zeros((3, 40), dtype))


@pytest.mark.parametrize("op", ["max", "min", "absmax"])
def test_nan_stays_where_all_are_nan(op):
    x = np.full((3, 40), np.nan, np.float32)
    x[1, 7] = -5.0
    x[2, :] = -np.inf
    agree(row_program(op), x, np.zeros(3, np.float32), np.zeros((3, 40), np.float32))


def test_a_loop_that_reads_its_neighbours_is_not_joined():
    @T.prim_func
    def program(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            x = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                x[i] = X[i] * 2.0
            for i in T.Parallel(64):
                Y[i] = x[63 - i]

    assert count(fused(program), Parallel) == 2
    agree(program, np.arange(64, dtype=np.float32), np.zeros(64, np.float32))


def test_arrays_of_one_shape_may_be_one_array():
    @T.prim_func
    def reverse(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            x = T.alloc_shared((64,), "float32")
            for i in T.Parallel(64):
                x[i] = X[63 - i]
            for i in T.Parallel(64):
                Y[i] = x[i]

    assert count(fused(reverse), Parallel) == 2
    data = np.arange(64, dtype=np.float32)
    run(lower_cpu(reverse, TARGET, OPTIONS), [data, data])
    np.testing.assert_array_equal(data, np.arange(64)[::-1])


def test_a_scalar_that_an_iteration_writes_keeps_loops_apart():
    @T.prim_func
    def program(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as _:
            last = T.alloc_fragment((1,), "float32")
            for i in T.Parallel(64):
                Y[i] = X[i]
            last[0] = X[3]
            for i in T.Parallel(64):
                Y[i] = Y[i] + last[0]

    assert count(fused(program), Parallel) == 2
    agree(program, np.arange(64, dtype=np.float32), np.zeros(64, np.float32))


def test_views_keep_loops_apart():
    @T.prim_func
    def program(X: T.Tensor((8, 8), "float32"), Y: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=64) as _:
            x = T.alloc_shared((8, 8), "float32")
            flat = T.view(x, (64,))
            T.copy(X, x)
            for i, j in T.Parallel(8, 8):
                Y[i, j] = flat[j * 8 + i]

    agree(program, np.arange(64, dtype=np.float32).reshape(8, 8), np.zeros((8, 8), np.float32))


def test_rows_in_bands_and_sizes_beyond_the_edge():
    M, N = 10, 50

    @T.prim_func
    def program(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 4), threads=64) as bx:
            x = T.alloc_fragment((4, N), "float32")
            top = T.alloc_fragment((4,), "float32")
            total = T.alloc_fragment((4,), "float32")
            T.copy(X[bx * 4, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(4, N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(4, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * 4, 0])

    assert count(fused(program), Reduce) == 0
    agree(program, np.random.default_rng(0).standard_normal((M, N)).astype(np.float32), np.zeros((M, N), np.float32))


def test_what_nothing_reads_goes_with_the_names_that_it_used():
    @T.prim_func
    def program(X: T.Tensor((4, 32), "float32"), Y: T.Tensor((4, 32), "float32")):
        with T.Kernel(4, threads=32) as bx:
            x = T.alloc_fragment((1, 32), "float32")
            idle = T.alloc_fragment((1, 32), "float32")
            more = T.alloc_fragment((1, 32), "float32")
            T.copy(X[bx, 0], x)
            for i, j in T.Parallel(1, 32):
                idle[i, j] = T.exp(x[i, j])
            for i, j in T.Parallel(1, 32):
                more[i, j] = idle[i, j] * 2.0
            for i, j in T.Parallel(1, 32):
                x[i, j] = x[i, j] + 1.0
            T.copy(x, Y[bx, 0])

    func = fused(program)
    assert count(func, Alloc) == 0 and "exp" not in print_func(func)
    assert count(func, Let) == 2  # what was read, and what is stored
    agree(program, np.ones((4, 32), np.float32), np.zeros((4, 32), np.float32))
