"""Conversions between number formats, as LLVM instructions on scalars and vectors.

A narrow float is held as its bits (an integer) or decoded to float32.  Encoding rounds once, to nearest
even; from float64 it goes by way of a float32 that is rounded to odd, which keeps enough of the discarded
part for the second rounding to be right (Boldo and Melquiond, "When double rounding is odd", 2005).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from tilewright.ir.dtype import DType
from tilewright.targets.cpu.values import (
    Value,
    compute_scalar,
    integer,
    real,
    storage_scalar,
    vector_type,
    width,
)
from tilewright.targets.cpu.writer import Writer

_F32_SIGN = 0x80000000
_F32_MANTISSA = 23
_F32_BIAS = 127
_TF32_DROPPED = 13
"""Mantissa bits of float32 that tfloat32 lacks."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The bits of a narrow float.

    top: the largest finite magnitude code.  infinity, nan: magnitude codes, None where there is none;
    nan of the "fnuz" formats is the code of a negative zero.
    """

    exponent: int
    mantissa: int
    bias: int
    top: int
    infinity: int | None
    nan: int | None
    signed_zero: bool


@cache
def layout(dtype: DType) -> Layout:
    """The layout of a narrow float with a sign."""
    form = dtype.format
    exponent, mantissa = form.exponent, form.mantissa
    full = (1 << (exponent + mantissa)) - 1
    if form.suffix == "ieee":
        infinity = full ^ ((1 << mantissa) - 1)
        return Layout(
            exponent, mantissa, (1 << (exponent - 1)) - 1, infinity - 1, infinity, infinity | 1 << (mantissa - 1), True
        )
    if form.suffix == "fnuz":
        return Layout(exponent, mantissa, 1 << (exponent - 1), full, None, full + 1, False)
    if dtype.bits == 4:  # no NaN either
        return Layout(exponent, mantissa, (1 << (exponent - 1)) - 1, full, None, None, True)
    return Layout(exponent, mantissa, (1 << (exponent - 1)) - 1, full - 1, None, full, True)


def is_exponent_only(dtype: DType) -> bool:
    """float8_e8m0fnu: powers of two."""
    return dtype.format.suffix == "u"


def largest(dtype: DType) -> float:
    """The largest finite value of a float dtype."""
    if dtype.bits == 64:
        return float.fromhex("0x1.fffffffffffffp+1023")
    if dtype.name.startswith("tfloat32"):
        return float((2 - 2.0**-10) * 2.0**127)
    if dtype.bits == 32:
        return float.fromhex("0x1.fffffep+127")
    if is_exponent_only(dtype):
        return 2.0**127
    form = layout(dtype)
    exponent = (form.top >> form.mantissa) - form.bias
    return math.ldexp(1 + (form.top & ((1 << form.mantissa) - 1)) / (1 << form.mantissa), exponent)


class Bits:
    """Shorthand for 32-bit (or other) integer code on all lanes of a vector."""

    def __init__(self, w: Writer, lanes: int, bits: int = 32) -> None:
        self.w = w
        self.lanes = lanes
        self.bits = bits

    def const(self, number: int) -> Value:
        return integer(number, self.bits, self.lanes)

    def op(self, name: str, a: Value, number: int) -> Value:
        return self.w.bin(name, a, self.const(number))

    def test(self, predicate: str, a: Value, number: int) -> Value:
        return self.w.icmp(predicate, a, self.const(number))

    def pick(self, condition: Value, number: int, otherwise: Value) -> Value:
        return self.w.select(condition, self.const(number), otherwise)


# --- narrow floats: bits to float32 -----------------------------------------------------------------


def decode(w: Writer, stored: Value, dtype: DType) -> Value:
    """The compute form of a value in storage form."""
    if dtype.is_bool:
        return w.icmp("ne", stored, integer(0, 8, stored.lanes))
    if dtype.is_int:
        return wrap(w, stored, dtype)
    if not dtype.is_narrow_float:
        return stored
    lanes = stored.lanes
    if dtype.format.exponent == 8 and dtype.format.mantissa == 7:
        wide = w.convert("zext", stored, "i32")
        return w.bitcast(w.bin("shl", wide, integer(16, 32, lanes)), vector_type("float", lanes), lanes)
    if dtype.bits == 16 and w.facts.half:
        half = w.bitcast(stored, vector_type("half", lanes), lanes)
        return w.convert("fpext", half, "float")
    bits = w.convert("zext", stored, "i32")
    decoded = _decode_exponent(w, bits) if is_exponent_only(dtype) else _decode_fields(w, bits, dtype)
    return w.bitcast(decoded, vector_type("float", lanes), lanes)


def _decode_exponent(w: Writer, bits: Value) -> Value:
    b = Bits(w, bits.lanes)
    normal = b.op("shl", bits, _F32_MANTISSA)
    normal = b.pick(b.test("eq", bits, 0), 1 << (_F32_MANTISSA - 1), normal)
    return b.pick(b.test("eq", bits, 255), 0x7FC00000, normal)


def _decode_fields(w: Writer, bits: Value, dtype: DType) -> Value:
    """Rebias the exponent; subnormals go through an integer-to-float conversion, which is exact."""
    form = layout(dtype)
    b = Bits(w, bits.lanes)
    full = (1 << (form.exponent + form.mantissa)) - 1
    magnitude = b.op("and", bits, full)
    shifted = b.op("shl", magnitude, _F32_MANTISSA - form.mantissa)
    normal = b.op("add", shifted, (_F32_BIAS - form.bias) << _F32_MANTISSA)
    tiny = w.convert("uitofp", magnitude, "float")
    tiny = w.bin("fmul", tiny, real(2.0 ** (1 - form.bias - form.mantissa), "float", bits.lanes))
    result = w.select(b.test("ult", magnitude, 1 << form.mantissa), w.as_bits(tiny), normal)
    if form.infinity is not None:
        special = b.op("or", shifted, 0x7F800000)
        result = w.select(b.test("uge", magnitude, form.infinity), special, result)
    elif form.nan is not None and form.nan <= full:
        result = b.pick(b.test("eq", magnitude, form.nan), 0x7FC00000, result)
    sign = b.op("shl", b.op("and", bits, full + 1), 31 - form.exponent - form.mantissa)
    result = w.bin("or", result, sign)
    if form.nan == full + 1:
        result = b.pick(b.test("eq", bits, form.nan), 0x7FC00000, result)
    return result


# --- float to narrow float ------------------------------------------------------------------------------


def encode(w: Writer, value: Value, dtype: DType) -> Value:
    """The storage form of a value in compute form, or a float of any width rounded to nearest even."""
    lanes = value.lanes
    if dtype.is_bool:
        return w.convert("zext", value, "i8")
    if dtype.is_int and dtype.bits == 4:
        return w.bin("and", value, integer(15, 8, lanes))
    if not dtype.is_narrow_float:
        return value
    if value.scalar_type == "double":
        value = odd_float32(w, value)
    if dtype.format.exponent == 8 and dtype.format.mantissa == 7:
        return _encode_bfloat(w, value)
    if dtype.bits == 16 and w.facts.half:
        half = w.convert("fptrunc", value, "half")
        return w.bitcast(half, vector_type("i16", lanes), lanes)
    bits = w.as_bits(value)
    coded = _encode_exponent(w, bits) if is_exponent_only(dtype) else _encode_fields(w, bits, dtype)
    return w.convert("trunc", coded, storage_scalar(dtype))


def _encode_bfloat(w: Writer, value: Value) -> Value:
    b = Bits(w, value.lanes)
    bits = w.as_bits(value)
    last = b.op("and", b.op("lshr", bits, 16), 1)
    rounded = w.bin("add", b.op("add", bits, 0x7FFF), last)
    quiet = b.op("or", bits, 0x400000)
    picked = w.select(w.fcmp("uno", value, value), quiet, rounded)
    return w.convert("trunc", b.op("lshr", picked, 16), "i16")


def _encode_exponent(w: Writer, bits: Value) -> Value:
    """To the nearest power of two, halfway up; 0 and negative numbers give NaN."""
    b = Bits(w, bits.lanes)
    half = b.pick(b.test("uge", bits, 1 << _F32_MANTISSA), 1 << (_F32_MANTISSA - 1), b.const(1 << (_F32_MANTISSA - 2)))
    code = b.op("lshr", w.bin("add", bits, half), _F32_MANTISSA)
    bad = b.test("ugt", b.op("sub", bits, 1), 0x7F7FFFFE)  # 0, negative, infinite, NaN
    return b.pick(bad, 255, code)


def _encode_fields(w: Writer, bits: Value, dtype: DType) -> Value:
    form = layout(dtype)
    b = Bits(w, bits.lanes)
    magnitude = b.op("and", bits, 0x7FFFFFFF)
    code = w.select(
        b.test("ult", magnitude, (_F32_BIAS + 1 - form.bias) << _F32_MANTISSA),
        _encode_subnormal(w, magnitude, form),
        _encode_normal(w, magnitude, form),
    )
    over = b.test("ugt", code, form.top)
    beyond = form.top if form.nan is None else form.infinity if form.infinity is not None else form.nan
    code = b.pick(over, beyond, code)
    if form.nan != beyond:
        code = b.pick(b.test("ugt", magnitude, 0x7F800000), form.nan or 0, code)
    sign = b.op("lshr", b.op("and", bits, _F32_SIGN), 31 - form.exponent - form.mantissa)
    if not form.signed_zero:
        keep = w.bin("and", b.test("ne", code, 0), b.test("ne", code, form.nan or 0))
        sign = w.select(keep, sign, b.const(0))
    return w.bin("or", code, sign)


def _encode_normal(w: Writer, magnitude: Value, form: Layout) -> Value:
    b = Bits(w, magnitude.lanes)
    drop = _F32_MANTISSA - form.mantissa
    last = b.op("and", b.op("lshr", magnitude, drop), 1)
    rounded = b.op("lshr", w.bin("add", b.op("add", magnitude, (1 << (drop - 1)) - 1), last), drop)
    return b.op("sub", rounded, (_F32_BIAS - form.bias) << form.mantissa)


def _encode_subnormal(w: Writer, magnitude: Value, form: Layout) -> Value:
    """Adding a power of two whose last mantissa bit is the format's smallest step rounds as the FPU does."""
    b = Bits(w, magnitude.lanes)
    lanes = magnitude.lanes
    magic = real(2.0 ** (1 - form.bias - form.mantissa + _F32_MANTISSA), "float", lanes)
    total = w.bin("fadd", w.bitcast(magnitude, vector_type("float", lanes), lanes), magic)
    exponent = 1 - form.bias - form.mantissa + _F32_MANTISSA + _F32_BIAS
    return b.op("sub", w.as_bits(total), exponent << _F32_MANTISSA)


def odd_float32(w: Writer, value: Value) -> Value:
    """float64 to float32, rounded to odd."""
    lanes = value.lanes
    b = Bits(w, lanes)
    near = w.convert("fptrunc", value, "float")
    back = w.convert("fpext", near, "double")
    bits = w.as_bits(near)
    even = b.test("eq", b.op("and", bits, 1), 0)
    change = w.bin("and", w.fcmp("one", back, value), even)
    larger = w.fcmp("ogt", w.intrinsic("fabs", value), w.intrinsic("fabs", back))
    moved = w.select(larger, b.op("add", bits, 1), b.op("sub", bits, 1))
    return w.bitcast(w.select(change, moved, bits), vector_type("float", lanes), lanes)


# --- float to float -------------------------------------------------------------------------------------


def float_to_float(w: Writer, value: Value, dtype: DType, rounding: str, saturate: bool) -> tuple[Value, bool]:
    """A float or double as `dtype`: (value, whether it is in storage form; else in compute form)."""
    if saturate:
        value = _clamp(w, value, dtype)
    if rounding == "rz":
        return _towards_zero(w, value, dtype), False
    if dtype.is_narrow_float:
        return encode(w, value, dtype), True
    if dtype.name.startswith("tfloat32"):
        return _nearest_tf32(w, odd_float32(w, value) if value.scalar_type == "double" else value), False
    return _resize(w, value, compute_scalar(dtype)), False


def _resize(w: Writer, value: Value, scalar: str) -> Value:
    return w.convert("fptrunc" if scalar == "float" else "fpext", value, scalar)


def _clamp(w: Writer, value: Value, dtype: DType) -> Value:
    scalar = value.scalar_type
    limit = min(largest(dtype), float.fromhex("0x1.fffffep+127")) if scalar == "float" else largest(dtype)
    high, low = real(limit, scalar, value.lanes), real(-limit, scalar, value.lanes)
    value = w.select(w.fcmp("ogt", value, high), high, value)
    return w.select(w.fcmp("olt", value, low), low, value)


def _nearest_tf32(w: Writer, value: Value) -> Value:
    lanes = value.lanes
    b = Bits(w, lanes)
    bits = w.as_bits(value)
    last = b.op("and", b.op("lshr", bits, _TF32_DROPPED), 1)
    rounded = w.bin("add", b.op("add", bits, (1 << (_TF32_DROPPED - 1)) - 1), last)
    rounded = b.op("and", rounded, 0xFFFFFFFF << _TF32_DROPPED)
    finite = b.test("ult", b.op("and", bits, 0x7FFFFFFF), 0x7F800000)
    return w.bitcast(w.select(finite, rounded, bits), vector_type("float", lanes), lanes)


def _towards_zero(w: Writer, value: Value, dtype: DType) -> Value:
    """In compute form.  The nearest value, moved one step back where it is larger in magnitude than the exact one."""
    lanes = value.lanes
    if dtype.bits == 64:
        return _resize(w, value, "double")
    if value.scalar_type == "double":
        value = _truncated_float32(w, value)
    if dtype.bits == 32 and not dtype.name.startswith("tfloat32"):
        return value
    if dtype.name.startswith("tfloat32"):
        bits = w.as_bits(value)
        b = Bits(w, lanes)
        cut = b.op("and", bits, 0xFFFFFFFF << _TF32_DROPPED)
        finite = b.test("ult", b.op("and", bits, 0x7FFFFFFF), 0x7F800000)
        return w.bitcast(w.select(finite, cut, bits), vector_type("float", lanes), lanes)
    magnitude = w.intrinsic("fabs", value)
    finite = w.fcmp("olt", magnitude, real(math.inf, "float", lanes))
    limit = real(largest(dtype), "float", lanes)
    held = w.select(w.fcmp("ogt", magnitude, limit), limit, magnitude)
    code = encode(w, held, dtype)
    above = w.fcmp("ogt", decode(w, code, dtype), held)
    code = w.bin("sub", code, w.convert("zext", above, code.scalar_type))
    cut = w.intrinsic("copysign", decode(w, code, dtype), value)
    return decode(w, encode(w, w.select(finite, cut, value), dtype), dtype)


def _truncated_float32(w: Writer, value: Value) -> Value:
    lanes = value.lanes
    near = w.convert("fptrunc", value, "float")
    back = w.intrinsic("fabs", w.convert("fpext", near, "double"))
    over = w.convert("zext", w.fcmp("ogt", back, w.intrinsic("fabs", value)), "i32")
    return w.bitcast(w.bin("sub", w.as_bits(near), over), vector_type("float", lanes), lanes)


# --- integers -------------------------------------------------------------------------------------------


def wrap(w: Writer, value: Value, dtype: DType) -> Value:
    """A 4-bit integer's compute form (i8) from any i8; others as they are."""
    if dtype.bits != 4:
        return value
    if dtype.kind == "uint":
        return w.bin("and", value, integer(15, 8, value.lanes))
    four = integer(4, 8, value.lanes)
    return w.bin("ashr", w.bin("shl", value, four), four)


def int_to_int(w: Writer, value: Value, signed: bool, dtype: DType) -> Value:
    """An integer of any width, wrapped or extended to `dtype`'s compute form."""
    target = compute_scalar(dtype)
    narrower = width(target) < width(value.scalar_type)
    value = w.convert("trunc" if narrower else "sext" if signed else "zext", value, target)
    return wrap(w, value, dtype)


def float_to_int(w: Writer, value: Value, dtype: DType) -> Value:
    """Towards zero, saturating, NaN to 0."""
    scalar = compute_scalar(dtype)
    result = vector_type(scalar, value.lanes)
    op = "fptosi" if dtype.kind == "int" else "fptoui"
    source = value.type if value.lanes == 1 else f"v{value.lanes}f{width(value.scalar_type)}"
    names = {"float": "f32", "double": "f64"}
    target = f"{scalar}" if value.lanes == 1 else f"v{value.lanes}{scalar}"
    name = f"llvm.{op}.sat.{target}.{names.get(source, source)}"
    w.module.declare(name, result, (value.type,))
    whole = w.call(name, result, value.lanes, value)
    if dtype.bits == 4:
        low, high = dtype.int_range()
        signed = dtype.kind == "int"
        whole = w.intrinsic("smin" if signed else "umin", whole, integer(high, 8, value.lanes))
        whole = w.intrinsic("smax", whole, integer(low, 8, value.lanes)) if signed else whole
    return whole


def int_to_float(
    w: Writer, value: Value, source: DType, dtype: DType, rounding: str, saturate: bool
) -> tuple[Value, bool]:
    """An integer or bool (source: its dtype) as `dtype`, rounded once; as `float_to_float`."""
    op = "sitofp" if source.kind == "int" else "uitofp"
    scalar = value.scalar_type
    if rounding == "rn" and dtype.bits >= 32 and not dtype.name.startswith("tfloat32"):
        return w.convert(op, value, compute_scalar(dtype)), False
    if width(scalar) <= 16:  # exact in float32
        return float_to_float(w, w.convert(op, value, "float"), dtype, rounding, saturate)
    if width(scalar) == 64:
        value = _leading_53_bits(w, value, op == "sitofp", odd=rounding == "rn")
    return float_to_float(w, w.convert(op, value, "double"), dtype, rounding, saturate)


def _leading_53_bits(w: Writer, value: Value, signed: bool, odd: bool) -> Value:
    """A 64-bit integer that float64 holds: bits beyond the leading 53 are dropped; `odd` leaves a sticky bit for them.

    With `odd` all of the last 11 bits go where there are too many: no format that is rounded to afterwards has them.
    """
    lanes = value.lanes
    b = Bits(w, lanes, 64)
    negative = b.test("slt", value, 0)
    magnitude = w.select(negative, w.bin("sub", b.const(0), value), value) if signed else value
    if odd:
        large = b.test("ne", b.op("lshr", magnitude, 53), 0)
        sticky = b.test("ne", b.op("and", magnitude, 0x7FF), 0)
        cut = b.op("and", magnitude, ~0x7FF)
        kept = w.select(large, w.select(sticky, b.op("or", cut, 0x800), cut), magnitude)
    else:
        spare = w.intrinsic("ctlz", magnitude, integer(0, 1))
        drop = w.intrinsic("smax", w.bin("sub", b.const(11), spare), b.const(0))
        kept = w.bin("and", magnitude, w.bin("shl", b.const(-1), drop))
    return w.select(negative, w.bin("sub", b.const(0), kept), kept) if signed else kept
