"""How the reference evaluator holds values, and every conversion between dtypes.

A value of the evaluator is a NumPy scalar or array in the *compute form* of its dtype: float32 for
floats below 32 bits (which it holds exactly), int8 and uint8 for the 4-bit integers, else the dtype's
own NumPy type.  Arrays of buffers are in the *storage form*, `DType.numpy`.

Conversions round once, whatever the pair of dtypes: a float64 goes to a narrow float by way of a
float32 that is *rounded to odd* (of the two neighbours the one whose last bit is 1), which keeps enough
of the discarded part for the second rounding to be right (Boldo and Melquiond, "When double rounding
is odd", 2005); float32 has at least two bits more than every narrow format in its whole range.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir.dtype import DType

Convert = Callable[[Any], Any]

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)
_finfo: Callable[[np.dtype[Any]], Any] = ml_dtypes.finfo
_TF32_DROPPED = 13  # mantissa bits of float32 that tfloat32 lacks

# Contents of memory that nobody has written: NaN, and this odd number (0x6D in every byte) for integers.
POISON_BYTE = 0x6D


def compute_numpy(dtype: DType) -> np.dtype[Any]:
    """The NumPy dtype of the compute form of `dtype`."""
    if dtype.is_narrow_float:
        return _F32
    if dtype.is_int and dtype.bits == 4:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return dtype.numpy


@cache
def to_compute(dtype: DType) -> Convert | None:
    """Storage form to compute form; None where they are the same."""
    storage, compute = dtype.numpy, compute_numpy(dtype)
    return None if storage == compute else lambda value: value.astype(compute)


@cache
def to_storage(dtype: DType) -> Convert | None:
    """Compute form to storage form (exact); None where they are the same."""
    storage, compute = dtype.numpy, compute_numpy(dtype)
    return None if storage == compute else lambda value: value.astype(storage)


@cache
def rounder(dtype: DType) -> Convert | None:
    """What brings the result of an operation done in the compute form back into `dtype`; None for nothing.

    Narrow floats round to nearest even; 4-bit integers wrap.
    """
    if dtype.is_narrow_float:
        return _nearest_narrow(dtype)
    if dtype.is_int and dtype.bits == 4:
        return _wrap_nibble_signed if dtype.kind == "int" else _wrap_nibble_unsigned
    return None


def _wrap_nibble_signed(value: Any) -> Any:
    return ((value & np.int8(15)) ^ np.int8(8)) - np.int8(8)


def _wrap_nibble_unsigned(value: Any) -> Any:
    return value & np.uint8(15)


def poison(dtype: DType) -> Any:
    """What unwritten memory of `dtype` holds, in storage form: NaN (the largest value where there is no NaN)."""
    storage = dtype.numpy
    if dtype.is_bool:
        return np.True_
    if dtype.is_float:
        name = dtype.format.numpy
        return storage.type(6.0 if name == "float4_e2m1fn" else np.nan)
    if dtype.bits == 4:
        return storage.type(5)
    return np.frombuffer(bytes([POISON_BYTE]) * storage.itemsize, storage)[0]


def constant(value: bool | int | float, dtype: DType) -> Any:
    """A Python number in the compute form of `dtype`, rounded once."""
    if dtype.is_float:
        return _float_to_float(_F64, dtype, "rn", False)(np.float64(value))
    if dtype.is_bool:
        return np.bool_(value)
    return compute_numpy(dtype).type(value)


@cache
def cast_function(source: DType, target: DType, rounding: str = "rn", saturate: bool = False) -> Convert:
    """The conversion from `source` to `target` (scalars), compute form to compute form."""
    if source.is_float:
        if target.is_float:
            return _float_to_float(compute_numpy(source), target, rounding, saturate)
        if target.is_bool:
            return lambda value: value != 0
        return lambda value: _float_to_int(value, target)
    if target.is_bool:
        return lambda value: value != 0
    if target.is_float:
        return _int_to_float(source, target, rounding, saturate)
    compute, wrap = compute_numpy(target), rounder(target)
    if wrap is None:
        return lambda value: value.astype(compute)
    return lambda value: wrap(value.astype(compute))


def cast_storage(value: Any, source: DType, target: DType) -> Any:
    """`value` in the storage form of `source` to the storage form of `target`."""
    if source is target:
        return value
    into, out = to_compute(source), to_storage(target)
    value = into(value) if into is not None else value
    value = cast_function(source, target)(value)
    return out(value) if out is not None else value


def _float_to_int(value: Any, target: DType) -> Any:
    """Towards zero, saturating, NaN to 0."""
    low, high = target.int_range()
    compute = compute_numpy(target)
    whole = np.trunc(np.asarray(value, _F64))
    nan = np.isnan(whole)
    if target.bits <= 32:
        return np.where(nan, 0.0, np.clip(whole, low, high)).astype(compute)[()]
    above = whole >= float(high)  # float(high) is 2**63 or 2**64: the first value that does not fit
    below = whole <= float(low)
    inside = np.where(nan | above | below, 0.0, whole).astype(compute)
    return np.where(above, compute.type(high), np.where(below, compute.type(low), inside))[()]


def _int_to_float(source: DType, target: DType, rounding: str, saturate: bool) -> Convert:
    if rounding == "rn" and target.bits >= 32 and target.name != "tfloat32":
        compute = compute_numpy(target)
        return lambda value: value.astype(compute)  # NumPy converts any integer with one rounding
    from_float64 = _float_to_float(_F64, target, rounding, saturate)
    if source.bits < 64:
        return lambda value: from_float64(value.astype(_F64))
    return lambda value: from_float64(_leading_53_bits(value, odd=rounding == "rn"))


def _leading_53_bits(value: Any, *, odd: bool) -> Any:
    """A 64-bit integer as float64: bits beyond the leading 53 are dropped; `odd` sets the last one if any was 1."""
    integer = np.asarray(value)
    negative = integer < 0
    magnitude = np.where(negative, -integer, integer).view(np.uint64)
    length = np.frexp((magnitude >> np.uint64(11)).astype(_F64))[1] + 11  # bit length of what exceeds 53 bits
    unit = np.uint64(1) << np.maximum(length - 53, 0).astype(np.uint64)
    low = unit - np.uint64(1)
    kept = magnitude & ~low
    if odd:
        kept = np.where((magnitude & low) != 0, kept | unit, kept)
    result = kept.astype(_F64)
    return np.where(negative, -result, result)[()]


def _float_to_float(source: np.dtype[Any], target: DType, rounding: str, saturate: bool) -> Convert:
    """From float32 or float64 (`source`) to the compute form of `target`."""
    convert = _nearest(source, target) if rounding == "rn" else lambda value: _towards_zero(value, target)
    if not saturate:
        return convert
    limit = source.type(min(largest(target), float(np.finfo(source).max)))
    return lambda value: convert(np.clip(value, -limit, limit))


def _nearest(source: np.dtype[Any], target: DType) -> Convert:
    if target.name == "tfloat32":
        return lambda value: _nearest_tf32(value if source == _F32 else _odd_float32(value))
    if not target.is_narrow_float:
        compute = target.numpy
        return lambda value: value.astype(compute)
    narrow = _nearest_narrow(target)
    return narrow if source == _F32 else lambda value: narrow(_odd_float32(value))


def _nearest_narrow(target: DType) -> Convert:
    """From float32 to a float below 32 bits, whose value stays a float32."""
    if target.name == "float8_e8m0fnu":
        return _nearest_power
    storage = target.numpy
    return lambda value: value.astype(storage).astype(_F32)


def _nearest_power(value: Any) -> Any:
    """The nearest power of two from 2**-127 on, halfway up; NaN for 0, negative numbers and what is too large.

    Not by ml_dtypes, whose versions differ between 2**-127 and 2**-126.
    """
    bits = np.asarray(value, _F32).view(np.uint32)
    half = np.where(bits >= np.uint32(1 << 23), np.uint32(1 << 22), np.uint32(1 << 21))
    code = (bits + half) >> np.uint32(23)
    power = np.where(code == 0, np.uint32(1 << 22), code << np.uint32(23)).astype(np.uint32)
    fits = (bits != 0) & (code < 255) & (bits < np.uint32(0x7F800000))
    return np.where(fits, power, np.uint32(0x7FC00000)).view(_F32)[()]


def largest(dtype: DType) -> float:
    """The largest finite value of a float dtype."""
    if dtype.name == "tfloat32":
        return float((2 - 2.0**-10) * 2.0**127)
    return float(_finfo(dtype.numpy).max)


def has_infinity(dtype: DType) -> bool:
    """Whether a float dtype has infinities."""
    return dtype.format.suffix == "ieee"


def _odd_float32(value: Any) -> Any:
    """float64 to float32, rounded to odd."""
    exact = np.asarray(value, _F64)
    near = exact.astype(_F32)
    back = near.astype(_F64)
    bits = near.view(np.uint32)
    even = (bits & np.uint32(1)) == 0
    change = (back != exact) & even & ~np.isnan(exact)
    step = np.where(np.abs(exact) > np.abs(back), np.uint32(1), np.uint32(0xFFFFFFFF))
    return np.where(change, bits + step, bits).astype(np.uint32).view(_F32)[()]


def _truncated_float32(value: Any) -> Any:
    """float64 to float32, rounded towards zero."""
    exact = np.asarray(value, _F64)
    near = exact.astype(_F32)
    over = (np.abs(near.astype(_F64)) > np.abs(exact)) & ~np.isnan(exact)
    return (near.view(np.uint32) - over.astype(np.uint32)).view(_F32)[()]


def _nearest_tf32(value: Any) -> Any:
    single = np.asarray(value, _F32)
    bits = single.view(np.uint32)
    last = (bits >> np.uint32(_TF32_DROPPED)) & np.uint32(1)
    half = np.uint32((1 << (_TF32_DROPPED - 1)) - 1)
    rounded = (bits + half + last) & np.uint32(0xFFFFFFFF << _TF32_DROPPED & 0xFFFFFFFF)
    return np.where(np.isfinite(single), rounded, bits).astype(np.uint32).view(_F32)[()]


def _towards_zero(value: Any, target: DType) -> Any:
    """To `target` rounded towards zero: a finite value never becomes infinite."""
    exact = np.asarray(value, _F64)
    if target.name == "float64":
        return exact[()]
    if target.name == "float32":
        return _truncated_float32(exact)
    mantissa = target.format.mantissa
    _, exponent = np.frexp(np.abs(exact))
    scale = np.maximum(exponent - 1, _smallest_exponent(target)) - mantissa
    steps = np.trunc(np.ldexp(np.abs(exact), -scale))
    truncated = np.copysign(np.minimum(np.ldexp(steps, scale), largest(target)), exact)
    finite = np.where(np.isfinite(exact), truncated, exact).astype(_F32)
    if target.name == "tfloat32":
        return finite[()]
    return finite.astype(target.numpy).astype(_F32)[()]


def _smallest_exponent(target: DType) -> int:
    """The exponent of the smallest normal number (of the smallest number at all where there are no subnormals)."""
    if target.name == "tfloat32":
        return -126
    return int(_finfo(target.numpy).minexp)
