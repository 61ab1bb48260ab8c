"""Arithmetic of declarative kernels: Python numbers compute as in Python, and adapt to what they meet.

A literal, a size or a number of the module is a `Const`.  Operations on such numbers alone are done by Python in
double precision and exact integers; where one meets a tensor's element it takes the element's dtype.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from tilewright.errors import ArgumentValueError
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import FLOAT32, INT32, Const, Expr, binary, cast, const
from tilewright.source import Location

FLOAT64 = dtype("float64")
UINT32 = dtype("uint32")

_PYTHON: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "pow": operator.pow,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": operator.lshift,
    "shr": operator.rshift,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "max": max,
    "min": min,
}
_SAME_IN_MATH = (
    "exp expm1 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf "
    "atan2 fmod copysign hypot"
)
_MATH: dict[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in _SAME_IN_MATH.split()},
    "abs": abs,
    "floor": lambda x: float(math.floor(x)),
    "ceil": lambda x: float(math.ceil(x)),
    "trunc": lambda x: float(math.trunc(x)),
    "round": lambda x: float(round(x)),
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "exp2": lambda x: 2.0**x,
    "exp10": lambda x: 10.0**x,
}


def is_literal(value: Expr) -> bool:
    """Whether `value` is a Python number: a literal of the dtype that such a number has by itself."""
    return isinstance(value, Const) and const(value.value).dtype is value.dtype


def fold(operation: str, left: Expr, right: Expr, loc: Location) -> Expr | None:
    """The value of an operation on two Python numbers, None where an operand is not one or the value is no real number."""
    function = _PYTHON.get(operation)
    if function is None or not (isinstance(left, Const) and isinstance(right, Const)):
        return None
    if not (is_literal(left) and is_literal(right)):
        return None
    try:
        return _number(function(left.value, right.value), loc)
    except ZeroDivisionError:
        raise ArgumentValueError(
            "division by zero", location=loc, hint="both sides are known while compiling, and the divisor is 0"
        ) from None
    except (OverflowError, TypeError, ValueError):
        return None


def fold_function(name: str, arguments: list[Expr], loc: Location) -> Expr | None:
    """The value of a function of Python numbers alone, None where it has none."""
    function = _MATH.get(name)
    values = [a.value for a in arguments if isinstance(a, Const) and is_literal(a)]
    if function is None or len(values) != len(arguments):
        return None
    try:
        return _number(function(*values), loc)
    except (OverflowError, TypeError, ValueError):
        return None


def _number(value: Any, loc: Location) -> Expr | None:
    return const(value, loc=loc) if isinstance(value, (bool, int, float)) else None


def balance(left: Expr, right: Expr) -> tuple[Expr, Expr]:
    """The operands with a Python number in the dtype of what it meets."""
    return adapt(left, right.dtype), adapt(right, left.dtype)


def adapt(value: Expr, element: DType) -> Expr:
    """A Python number in the dtype `element` where that says more about it; anything else as it is."""
    if isinstance(value, Const):
        if element is FLOAT64 and not value.dtype.is_bool:
            return const(value.value, element, loc=value.loc)
        if element is UINT32 and value.dtype is INT32 and value.value >= 0:
            return const(value.value, element, loc=value.loc)
    return value


def convert(value: Expr, element: DType, loc: Location) -> Expr:
    """`value` cast to `element`; a Python number is rounded once."""
    return cast(adapt(value, element), element, loc=loc)


def integer_power(base: Expr, exponent: Expr, loc: Location, multiply: Callable[[Expr, Expr], Expr]) -> Expr:
    """`base ** exponent` of integers, for a small literal exponent.  Raises ArgumentValueError for others."""
    count = int(exponent.value) if isinstance(exponent, Const) else -1
    if not 0 <= count <= 64:
        raise ArgumentValueError(
            "an integer to a power needs a literal exponent from 0 to 64",
            location=loc,
            hint="for a float result write `float32(x) ** y`",
        )
    result: Expr | None = None
    square = base
    while count:
        if count & 1:
            result = square if result is None else multiply(result, square)
        count >>= 1
        if count:
            square = multiply(square, square)
    return result if result is not None else const(1, base.dtype, loc=loc)


def widen_dtype(element: DType) -> DType:
    """The dtype in which elements of `element` are computed: float32 for narrow floats, int32 for narrow integers."""
    if element.is_narrow_float:
        return FLOAT32
    return INT32 if element.is_int and element.bits < 32 else element


def widen(value: Expr) -> Expr:
    """A value in the dtype in which it is computed."""
    return cast(value, widen_dtype(value.dtype), loc=value.loc)


def combine(operation: str, left: Expr, right: Expr, loc: Location) -> Expr:
    """`left operation right` with Python's meaning for bools, integer powers and literals."""
    folded = fold(operation, left, right, loc)
    if folded is not None:
        return folded
    left, right = balance(left, right)
    if operation == "pow" and not left.dtype.is_float and not right.dtype.is_float:
        base = cast(left, INT32, loc=loc) if left.dtype.is_bool else left
        return integer_power(base, right, loc, lambda a, b: binary("mul", a, b, loc=loc))
    return binary(operation, left, right, loc=loc)
