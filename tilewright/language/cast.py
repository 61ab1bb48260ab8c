"""Conversions between dtypes, and the limits of a dtype."""

from __future__ import annotations

import math
from typing import Any

from tilewright.errors import ArgumentValueError, DTypeError
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Const, Expr, Reinterpret, as_expr, const
from tilewright.ir.expr import cast as _cast
from tilewright.source import caller_location

_ROUNDINGS = {"rn": "rn", "rne": "rn", "nearest": "rn", "rz": "rz", "rtz": "rz"}


def cast(value: Any, dtype: Any, round: str = "rn", sat: bool = False) -> Expr:
    """`value` converted to `dtype`.

    round: "rn" (to nearest, halves to even) or "rz" (towards zero), to floats.  sat: clamp to the finite range.
    An integer from a float is rounded towards zero and saturates; NaN gives 0.
    """
    loc = caller_location()
    if round not in _ROUNDINGS:
        raise ArgumentValueError(f"unknown rounding {round!r}", location=loc, hint='"rn" or "rz"')
    if isinstance(value, (DType, str)) and not isinstance(dtype, (DType, str)):
        value, dtype = dtype, value
    return _cast(as_expr(value, loc=loc), dtype, rounding=_ROUNDINGS[round], saturate=bool(sat), loc=loc)


Cast = cast


def convert(kind: DType, *values: Any) -> Expr:
    """`T.float16(x)`: `values[0]` as `kind`; without a value, a variable of that kind has no meaning."""
    loc = caller_location()
    if len(values) != 1:
        raise ArgumentValueError(f"T.{kind}(x) takes one value, got {len(values)}", location=loc)
    value = values[0]
    if isinstance(value, str):
        if not kind.is_float:
            raise DTypeError(f"{value!r} is no {kind}", location=loc)
        try:
            return const(float(value), kind, loc=loc)
        except ValueError:
            raise ArgumentValueError(f"{value!r} is no number", location=loc, hint='"inf", "-inf" or "nan"') from None
    if isinstance(value, (int, float)) and (kind.is_float or isinstance(value, int)):
        return const(value, kind, loc=loc)
    return _cast(as_expr(value, loc=loc), kind, loc=loc)


DType.call_hook = staticmethod(convert)


def reinterpret(value: Any, dtype: Any) -> Expr:
    """The bits of `value` as `dtype` of the same width.  Raises DTypeError where widths differ."""
    loc = caller_location()
    if isinstance(value, (DType, str)) and not isinstance(dtype, (DType, str)):
        value, dtype = dtype, value
    source = as_expr(value, loc=loc)
    kind = _dtype(dtype)
    if source.dtype is kind:
        return source
    if source.dtype.bits * source.dtype.lanes != kind.bits * kind.lanes or "handle" in (kind.kind, source.dtype.kind):
        raise DTypeError(f"T.reinterpret: {source.dtype} and {kind} differ in width", location=loc)
    return Reinterpret(kind, source, loc=loc)


_dtype = dtype


def infinity(dtype: Any) -> Const:
    """Positive infinity of a float dtype.  Raises DTypeError for a dtype that has none."""
    kind = _dtype(dtype)
    if not kind.is_float or kind.format.suffix != "ieee":
        raise DTypeError(f"{kind} has no infinity", location=caller_location(), hint="T.max_value(dtype)")
    return const(math.inf, kind, loc=caller_location())


def max_value(dtype: Any) -> Const:
    """The largest finite value of a dtype."""
    return const(_largest(_dtype(dtype)), dtype, loc=caller_location())


def min_value(dtype: Any) -> Const:
    """The smallest (most negative) finite value of a dtype."""
    kind = _dtype(dtype)
    if kind.is_float:
        return const(-_largest(kind) if kind.format.suffix != "u" else 2.0**-127, kind, loc=caller_location())
    return const(kind.int_range()[0], kind, loc=caller_location())


def _largest(kind: DType) -> int | float:
    if not kind.is_float:
        return kind.int_range()[1]
    form = kind.format
    ones = 2.0 - 2.0**-form.mantissa
    if form.suffix == "u":  # exponent only; the all-ones code is NaN
        return 2.0**127
    bias = (1 << (form.exponent - 1)) - 1
    top = (1 << form.exponent) - 1
    if form.suffix == "ieee":  # the all-ones exponent is infinity and NaN
        return float(ones * 2.0 ** (top - 1 - bias))
    if form.suffix == "fnuz":  # one more in the bias, and all codes but one are finite
        return float(ones * 2.0 ** (top - bias - 1))
    if kind.name == "float4_e2m1fn":  # no NaN at all
        return 6.0
    return float((ones - 2.0**-form.mantissa) * 2.0 ** (top - bias))  # fn: only the all-ones code is NaN


__all__ = ["Cast", "cast", "infinity", "max_value", "min_value", "reinterpret"]
