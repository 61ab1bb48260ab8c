"""Generated programs of many kinds of steps: the CPU target against the reference evaluator.

Beside `test_generated_kernels`: numbers of every size with NaN, infinities and subnormals, every dtype, all reductions
and scans, casts, atomics, loops with break and continue, `while`, views, 3-d tiles, gathers, strided tensors, sizes
known at launch only, and no elements at all.

"wild" programs leave out what the order of operations changes (sums of floats); "tame" ones have small
integers, so that sums are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

import tilewright
import tilewright.language as T
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.simulator.reference import run
from tilewright.targets.registry import resolve_target

FLOATS = ["float32", "float16", "bfloat16", "float64", "float8_e4m3fn", "float8_e5m2fnuz"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
DTYPES = FLOATS + INTEGERS


def _positive_zero(x):
    """max and min leave the sign of a zero open; division must not see it."""
    return T.if_then_else(x == T.cast(0, x.dtype), T.cast(0, x.dtype), x)


# Elementwise: (x, y, i, j) -> value.
ANY = {
    "add": lambda x, y, i, j: x + y,
    "sub": lambda x, y, i, j: x - y,
    "mul": lambda x, y, i, j: x * y,
    "min": lambda x, y, i, j: T.min(x, y),
    "max": lambda x, y, i, j: T.max(x, y),
    "less": lambda x, y, i, j: T.if_then_else(x < y, x, T.cast(1, x.dtype)),
    "between": lambda x, y, i, j: T.if_then_else(
        T.And(x >= y, T.Not(x == T.cast(3, x.dtype))), y, T.cast(i + j, x.dtype)
    ),
    "floordiv": lambda x, y, i, j: _positive_zero(x) // _positive_zero(y),
    "floormod": lambda x, y, i, j: _positive_zero(x) % _positive_zero(y),
    "truncdiv": lambda x, y, i, j: T.truncdiv(_positive_zero(x), _positive_zero(y)),
    "truncmod": lambda x, y, i, j: T.truncmod(_positive_zero(x), _positive_zero(y)),
    "by_literal": lambda x, y, i, j: x // T.cast(3, x.dtype) + y % T.cast(5, x.dtype),
    "position": lambda x, y, i, j: x + T.cast((i * 3 - j) // 2 % 5, x.dtype),
    "wrapped": lambda x, y, i, j: x + T.cast(i * 65537 * 65537 - j, x.dtype),
    "abs": lambda x, y, i, j: T.abs(x),
    "neg": lambda x, y, i, j: T.cast(0, x.dtype) - x,
    "narrow": lambda x, y, i, j: T.cast(T.cast(x, "int8"), x.dtype),
    "half": lambda x, y, i, j: T.cast(T.cast(x, "float16"), x.dtype),
    "double": lambda x, y, i, j: T.cast(T.cast(x, "float64") + T.cast(y, "float64"), x.dtype),
    "long": lambda x, y, i, j: T.cast(T.cast(x, "int64") * T.cast(7, "int64"), x.dtype),
    "unsigned": lambda x, y, i, j: T.cast(T.cast(y, "uint16"), x.dtype),
    "condition": lambda x, y, i, j: T.cast(T.cast(x, "bool"), x.dtype),
}
FLOAT_ONLY = {
    "div": lambda x, y, i, j: _positive_zero(x) / _positive_zero(y),
    "floor": lambda x, y, i, j: T.floor(x) + T.ceil(y),
    "nan": lambda x, y, i, j: T.if_then_else(T.isnan(x), y, x),
    "finite": lambda x, y, i, j: T.if_then_else(T.isfinite(x), x, T.cast(2, x.dtype)),
    "sqrt": lambda x, y, i, j: T.sqrt(_positive_zero(x)),
    "round": lambda x, y, i, j: T.round(x),
}
INTEGER_ONLY = {
    "shl": lambda x, y, i, j: x << y,
    "shr": lambda x, y, i, j: x >> y,
    "shift": lambda x, y, i, j: (x << T.cast(3, x.dtype)) ^ (y >> T.cast(1, x.dtype)),
    "bits": lambda x, y, i, j: (x & y) | (x ^ T.cast(5, x.dtype)),
    "not": lambda x, y, i, j: ~x,
    "count": lambda x, y, i, j: T.cast(T.popcount(x), x.dtype),
}
EXPRESSIONS = ANY | FLOAT_ONLY | INTEGER_ONLY
STEPS = (
    "elementwise", "guarded", "branches", "reduce", "scan", "copy", "slice", "cast_tile", "gather", "scatter", "serial",
    "triangle", "while", "flat", "deep", "atomic", "atomic_old", "reducer", "any", "transpose", "workspace", "private",
)  # fmt: skip
REDUCTIONS = ("sum", "abssum", "max", "min", "absmax", "bitand", "bitor", "bitxor")
ORDERED = ("max", "min", "absmax")


@dataclass(frozen=True)
class Step:
    kind: str
    first: int
    second: int
    target: int
    choice: str
    reduction: str
    other: str
    flag: bool
    number: int


steps = st.builds(
    Step,
    st.sampled_from(STEPS),
    st.integers(0, 2),
    st.integers(0, 2),
    st.integers(0, 2),
    st.sampled_from(sorted(EXPRESSIONS)),
    st.sampled_from(REDUCTIONS),
    st.sampled_from(DTYPES),
    st.booleans(),
    st.integers(-3, 5),
)


def make(sizes, bm, bn, dtype, plan, *, tame, dynamic, padded):
    M, N = (T.dynamic("M"), T.dynamic("N")) if dynamic else sizes
    kind = as_dtype(dtype)
    pitch = T.dynamic("pitch") if dynamic else sizes[1] + 3

    def expression(name):
        wrong = INTEGER_ONLY if kind.is_float else FLOAT_ONLY
        return ANY["add" if name in wrong else name] if name in wrong or name in ANY else EXPRESSIONS[name]

    def reduction(name):
        if kind.is_float and (name.startswith("bit") or (not tame and name not in ORDERED)):
            return "max"
        return "max" if name.startswith("abs") and kind.kind == "uint" else name

    def tamed(value):
        if not tame or kind.is_int:
            return value
        value = T.if_then_else(T.isfinite(value), value, T.cast(1, dtype))
        return T.round(T.clamp(value, -7, 7))

    tensor = T.StridedTensor((M, N), (pitch, 1), dtype) if padded else T.Tensor((M, N), dtype)

    @T.prim_func
    def program(A: tensor, B: T.Tensor((M, N), dtype), C: T.Tensor((M, N), dtype), D: T.Tensor((64,), "int32")):
        work = T.alloc_global((M + bm, N + bn), dtype)
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=64) as (bx, by):
            tiles = [
                T.alloc_shared((bm, bn), dtype),
                T.alloc_fragment((bm, bn), dtype),
                T.alloc_shared((bm, bn), dtype),
            ]
            rows = T.alloc_fragment((bm,), dtype)
            columns = T.alloc_shared((bn,), dtype)
            counts = T.alloc_shared((16,), "int32")
            deep = T.alloc_shared((2, bm, bn), dtype)
            turned = T.alloc_shared((bn, bm), dtype)
            n = T.alloc_var("int32", 0)
            T.copy(A[by * bm, bx * bn], tiles[0])
            T.copy(B[by * bm, bx * bn], tiles[1])
            T.copy(A[by * bm + 1, bx * bn - 1], tiles[2])
            T.clear(rows)
            T.clear(columns)
            T.clear(counts)
            T.clear(deep)
            for step in plan:
                x, y, z = tiles[step.first], tiles[step.second], tiles[step.target]
                apply = expression(step.choice)
                if step.kind == "elementwise":
                    for i, j in T.Parallel(bm, bn):
                        z[i, j] = tamed(apply(x[i, j], y[i, j] + rows[i] - columns[j], i, j))
                elif step.kind == "guarded":
                    for i, j in T.Parallel(bm, bn):
                        if (i * 5 + j) % 4 != step.number % 4:
                            z[i, j] = tamed(apply(x[i, j], y[i, j], i, j))
                elif step.kind == "branches":
                    for i, j in T.Parallel(bm, bn):
                        if x[i, j] < y[i, j]:
                            z[i, j] = tamed(apply(y[i, j], x[i, j], i, j))
                        elif i > j:
                            z[i, j] = rows[i]
                        else:
                            if y[i, j] == x[i, j]:
                                z[i, j] = columns[j]
                elif step.kind == "reduce":
                    T.reduce(
                        x,
                        rows if step.flag else columns,
                        reduction(step.reduction),
                        dim=1 if step.flag else 0,
                        clear=step.number > 0,
                    )
                    if step.flag:
                        for i in T.Parallel(bm):
                            rows[i] = tamed(rows[i])
                    else:
                        for j in T.Parallel(bn):
                            columns[j] = tamed(columns[j])
                elif step.kind == "scan":
                    if (tame or kind.is_int) and step.number > 1:
                        T.cumsum(x, z, dim=step.number % 2, reverse=step.flag)
                        for i, j in T.Parallel(bm, bn):
                            z[i, j] = tamed(z[i, j])
                    else:
                        T.cummax(x, z, dim=step.number % 2, reverse=step.flag)
                elif step.kind == "copy":
                    T.copy(x, z)
                elif step.kind == "slice":
                    if step.first != step.target and bm > 1 and bn > 1:
                        T.copy(x[0 : bm - 1, 1:bn], z[1:bm, 0 : bn - 1])
                elif step.kind == "cast_tile":
                    held = T.alloc_shared((bm, bn), step.other)
                    T.copy(x, held)
                    T.copy(held, z)
                    for i, j in T.Parallel(bm, bn):
                        z[i, j] = tamed(z[i, j])
                elif step.kind == "gather":
                    for i, j in T.Parallel(bm, bn):
                        if step.first != step.target:
                            z[i, j] = x[D[(i + j) % 64], (j * 2 + step.number) % bn]
                elif step.kind == "scatter":
                    for i, j in T.Parallel(bm, bn):
                        if step.first != step.target:
                            z[bm - 1 - i, j + step.number] = x[i, j]
                elif step.kind == "serial":
                    for k in T.serial(step.number, 9, 2):
                        if k == 6 - step.second:
                            continue
                        if D[T.max(k, 0)] > 2:
                            break
                        for j in T.Parallel(bn):
                            z[T.max(k, 0) % bm, j] = tamed(z[T.max(k, 0) % bm, j] + x[0, j] + T.cast(k, dtype))
                elif step.kind == "triangle":
                    for i in T.serial(bm):
                        for j in T.Parallel(T.min(i + step.number, bn)):
                            z[i, j] = tamed(apply(z[i, j], y[i, j], i, j))
                elif step.kind == "while":
                    n = 0
                    while n < D[step.second] + step.number:
                        for j in T.Parallel(bn):
                            z[n % bm, j] = tamed(z[n % bm, j] + y[0, j])
                        n = n + 1 + step.first
                        if n > 5:
                            break
                elif step.kind == "flat":
                    flat = T.reshape(z, (bm * bn,))
                    for i in T.Parallel(bm * bn):
                        flat[i] = tamed(apply(flat[i], columns[i % bn], i, i // bn))
                elif step.kind == "deep":
                    T.copy(x, deep[step.second % 2, :, :])
                    for l, i, j in T.Parallel(2, bm, bn):  # noqa: E741
                        deep[l, i, j] = tamed(apply(deep[l, i, j], y[i, j], l, j))
                    T.copy(deep[1, :, :], z)
                elif step.kind == "atomic":
                    for i, j in T.Parallel(bm, bn):
                        T.atomic_add(counts[D[(i + j) % 64]], i + step.number)
                        if tame or kind.is_int:
                            T.atomic_max(columns[(i * 3) % bn], x[i, j])
                    for j in T.Parallel(bn):
                        columns[j] = tamed(columns[j] + T.cast(counts[j % 16], dtype))
                elif step.kind == "atomic_old":
                    for i in T.serial(bm):
                        old = T.atomic_add(counts[i % 16], step.number, return_prev=True)
                        rows[i] = T.cast(old, dtype)
                elif step.kind == "reducer":
                    if tame or kind.is_int:
                        total = T.alloc_reducer((bm,), dtype, "sum" if step.flag else "min")
                        T.fill(total, step.number + 3)
                        for i, j in T.Parallel(bm, bn):
                            if step.flag:
                                total[i] += x[i, j]
                            else:
                                total[i] = T.min(total[i], x[i, j])
                        T.finalize_reducer(total)
                        for i in T.Parallel(bm):
                            rows[i] = tamed(total[i])
                elif step.kind == "any":
                    found = T.any_of(x) if step.flag else T.all_of(x)
                    if found:
                        T.fill(z, step.number % 4)
                elif step.kind == "transpose":
                    T.transpose(x, turned)
                    for i, j in T.Parallel(bm, bn):
                        z[i, j] = turned[j, i]
                elif step.kind == "workspace":
                    T.copy(x, work[by * bm, bx * bn])
                    T.copy(work[by * bm, bx * bn], z)
                else:
                    for i, j in T.Parallel(bm, bn):
                        mine = T.alloc_local((2,), dtype)
                        mine[0] = x[i, j]
                        mine[1] = y[i, j]
                        kept = T.alloc_var(dtype, 0)
                        for k in T.serial(3):
                            if mine[k % 2] > T.cast(k, dtype):
                                kept = tamed(apply(mine[k % 2], kept, i, j))
                        z[i, j] = kept
            for i, j in T.Parallel(bm, bn):
                tiles[1][i, j] = tiles[1][i, j] + rows[i] - columns[j]
            T.copy(tiles[1], C[by * bm, bx * bn])

    return program


def numbers(generator, shape, name, tame):
    kind = as_dtype(name)
    if tame:
        low = 0 if kind.kind == "uint" else -4
        return generator.integers(low, 5, shape).astype(kind.numpy)
    raw = generator.integers(0, 256, (*shape, kind.bits // 8), dtype=np.uint8)
    wild = np.ascontiguousarray(raw).view(kind.numpy)[..., 0]
    with np.errstate(all="ignore"):
        small = generator.integers(0 if kind.kind == "uint" else -5, 70, shape).astype(kind.numpy)
        result = np.where(generator.random(shape) < 0.5, wild, small).astype(kind.numpy)
    if kind.is_float:
        wide = result.astype(np.float64)
        result = np.where(np.isnan(wide), np.array(np.nan, np.float64).astype(kind.numpy), result)  # quiet
    return result


def agree(left, right):
    """Equal, any NaN equal to any other, zeros of either sign."""
    if left.dtype.kind in "iu":
        np.testing.assert_array_equal(left, right)
    else:
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))


def _only(kind, choice="add", number=0):
    return [Step(kind, 2, 2, 0, choice, "max", "float16", False, number)]


@settings(max_examples=30, deadline=None)
@example((21, 4), (5, 32), "uint64", _only("triangle", number=-1), True, True, False, "cpu", 84)  # negative extents
@example((1, 1), (1, 1), "float32", _only("deep", "wrapped"), False, False, False, "cpu", 0)  # factors beyond 32 bits
@example((0, 2), (1, 1), "float32", [], False, False, True, "cpu", 0)  # strides of arrays without elements
@given(
    st.tuples(st.integers(0, 30), st.integers(0, 50)),
    st.tuples(st.sampled_from([1, 2, 5, 8]), st.sampled_from([1, 3, 8, 19, 32])),
    st.sampled_from(DTYPES),
    st.lists(steps, max_size=5),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["cpu", "cpu:sse2", "cpu"]),
    st.integers(0, 99),
)
def test_steps_of_every_kind(size, block, dtype, plan, tame, dynamic, padded, target, seed):
    func = make(size, *block, dtype, plan, tame=tame, dynamic=dynamic, padded=padded)
    generator = np.random.default_rng(seed)
    inputs = [numbers(generator, size, dtype, tame) for _ in range(3)]
    inputs.append(generator.integers(-2, 20, 64).astype(np.int32))

    def arguments():
        copies = [a.copy() for a in inputs]
        if padded:
            wide = np.zeros((size[0], size[1] + 3), copies[0].dtype)
            wide[:, : size[1]] = copies[0]
            copies[0] = wide[:, : size[1]]
        return copies

    expected, lowered, got = arguments(), arguments(), arguments()
    with np.errstate(all="ignore"):
        run(func, expected)
        run(lower_cpu(func, resolve_target(target), CompileOptions(verify=True)), lowered)
    tilewright.compile(func, target=target)(*got)
    with np.errstate(all="ignore"):
        for left, middle, right in zip(expected, lowered, got, strict=True):
            agree(left, middle)
            agree(left, right)
