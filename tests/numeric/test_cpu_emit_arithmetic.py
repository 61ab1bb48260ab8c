"""Operators and exact intrinsics on every dtype, bit for bit as the evaluator, on scalars and on vectors of 2 to 32 lanes."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import I32, RUNNABLE, buf, kernel, load, loop, ramp, resolve, run_both, same_bits, store, var
from test_cpu_emit_casts import DTYPES, FLOATS, INTEGERS, values

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import BINARY_OPS, Binary, Call, Cast, Select, Unary, VectorReduce, const

NUMBERS = [n for n in INTEGERS if n != "bool"]
COMPARE = [op for op, (_, kind) in BINARY_OPS.items() if kind == "compare"]
ARITHMETIC = ["add", "sub", "mul", "floordiv", "floormod", "truncdiv", "truncmod", "min", "max"]
COUNT = 512
LANES = (1, 2, 3, 16, 32)


def pairs(name):
    """Operands: every special value with every other, then random ones."""
    some = values(name, 1)
    edges = some[:24]
    a = np.concatenate([np.repeat(edges, 12), values(name, 2)])[:COUNT]
    b = np.concatenate([np.tile(edges[:12], 24), values(name, 3)[::-1]])[:COUNT]
    if dtype(name).is_float and dtype(name).bits >= 16:  # NumPy's min and max take no notice of signalling NaN
        a, b = (np.where(np.isnan(x), np.array(np.nan, x.dtype), x) for x in (a, b))
    return a, b


def elementwise(sources, results, make, level="host"):
    """`make(loads)` gives the expressions stored to buffers of dtypes `results`; compared lane count by lane count."""
    params = [buf(f"in{k}", (COUNT,), name) for k, (name, _) in enumerate(sources)]
    outs = [buf(f"out{k}", (COUNT,), name) for k, name in enumerate(results)]
    body, start = [], 0
    for lanes in LANES:
        stop = min(start + 72 // lanes * lanes, COUNT) if lanes < 32 else start + (COUNT - start) // 32 * 32
        i = var("i")
        index = ramp(i, lanes) if lanes > 1 else i
        exprs = make(*[load(p, index) for p in params])
        stores = [store(out, (index,), expr) for out, expr in zip(outs, exprs, strict=True)]
        body.append(loop(i, stop, *stores, start=start, step=lanes))
        start = stop
    arrays = [np.array(a) for _, a in sources] + [np.zeros(COUNT, dtype(n).numpy) for n in results]
    mine, theirs = run_both(kernel([*params, *outs], *body), *arrays, target=resolve(level))
    count = len(sources)
    return [(a, b) for a, b in zip(mine[count:], theirs[count:], strict=True)]


def as_bool(lanes):
    return dtype("bool").with_lanes(lanes)


def compare_all(x, y):
    return [Binary(as_bool(x.dtype.lanes), op, x, y) for op in COMPARE]


def zeros_alike(a):
    """-0 as 0: the sign of a zero that min and max give is open."""
    return np.where(a == 0, np.zeros_like(a), a)


@pytest.mark.parametrize("name", NUMBERS)
def test_integer_operators(name):
    ops = [*ARITHMETIC, "bitand", "bitor", "bitxor", "shl", "shr"]
    a, b = pairs(name)

    def make(x, y):
        results = [Binary(x.dtype, op, x, y) for op in ops] + [Unary(x.dtype, op, x) for op in ("neg", "bitnot")]
        return [*results, Call(x.dtype, "abs", (x,)), *compare_all(x, y)]

    found = elementwise([(name, a), (name, b)], [name] * (len(ops) + 3) + ["bool"] * len(COMPARE), make)
    for op, (mine, theirs) in zip([*ops, "neg", "bitnot", "abs", *COMPARE], found, strict=True):
        same_bits(mine, theirs, f"{op} on {name}:")


@pytest.mark.parametrize("name", NUMBERS)
def test_counts_of_bits_and_small_shifts(name):
    a, b = pairs(name)
    amount = (np.asarray(b).astype(np.int64) % (dtype(name).bits + 2)).astype(dtype(name).numpy)

    def make(x, y):
        i32 = I32.with_lanes(x.dtype.lanes)
        counts = [Call(i32, "popcount", (x,)), Call(i32, "clz", (x,))]
        return [*counts, Binary(x.dtype, "shl", x, y), Binary(x.dtype, "shr", x, y)]

    for mine, theirs in elementwise([(name, a), (name, amount)], ["int32", "int32", name, name], make):
        same_bits(mine, theirs, name)


@pytest.mark.parametrize("number", [1, 7, 16, -1, -5, 0])
@pytest.mark.parametrize("name", ["int8", "int64", "uint16", "uint4"])
def test_division_by_literals(name, number):
    if dtype(name).kind == "uint":
        number %= 1 << dtype(name).bits
    a, _ = pairs(name)
    ops = ("floordiv", "floormod", "truncdiv", "truncmod")

    def make(x):
        return [Binary(x.dtype, op, x, const_like(number, x)) for op in ops]

    for op, (mine, theirs) in zip(ops, elementwise([(name, a)], [name] * 4, make), strict=True):
        same_bits(mine, theirs, f"{op} by {number} on {name}:")


def const_like(number, x):
    from tilewright.ir.expr import Broadcast

    scalar = const(number, x.dtype.scalar)
    return scalar if x.dtype.lanes == 1 else Broadcast(x.dtype, scalar)


@pytest.mark.parametrize("name", FLOATS)
def test_float_operators(name):
    ops = [*ARITHMETIC, "div"]
    a, b = pairs(name)
    unary = ("abs", "floor", "ceil", "trunc", "round", "sqrt")
    tests = ("isnan", "isinf", "isfinite")
    binary = ("max_nan", "min_nan", "copysign", "fmod")

    def make(x, y):
        results = [Binary(x.dtype, op, x, y) for op in ops] + [Unary(x.dtype, "neg", x)]
        results += [Call(x.dtype, f, (x,)) for f in unary] + [Call(x.dtype, f, (x, y)) for f in binary]
        return [*results, *compare_all(x, y), *[Call(as_bool(x.dtype.lanes), f, (x,)) for f in tests]]

    labels = [*ops, "neg", *unary, *binary, *COMPARE, *tests]
    dtypes = [name] * (len(labels) - len(COMPARE) - 3) + ["bool"] * (len(COMPARE) + 3)
    for label, (mine, theirs) in zip(labels, elementwise([(name, a), (name, b)], dtypes, make), strict=True):
        if label in ("min", "max", "min_nan", "max_nan"):
            mine, theirs = zeros_alike(mine), zeros_alike(theirs)
        if label == "copysign":  # the sign of NaN is open
            number = ~np.isnan(b.astype(np.float64))
            mine, theirs = mine[number], theirs[number]
        if name == "float4_e2m1fn" or name == "float8_e8m0fnu":  # what NaN becomes in a format without one is open
            nan = np.isnan(theirs.astype(np.float64)) | (theirs.astype(np.float64) == 0)
            mine, theirs = mine[~nan], theirs[~nan]
        same_bits(mine, theirs, f"{label} on {name}:")


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", ["float32", "float64", "float16"])
def test_rounding_and_fma_on_every_instruction_set(name, level):
    a, b = pairs(name)
    c = np.roll(a, 7)
    with np.errstate(all="ignore"):
        c[::3] = (-(a.astype(np.float64) * b.astype(np.float64)).astype(c.dtype))[::3]  # cancels
    names = ("floor", "ceil", "trunc", "round")

    def make(x, y, z):
        return [*[Call(x.dtype, f, (x,)) for f in names], Call(x.dtype, "fma", (x, y, z)), Binary(x.dtype, "max", x, y)]

    sources = [(name, a), (name, b), (name, c)]
    for label, (mine, theirs) in zip(
        (*names, "fma", "max"), elementwise(sources, [name] * 6, make, level), strict=True
    ):
        if label == "max":
            mine, theirs = zeros_alike(mine), zeros_alike(theirs)
        same_bits(mine, theirs, f"{label} on {name} ({level}):")


def test_bool_operators_and_selects():
    a, b = values("bool", 1), values("bool", 2)
    x32, y32 = values("float32", 1), values("float32", 2)

    def make(p, q, x, y):
        ops = [Binary(p.dtype, op, p, q) for op in ("and", "or", "bitand", "bitor", "bitxor", "lt", "eq", "ne", "ge")]
        return [
            *ops,
            Unary(p.dtype, "not", p),
            Select(x.dtype, p, x, y),
            Select(x.dtype, q, x, Unary(y.dtype, "neg", y)),
        ]

    sources = [("bool", a), ("bool", b), ("float32", x32), ("float32", y32)]
    for mine, theirs in elementwise(sources, ["bool"] * 10 + ["float32"] * 2, make):
        same_bits(mine, theirs)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("lanes", [3, 16])
def test_lanes_combined(name, lanes):
    spec = dtype(name)
    ops = (
        ["bitor", "bitand", "bitxor"]
        if spec.is_bool
        else ["add", "max", "min"] + ["bitor", "bitand", "bitxor"] * spec.is_int
    )
    given, i = buf("given", (COUNT,), name), var("i")
    outs = [buf(f"out_{op}", (COUNT,), name) for op in ops]
    stores = [
        store(o, (i,), VectorReduce(spec, op, load(given, ramp(i, lanes)))) for op, o in zip(ops, outs, strict=True)
    ]
    data = values(name)
    if spec.is_float:  # sums are exact in any order, so that they can be compared bit for bit
        data = np.random.default_rng(3).integers(0, 3, COUNT).astype(np.float32).astype(spec.numpy)
        data[::17] = np.float32(np.nan) if spec.bits > 4 else 1
    func = kernel([given, *outs], loop(i, COUNT - 32, *stores))
    mine, theirs = run_both(func, data, *[np.zeros(COUNT, spec.numpy) for _ in ops])
    for op, a, b in zip(ops, mine[1:], theirs[1:], strict=True):
        if spec.bits == 8 and spec.format.suffix == "u":
            continue
        same_bits(a, b, f"{op} of {lanes} lanes of {name}:")


@pytest.mark.parametrize("level", RUNNABLE)
def test_nothing_is_fused_or_reordered(level):
    a, b = pairs("float32")

    def make(x, y):
        product = Binary(x.dtype, "mul", x, y)
        return [Binary(x.dtype, "add", product, x), Binary(x.dtype, "sub", Binary(x.dtype, "add", x, y), x)]

    for mine, theirs in elementwise([("float32", a), ("float32", b)], ["float32"] * 2, make, level):
        same_bits(mine, theirs, level)


def test_ramps_of_values_and_index_vectors():
    out, wide, i = buf("out", (64,), "float32"), buf("wide", (64,), "int64"), var("i")
    u8 = buf("u8", (64,), "uint8")
    index = ramp(i * const(3, I32) + const(1, I32), 16, 5)
    func = kernel(
        [out, wide, u8],
        loop(
            i,
            49,
            store(out, (ramp(i, 16),), Cast(dtype("float32x16"), index)),
            store(wide, (ramp(i, 16),), index * index),
            step=16,
        ),
        loop(i, 49, store(u8, (ramp(i, 16),), Cast(dtype("uint8x16"), index)), step=16),
    )
    mine, theirs = run_both(func, np.zeros(64, np.float32), np.zeros(64, np.int64), np.zeros(64, np.uint8))
    for a, b in zip(mine, theirs, strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", ["uint8", "int16", "int32", "int64"])
def test_vector_division_by_what_may_be_zero_never_traps(name, level):
    """LLVM may move a division out of the select that keeps its divisor from 0."""
    a, _ = pairs(name)
    b = (np.arange(COUNT) % 20).astype(dtype(name).numpy)
    ops = ("floordiv", "floormod", "truncdiv", "truncmod")

    def make(x, y):
        divisor = Binary(x.dtype, "shl", const_like(9, x), y)
        chosen = Select(x.dtype, Binary(as_bool(x.dtype.lanes), "gt", y, const_like(7, x)), const_like(1, x), y)
        return [*[Binary(x.dtype, op, x, divisor) for op in ops], Binary(x.dtype, "truncdiv", x, chosen)]

    for mine, theirs in elementwise([(name, a), (name, b)], [name] * 5, make, level):
        same_bits(mine, theirs, f"{name} ({level}):")
