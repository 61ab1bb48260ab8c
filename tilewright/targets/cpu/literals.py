"""Float literals, rounded once to nearest even while compiling."""

from __future__ import annotations

import math
from fractions import Fraction

from tilewright.ir.dtype import DType
from tilewright.targets.cpu.casts import Layout, is_exponent_only, layout
from tilewright.targets.cpu.values import to_float32

_TF32_MANTISSA = 10


def rounded(value: float, dtype: DType) -> float:
    """`value` as a float32, tfloat32 or float64."""
    if dtype.bits == 64 or not math.isfinite(value) or value == 0.0:
        return value
    if not dtype.name.startswith("tfloat32"):
        return to_float32(value)
    _, exponent = math.frexp(value)
    step = max(exponent - 1, -126) - _TF32_MANTISSA
    return math.copysign(to_float32(math.ldexp(round(math.ldexp(abs(value), -step)), step)), value)


def narrow_code(value: float, dtype: DType) -> int:
    """The bits of `value` in a narrow float, by the rules of `casts.encode`."""
    if is_exponent_only(dtype):
        return _exponent_code(value)
    form = layout(dtype)
    negative = math.copysign(1.0, value) < 0
    code = _magnitude_code(abs(value), form)
    sign = 1 << (form.exponent + form.mantissa)
    if negative and (form.signed_zero or (code != 0 and code != form.nan)):
        code |= sign
    return code


def narrow_value(code: int, dtype: DType) -> float:
    """The number that the bits of a narrow float stand for."""
    if is_exponent_only(dtype):
        return math.nan if code == 255 else math.ldexp(1.0, code - 127)
    form = layout(dtype)
    full = (1 << (form.exponent + form.mantissa)) - 1
    magnitude = code & full
    if code == form.nan or (form.nan is not None and magnitude > form.top and magnitude != form.infinity):
        return math.nan
    exponent = max(magnitude >> form.mantissa, 1)
    units = magnitude - ((exponent - 1) << form.mantissa)
    value = math.inf if magnitude == form.infinity else math.ldexp(units, exponent - form.bias - form.mantissa)
    return -value if code > full else value


def _magnitude_code(value: float, form: Layout) -> int:
    if math.isnan(value):
        return form.nan or 0
    beyond = form.top if form.nan is None else form.infinity if form.infinity is not None else form.nan
    if math.isinf(value):
        return beyond
    _, exponent = math.frexp(value)
    biased = max(exponent - 1 + form.bias, 1) if value else 1
    step = biased - form.bias - form.mantissa
    units = round(Fraction(value) / Fraction(2) ** step)  # half to even; carries into the exponent below
    code = units + ((biased - 1) << form.mantissa)
    return code if code <= form.top else beyond


def _exponent_code(value: float) -> int:
    if not value > 0 or math.isinf(value):
        return 255
    fraction, exponent = math.frexp(value)
    if exponent < -125:  # below 2^-126: the two smallest codes
        return int(value > 2.0**-127)
    code = exponent - 1 + 127 + (fraction >= 0.75)
    return min(code, 255)
