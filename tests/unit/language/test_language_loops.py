"""Loops, conditions, mutable scalars and jit forms from Python source."""

from __future__ import annotations

import numpy as np
import pytest
from language_harness import both_targets, near, random, run, same

import tilewright
import tilewright.language as T


@both_targets
@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (lambda: T.serial(9), range(9)),
        (lambda: T.serial(2, 9), range(2, 9)),
        (lambda: T.serial(1, 30, 4), range(1, 30, 4)),
        (lambda: T.serial(9, 0, -2), range(9, 0, -2)),
        (lambda: T.serial(start=3, stop=7, annotations={"hint": 1}), range(3, 7)),
        (lambda: T.Serial(4), range(4)),
        (lambda: T.unroll(5), range(5)),
        (lambda: T.Unroll(0, 10, 3, explicit=True), range(0, 10, 3)),
        (lambda: T.vectorized(16), range(16)),
        (lambda: T.Vectorized(3, 11), range(3, 11)),
        (lambda: T.Pipelined(6, num_stages=3), range(6)),
        (lambda: T.Pipelined(start=2, stop=8, num_stages=2, annotations={}), range(2, 8)),
        (lambda: T.Parallel(12, coalesced_width=4, annotations={}), range(12)),
        (lambda: T.grid(7), range(7)),
    ],
)
def test_loops_of_one_variable(loop, expected, target):
    @T.prim_func
    def main(A: T.Tensor((40,), "int32")):
        with T.Kernel(1):
            T.fill(A, -1)
            for i in loop():
                A[i] = 3 * i

    a = np.zeros(40, np.int32)
    run(main, a, target=target)
    wanted = np.full(40, -1)
    wanted[list(expected)] = [3 * i for i in expected]
    same(a, wanted)


@both_targets
@pytest.mark.parametrize("loop", [T.grid, T.Parallel])
def test_loops_of_several_variables(loop, target):
    @T.prim_func
    def main(A: T.Tensor((3, 5, 7), "int32")):
        with T.Kernel(1):
            for i, j, k in loop(3, 5, 7):
                A[i, j, k] = i * 100 + j * 10 + k

    a = np.zeros((3, 5, 7), np.int32)
    run(main, a, target=target)
    i, j, k = np.indices(a.shape)
    same(a, i * 100 + j * 10 + k)


@both_targets
@pytest.mark.parametrize(("m", "n", "group"), [(5, 13, 8), (4, 8, 4), (3, 3, None)])
def test_persistent_blocks_visit_every_tile_once(m, n, group, target):
    @T.prim_func
    def main(A: T.Tensor((m, n), "int32")):
        with T.Kernel(4) as block:
            for i, j in T.Persistent([m, n], 4, block, group_size=group, num_stages=0):
                T.atomic_add(A[i, j], 1 + i * 100 + j)

    a = np.zeros((m, n), np.int32)
    run(main, a, target=target)
    i, j = np.indices((m, n))
    same(a, 1 + i * 100 + j)


@both_targets
def test_while_break_continue_and_conditions(target):
    @T.prim_func
    def main(A: T.Tensor((20,), "int32"), B: T.Tensor((4,), "int32"), limit: T.int32):
        with T.Kernel(1):
            steps = T.alloc_var("int32", 0)
            value = T.alloc_var("int32", init=27)
            while value != 1:
                if value % 2 == 0:
                    value = value // 2
                else:
                    value = 3 * value + 1
                steps += 1
            B[0] = steps
            total = T.alloc_var("int32", 0)
            for i in range(20):
                if A[i] < 0:
                    continue
                if total + A[i] > limit:
                    break
                total += A[i]
            B[1] = total
            n = T.alloc_var("int32", 0)
            while True:
                n += 1
                if n * n > limit or n > 100:
                    break
            B[2] = n
            if limit > 100:
                B[3] = 1
            elif limit > 10 and not limit >= 99:
                B[3] = 2
            else:
                B[3] = 3

    a = np.array([5, -1, 7, 9, -3, 20, 8, 30] + [1] * 12, np.int32)
    b = np.zeros(4, np.int32)
    run(main, a, b, 60, target=target)
    same(b, [111, 49, 8, 2])


@both_targets
def test_python_decides_what_python_knows(target):
    def polynomial(x, coefficients):
        result = 0.0
        for c in reversed(coefficients):
            result = result * x + c
        return result

    @T.macro
    def scale(x, factor: T.Ref, by):
        factor = factor * by
        return x * factor

    flags = {"twice": True}

    @T.prim_func
    def main(A: T.Tensor((11,), "float32"), B: T.Tensor((11,), "float32"), n: T.int32 = 3):
        with T.Kernel(1):
            factor = T.alloc_var("float32", 1.0)
            for i in T.serial(11):
                B[i] = polynomial(A[i], [1.0, -2.0, 0.5])
                if flags["twice"]:
                    B[i] = scale(B[i], factor, 1.5)

    a, b = random((11,)), np.zeros(11, np.float32)
    run(main, a, b, 3, target=target)
    x = a.astype(np.float64)
    near(b, (1 - 2 * x + 0.5 * x * x) * 1.5 ** np.arange(1, 12), k=30)


@both_targets
def test_a_mutable_scalar_in_a_parallel_loop_belongs_to_the_iteration(target):
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1):
            v = T.alloc_var("float32", 5.0)
            w = T.alloc_local((4,), "float32")
            for i in T.Parallel(16):
                v = v + A[i]
                T.fill(w, v)
                w[1] = w[1] + A[i]
                B[i] = v * 2 + w[0] - w[1]

    a, b = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
    run(main, a, b, target=target)
    same(b, 10 + a)


@both_targets
def test_sizes_known_at_launch_and_several_kernels(target):
    m, n = T.dynamic("m"), T.dynamic("n", "int64")

    @T.prim_func
    def main(A: T.Tensor((m, n), "float32"), B: T.StridedTensor((n, m), (m + 0, 1), "float32")):
        total = T.alloc_global((m,), "float32")
        with T.Kernel(m) as row:
            acc = T.alloc_var("float32", 0.0)
            for j in T.serial(n):
                acc += A[row, j]
            total[row] = acc
        with T.Kernel(T.ceildiv(n, 4), T.ceildiv(m, 8), threads=(16, 4)) as (bx, by):
            T.use_swizzle(panel_size=3, order="column")
            for i, j in T.Parallel(8, 4):
                B[bx * 4 + j, by * 8 + i] = A[by * 8 + i, bx * 4 + j] - total[by * 8 + i]

    for shape in ((1, 1), (13, 6), (9, 17), (0, 3)):
        a, b = random(shape), np.zeros(shape[::-1], np.float32)
        run(main, a, b, target=target)
        near(b, (a - a.astype(np.float64).sum(1, keepdims=True)).T, k=20)


@both_targets
def test_the_eager_form(target):
    @tilewright.jit(target=target)
    def add_scaled(A, B, scale: float = 2.0, block: int = 16):
        M, N = T.const("M, N")
        A: T.Tensor((M, N), "float32")
        B: T.Tensor[[N], T.float32]
        C = T.empty((M, N), "float32")
        with T.Kernel(T.ceildiv(M, block), threads=128) as bx:
            for i, j in T.Parallel(block, N):
                C[bx * block + i, j] = A[bx * block + i, j] + scale * B[j]
        return C

    a, b = random((37, 9)), random((9,))
    near(add_scaled(a, b), a + 2.0 * b)
    near(add_scaled(a, b, scale=-1.0, block=8), a - b)


@both_targets
def test_the_lazy_form(target):
    @tilewright.jit(out_idx=[-1], target=target)
    def shift(n, by=1):
        @T.prim_func
        def main(A: T.Tensor((n,), "int32"), B: T.Tensor((n,), "int32")):
            with T.Kernel(1):
                for i in T.Parallel(n):
                    B[i] = A[i] + by

        return main

    a = random((21,), "int32")
    assert shift(21) is shift(21)
    same(shift(21)(a), a + 1)
    same(shift(21, by=-5)(a), a - 5)
