"""Generated programs with matrix products: the CPU target against the reference evaluator.

Values are small integers, which every dtype here holds exactly, and sums stay exact in the accumulators, so results
are equal to the bit whatever the order of sums and however many steps of a K loop are joined.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
import tilewright.language as T
from tilewright.simulator.reference import run

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import RUNNABLE

# Dtypes of A and B, of the accumulator, and of the tensor that gets the result.
DTYPES = (
    ("float32", "float32", "float32", "float32"),
    ("float64", "float64", "float64", "float64"),
    ("float16", "float16", "float32", "float32"),
    ("float16", "float16", "float16", "float16"),
    ("bfloat16", "bfloat16", "float32", "bfloat16"),
    ("float8_e4m3fn", "float8_e4m3fn", "float32", "float32"),
    ("float8_e5m2", "float8_e4m3fn", "float32", "float16"),
    ("float8_e4m3fnuz", "float8_e5m2fnuz", "float32", "float32"),
    ("int8", "int8", "int32", "int32"),
    ("uint8", "int8", "int32", "int64"),
    ("int16", "int16", "int32", "int32"),
    ("int32", "int32", "int32", "int32"),
    ("int64", "int64", "int64", "int64"),
    ("uint8", "uint8", "uint32", "uint32"),
)
TARGETS = ("cpu", *[f"cpu:{arch}" for arch in RUNNABLE])
# What happens to a staged tile between its copy and the product.
CHANGES = ("nothing", "all", "some", "one", "fill a corner", "read")
# How the accumulator begins, and which products add to it.
STARTS = ("clear", "tensor", "clear_accum", "first step", "cleared in the loop")
# Which steps of the K loop multiply.
STEPS = ("all", "even", "two products", "nested", "fewer", "more", "unrolled")


@dataclass(frozen=True)
class Plan:
    """A program: sizes and tile, transposes, stages, and how it departs from the quick start's product."""

    sizes: tuple[int, int, int]
    block: tuple[int, int, int]
    dtypes: tuple[str, str, str, str]
    transposed: tuple[bool, bool]
    scopes: tuple[str, str]
    changes: tuple[str, str]
    staged_as: str
    start: str
    steps: str
    stages: int
    padding: tuple[int, int, int]
    safe: tuple[int | None, int | None]
    dynamic: bool
    epilogue: str


def make(plan):
    m, n, k = (T.dynamic(x) for x in ("m", "n", "k")) if plan.dynamic else plan.sizes
    bm, bn, bk = plan.block
    ta, tb = plan.transposed
    left, right, accumulator, result = plan.dtypes
    if plan.staged_as == "accumulator" and accumulator == "float32":
        tile_dtypes = ("float32", "float32")
    else:
        tile_dtypes = (left, right)

    def tensor(rows, columns, dtype, padding):
        if plan.dynamic or not padding:
            return T.Tensor((rows, columns), dtype)
        return T.StridedTensor((rows, columns), (columns + padding, 1), dtype)

    def tile(scope, shape, dtype):
        return T.alloc_shared(shape, dtype) if scope == "shared" else T.alloc_fragment(shape, dtype)

    @T.macro
    def change(kind, buffer, rows, columns):
        if kind == "all":
            for i, j in T.Parallel(rows, columns):
                buffer[i, j] = T.cast(T.cast(buffer[i, j], accumulator) + 1, buffer.dtype)
        elif kind == "some":
            for i, j in T.Parallel(rows, columns):
                if (i + j) % 3 == 0:
                    buffer[i, j] = T.cast(i % 2, buffer.dtype)
        elif kind == "one":
            buffer[rows - 1, columns // 2] = T.cast(2, buffer.dtype)
        elif kind == "fill a corner":
            T.fill(buffer[0 : (rows + 1) // 2, 0 : (columns + 1) // 2], 1)

    @T.prim_func
    def program(
        A: tensor(k, m, left, plan.padding[0]) if ta else tensor(m, k, left, plan.padding[0]),
        B: tensor(n, k, right, plan.padding[1]) if tb else tensor(k, n, right, plan.padding[1]),
        C: tensor(m, n, result, plan.padding[2]),
        D: T.Tensor((bk,), result),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=64) as (bx, by):
            a_shape = (bk, bm) if ta else (bm, bk)
            b_shape = (bn, bk) if tb else (bk, bn)
            a = tile(plan.scopes[0], a_shape, tile_dtypes[0])
            b = tile(plan.scopes[1], b_shape, tile_dtypes[1])
            c = T.alloc_fragment((bm, bn), accumulator)
            if plan.safe[0] is not None:
                T.annotate_safe_value({A: plan.safe[0]})
            if plan.safe[1] is not None:
                T.annotate_safe_value({B: plan.safe[1]})
            if plan.start == "tensor":
                T.copy(C[by * bm, bx * bn], c)
            else:
                T.clear(c)

            if "read" in plan.changes:
                T.fill(a, 1)

            def stage(step):
                T.copy(A[step * bk, by * bm] if ta else A[by * bm, step * bk], a)
                T.copy(B[bx * bn, step * bk] if tb else B[step * bk, bx * bn], b)
                change(plan.changes[0], a, *a_shape)
                change(plan.changes[1], b, *b_shape)

            def multiply(clear=False):
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, clear_accum=clear or plan.start == "clear_accum")

            count = T.ceildiv(k, bk)
            if plan.steps == "unrolled":
                for step in range(2):
                    stage(step)
                    multiply()
            elif plan.steps == "nested":
                for _outer in T.serial(2):
                    for step in T.Pipelined(count, num_stages=plan.stages):
                        stage(step)
                        multiply()
            else:
                first = 1 if plan.steps == "fewer" else 0
                last = count + 2 if plan.steps == "more" else count
                for step in T.Pipelined(first, last, num_stages=plan.stages):
                    stage(step)
                    if plan.start == "first step":
                        if step == 0:
                            multiply(True)
                        else:
                            multiply()
                    elif plan.start == "cleared in the loop":
                        T.clear(c)
                        multiply()
                    elif plan.steps == "even":
                        if step % 2 == 0:
                            multiply()
                    elif plan.steps == "two products":
                        multiply()
                        multiply()
                    else:
                        multiply()
            if "read" in plan.changes and bx == 0 and by == 0:
                for i in T.Parallel(bk):
                    D[i] = T.cast(a[i, 0] if ta else a[0, i], result)
            if plan.epilogue == "add":
                for i, j in T.Parallel(bm, bn):
                    c[i, j] = c[i, j] + 1
            elif plan.epilogue == "direct":
                for i, j in T.Parallel(bm, bn):
                    C[by * bm + i, bx * bn + j] = T.cast(T.max(c[i, j], T.cast(0, accumulator)), result)
            if plan.epilogue != "direct":
                T.copy(c, C[by * bm, bx * bn])

    return program


def often(usual, *others):
    """Mostly the usual value."""
    return st.one_of(st.just(usual), st.sampled_from((usual, *others)))


sides = st.one_of(st.integers(0, 9), st.integers(1, 80), st.sampled_from([16, 32, 64]))
depths = st.one_of(sides, st.sampled_from([256, 300, 333, 512, 577]))  # more than what is joined into one step
plans = st.builds(
    Plan,
    sizes=st.tuples(sides, sides, depths),
    block=st.tuples(
        st.one_of(st.integers(1, 40), st.sampled_from([8, 16, 32])),
        st.one_of(st.integers(1, 40), st.sampled_from([8, 16, 32])),
        st.one_of(st.integers(1, 20), st.sampled_from([4, 8, 16, 32])),
    ),
    dtypes=st.sampled_from(DTYPES),
    transposed=st.tuples(st.booleans(), st.booleans()),
    scopes=st.tuples(often("shared", "fragment"), often("shared", "fragment")),
    changes=st.tuples(often(*CHANGES), often(*CHANGES[:-1])),
    staged_as=st.sampled_from(["operand", "accumulator"]),
    start=often(*STARTS),
    steps=often(*STEPS),
    stages=st.integers(0, 4),
    padding=st.tuples(*[often(0, 1, 5, 16)] * 3),
    safe=st.tuples(*[often(None, 1, 3)] * 2),
    dynamic=often(False, True),
    epilogue=often("copy", "add", "direct"),
)


def array(shape, dtype, padding, generator):
    """Small integers, with `padding` elements between the rows."""
    low = 0 if np.issubdtype(dtype, np.unsignedinteger) else -2
    wide = generator.integers(low, 3, (shape[0], shape[1] + padding)).astype(dtype)
    return wide[:, : shape[1]]


def arguments(plan, func, seed):
    m, n, k = plan.sizes
    ta, tb = plan.transposed
    generator = np.random.default_rng(seed)
    shapes = [(k, m) if ta else (m, k), (n, k) if tb else (k, n), (m, n)]
    padding = (0, 0, 0) if plan.dynamic else plan.padding
    made = [array(s, p.dtype.numpy, g, generator) for s, p, g in zip(shapes, func.params, padding, strict=False)]
    return [*made, np.zeros(plan.block[2], func.params[3].dtype.numpy)]


def copied(values):
    """A copy with the same strides."""
    base = values if values.base is None else values.base
    return base.copy()[:, : values.shape[1]] if values.ndim == 2 else values.copy()


@settings(max_examples=40, deadline=None)
@given(plans, st.sampled_from(TARGETS), st.integers(0, 99))
def test_products_agree_with_the_evaluator(plan, target, seed):
    func = make(plan)
    inputs = arguments(plan, func, seed)
    expected, got = [copied(x) for x in inputs], [copied(x) for x in inputs]
    run(func, expected)
    tilewright.compile(func, target=target)(*got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))
