"""Scalar math.  On Python numbers the integer helpers (`ceildiv`, `max`, `min`, ...) give Python numbers."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

from tilewright.errors import ArgumentValueError, UnsupportedOnTargetError
from tilewright.ir.expr import Expr, as_bool, as_expr, binary, call, select, unary
from tilewright.ir.intrinsics import intrinsic
from tilewright.source import caller_location

Number = Any  # an expression, a Python number, or what converts to an expression


def _operand(value: Any) -> Any:
    return value.as_expr() if hasattr(value, "as_expr") else value


def _all_python(*values: Any) -> bool:
    return all(isinstance(v, (bool, int, float)) for v in values)


def _unary(name: str, purpose: str) -> Callable[[Number], Expr]:
    def function(x: Number) -> Expr:
        return intrinsic(name, _operand(x), loc=caller_location())

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{purpose}  Integers are converted to float32."
    return function


exp = _unary("exp", "e to the power x.")
exp2 = _unary("exp2", "2 to the power x.")
exp10 = _unary("exp10", "10 to the power x.")
expm1 = _unary("expm1", "exp(x) - 1.")
log = _unary("log", "Natural logarithm.")
log2 = _unary("log2", "Logarithm to base 2.")
log10 = _unary("log10", "Logarithm to base 10.")
log1p = _unary("log1p", "log(1 + x).")
sqrt = _unary("sqrt", "Square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
sin = _unary("sin", "Sine.")
cos = _unary("cos", "Cosine.")
tan = _unary("tan", "Tangent.")
asin = _unary("asin", "Arc sine.")
acos = _unary("acos", "Arc cosine.")
atan = _unary("atan", "Arc tangent.")
sinh = _unary("sinh", "Hyperbolic sine.")
cosh = _unary("cosh", "Hyperbolic cosine.")
tanh = _unary("tanh", "Hyperbolic tangent.")
asinh = _unary("asinh", "Inverse hyperbolic sine.")
acosh = _unary("acosh", "Inverse hyperbolic cosine.")
atanh = _unary("atanh", "Inverse hyperbolic tangent.")
erf = _unary("erf", "Error function.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
isnan = _unary("isnan", "Whether x is NaN.")
isinf = _unary("isinf", "Whether x is an infinity.")
isfinite = _unary("isfinite", "Whether x is neither NaN nor an infinity.")
popcount = _unary("popcount", "How many bits of an integer are set.")
clz = _unary("clz", "How many leading bits of an integer are 0.")

# Fast variants may be less exact on a GPU; their meaning is that of the plain functions.
__exp = exp
__exp2 = exp2
__exp10 = exp10
__log = log
__log2 = log2
__log10 = log10
__sin = sin
__cos = cos
__tan = tan
fast_exp = exp
fast_log = log
fast_tanh = tanh
ieee_fsqrt_default = sqrt


def _rounding(name: str, purpose: str) -> Callable[[Number], Expr]:
    def function(x: Number) -> Expr:
        value = as_expr(_operand(x), loc=caller_location())
        return value if value.dtype.is_int else intrinsic(name, value, loc=caller_location())

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{purpose}  An integer is given back."
    return function


floor = _rounding("floor", "Largest integer that is not above x, as a float.")
ceil = _rounding("ceil", "Smallest integer that is not below x, as a float.")
trunc = _rounding("trunc", "x rounded towards zero, as a float.")
round = _rounding("round", "Nearest integer, halves to the even one, as a float.")
nearbyint = round
rint = round


def abs(x: Number) -> Any:
    """Magnitude."""
    if _all_python(x):
        return builtins.abs(x)
    value = as_expr(_operand(x), loc=caller_location())
    return call("abs", (value,), value.dtype, loc=caller_location())


fabs = abs


def _pairwise(op: str, python: Callable[[Any, Any], Any], purpose: str) -> Callable[[Number, Number], Any]:
    def function(x: Number, y: Number) -> Any:
        x, y = _operand(x), _operand(y)
        return python(x, y) if _all_python(x, y) else binary(op, x, y, loc=caller_location())

    function.__name__ = function.__qualname__ = op
    function.__doc__ = purpose
    return function


def _python_truncdiv(a: int, b: int) -> int:
    return builtins.abs(a) // builtins.abs(b) * (1 if (a < 0) == (b < 0) else -1)


floordiv = _pairwise("floordiv", lambda a, b: a // b, "Quotient rounded towards minus infinity.")
floormod = _pairwise("floormod", lambda a, b: a % b, "Remainder with the divisor's sign.")
truncdiv = _pairwise("truncdiv", _python_truncdiv, "Quotient rounded towards zero.")
truncmod = _pairwise("truncmod", lambda a, b: a - b * _python_truncdiv(a, b), "Remainder with the dividend's sign.")
pow = _pairwise("pow", lambda a, b: a**b, "x to the power y.")
power = pow
div = _pairwise("div", lambda a, b: a / b, "Quotient; of integers in float32.")
indexdiv = floordiv
indexmod = floormod
bitwise_and = _pairwise("bitand", lambda a, b: a & b, "Bitwise and.")
bitwise_or = _pairwise("bitor", lambda a, b: a | b, "Bitwise or.")
bitwise_xor = _pairwise("bitxor", lambda a, b: a ^ b, "Bitwise exclusive or.")
shift_left = _pairwise("shl", lambda a, b: a << b, "x shifted left by y bits.")
shift_right = _pairwise("shr", lambda a, b: a >> b, "x shifted right by y bits, keeping the sign of signed integers.")


def bitwise_not(x: Number) -> Expr:
    """All bits of an integer inverted."""
    return unary("bitnot", _operand(x), loc=caller_location())


def _extreme(op: str, python: Callable[..., Any], purpose: str) -> Callable[..., Any]:
    def function(*values: Number) -> Any:
        given = tuple(_operand(v) for v in values)
        if not given:
            raise ArgumentValueError(f"T.{op} needs at least one value", location=caller_location())
        if _all_python(*given):
            return python(given)
        result: Any = given[0]
        for value in given[1:]:
            result = binary(op, result, value, loc=caller_location())
        return result

    function.__name__ = function.__qualname__ = op
    function.__doc__ = purpose
    return function


max = _extreme("max", builtins.max, "The largest value; NaN is left out.")
min = _extreme("min", builtins.min, "The smallest value; NaN is left out.")


def _two(name: str, purpose: str) -> Callable[[Number, Number], Expr]:
    def function(x: Number, y: Number) -> Expr:
        return intrinsic(name, _operand(x), _operand(y), loc=caller_location())

    function.__name__ = function.__qualname__ = name
    function.__doc__ = purpose
    return function


atan2 = _two("atan2", "Angle of the point (y, x).")
fmod = _two("fmod", "Remainder with the dividend's sign.")
copysign = _two("copysign", "x with the sign of y.")
hypot = _two("hypot", "sqrt(x² + y²).")
max_nan = _two("max_nan", "The larger value, NaN when either is.")
min_nan = _two("min_nan", "The smaller value, NaN when either is.")


def clamp(dst: Number, min_val: Number, max_val: Number) -> Any:
    """`dst`, but not below `min_val` and not above `max_val`."""
    return min(max(dst, min_val), max_val)


def fma(x: Number, y: Number, z: Number) -> Expr:
    """x · y + z, rounded once."""
    return intrinsic("fma", _operand(x), _operand(y), _operand(z), loc=caller_location())


def ceildiv(a: Number, b: Number) -> Any:
    """a / b rounded up; an integer."""
    a, b = _operand(a), _operand(b)
    loc = caller_location()
    if _all_python(b) and b == 0:
        raise ArgumentValueError("T.ceildiv: the divisor is 0", location=loc)
    if _all_python(a, b):
        return -(-a // b)
    if isinstance(b, int):
        return binary("floordiv", binary("add", a, b - 1, loc=loc), b, loc=loc)
    raised = binary("sub", binary("add", a, b, loc=loc), 1, loc=loc)
    return binary("floordiv", raised, b, loc=loc)


def if_then_else(condition: Any, on_true: Number, on_false: Number) -> Expr:
    """`on_true` where the condition holds, else `on_false`; a load on the other side has no effect."""
    return select(_operand(condition), _operand(on_true), _operand(on_false), loc=caller_location())


Select = if_then_else
where = if_then_else


def _logic(op: str, python: Callable[[Any, Any], Any], purpose: str) -> Callable[[Any, Any], Any]:
    def function(x: Any, y: Any) -> Any:
        x, y = _operand(x), _operand(y)
        return python(x, y) if _all_python(x, y) else binary(op, x, y, loc=caller_location())

    function.__name__ = function.__qualname__ = f"{op}_"
    function.__doc__ = purpose
    return function


And = _logic("and", lambda a, b: bool(a and b), "Whether both hold.")
Or = _logic("or", lambda a, b: bool(a or b), "Whether one holds.")


def Not(x: Any) -> Any:
    """Whether x does not hold."""
    x = _operand(x)
    return (not x) if _all_python(x) else unary("not", x, loc=caller_location())


def likely(condition: Any) -> Any:
    """The condition, said to hold most of the time."""
    return condition


def assume(condition: Any) -> None:
    """A promise that the condition holds; it only has to be a condition here, nothing is checked."""
    as_bool(_operand(condition), loc=caller_location())


def _nearest_only(rounding: str, what: str) -> None:
    if rounding != "rn":
        raise UnsupportedOnTargetError(
            f'{what} with rounding "{rounding}" is not supported yet',
            location=caller_location(),
            hint='use "rn" (to nearest, halves to even)',
        )


def _ieee(op: str, purpose: str) -> Callable[..., Expr]:
    def function(x: Number, y: Number, rounding_mode: str = "rn") -> Expr:
        _nearest_only(rounding_mode, f"ieee_{op}")
        return binary(op, _operand(x), _operand(y), loc=caller_location())

    function.__name__ = function.__qualname__ = f"ieee_{op}"
    function.__doc__ = f"{purpose}, rounded once."
    return function


ieee_add = _ieee("add", "x + y")
ieee_sub = _ieee("sub", "x - y")
ieee_mul = _ieee("mul", "x · y")
ieee_fdiv = _ieee("div", "x / y")


def ieee_fmaf(x: Number, y: Number, z: Number, rounding_mode: str = "rn") -> Expr:
    """x · y + z, rounded once."""
    _nearest_only(rounding_mode, "ieee_fmaf")
    return fma(x, y, z)


def ieee_frcp(x: Number, rounding_mode: str = "rn") -> Expr:
    """1 / x, rounded once."""
    _nearest_only(rounding_mode, "ieee_frcp")
    return binary("div", 1.0, as_expr(_operand(x), loc=caller_location()), loc=caller_location())


def ieee_fsqrt(x: Number, rounding_mode: str = "rn") -> Expr:
    """sqrt(x), rounded once."""
    _nearest_only(rounding_mode, "ieee_fsqrt")
    return sqrt(x)


def ieee_frsqrt(x: Number, rounding_mode: str = "rn") -> Expr:
    """1 / sqrt(x), rounded once."""
    _nearest_only(rounding_mode, "ieee_frsqrt")
    return rsqrt(x)


__all__ = [
    "And",
    "Not",
    "Or",
    "Select",
    "__cos",
    "__exp",
    "__exp2",
    "__exp10",
    "__log",
    "__log2",
    "__log10",
    "__sin",
    "__tan",
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "assume",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "ceil",
    "ceildiv",
    "clamp",
    "clz",
    "copysign",
    "cos",
    "cosh",
    "div",
    "erf",
    "exp",
    "exp2",
    "exp10",
    "expm1",
    "fabs",
    "fast_exp",
    "fast_log",
    "fast_tanh",
    "floor",
    "floordiv",
    "floormod",
    "fma",
    "fmod",
    "hypot",
    "ieee_add",
    "ieee_fdiv",
    "ieee_fmaf",
    "ieee_frcp",
    "ieee_frsqrt",
    "ieee_fsqrt",
    "ieee_fsqrt_default",
    "ieee_mul",
    "ieee_sub",
    "if_then_else",
    "indexdiv",
    "indexmod",
    "isfinite",
    "isinf",
    "isnan",
    "likely",
    "log",
    "log1p",
    "log2",
    "log10",
    "max",
    "max_nan",
    "min",
    "min_nan",
    "nearbyint",
    "popcount",
    "pow",
    "power",
    "rint",
    "round",
    "rsqrt",
    "shift_left",
    "shift_right",
    "sigmoid",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
    "truncdiv",
    "truncmod",
    "where",
]
