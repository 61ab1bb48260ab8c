"""What each operator and intrinsic computes, on values in compute form (see `numerics`).

Decisions that other back-ends must share:
- integer `//`, `%`, `truncdiv`, `truncmod` by zero give 0; the smallest integer divided by -1 wraps to itself;
- a shift by less than 0 or by the width or more gives 0, for a signed `>>` the sign (0 or -1);
- on floats `a // b` is floor of the rounded a / b, `a % b` is the exact C remainder made to have b's sign,
  `truncdiv` is trunc of the rounded a / b, `truncmod` the exact C remainder (`fmod`);
- `pow` and the transcendental intrinsics are computed in float64 and rounded once to float32, whose result
  is rounded once more for a narrower dtype.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.simulator.numerics import compute_numpy, rounder

Function = Callable[..., Any]

_F32 = np.dtype(np.float32)
_F64 = np.dtype(np.float64)


def _truncdiv_int(a: Any, b: Any) -> Any:
    quotient = a // b
    rest = a - quotient * b
    inexact = (rest != 0) & (b != 0) & ((a < 0) != (b < 0))
    return quotient + np.asarray(inexact).astype(np.asarray(quotient).dtype).reshape(np.shape(quotient))


def _floormod_float(a: Any, b: Any) -> Any:
    rest = np.fmod(a, b)
    moved = (rest != 0) & ((rest < 0) != (b < 0))
    return np.where(moved, np.add(rest, b), rest)[()]


def _shift(a: Any, b: Any, width: int, function: Function, beyond: Function) -> Any:
    bad = (b < 0) | (b >= width)
    if not np.any(bad):
        return function(a, b)
    kind = np.asarray(b).dtype.type
    within: Any = function(a, np.where(bad, kind(0), b))
    return np.asarray(np.where(bad, beyond(a), within))[()]


def _shl(dtype: DType) -> Function:
    return lambda a, b: _shift(a, b, dtype.bits, operator.lshift, np.zeros_like)


def _shr(dtype: DType) -> Function:
    beyond: Function = np.zeros_like
    if dtype.kind == "int":

        def beyond(a: Any) -> Any:
            return np.where(a < 0, np.asarray(a).dtype.type(-1), np.asarray(a).dtype.type(0))

    return lambda a, b: _shift(a, b, dtype.bits, operator.rshift, beyond)


_COMPARE: dict[str, Function] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}

_INT: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "truncdiv": _truncdiv_int,
    "truncmod": np.fmod,
    "min": np.minimum,
    "max": np.maximum,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}

_FLOAT: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": lambda a, b: np.floor(a / b),
    "floormod": _floormod_float,
    "truncdiv": lambda a, b: np.trunc(a / b),
    "truncmod": np.fmod,
    "min": np.fmin,
    "max": np.fmax,
}

_BOOL: dict[str, Function] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "bitand": np.logical_and,
    "bitor": np.logical_or,
    "bitxor": np.logical_xor,
}


def via_float64(function: Function, dtype: DType) -> Function:
    """`function` computed in float64 and rounded once to the compute form of `dtype`."""
    if dtype.numpy == _F64:
        return function
    return lambda *args: function(*[a.astype(_F64) for a in args]).astype(_F32)


def _rounded(function: Function, dtype: DType) -> Function:
    finish = rounder(dtype)
    return function if finish is None else lambda *args: finish(function(*args))


@cache
def binary_function(op: str, dtype: DType) -> Function:
    """The function of a `Binary` with operands of scalar dtype `dtype`.  Raises VerificationError when there is none."""
    if op in _COMPARE:
        return _COMPARE[op]
    if dtype.is_bool and op in _BOOL:
        return _BOOL[op]
    if dtype.is_float and op == "pow":
        return _rounded(via_float64(np.power, dtype), dtype)
    if dtype.is_float and op in _FLOAT:
        return _rounded(_FLOAT[op], dtype)
    if dtype.kind in ("int", "uint", "handle"):
        if op in _INT:
            return _rounded(_INT[op], dtype)
        if op in ("shl", "shr"):
            return _rounded(_shl(dtype) if op == "shl" else _shr(dtype), dtype)
    raise VerificationError(f"operation {op!r} is not defined on {dtype}")


@cache
def unary_function(op: str, dtype: DType) -> Function:
    """The function of a `Unary`.  Raises VerificationError when there is none."""
    if op == "not" and dtype.is_bool:
        return np.logical_not
    if op == "neg" and dtype.is_float:
        return operator.neg
    if op == "neg" and dtype.is_int:
        return _rounded(np.negative, dtype)
    if op == "bitnot" and dtype.is_int:
        return _rounded(np.invert, dtype)
    raise VerificationError(f"operation {op!r} is not defined on {dtype}")


# --- index arithmetic: Python integers and int64 arrays, exact -----------------------------------


def _is_scalar(*values: Any) -> bool:
    return all(isinstance(v, int) for v in values)


def _index_divide(scalar: Callable[[int, int], int], array: Function) -> Function:
    def divide(a: Any, b: Any) -> Any:
        if _is_scalar(a, b):
            return scalar(a, b) if b else 0
        return array(np.asarray(a, np.int64), np.asarray(b, np.int64))

    return divide


def _index_pick(scalar: Function, array: Function) -> Function:
    return lambda a, b: scalar(a, b) if _is_scalar(a, b) else array(a, b)


def _truncdiv_scalar(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod_scalar(a: int, b: int) -> int:
    rest = abs(a) % abs(b)
    return rest if a >= 0 else -rest


def _index_shift(width: int, function: Function, *, keep_sign: bool) -> Function:
    def shift(a: Any, b: Any) -> Any:
        if _is_scalar(a, b):
            return function(a, b) if 0 <= b < width else (-1 if keep_sign and a < 0 else 0)
        wide = np.asarray(a, np.int64)
        sign: Function = (lambda x: np.where(x < 0, np.int64(-1), np.int64(0))) if keep_sign else np.zeros_like
        return _shift(wide, np.asarray(b, np.int64), width, function, sign)

    return shift


_INDEX: dict[str, Function] = {
    **_COMPARE,
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _index_divide(operator.floordiv, np.floor_divide),
    "floormod": _index_divide(operator.mod, np.mod),
    "truncdiv": _index_divide(_truncdiv_scalar, _truncdiv_int),
    "truncmod": _index_divide(_truncmod_scalar, np.fmod),
    "min": _index_pick(min, np.minimum),
    "max": _index_pick(max, np.maximum),
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
}


@cache
def index_function(op: str, dtype: DType) -> Function:
    """The function of a `Binary` on index values (see `tilewright.ir.expr`)."""
    if op == "shl":
        return _index_shift(dtype.bits, operator.lshift, keep_sign=False)
    if op == "shr":
        return _index_shift(dtype.bits, operator.rshift, keep_sign=True)
    if op not in _INDEX:
        raise VerificationError(f"operation {op!r} is not defined on {dtype}")
    return _INDEX[op]


# --- intrinsics ------------------------------------------------------------------------------------

_erf: Function = np.frompyfunc(math.erf, 1, 1)

_MATH: dict[str, Function] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "exp10": lambda x: np.power(10.0, x),
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.asarray(_erf(x), _F64)[()],
    "sigmoid": lambda x: 1.0 / (1.0 + np.exp(-x)),
    "atan2": np.arctan2,
    "hypot": np.hypot,
}

# Exact in the compute form, so no detour through float64.
_EXACT: dict[str, Function] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": np.rint,
    "fmod": np.fmod,
    "copysign": np.copysign,
    "max_nan": np.maximum,
    "min_nan": np.minimum,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}

_PREDICATES = ("isnan", "isinf", "isfinite")


def _fma32(a: Any, b: Any, c: Any) -> Any:
    """a*b+c on float32, rounded once: the float64 product is exact, and the sum is rounded to odd."""
    product = np.asarray(a, _F64) * np.asarray(b, _F64)
    addend = np.asarray(c, _F64)
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)  # Knuth's two-sum: total + error is the exact sum
    bits = np.asarray(total).view(np.int64)
    inexact = np.isfinite(total) & np.isfinite(error) & (error != 0) & ((bits & 1) == 0)
    step = np.where((error > 0) == (total > 0), np.int64(1), np.int64(-1))
    return np.where(inexact, bits + step, bits).view(_F64).astype(_F32)[()]


def _fma64_scalar(a: float, b: float, c: float) -> float:
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        return a * b + c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c  # keeps the sign of a zero
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


_fma64_elements: Function = np.frompyfunc(_fma64_scalar, 3, 1)

_BYTE_COUNTS = np.array([bin(i).count("1") for i in range(256)], np.int32)


def _popcount(dtype: DType) -> Function:
    mask = 0xF if dtype.bits == 4 else 0xFF

    def popcount(value: Any) -> Any:
        array = np.ascontiguousarray(value)
        octets = array.reshape((*array.shape, 1)).view(np.uint8) & np.uint8(mask)
        return _BYTE_COUNTS[octets].sum(axis=-1, dtype=np.int32).reshape(np.shape(value))[()]

    return popcount


def _bit_length(value: Any) -> Any:
    return np.frexp(value.astype(_F64))[1]


def _clz(dtype: DType) -> Function:
    """Leading zero bits; the width for 0."""
    width = dtype.bits

    def clz(value: Any) -> Any:
        wide = np.asarray(value).astype(np.int64).view(np.uint64)
        if width < 64:
            wide = wide & np.uint64((1 << width) - 1)
        high, low = wide >> np.uint64(32), wide & np.uint64(0xFFFFFFFF)
        length = np.where(high != 0, 32 + _bit_length(high), _bit_length(low))
        return (width - length).astype(np.int32)[()]

    return clz


def _abs(dtype: DType) -> Function:
    if dtype.kind == "uint":
        return lambda value: value
    return _rounded(np.abs, dtype)


_INTEGER: dict[str, Callable[[DType], Function]] = {"popcount": _popcount, "clz": _clz, "abs": _abs}


def _fma(dtype: DType) -> Function:
    if dtype.numpy == _F64:
        return lambda a, b, c: np.asarray(_fma64_elements(a, b, c), _F64)[()]
    return _fma32


@cache
def intrinsic_function(name: str, dtype: DType) -> Function:
    """The function of a `Call` whose arguments have scalar dtype `dtype`.  Raises VerificationError when there is none."""
    if name in _INTEGER:
        if dtype.is_float and name != "abs":
            raise VerificationError(f"intrinsic {name!r} needs integers, got {dtype}")
        return _INTEGER[name](dtype)
    if not dtype.is_float:
        raise VerificationError(f"intrinsic {name!r} needs floats, got {dtype}")
    if name in _PREDICATES:
        return _EXACT[name]
    if name in _EXACT:
        return _rounded(_EXACT[name], dtype)
    if name in _MATH:
        return _rounded(via_float64(_MATH[name], dtype), dtype)
    if name == "fma":
        return _rounded(_fma(dtype), dtype)
    raise VerificationError(f"unknown intrinsic {name!r}")


# --- lanes -------------------------------------------------------------------------------------------

_LANES: dict[str, Function] = {
    "add": np.add.reduce,
    "max": np.fmax.reduce,
    "min": np.fmin.reduce,
    "max_nan": np.maximum.reduce,
    "min_nan": np.minimum.reduce,
    "bitand": np.bitwise_and.reduce,
    "bitor": np.bitwise_or.reduce,
    "bitxor": np.bitwise_xor.reduce,
}


@cache
def lane_reduction(op: str, dtype: DType) -> Function:
    """The function of a `VectorReduce` over lanes of scalar dtype `dtype`; a float sum is rounded once."""
    if op not in _LANES or (dtype.is_float and op.startswith("bit")):
        raise VerificationError(f"vector reduction {op!r} is not defined on {dtype}")
    reduce = _LANES[op]
    if dtype.is_float and op == "add":
        return _rounded(via_float64(reduce, dtype), dtype)
    compute = compute_numpy(dtype)
    if op == "add":
        return _rounded(lambda value: reduce(value, dtype=compute), dtype)
    return reduce


def dot2(acc: Any, a: Any, b: Any) -> Any:
    """acc[i] + a[2i]·b[2i] + a[2i+1]·b[2i+1] in float32, rounded once."""
    products = a.astype(_F64) * b.astype(_F64)
    return (acc.astype(_F64) + products[..., 0::2] + products[..., 1::2]).astype(_F32)
