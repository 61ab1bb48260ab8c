"""Generated tile programs: the CPU target against the reference evaluator.

Values are small integers, which every dtype here holds exactly through all operations, so results are equal to
the bit whatever the order of sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright
import tilewright.language as T
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.simulator.reference import run
from tilewright.targets.registry import resolve_target

EXPRESSIONS = {
    "add": lambda x, y, i, j: x + y,
    "max": lambda x, y, i, j: T.max(x, y),
    "select": lambda x, y, i, j: T.if_then_else(x > y, x - y, y),
    "position": lambda x, y, i, j: x + T.cast(i % 3 - j % 2, x.dtype),
    "mask": lambda x, y, i, j: T.if_then_else((i + j) % 3 == 0, y, x),
    "scale": lambda x, y, i, j: x * T.cast(2, x.dtype) - y,
}
ACCUMULATORS = {
    "float32": "float32",
    "float16": "float32",
    "bfloat16": "float32",
    "float64": "float64",
    "int32": "int32",
}
STEPS = ("elementwise", "guarded", "reduce_rows", "reduce_columns", "scan", "copy", "fill", "gemm", "shift", "store")


@dataclass(frozen=True)
class Step:
    kind: str
    first: int
    second: int
    target: int
    choice: str
    flag: bool
    number: int


steps = st.builds(
    Step,
    st.sampled_from(STEPS),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(sorted(EXPRESSIONS)),
    st.booleans(),
    st.integers(-3, 5),
)


def make(M, N, bm, bn, dtype, plan):
    @T.prim_func
    def program(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=64) as (bx, by):
            tiles = [
                T.alloc_shared((bm, bn), dtype),
                T.alloc_fragment((bm, bn), dtype),
                T.alloc_shared((bm, bn), dtype),
            ]
            rows = T.alloc_fragment((bm,), dtype)
            columns = T.alloc_fragment((bn,), dtype)
            square = T.alloc_fragment((bm, bm), ACCUMULATORS[dtype])
            T.copy(A[by * bm, bx * bn], tiles[0])
            T.copy(B[by * bm, bx * bn], tiles[1])
            T.copy(A[by * bm + 1, bx * bn - 1], tiles[2])
            T.clear(rows)
            T.clear(columns)
            for step in plan:
                x, y, z = tiles[step.first], tiles[step.second], tiles[step.target]
                apply = EXPRESSIONS[step.choice]
                if step.kind == "elementwise":
                    for i, j in T.Parallel(bm, bn):
                        z[i, j] = T.clamp(apply(x[i, j], y[i, j] + rows[i] - columns[j], i, j), -7, 7)
                elif step.kind == "guarded":
                    for i, j in T.Parallel(bm, bn):
                        if (i * 5 + j) % 4 != step.number % 4:
                            z[i, j] = T.clamp(apply(x[i, j], y[i, j], i, j), -7, 7)
                elif step.kind == "reduce_rows":
                    op = T.reduce_max if step.flag else T.reduce_min
                    op(x, rows, dim=1, clear=step.number > 0)
                elif step.kind == "reduce_columns":
                    op = T.reduce_absmax if step.flag else T.reduce_max
                    op(x, columns, dim=0, clear=step.number > 0)
                elif step.kind == "scan":
                    T.cummax(x, dim=step.number % 2, reverse=step.flag)
                elif step.kind == "copy":
                    if step.first != step.target:
                        T.copy(x, z)
                elif step.kind == "fill":
                    T.fill(z, step.number)
                elif step.kind == "gemm":
                    T.gemm(x, y, square, transpose_B=True, clear_accum=True)
                    for i, j in T.Parallel(bm, bn):
                        z[i, j] = T.cast(square[i, i] % 5, dtype) + T.cast(j % 2, dtype)
                elif step.kind == "shift":
                    for i, j in T.Parallel(bm, bn):
                        if step.first != step.target:
                            z[i, j] = x[(i + step.number) % bm, j - 1]
                else:
                    T.copy(z, C[by * bm, bx * bn])
            T.copy(tiles[1], C[by * bm, bx * bn])

    return program


_DOUBLE = Step("elementwise", 0, 0, 0, "add", False, 0)
_RESULT = Step("elementwise", 0, 0, 1, "add", False, 0)


@settings(max_examples=60, deadline=None)
@example((2, 1), (4, 33), "bfloat16", [_DOUBLE, _DOUBLE, _RESULT], 0)  # a truncating store with one lane on
@example((1, 1), (7, 5), "float32", [_DOUBLE, Step("gemm", 0, 0, 0, "add", False, 0)], 0)  # a loop in steps of 4
@example((1, 1), (1, 1), "float16", [Step("fill", 0, 0, 0, "add", False, 0), Step("gemm", 0, 0, 0, "add", False, 0)], 0)
@given(
    st.tuples(st.integers(1, 40), st.integers(1, 70)),
    st.tuples(st.sampled_from([1, 4, 7, 16]), st.sampled_from([1, 5, 16, 33])),
    st.sampled_from(["float32", "float16", "bfloat16", "int32", "float64"]),
    st.lists(steps, max_size=5),
    st.integers(0, 99),
)
def test_the_cpu_agrees_with_the_evaluator(size, block, dtype, plan, seed):
    func = make(*size, *block, dtype, plan)
    generator = np.random.default_rng(seed)
    inputs = [generator.integers(-4, 5, p.const_shape()).astype(p.dtype.numpy) for p in func.params]
    expected, lowered, got = ([a.copy() for a in inputs] for _ in range(3))
    run(func, expected)
    run(lower_cpu(func, resolve_target("cpu"), CompileOptions(verify=True)), lowered)
    tilewright.compile(func, target="cpu")(*got)
    for left, middle, right in zip(expected, lowered, got, strict=True):
        np.testing.assert_array_equal(left.astype(np.float64), middle.astype(np.float64))
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))
