"""Every expression node of the evaluator, scalar and over a grid, with adversarial values."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from simulator_ir import BOOL, F32, buffer, evaluate, num, parallel, region, var

from tilewright.errors import VerificationError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Load,
    Ramp,
    Reinterpret,
    Select,
    Shuffle,
    Unary,
    VectorReduce,
    cast,
    const,
)
from tilewright.ir.intrinsics import INTRINSICS, intrinsic
from tilewright.ir.stmt import Alloc, Fill, If, Let, Seq, Store

ADVERSARIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1.5, 2.5, -2.5, 0.1, 1e-45, -1e-40, 3.4e38, -3.4e38, np.inf, -np.inf, np.nan, 100.0],
    np.float32,
)
INTS = ["int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"]


def apply(make, *inputs, dtypes, result):
    """`make(x, y, ...)` on every element of the inputs: once with scalar code, once over a grid; both must agree."""
    arrays = [np.asarray(x).astype(dtype(t).numpy) for x, t in zip(inputs, dtypes, strict=True)]
    size = arrays[0].size
    params = [buffer(f"x{n}", (size,), t) for n, t in enumerate(dtypes)]
    outputs = []
    for grid in (False, True):
        out, i = buffer("out", (size,), result), var("i")
        values = [Load(p.dtype, p, (i,)) for p in params]
        store = Store(out, (i,), make(*values))
        array = np.zeros(size, dtype(result).numpy)
        if grid:
            evaluate([*params, out], [*arrays, array], parallel((i,), (size,), store))
        else:
            evaluate([*params, out], [*arrays, array], store, grid=(size,), block_vars=(i,))
        outputs.append(array)
    assert outputs[0].tobytes() == outputs[1].tobytes() or np.array_equal(
        outputs[0].astype(np.float64), outputs[1].astype(np.float64), equal_nan=True
    )
    return outputs[1]


def pairs(values):
    first, second = np.meshgrid(values, values)
    return first.ravel(), second.ravel()


def int_values(name):
    low, high = dtype(name).int_range()
    wanted = [0, 1, -1, 2, 3, -3, 5, 7, low, low + 1, high, high - 1]
    return np.array(sorted({v for v in wanted if low <= v <= high}), dtype(name).numpy)


def wrap(value, name):
    bits = dtype(name).bits
    value %= 1 << bits
    return value - (1 << bits) if dtype(name).kind == "int" and value >> (bits - 1) else value


def trunc_divide(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shift_right(a, b, bits):
    return a >> b if 0 <= b < bits else (-1 if a < 0 else 0)


INTEGER_MEANING = {
    "add": lambda a, b, w: a + b,
    "sub": lambda a, b, w: a - b,
    "mul": lambda a, b, w: a * b,
    "floordiv": lambda a, b, w: a // b if b else 0,
    "floormod": lambda a, b, w: a % b if b else 0,
    "truncdiv": lambda a, b, w: trunc_divide(a, b) if b else 0,
    "truncmod": lambda a, b, w: a - b * trunc_divide(a, b) if b else 0,
    "min": lambda a, b, w: min(a, b),
    "max": lambda a, b, w: max(a, b),
    "bitand": lambda a, b, w: a & b,
    "bitor": lambda a, b, w: a | b,
    "bitxor": lambda a, b, w: a ^ b,
    "shl": lambda a, b, w: a << b if 0 <= b < w else 0,
    "shr": lambda a, b, w: shift_right(a, b, w),
}


@pytest.mark.parametrize("name", INTS)
def test_integer_operators(name):
    a, b = pairs(int_values(name))
    of = dtype(name)
    for op, meaning in INTEGER_MEANING.items():
        result = apply(lambda x, y, op=op: Binary(of, op, x, y), a, b, dtypes=(name, name), result=name)
        expected = [wrap(meaning(int(x), int(y), of.bits), name) for x, y in zip(a, b, strict=True)]
        assert [int(r) for r in result] == expected, op


@pytest.mark.parametrize("name", INTS)
def test_integer_comparisons_and_unary(name):
    a, b = pairs(int_values(name))
    of = dtype(name)
    for op, symbol in {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}.items():
        result = apply(lambda x, y, op=op: Binary(BOOL, op, x, y), a, b, dtypes=(name, name), result="bool")
        expected = [eval(f"{int(x)} {symbol} {int(y)}") for x, y in zip(a, b, strict=True)]
        assert result.tolist() == expected, op
    for op, meaning in {"neg": lambda x: -x, "bitnot": lambda x: ~x}.items():
        result = apply(lambda x, op=op: Unary(of, op, x), a, dtypes=(name,), result=name)
        assert [int(r) for r in result] == [wrap(meaning(int(x)), name) for x in a]
    magnitude = apply(lambda x: Call(of, "abs", (x,)), a, dtypes=(name,), result=name)
    assert [int(r) for r in magnitude] == [wrap(abs(int(x)), name) for x in a]


@pytest.mark.parametrize("name", INTS)
def test_popcount_and_clz(name):
    values = int_values(name)
    bits = dtype(name).bits
    patterns = [int(v) % (1 << bits) for v in values]
    count = apply(lambda x: intrinsic("popcount", x), values, dtypes=(name,), result="int32")
    assert count.tolist() == [bin(p).count("1") for p in patterns]
    leading = apply(lambda x: intrinsic("clz", x), values, dtypes=(name,), result="int32")
    assert leading.tolist() == [bits - p.bit_length() for p in patterns]


def to_narrow(value, name):
    return np.float32(value).astype(dtype(name).numpy).astype(np.float32)


FLOAT_MEANING = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: np.floor(a / b),
    "truncdiv": lambda a, b: np.trunc(a / b),
    "truncmod": np.fmod,
    "min": np.fmin,
    "max": np.fmax,
}


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2fnuz", "float32", "float64", "tfloat32"]
)
@pytest.mark.filterwarnings("ignore")
def test_float_operators_round_at_every_node(name):
    of = dtype(name)
    wide = np.float64 if name == "float64" else np.float32
    a, b = pairs(ADVERSARIAL.astype(of.numpy))
    for op, meaning in FLOAT_MEANING.items():
        result = apply(lambda x, y, op=op: Binary(of, op, x, y), a, b, dtypes=(name, name), result=name)
        expected = meaning(a.astype(wide), b.astype(wide)).astype(of.numpy)
        assert np.array_equal(result.astype(wide), expected.astype(wide), equal_nan=True), op
    double = apply(lambda x, y: x + y + y, a, b, dtypes=(name, name), result=name)
    once = (a.astype(wide) + b.astype(wide)).astype(of.numpy)
    expected = (once.astype(wide) + b.astype(wide)).astype(of.numpy)
    assert np.array_equal(double.astype(wide), expected.astype(wide), equal_nan=True)


def test_float_remainder_has_the_divisors_sign():
    a = np.float32([5.5, -5.5, 5.5, -5.5, 1.0, np.inf, 3.0])
    b = np.float32([2.0, 2.0, -2.0, -2.0, 0.0, 2.0, np.inf])
    result = apply(lambda x, y: x % y, a, b, dtypes=("float32", "float32"), result="float32")
    assert result[:4].tolist() == [1.5, 0.5, -0.5, -1.5]
    assert np.isnan(result[4]) and np.isnan(result[5]) and result[6] == 3.0


@pytest.mark.filterwarnings("ignore")
def test_float_comparisons_with_nan():
    a, b = pairs(np.float32([np.nan, 0.0, -0.0, 1.0]))
    for op, function in {"lt": np.less, "eq": np.equal, "ne": np.not_equal, "ge": np.greater_equal}.items():
        result = apply(lambda x, y, op=op: Binary(BOOL, op, x, y), a, b, dtypes=("float32", "float32"), result="bool")
        assert np.array_equal(result, function(a, b)), op


MATH_MEANING = {
    "exp10": lambda x: 10.0**x,
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "exp2": lambda x: 2.0**x,
    "round": lambda x: float(round(x)),
    "abs": abs,
}


@pytest.mark.parametrize(
    "name", sorted(n for n, i in INTRINSICS.items() if i.arity == 1 and i.domain != "int" and i.result == "same")
)
def test_unary_math_is_the_rounded_true_value(name):
    points = np.float32([0.1, 0.5, 0.75, 0.9]) + (1 if name == "acosh" else 0)
    points = np.float32([0.5, 1.5, 2.5, -0.5, -1.5, 7.25]) if name in ("round", "floor", "ceil", "trunc") else points
    meaning = MATH_MEANING.get(name) or getattr(math, name)
    result = apply(lambda x: intrinsic(name, x), points, dtypes=("float32",), result="float32")
    exact = np.array([meaning(float(x)) for x in points])
    assert np.max(np.abs(result - exact) / np.maximum(np.abs(exact), 1e-30)) <= 2.0**-24 * 1.001
    half = apply(lambda x: intrinsic(name, x), points, dtypes=("float16",), result="float16")
    inputs = points.astype(np.float16).astype(np.float64)
    expected = np.float32([meaning(float(x)) for x in inputs]).astype(np.float16)
    assert half.tolist() == expected.tolist()
    double = apply(lambda x: intrinsic(name, x), points, dtypes=("float64",), result="float64")
    assert np.allclose(double, exact, rtol=1e-14, atol=0)


def test_special_values_of_math():
    def one(name, value):
        return apply(lambda x: intrinsic(name, x), [value], dtypes=("float32",), result="float32")[0]

    assert one("exp", 1000) == np.inf and one("exp", -1000) == 0 and np.isnan(one("log", -1))
    assert one("log", 0) == -np.inf and one("rsqrt", 0) == np.inf and np.isnan(one("sqrt", -1))
    assert one("sigmoid", -1000) == 0 and one("sigmoid", 1000) == 1 and one("tanh", 1000) == 1
    assert one("erf", np.inf) == 1 and one("round", -0.5) == 0 and np.signbit(one("round", -0.5))
    assert np.isnan(one("abs", np.nan)) and one("abs", -0.0) == 0


def test_predicates():
    values = np.float32([0, np.inf, -np.inf, np.nan, 1e-45])
    for name, function in {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}.items():
        result = apply(lambda x, n=name: intrinsic(n, x), values, dtypes=("float32",), result="bool")
        assert np.array_equal(result, function(values))
        narrow = apply(lambda x, n=name: intrinsic(n, x), values, dtypes=("float8_e5m2",), result="bool")
        assert np.array_equal(narrow, function(values))


@pytest.mark.filterwarnings("ignore")
def test_binary_math():
    a, b = pairs(ADVERSARIAL)
    functions = {
        "max_nan": np.maximum,
        "min_nan": np.minimum,
        "fmod": np.fmod,
        "copysign": np.copysign,
        "atan2": lambda x, y: np.arctan2(x.astype(float), y.astype(float)).astype(np.float32),
        "hypot": lambda x, y: np.hypot(x.astype(float), y.astype(float)).astype(np.float32),
    }
    for name, function in functions.items():
        result = apply(lambda x, y, n=name: intrinsic(n, x, y), a, b, dtypes=("float32", "float32"), result="float32")
        assert np.array_equal(result, function(a, b), equal_nan=True), name
    power = apply(lambda x, y: x**y, a, b, dtypes=("float32", "float32"), result="float32")
    assert np.array_equal(power, np.power(a.astype(float), b.astype(float)).astype(np.float32), equal_nan=True)


def test_fma_rounds_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 300)).astype(np.float32)
    near = -(a.astype(np.float64) * b)
    c = np.concatenate(
        [near[:100].astype(np.float32), rng.standard_normal(100).astype(np.float32), near[200:].astype(np.float32) * 2]
    )
    special = np.float32(
        [[1 + 2**-12, 1 + 2**-12, 2.0**-60], [1 + 2**-23, 1 - 2**-24, -(2.0**-50)], [2.0**-75, 2.0**-75, 2.0**-149]]
    )
    a, b, c = (np.concatenate([x, special[:, n]]) for n, x in enumerate((a, b, c)))
    result = apply(lambda x, y, z: intrinsic("fma", x, y, z), a, b, c, dtypes=("float32",) * 3, result="float32")
    for x, y, z, got in zip(a, b, c, result, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        neighbours = [np.nextafter(got, np.float32(-np.inf)), got, np.nextafter(got, np.float32(np.inf))]
        errors = [abs(Fraction(float(n)) - exact) for n in neighbours]
        assert errors[1] <= errors[0] and errors[1] <= errors[2]
    double = apply(
        lambda x, y, z: intrinsic("fma", x, y, z),
        [1 + 2.0**-30, np.inf, 1e308],
        [1 + 2.0**-30, 1, 10],
        [-1 - 2.0**-29, 1, 0],
        dtypes=("float64",) * 3,
        result="float64",
    )
    assert double.tolist() == [2.0**-60, np.inf, np.inf]


def test_logic_and_bits_of_bools():
    a, b = pairs(np.array([True, False]))
    for op, function in {
        "and": np.logical_and,
        "or": np.logical_or,
        "bitxor": np.logical_xor,
        "bitand": np.logical_and,
    }.items():
        result = apply(lambda x, y, op=op: Binary(BOOL, op, x, y), a, b, dtypes=("bool", "bool"), result="bool")
        assert np.array_equal(result, function(a, b)), op
    assert apply(lambda x: ~x, a, dtypes=("bool",), result="bool").tolist() == (~a).tolist()


def test_select_takes_the_chosen_side_only():
    values = np.float32([1, 2, 3, 4])
    x, out, i = buffer("x", (4,)), buffer("out", (4,)), var("i")
    value = Select(F32, i < 2, Load(F32, x, (i + 100,)), Load(F32, x, (i,)) / const(2.0))
    result = np.zeros(4, np.float32)
    evaluate([x, out], [values, result], parallel((i,), (4,), Store(out, (i,), value)))
    assert result.tolist() == [0, 0, 1.5, 2]


@pytest.mark.parametrize(
    "name", ["float16", "bfloat16", "float8_e4m3fn", "float4_e2m1fn", "int4", "uint64", "float64", "bool"]
)
def test_literals_and_casts_between_dtypes(name):
    out = np.zeros(1, dtype(name).numpy)
    target = buffer("out", (1,), name)
    evaluate([target], [out], Store(target, (num(0),), Const(dtype(name), 1)))
    assert float(out[0]) == 1
    result = apply(lambda x: Cast(dtype(name), x), [3.0, 0.0], dtypes=("float32",), result=name)
    assert result.astype(np.float64).tolist() == ([1, 0] if name == "bool" else [3, 0])
    stored = apply(lambda x: x, [2.0, 0.0], dtypes=("float32",), result=name)  # a store casts
    assert stored.astype(np.float64).tolist() == ([1, 0] if name == "bool" else [2, 0])


def test_cast_options():
    result = apply(
        lambda x: Cast(dtype("float8_e4m3fn"), x, "rn", True),
        [1e6, 1.0625],
        dtypes=("float32",),
        result="float8_e4m3fn",
    )
    assert result.astype(float).tolist() == [448, 1.0]
    result = apply(
        lambda x: Cast(dtype("float8_e4m3fn"), x, "rz"), [1e6, 1.12], dtypes=("float32",), result="float8_e4m3fn"
    )
    assert result.astype(float).tolist() == [448, 1.0]


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("float32", "int32"),
        ("bfloat16", "uint16"),
        ("float8_e5m2", "uint8"),
        ("float64", "int64"),
        ("float4_e2m1fn", "uint4"),
    ],
)
def test_reinterpret_keeps_all_bits(source, target):
    of, to = dtype(source), dtype(target)
    size = 16 if of.bits == 4 else 256
    if of.bits <= 8:
        patterns = np.arange(size, dtype=np.uint8)
    else:
        patterns = np.random.default_rng(0).integers(0, 1 << 16, size, np.uint64).astype(f"uint{of.bits}") << np.array(
            of.bits - 16, f"uint{of.bits}"
        )
    values = patterns.view(of.numpy)
    bits = apply(lambda x: Reinterpret(to, x), values, dtypes=(source,), result=target)
    assert bits.astype(np.uint8 if to.bits == 4 else to.numpy).view(patterns.dtype).tolist() == patterns.tolist()
    back = apply(lambda x: Reinterpret(of, Reinterpret(to, x)), values, dtypes=(source,), result=source)
    assert back.view(patterns.dtype).tolist() == patterns.tolist()


def test_index_arithmetic_is_exact_and_wraps_where_it_is_stored():
    i, out, wide = var("i"), buffer("out", (2,), "int32"), buffer("wide", (2,), "int64")
    large = i * 2147483647 + 2147483647 + i
    for make in (lambda s: parallel((i,), (2,), s), None):
        small, exact = np.zeros(2, np.int32), np.zeros(2, np.int64)
        body = [Store(out, (i,), large // num(2)), Store(wide, (i,), cast(large, "int64"))]
        if make is None:
            evaluate([out, wide], [small, exact], *body, grid=(2,), block_vars=(i,))
        else:
            evaluate([out, wide], [small, exact], make(Seq(tuple(body))))
        assert exact.tolist() == [2147483647, 4294967295]
        assert small.tolist() == [1073741823, 2147483647]


def test_loaded_integers_wrap_at_their_width():
    result = apply(lambda x: (x + 1) // 2, [2147483647, 5], dtypes=("int32",), result="int32")
    assert result.tolist() == [-1073741824, 3]
    mixed = apply(lambda x: Binary(BOOL, "gt", x + const(1), const(0)), [2147483647], dtypes=("int32",), result="bool")
    assert mixed.tolist() == [False]


def test_let_keeps_the_value_of_its_time():
    x, out, value, i = buffer("x", (3,)), buffer("out", (3,)), var("v", "float32"), var("i")
    array, result = np.float32([1, 2, 3]), np.zeros(3, np.float32)
    evaluate(
        [x, out],
        [array, result],
        parallel((i,), (3,), Let(value, Load(F32, x, (i,))), Store(x, (i,), const(9.0)), Store(out, (i,), value)),
    )
    assert result.tolist() == [1, 2, 3] and array.tolist() == [9, 9, 9]


def test_out_of_range_reads_and_writes():
    x = buffer("x", (4,), "float16", safe_value=const(7.0))
    y, out, i = buffer("y", (4,), "float16"), buffer("out", (6, 2), "float16"), var("i")
    array = np.arange(1, 5, dtype=np.float16)
    for grid in (True, False):
        result = np.zeros((6, 2), np.float16)
        body = (
            Store(out, (i, num(0)), Load(x.dtype, x, (i - 1,))),
            Store(out, (i, num(1)), Load(y.dtype, y, (i - 1,))),
        )
        body += (Store(out, (i + 3, num(0)), const(50.0, "float16")), Store(out, (i, num(2)), const(50.0, "float16")))
        if grid:
            evaluate([x, y, out], [array, array, result], parallel((i,), (6,), *body))
        else:
            evaluate([x, y, out], [array, array, result], *body, grid=(6,), block_vars=(i,), order="reverse")
        assert result[:, 1].tolist() == [0, 1, 2, 3, 4, 0]
        assert result[:, 0].tolist() == [7, 1, 2, 50, 50, 50]


def test_empty_buffers_read_zero():
    x, out, i = buffer("x", (0,)), buffer("out", (2,)), var("i")
    result = np.ones(2, np.float32)
    evaluate([x, out], [np.zeros(0, np.float32), result], parallel((i,), (2,), Store(out, (i,), Load(F32, x, (i,)))))
    assert result.tolist() == [0, 0]


def test_unknown_operations_are_refused_with_their_place():
    out = buffer("out", (1,))
    bad = Binary(F32, "shl", const(1.0), const(1.0))
    with pytest.raises(VerificationError, match="'shl' is not defined on float32"):
        evaluate([out], [np.zeros(1, np.float32)], Store(out, (num(0),), bad))
    with pytest.raises(VerificationError, match="unknown intrinsic 'magic'"):
        evaluate([out], [np.zeros(1, np.float32)], Store(out, (num(0),), Call(F32, "magic", (const(1.0),))))
    with pytest.raises(VerificationError, match="outside of its scope"):
        evaluate([out], [np.zeros(1, np.float32)], Store(out, (num(0),), var("x", "float32")))
    with pytest.raises(VerificationError, match="1 dimensions, but 2 indices"):
        evaluate([out], [np.zeros(1, np.float32)], Store(out, (num(0), num(0)), const(1.0)))


# --- vectors (lowered IR) ---------------------------------------------------------------------------------


def lanes(name, count):
    return dtype(f"{name}x{count}")


def test_vector_loads_stores_and_masks():
    x, out = buffer("x", (2, 8)), buffer("out", (2, 8))
    array, result = np.arange(16, dtype=np.float32).reshape(2, 8), np.zeros((2, 8), np.float32)
    ramp = Ramp(lanes("int32", 4), num(2), num(1))
    value = Load(lanes("float32", 4), x, (num(1), ramp)) * Broadcast(lanes("float32", 4), const(2.0))
    mask = Binary(lanes("bool", 4), "lt", ramp, Broadcast(lanes("int32", 4), num(4)))
    evaluate(
        [x, out],
        [array, result],
        Store(out, (num(0), ramp), value),
        Store(out, (num(1), Ramp(lanes("int32", 4), num(0), num(2))), value, mask),
        level="lowered",
    )
    assert result.tolist() == [[0, 0, 20, 22, 24, 26, 0, 0], [20, 0, 22, 0, 0, 0, 0, 0]]


def test_masked_vector_load_gives_zero_where_the_mask_does_not_hold():
    x, out = buffer("x", (3,)), buffer("out", (4,))
    ramp = Ramp(lanes("int32", 4), num(0), num(1))
    mask = Binary(lanes("bool", 4), "lt", ramp, Broadcast(lanes("int32", 4), num(3)))
    result = np.full(4, 9, np.float32)
    evaluate(
        [x, out],
        [np.float32([1, 2, 3]), result],
        Store(out, (ramp,), Load(lanes("float32", 4), x, (ramp,), mask)),
        level="lowered",
    )
    assert result.tolist() == [1, 2, 3, 0]


def test_lowered_access_out_of_range_is_an_error():
    x, out = buffer("x", (3,)), buffer("out", (4,))
    ramp = Ramp(lanes("int32", 4), num(0), num(1))
    args = [np.float32([1, 2, 3]), np.zeros(4, np.float32)]
    with pytest.raises(VerificationError, match=r"load from x\[\[0 1 2 3\]\] is out of range: its shape is \(3\)"):
        evaluate([x, out], args, Store(out, (ramp,), Load(lanes("float32", 4), x, (ramp,))), level="lowered")
    with pytest.raises(VerificationError, match=r"store to out\[4\] is out of range"):
        evaluate([x, out], args, Store(out, (num(4),), const(1.0)), level="lowered")
    guarded = Select(F32, Binary(BOOL, "lt", num(5), num(3)), Load(F32, x, (num(5),)), const(6.0))
    evaluate([x, out], args, Store(out, (num(0),), guarded), level="lowered")
    assert args[1][0] == 6


def test_gather_and_scatter():
    x, table, out = buffer("x", (8,)), buffer("table", (4,), "int32"), buffer("out", (8,))
    ramp = Ramp(lanes("int32", 4), num(0), num(1))
    places = Load(lanes("int32", 4), table, (ramp,))
    result = np.zeros(8, np.float32)
    evaluate(
        [x, table, out],
        [np.arange(8, dtype=np.float32), np.int32([5, 0, 7, 2]), result],
        Store(out, (places,), Load(lanes("float32", 4), x, (places,)) + Broadcast(lanes("float32", 4), const(1.0))),
        level="lowered",
    )
    assert result.tolist() == [1, 0, 3, 0, 0, 6, 0, 8]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32", "int8"])
def test_shuffle_and_vector_reductions(name):
    x, out, total = buffer("x", (4,), name), buffer("out", (4,), name), buffer("total", (3,), name)
    of, ramp = lanes(name, 4), Ramp(lanes("int32", 4), num(0), num(1))
    array = np.array([100, 27, -3, 5]).astype(dtype(name).numpy)
    result, sums = np.zeros(4, dtype(name).numpy), np.zeros(3, dtype(name).numpy)
    value = Load(of, x, (ramp,))
    body = [Store(out, (ramp,), Shuffle(of, value, value + value, (3, 4, 7, 0)))]
    body += [
        Store(total, (num(n),), VectorReduce(dtype(name), op, value)) for n, op in enumerate(("add", "max", "min"))
    ]
    evaluate([x, out, total], [array, result, sums], *body, level="lowered")
    exact = [5, wrap(200, name) if dtype(name).is_int else 200, 10, 100]
    assert result.astype(float).tolist() == exact
    add = wrap(129, name) if dtype(name).is_int else float(np.float32(129).astype(dtype(name).numpy))
    assert sums.astype(float).tolist() == [add, 100, -3]


def test_vector_reinterpret_changes_lanes():
    out = buffer("out", (4,), "uint8")
    ramp = Ramp(lanes("int32", 4), num(0), num(1))
    result = np.zeros(4, np.uint8)
    evaluate(
        [out],
        [result],
        Store(out, (ramp,), Reinterpret(lanes("uint8", 4), Const(dtype("uint32"), 0x04030201))),
        level="lowered",
    )
    assert result.tobytes() == np.uint32(0x04030201).tobytes()
    word = buffer("word", (1,), "uint32")
    back = np.zeros(1, np.uint32)
    evaluate(
        [out, word],
        [result, back],
        Store(word, (num(0),), Reinterpret(dtype("uint32"), Load(lanes("uint8", 4), out, (ramp,)))),
        level="lowered",
    )
    assert back.tolist() == [0x04030201]


def test_dot2():
    a, acc = buffer("a", (4,), "bfloat16"), buffer("acc", (2,))
    ramp4, ramp2 = Ramp(lanes("int32", 4), num(0), num(1)), Ramp(lanes("int32", 2), num(0), num(1))
    pair, total = Load(lanes("bfloat16", 4), a, (ramp4,)), Load(lanes("float32", 2), acc, (ramp2,))
    result = np.float32([10, 20])
    evaluate(
        [a, acc],
        [np.array([1, 2, 3, 4], ml_dtypes.bfloat16), result],
        Store(acc, (ramp2,), Call(lanes("float32", 2), "dot2_bf16", (total, pair, pair))),
        level="lowered",
    )
    assert result.tolist() == [15, 45]


def test_register_buffers_hold_vectors():
    registers = buffer("r", (2,), "float32x4", "register")
    out, ramp = buffer("out", (4,)), Ramp(lanes("int32", 4), num(0), num(1))
    held = var("held", "float32x4")
    first = (num(0),)
    result = np.zeros(4, np.float32)
    evaluate(
        [out],
        [result],
        Alloc(registers),
        Store(registers, first, Const(lanes("float32", 4), 1.5)),
        Let(held, Load(registers.dtype, registers, first)),
        Store(registers, first, held + held),
        If(
            Binary(BOOL, "lt", num(0), num(1)),
            Seq((Store(out, (ramp,), Load(registers.dtype, registers, first) + held),)),
        ),
        level="lowered",
    )
    assert result.tolist() == [4.5] * 4


def test_fill_casts_its_value():
    out = buffer("out", (2, 2), "int8")
    result = np.zeros((2, 2), np.int8)
    evaluate([out], [result], Fill(region(out, (0, 1), (2, 5)), const(300.7)))
    assert result.tolist() == [[0, 127], [0, 127]]
