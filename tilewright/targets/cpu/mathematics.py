"""Transcendental functions.

On float lanes those that kernels live on are polynomials, good to about 2 units in the last place on the whole
range, subnormals, infinities and NaN included (`tests/numeric/test_cpu_emit_math.py` measures them); the coefficients are
minimax fits on the stated interval, rounded to float32 one after the other.  Everything else, and all of double,
is the C library's, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.targets.cpu.exponentials import exp, exp2, exp10, expm1
from tilewright.targets.cpu.float_lanes import (
    LG2_HIGH,
    LG2_LOW,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    Lanes,
    any_lane,
    float32_error,
)
from tilewright.targets.cpu.values import Value, real, suffix
from tilewright.targets.cpu.writer import Writer

_LIBRARY = frozenset("tan asin acos atan sinh cosh asinh acosh atanh atan2".split())  # noqa: SIM905
_INFINITY = math.inf


def emit(w: Writer, name: str, args: list[Value]) -> Value:
    """The function `name` of `FUNCTIONS`, on float or double lanes."""
    if args[0].scalar_type == "double":
        special = _DOUBLE.get(name)
        return special(w, args[0]) if special is not None else w.libm(name, *args)
    function = _FLOAT.get(name)
    return function(w, *args) if function is not None else w.libm(f"{name}f", *args)


def sigmoid(w: Writer, x: Value) -> Value:
    """1 / (1 + exp(-x)), by way of exp(-|x|), which does not overflow."""
    f = Lanes(w, x)
    small = exp(w, w.op(f"fneg {f.magnitude(x).operand}", x.type, x.lanes, f.magnitude(x)))
    top = f.pick(f.test("olt", x, 0.0), small, f.real(1.0))
    return f.div(top, f.add(small, f.real(1.0)))


# (tanh x - x) / x^3 in x^2 for |x| <= 0.625; relative error 5e-9.
_TANH = (-0.3333328068256378, 0.1333141326904297, -0.0537375807762146, 0.020632779225707054, -0.0056985002011060715)


def tanh(w: Writer, x: Value) -> Value:
    f = Lanes(w, x)
    square, size = f.mul(x, x), f.magnitude(x)
    near = f.mad(f.mul(square, x), f.poly(square, _TANH), x)
    grown = f.add(exp(w, f.add(size, size)), f.real(1.0))
    far = f.sub(f.real(1.0), f.div(f.real(2.0), grown))
    return f.pick(f.test("olt", size, 0.625), near, w.intrinsic("copysign", far, x))


# erf x / x - 1 in x^2 for |x| <= 1, and log(1 - erf x) for 1 <= x <= 4.
_ERF_NEAR = (
    0.12837916612625122,
    -0.3761262595653534,
    0.11283578723669052,
    -0.026853347197175026,
    0.005187162198126316,
    -0.0007997853099368513,
    7.806903158780187e-05,
)
_ERF_FAR = (
    0.0001884712983155623,
    -1.1295803785324097,
    -0.633216142654419,
    -0.10842252522706985,
    0.02521071583032608,
    -0.0042054662480950356,
    0.0004415175353642553,
    -2.1702013327740133e-05,
)


def erf(w: Writer, x: Value) -> Value:
    f = Lanes(w, x)
    square = f.mul(x, x)
    near = f.mad(f.poly(square, _ERF_NEAR), x, x)
    size = f.clamp(f.magnitude(x), 0.0, 4.0)
    far = f.sub(f.real(1.0), exp(w, f.poly(size, _ERF_FAR)))
    return f.pick(f.test("olt", f.magnitude(x), 1.0), near, w.intrinsic("copysign", far, x))


# --- logarithms ---------------------------------------------------------------------------------------------

# (log(1 + f) - f + f^2 / 2) / f^3 on |f| <= 1/3; relative error of the logarithm 5e-9.
_LOG = (
    0.3333321511745453,
    -0.24999798834323883,
    0.2001044899225235,
    -0.16680441796779633,
    0.14005227386951447,
    -0.1218481957912445,
    0.1398739516735077,
    -0.1288950890302658,
)
_TWO_THIRDS = 0x3F2AAAAB
"""Bits of 2/3: mantissas are taken from [2/3, 4/3)."""


def _log_tail(f: Lanes, x: Value) -> Value:
    """log(1 + x) - x for -1/3 <= x <= 1/3."""
    square = f.mul(x, x)
    return f.mad(square, f.real(-0.5), f.mul(f.mul(square, x), f.poly(x, _LOG)))


def _split(f: Lanes, x: Value) -> tuple[Value, Value]:
    """(mantissa - 1, exponent) of a positive number."""
    w = f.w
    tiny = f.test("olt", x, 2.0**-126)
    bits = w.as_bits(f.pick(tiny, f.mul(x, f.real(2.0**23)), x))
    lift = w.select(tiny, f.int(-23), f.int(0))
    exponent = w.bin("ashr", w.bin("sub", bits, f.int(_TWO_THIRDS)), f.int(23))
    mantissa = f.floats(w.bin("sub", bits, w.bin("shl", exponent, f.int(23))))
    return f.sub(mantissa, f.real(1.0)), w.convert("sitofp", w.bin("add", exponent, lift), "float")


def _log_ends(f: Lanes, x: Value, result: Value) -> Value:
    """The logarithm of 0, infinity, negative numbers and NaN."""
    result = f.pick(f.test("oeq", x, _INFINITY), x, result)
    result = f.pick(f.test("oeq", x, 0.0), f.real(-_INFINITY), result)
    return f.pick(f.test("uge", x, 0.0), f.pick(f.w.fcmp("uno", x, x), x, result), f.real(math.nan))


def log(w: Writer, x: Value) -> Value:
    f = Lanes(w, x)
    mantissa, exponent = _split(f, x)
    low = f.mad(exponent, f.real(LN2_LOW), f.add(mantissa, _log_tail(f, mantissa)))
    return _log_ends(f, x, f.mad(exponent, f.real(LN2_HIGH), low))


def _log_in_base(w: Writer, x: Value, factor: float, unit_high: float, unit_low: float) -> Value:
    """log(mantissa) * factor + exponent * (unit_high + unit_low)."""
    f = Lanes(w, x)
    mantissa, exponent = _split(f, x)
    low = f.mad(_log_tail(f, mantissa), f.real(factor), f.mul(mantissa, f.real(float32_error(factor))))
    if unit_low:
        low = f.mad(exponent, f.real(unit_low), low)
    low = f.mad(mantissa, f.real(factor), low)
    return _log_ends(f, x, f.mad(exponent, f.real(unit_high), low))


def log2(w: Writer, x: Value) -> Value:
    return _log_in_base(w, x, LOG2_E, 1.0, 0.0)


def log10(w: Writer, x: Value) -> Value:
    return _log_in_base(w, x, math.log10(math.e), LG2_HIGH, LG2_LOW)


def log1p(w: Writer, x: Value) -> Value:
    """The mantissa of 1 + x is made from x itself, so that nothing is lost where x is small."""
    f = Lanes(w, x)
    total = f.add(x, f.real(1.0))
    rounded, exponent = _split(f, total)
    whole = w.convert("fptosi", f.clamp(exponent, -30.0, 30.0), "i32")
    power = f.floats(w.bin("shl", w.bin("sub", f.int(127), whole), f.int(23)))
    exact = f.mad(x, power, f.sub(power, f.real(1.0)))
    near = f.test("olt", f.magnitude(exponent), 24.0)
    mantissa = f.pick(near, exact, rounded)
    result = f.add(mantissa, _log_tail(f, mantissa))
    result = f.mad(exponent, f.real(LN2_HIGH), f.mad(exponent, f.real(LN2_LOW), result))
    return f.pick(f.test("oeq", x, 0.0), x, _log_ends(f, total, result))


# --- sine and cosine ----------------------------------------------------------------------------------------

# (sin r - r) / r^3 and (cos r - 1 + r^2 / 2) / r^4 in r^2 for |r| <= pi / 4.
_SIN = (-0.16666655242443085, 0.008332191966474056, -0.00019518785120453686)
_COS = (0.04166664555668831, -0.00138873013202101, 2.443066296109464e-05)

_REDUCED = 2.0**20
"""Larger arguments go to the C library: the multiple of pi / 2 times the first part below must be exact."""
# pi / 2 in two parts, the first of 33 bits.
_HALF_PI_HIGH = float.fromhex("0x1.921fb544p+0")
_HALF_PI_LOW = float.fromhex("0x1.0b4611a626331p-34")
_DOUBLE_ROUNDING = 1.5 * 2.0**52


def sin(w: Writer, x: Value) -> Value:
    return _circular(w, "sin", x)


def cos(w: Writer, x: Value) -> Value:
    return _circular(w, "cos", x)


def _circular(w: Writer, name: str, x: Value) -> Value:
    """A call of an internal function, which has a branch for large arguments."""
    full = f"tw.{name}.{suffix(x.type)}"
    module = w.module
    if full not in module.internal:
        module.internal[full] = None
        inner = Writer(module, f"define internal {x.type} @{full}({x.type} %x) nounwind noinline memory(none)")
        _circular_body(inner, name, Value("%x", x.type, x.lanes))
        inner.finish()
    return w.call(full, x.type, x.lanes, x)


def _circular_body(w: Writer, name: str, x: Value) -> None:
    f = Lanes(w, x)
    result = _reduced_circular(w, f, name, x)
    size = f.magnitude(x)
    large = w.bin("and", f.test("oge", size, _REDUCED), f.test("one", size, _INFINITY))
    w.emit(f"br i1 {any_lane(w, large).text}, label %large, label %small, !prof {w.module.unlikely()}")
    w.place("small")
    w.emit(f"ret {result.operand}")
    w.place("large")
    # Only the lanes that need it pay; the others are given 0.
    exact = w.libm(f"{name}f", f.pick(large, x, f.real(0.0)))
    w.emit(f"ret {f.pick(large, exact, result).operand}")


def _reduced_circular(w: Writer, f: Lanes, name: str, x: Value) -> Value:
    lanes = x.lanes
    wide = w.convert("fpext", x, "double")
    shift = real(_DOUBLE_ROUNDING, "double", lanes)
    shifted = w.bin("fadd", w.bin("fmul", wide, real(2 / math.pi, "double", lanes)), shift)
    whole = w.bin("fsub", shifted, shift)
    quadrant = w.convert("trunc", w.as_bits(shifted), "i32")
    rest = w.bin("fsub", wide, w.bin("fmul", whole, real(_HALF_PI_HIGH, "double", lanes)))
    rest = w.bin("fsub", rest, w.bin("fmul", whole, real(_HALF_PI_LOW, "double", lanes)))
    r = w.convert("fptrunc", rest, "float")
    square = f.mul(r, r)
    sine = f.mad(f.mul(square, r), f.poly(square, _SIN), r)
    cosine = f.mad(f.mul(square, square), f.poly(square, _COS), f.mad(square, f.real(-0.5), f.real(1.0)))
    if name == "cos":
        quadrant = w.bin("add", quadrant, f.int(1))
    odd = w.icmp("ne", w.bin("and", quadrant, f.int(1)), f.int(0))
    sign = w.bin("shl", w.bin("and", quadrant, f.int(2)), f.int(30))
    picked = w.as_bits(f.pick(odd, cosine, sine))
    result = f.floats(w.bin("xor", picked, sign))
    return f.pick(f.test("oeq", x, 0.0), x, result) if name == "sin" else result


# --- others -------------------------------------------------------------------------------------------------


def hypot(w: Writer, x: Value, y: Value) -> Value:
    """In double, where nothing overflows."""
    f = Lanes(w, x)
    a, b = w.convert("fpext", x, "double"), w.convert("fpext", y, "double")
    total = w.bin("fadd", w.bin("fmul", a, a), w.bin("fmul", b, b))
    root = w.convert("fptrunc", w.intrinsic("sqrt", total), "float")
    infinite = w.bin("or", f.test("oeq", f.magnitude(x), _INFINITY), f.test("oeq", f.magnitude(y), _INFINITY))
    return f.pick(infinite, f.real(_INFINITY), root)


def _sigmoid_double(w: Writer, x: Value) -> Value:
    one, zero = real(1.0, "double", x.lanes), real(0.0, "double", x.lanes)
    size = w.intrinsic("fabs", x)
    small = w.libm("exp", w.bin("fsub", zero, size))
    top = w.select(w.fcmp("olt", x, zero), small, one)
    return w.bin("fdiv", top, w.bin("fadd", small, one))


_DOUBLE: dict[str, Callable[[Writer, Value], Value]] = {
    "sigmoid": _sigmoid_double,
    "exp10": lambda w, x: w.libm("pow", real(10.0, "double", x.lanes), x),
}
_FLOAT: dict[str, Callable[..., Value]] = {
    function.__name__: function
    for function in (exp, exp2, exp10, expm1, log, log2, log10, log1p, sin, cos, tanh, erf, sigmoid, hypot)
}
FUNCTIONS = frozenset(_FLOAT) | _LIBRARY
