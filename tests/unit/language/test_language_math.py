"""Scalar math, operators, casts and limits from Python source, on awkward numbers too."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from language_harness import both_targets, near, random, run, same

import tilewright.language as T

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-3, 3.7, -7.3, 20.0, -20.0, np.inf, -np.inf, np.nan]
_erf = np.vectorize(math.erf)


def mapped(functions, of="float32", result=None, arity=1):
    """out[f, i] = functions[f](x[i], y[i])."""
    results = result or of

    @T.prim_func
    def main(
        X: T.Tensor((T.dynamic("n"),), of),
        Y: T.Tensor((T.dynamic("n"),), of),
        Z: T.Tensor((len(functions), T.dynamic("n")), results),
    ):
        with T.Kernel(1):
            for i in T.Parallel(X.shape[0]):
                for f, function in enumerate(functions):
                    Z[f, i] = function(X[i], Y[i]) if arity == 2 else function(X[i])

    return main


UNARY = {
    "exp": np.exp, "exp2": np.exp2, "exp10": lambda x: 10.0**x, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asinh": np.arcsinh, "acosh": np.arccosh,
    "atanh": np.arctanh, "erf": _erf, "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "round": np.rint, "nearbyint": np.rint, "rint": np.rint, "abs": np.abs, "fabs": np.abs, "__exp": np.exp, "__exp2": np.exp2,
    "__log": np.log, "__sin": np.sin, "__cos": np.cos, "fast_exp": np.exp, "fast_tanh": np.tanh, "ieee_fsqrt": np.sqrt,
    "ieee_frcp": lambda x: 1 / x, "ieee_frsqrt": lambda x: 1 / np.sqrt(x), "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
}  # fmt: skip


@both_targets
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "float64"])
def test_functions_of_one_number(of, target):
    x = np.concatenate([np.array(SPECIAL, random((1,), of).dtype), random((21,), of)])
    names = list(UNARY)
    z = np.zeros((len(names), len(x)), x.dtype)
    run(mapped([getattr(T, name) for name in names], of), x, x, z, target=target)
    with np.errstate(all="ignore"):
        for name, row in zip(names, z, strict=True):
            expected = UNARY[name](x.astype(np.float64)).astype(np.float64)
            expected = np.where(
                np.abs(expected) > float(ml_dtypes.finfo(x.dtype).max), np.sign(expected) * np.inf, expected
            )
            near(row, expected, of, k=9)


BINARY = {
    "max": np.fmax, "min": np.fmin, "max_nan": np.maximum, "min_nan": np.minimum, "atan2": np.arctan2, "fmod": np.fmod, "copysign": np.copysign,
    "hypot": np.hypot, "pow": np.power, "div": np.divide, "ieee_add": np.add, "ieee_sub": np.subtract, "ieee_mul": np.multiply,
    "ieee_fdiv": np.divide, "floordiv": lambda x, y: np.floor(x / y), "truncdiv": lambda x, y: np.trunc(x / y),
}  # fmt: skip


@both_targets
def test_functions_of_two_numbers(target):
    x, y = (v.reshape(-1) for v in np.meshgrid(np.array(SPECIAL, np.float32), np.array(SPECIAL, np.float32)))
    names = list(BINARY)
    z = np.zeros((len(names), len(x)), np.float32)
    run(mapped([getattr(T, name) for name in names], arity=2), x, y, z, target=target)
    with np.errstate(all="ignore"):
        for name, row in zip(names, z, strict=True):
            expected = (
                BINARY[name](x, y)
                if name in ("floordiv", "truncdiv")
                else BINARY[name](x.astype(np.float64), y.astype(np.float64))
            )
            expected = np.where(np.abs(expected) > np.finfo(np.float32).max, np.sign(expected) * np.inf, expected)
            near(row, expected, "float32", k=9)


INTEGER = {
    "+": (lambda x, y: x + y, np.add), "-": (lambda x, y: x - y, np.subtract), "*": (lambda x, y: x * y, np.multiply),
    "//": (lambda x, y: x // y, np.floor_divide), "%": (lambda x, y: x % y, np.remainder),
    "truncdiv": (T.truncdiv, lambda x, y: np.where(y == 0, 0, np.trunc(x / np.where(y == 0, 1, y)))),
    "truncmod": (T.truncmod, lambda x, y: np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y)))),
    "&": (lambda x, y: x & y, np.bitwise_and), "|": (T.bitwise_or, np.bitwise_or), "^": (lambda x, y: x ^ y, np.bitwise_xor),
    "~": (lambda x, y: ~x, lambda x, y: ~x), "<<": (lambda x, y: x << (y & 3), lambda x, y: x << (y & 3)),
    ">>": (lambda x, y: x >> (y & 3), lambda x, y: x >> (y & 3)), "max": (T.max, np.maximum), "min": (T.min, np.minimum),
    "abs": (lambda x, y: abs(x), lambda x, y: np.abs(x)), "neg": (lambda x, y: -x, lambda x, y: -x),
    "clamp": (lambda x, y: T.clamp(x, -2, 3), lambda x, y: np.clip(x, -2, 3)),
    "ceildiv": (lambda x, y: T.ceildiv(x, 4), lambda x, y: -(-x // 4)),
    "popcount": (lambda x, y: T.popcount(x & 255), lambda x, y: np.vectorize(lambda v: bin(v).count("1"))(x & 255)),
    "clz": (lambda x, y: T.clz(x & 255), lambda x, y: np.vectorize(lambda v: 32 - int(v).bit_length())(x & 255)),
    "chain": (lambda x, y: T.cast(T.And(x > 0, x <= y), "int32"), lambda x, y: (x > 0) & (x <= y)),
    "logic": (lambda x, y: T.cast(T.Or(T.Not(x > 0), y == 2), "int32"), lambda x, y: ~(x > 0) | (y == 2)),
    "select": (lambda x, y: T.if_then_else(x > y, x, y * 2), lambda x, y: np.where(x > y, x, y * 2)),
    "Select": (lambda x, y: T.Select(x != y, x, 0), lambda x, y: np.where(x != y, x, 0)),
    "where": (lambda x, y: T.where(x >= 0, 1, -1), lambda x, y: np.where(x >= 0, 1, -1)),
}  # fmt: skip


@both_targets
def test_integers(target):
    x, y = (v.reshape(-1).astype(np.int32) for v in np.meshgrid(np.arange(-9, 10), np.arange(-4, 5)))
    z = np.zeros((len(INTEGER), len(x)), np.int32)
    run(mapped([f for f, _ in INTEGER.values()], "int32", arity=2), x, y, z, target=target)
    with np.errstate(all="ignore"):
        for (name, (_, expected)), row in zip(INTEGER.items(), z, strict=True):
            np.testing.assert_array_equal(row, expected(x, y), err_msg=name)


@both_targets
def test_integers_wrap(target):
    x, y = np.array([2**31 - 1, -(2**31), 2**30], np.int32), np.array([1, -1, 4], np.int32)
    z = np.zeros((3, 3), np.int32)
    run(mapped([lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y], "int32", arity=2), x, y, z, target=target)
    with np.errstate(over="ignore"):
        same(z, [x + y, x * y, x - y])


CASTS = [
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e5m2",
    "int8",
    "uint8",
    "int32",
    "int64",
    "bool",
]


@both_targets
@pytest.mark.parametrize("to", CASTS)
def test_casts_round_to_the_nearest_even_and_integers_saturate(to, target):
    x = np.array(
        [0, 0.3, -0.3, 1.5, 2.5, -2.5, 3.0625, 1 + 2**-8, 1 + 3 * 2**-9, 17.5, -127.6, 200.2, 300, -1e9], np.float32
    )
    z = np.zeros((2, len(x)), random((1,), to).dtype)
    run(
        mapped(
            [lambda v: T.cast(v, to), getattr(T, to) if to != "bool" else (lambda v: v.astype("bool"))], "float32", to
        ),
        x,
        x,
        z,
        target=target,
    )
    if z.dtype.kind in "iu":
        info = np.iinfo(z.dtype)
        expected = np.clip(np.trunc(x.astype(np.float64)), info.min, info.max)
    else:
        with np.errstate(over="ignore"):
            expected = x.astype(z.dtype)
    same(z[0], expected)
    same(z[1], expected)


@both_targets
def test_rounding_towards_zero_saturation_and_nan(target):
    x = np.array([1 + 2**-9, 1 + 3 * 2**-10, -1 - 3 * 2**-10, 1e6, -1e6, np.inf, 70000.0], np.float32)
    z = np.zeros((3, len(x)), np.float32)
    functions = [
        lambda v: T.cast(T.cast(v, "bfloat16", round="rz"), "float32"),
        lambda v: T.cast(T.cast(v, "float16", sat=True), "float32"),
        lambda v: T.cast(T.cast(v, "float8_e4m3fn", sat=True), "float32"),
    ]
    run(mapped(functions), x, x, z, target=target)
    truncated = (x.view(np.uint32) & 0xFFFF0000).view(np.float32)
    same(z[0], truncated)
    same(z[1], np.clip(x, -65504, 65504).astype(np.float16))
    same(z[2], np.clip(x, -448, 448).astype(ml_dtypes.float8_e4m3fn))
    y, w = np.array([np.nan], np.float32), np.zeros((1, 1), np.int32)
    run(mapped([lambda v: T.cast(v, "int32")], "float32", "int32"), y, y, w, target=target)
    same(w, [[0]])


@both_targets
def test_reinterpretation_and_limits(target):
    x = random((17,))
    z = np.zeros((6, 17), np.int32)
    functions = [
        lambda v: T.reinterpret(v, "int32"),
        lambda v: T.reinterpret("int32", v),
        lambda v: T.cast(v < T.infinity("float32"), "int32"),
        lambda v: T.max_value("int8") + T.cast(T.min_value("int16"), "int32"),
        lambda v: T.cast(T.cast(T.max_value("float16"), "float32") == 65504, "int32"),
        lambda v: T.cast(T.min_value("bfloat16"), "float32") < v,
    ]
    run(mapped(functions, "float32", "int32"), x, x, z, target=target)
    bits = x.view(np.int32)
    same(z, [bits, bits, np.ones(17), np.full(17, 127 - 32768), np.ones(17), np.ones(17)])


@pytest.mark.parametrize(
    "of",
    ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"],
)
def test_limits_are_those_of_the_format(of):
    info = ml_dtypes.finfo(random((1,), of).dtype)
    assert (T.max_value(of).value, T.min_value(of).value) == (float(info.max), float(info.min))


def test_python_numbers_stay_python_numbers():
    assert (
        T.ceildiv(7, 2),
        T.max(3, 5, 4),
        T.min(2.5, 1),
        T.floordiv(-7, 2),
        T.truncdiv(-7, 2),
        T.floormod(-7, 2),
    ) == (4, 5, 1, -4, -3, 1)
    assert (T.truncmod(-7, 2), T.abs(-3), T.clamp(9, 0, 4), T.shift_left(1, 4), T.And(True, False), T.Not(0)) == (
        -1,
        3,
        4,
        16,
        False,
        True,
    )


@both_targets
def test_a_load_on_the_side_that_is_not_taken_has_no_effect(target):
    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(16):
                inside = 4 <= i < 12
                B[i] = A[i - 4] if inside else -1.0
                if (not inside and i > 12) or i == 0:
                    B[i] = 5

    a, b = random((8,)), np.zeros(16, np.float32)
    run(main, a, b, target=target)
    expected = np.concatenate([[5, -1, -1, -1], a, [-1, 5, 5, 5]])
    same(b, expected)
