"""Operators on values in compute form: what `Unary` and `Binary` mean, with LLVM's undefined cases defined.

An integer division by zero gives 0, the smallest integer divided by -1 is itself, a shift beyond the width
gives 0 (or the sign); `min` and `max` leave NaN out.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.targets.cpu.values import Value, integer, real, vector_type, width
from tilewright.targets.cpu.writer import Writer

FLOAT_COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
SIGNED_COMPARE = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
UNSIGNED_COMPARE = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "eq": "eq", "ne": "ne"}
LOGIC = {"and": "and", "or": "or", "bitand": "and", "bitor": "or", "bitxor": "xor"}
DIVISIONS = ("floordiv", "floormod", "truncdiv", "truncmod")

_SIMPLE_INT = {"add": "add", "sub": "sub", "mul": "mul", "bitand": "and", "bitor": "or", "bitxor": "xor"}
_SIMPLE_FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def undefined(op: str, dtype: DType) -> VerificationError:
    """The error for an operation that a dtype does not have."""
    return VerificationError(f"operation {op!r} is not defined on {dtype}")


def compare(w: Writer, op: str, a: Value, b: Value, dtype: DType) -> Value:
    """A comparison; bools compare as 0 and 1."""
    if dtype.is_float:
        return w.fcmp(FLOAT_COMPARE[op], a, b)
    return w.icmp((SIGNED_COMPARE if dtype.kind == "int" else UNSIGNED_COMPARE)[op], a, b)


# --- integers -------------------------------------------------------------------------------------------


def int_binary(w: Writer, op: str, a: Value, b: Value, signed: bool, bits: int) -> Value | None:
    """An integer operation; `bits` is the width that shifts go by.  None when there is no such operation."""
    if op in _SIMPLE_INT:
        return w.bin(_SIMPLE_INT[op], a, b)
    if op in ("min", "max"):
        return w.intrinsic(f"{'s' if signed else 'u'}{op}", a, b)
    if op in DIVISIONS:
        return divide(w, op, a, b, signed)
    if op in ("shl", "shr"):
        return shift(w, op, a, b, signed, bits)
    return None


def divide(w: Writer, op: str, a: Value, b: Value, signed: bool) -> Value:
    """`floordiv`, `floormod`, `truncdiv` or `truncmod`."""
    bits = width(a.scalar_type)
    if b.number is not None and b.number not in (0, -1):
        return _divide_constant(w, op, a, b, signed)
    if a.lanes > 1 and bits == 64:
        # Not as vectors: LLVM 22 turns a / select(c, 1, b) into select(c, a, a / b) for AVX-512, which traps.
        return w.lanewise(lambda x, y: divide(w, op, x, y, signed), a.scalar_type, a, b)
    zero, one = integer(0, bits, a.lanes), integer(1, bits, a.lanes)
    is_zero = w.icmp("eq", b, zero)
    bad = is_zero
    if signed:
        lowest = integer(-(1 << (bits - 1)), bits, a.lanes)
        overflow = w.bin("and", w.icmp("eq", a, lowest), w.icmp("eq", b, integer(-1, bits, a.lanes)))
        bad = w.bin("or", bad, overflow)
    safe = w.select(bad, one, b)  # a / 1 is the lowest integer again, and a % 1 is 0
    if op.endswith("mod"):
        rest = _truncated(w, a, safe, signed, remainder=True)
        return _floor_mod(w, rest, safe) if signed and op == "floormod" else rest
    quotient = _truncated(w, a, safe, signed, remainder=False)
    if signed and op == "floordiv":
        quotient = _floor_div(w, a, safe, quotient)
    return w.select(is_zero, zero, quotient)


def _truncated(w: Writer, a: Value, b: Value, signed: bool, *, remainder: bool) -> Value:
    """a / b towards zero, or what it leaves.  Vectors divide as floats with more bits, whose quotient cannot reach
    the next whole number by rounding."""
    if a.lanes == 1:
        return w.bin(("s" if signed else "u") + ("rem" if remainder else "div"), a, b)
    scalar = "float" if width(a.scalar_type) <= 16 else "double"
    into, out = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    quotient = w.convert(out, w.bin("fdiv", w.convert(into, a, scalar), w.convert(into, b, scalar)), a.scalar_type)
    return w.bin("sub", a, w.bin("mul", quotient, b)) if remainder else quotient


def _divide_constant(w: Writer, op: str, a: Value, b: Value, signed: bool) -> Value:
    bits, number = width(a.scalar_type), b.number or 0
    if signed and number > 0 and number & (number - 1) == 0 and op.startswith("floor"):
        if op == "floormod":
            return w.bin("and", a, integer(number - 1, bits, a.lanes))
        return w.bin("ashr", a, integer(number.bit_length() - 1, bits, a.lanes))
    if op.endswith("mod"):
        rest = w.bin("srem" if signed else "urem", a, b)
        return _floor_mod(w, rest, b) if signed and op == "floormod" else rest
    quotient = w.bin("sdiv" if signed else "udiv", a, b)
    return _floor_div(w, a, b, quotient) if signed and op == "floordiv" else quotient


def _opposite(w: Writer, rest: Value, b: Value) -> Value:
    """Whether a remainder is not 0 and its sign differs from the divisor's."""
    zero = integer(0, width(rest.scalar_type), rest.lanes)
    return w.bin("and", w.icmp("ne", rest, zero), w.icmp("slt", w.bin("xor", rest, b), zero))


def _floor_mod(w: Writer, rest: Value, b: Value) -> Value:
    return w.select(_opposite(w, rest, b), w.bin("add", rest, b), rest)


def _floor_div(w: Writer, a: Value, b: Value, quotient: Value) -> Value:
    rest = w.bin("sub", a, w.bin("mul", quotient, b))
    return w.bin("sub", quotient, w.convert("zext", _opposite(w, rest, b), quotient.scalar_type))


def shift(w: Writer, op: str, a: Value, b: Value, signed: bool, bits: int) -> Value:
    """`shl` or `shr` by any amount; `bits` or more, or less than 0, is beyond."""
    size = width(a.scalar_type)
    instruction = "shl" if op == "shl" else "ashr" if signed else "lshr"
    if b.number is not None and 0 <= b.number < bits:
        return w.bin(instruction, a, b)
    within = w.icmp("ult", b, integer(bits, size, a.lanes))
    amount = w.select(within, b, integer(0, size, a.lanes))
    shifted = w.bin(instruction, a, amount)
    beyond = integer(0, size, a.lanes)
    if instruction == "ashr":
        beyond = w.bin("ashr", a, integer(size - 1, size, a.lanes))
    return w.select(within, shifted, beyond)


def fold_index(op: str, a: int, b: int, bits: int) -> int | bool | None:
    """An operation on exact index values that are known while compiling; None when there is no such operation."""
    function = _FOLD.get(op)
    if function is not None:
        return function(a, b)
    if op in DIVISIONS:
        return _fold_division(op, a, b)
    if op == "shl":
        return a << b if 0 <= b < bits else 0
    if op == "shr":
        return a >> b if 0 <= b < bits else -(a < 0)
    return None


def _fold_division(op: str, a: int, b: int) -> int:
    if b == 0:
        return 0
    if op.startswith("floor"):
        return a // b if op == "floordiv" else a % b
    quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient if op == "truncdiv" else a - quotient * b


_FOLD: dict[str, Callable[[int, int], int | bool]] = {
    "min": min,
    "max": max,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


# --- floats ---------------------------------------------------------------------------------------------


def float_binary(w: Writer, op: str, a: Value, b: Value) -> Value | None:
    """An operation on float or double lanes, before rounding to a narrower dtype.  None when there is no such operation."""
    if op in _SIMPLE_FLOAT:
        return w.bin(_SIMPLE_FLOAT[op], a, b)
    function = _FLOAT.get(op)
    return None if function is None else function(w, a, b)


def minimum(w: Writer, a: Value, b: Value) -> Value:
    """The smaller; the other where one is NaN.

    LLVM's x86 code tests its first operand for NaN and selects by that: with the new value of a reduction there,
    the test is not in the chain from one step to the next.
    """
    return w.intrinsic("minnum", b, a)


def maximum(w: Writer, a: Value, b: Value) -> Value:
    """The larger; the other where one is NaN.  As `minimum`."""
    return w.intrinsic("maxnum", b, a)


def extreme_nan(w: Writer, predicate: str, a: Value, b: Value) -> Value:
    """The larger ("ogt") or smaller ("olt"); NaN where either is."""
    picked = w.select(w.fcmp(predicate, a, b), a, b)
    return w.select(w.fcmp("uno", a, a), a, picked)


def floor_mod(w: Writer, a: Value, b: Value) -> Value:
    """C's exact remainder, plus b where its sign differs from b's."""
    rest = float_mod(w, a, b)
    zero = real(0.0, a.scalar_type, a.lanes)
    signs = w.bin("xor", w.fcmp("olt", rest, zero), w.fcmp("olt", b, zero))
    moved = w.bin("and", w.fcmp("une", rest, zero), signs)
    return w.select(moved, w.bin("fadd", rest, b), rest)


def float_mod(w: Writer, a: Value, b: Value) -> Value:
    """C's fmod."""
    return w.libm("fmod" if a.scalar_type == "double" else "fmodf", a, b)


def power(w: Writer, a: Value, b: Value) -> Value:
    """C's pow."""
    return w.libm("pow" if a.scalar_type == "double" else "powf", a, b)


_FLOAT: dict[str, Callable[[Writer, Value, Value], Value]] = {
    "floordiv": lambda w, a, b: floor(w, w.bin("fdiv", a, b)),
    "truncdiv": lambda w, a, b: truncate(w, w.bin("fdiv", a, b)),
    "floormod": floor_mod,
    "truncmod": float_mod,
    "min": minimum,
    "max": maximum,
    "pow": power,
}

# --- rounding to whole numbers ------------------------------------------------------------------------------


def nearest(w: Writer, a: Value) -> Value:
    """Half to even."""
    if w.facts.rounding:
        return w.intrinsic("roundeven", a)
    # Without an instruction: adding 2^23 (2^52) leaves no bits behind the point.
    scalar = a.scalar_type
    unit = real(2.0**23 if scalar == "float" else 2.0**52, scalar, a.lanes)
    magnitude = w.intrinsic("fabs", a)
    whole = w.bin("fsub", w.bin("fadd", magnitude, unit), unit)
    kept = w.select(w.fcmp("olt", magnitude, unit), whole, magnitude)
    return w.intrinsic("copysign", kept, a)


def _directed(w: Writer, a: Value, op: str, predicate: str, step: str) -> Value:
    if w.facts.rounding:
        return w.intrinsic(op, a)
    one, zero = real(1.0, a.scalar_type, a.lanes), real(0.0, a.scalar_type, a.lanes)
    whole = nearest(w, a)
    moved = w.bin(step, whole, w.select(w.fcmp(predicate, whole, a), one, zero))
    return w.intrinsic("copysign", moved, a)


def floor(w: Writer, a: Value) -> Value:
    """Towards minus infinity."""
    return _directed(w, a, "floor", "ogt", "fsub")


def ceil(w: Writer, a: Value) -> Value:
    """Towards plus infinity."""
    return _directed(w, a, "ceil", "olt", "fadd")


def truncate(w: Writer, a: Value) -> Value:
    """Towards zero."""
    if w.facts.rounding:
        return w.intrinsic("trunc", a)
    return w.intrinsic("copysign", floor(w, w.intrinsic("fabs", a)), a)


# --- fused multiply-add -----------------------------------------------------------------------------------


def fused(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """a * b + c, rounded once."""
    if w.facts.fma:
        return w.intrinsic("fma", a, b, c)
    if a.scalar_type == "double":
        return w.libm("fma", a, b, c)
    return _fused_by_double(w, a, b, c)


def _fused_by_double(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """The product is exact in float64; the sum is rounded to odd there, then to float32."""
    lanes = a.lanes
    product = w.bin("fmul", w.convert("fpext", a, "double"), w.convert("fpext", b, "double"))
    addend = w.convert("fpext", c, "double")
    total = w.bin("fadd", product, addend)
    part = w.bin("fsub", total, product)
    error = w.bin(
        "fadd", w.bin("fsub", product, w.bin("fsub", total, part)), w.bin("fsub", addend, part)
    )  # Knuth's two-sum
    zero, infinity = real(0.0, "double", lanes), real(math.inf, "double", lanes)
    bits = w.as_bits(total)
    even = w.icmp("eq", w.bin("and", bits, integer(1, 64, lanes)), integer(0, 64, lanes))
    finite = w.fcmp("olt", w.intrinsic("fabs", total), infinity)
    inexact = w.bin("and", w.bin("and", w.fcmp("one", error, zero), finite), even)
    away = w.bin("xor", w.fcmp("ogt", error, zero), w.fcmp("ogt", total, zero))
    step = w.select(away, integer(-1, 64, lanes), integer(1, 64, lanes))
    odd = w.select(inexact, w.bin("add", bits, step), bits)
    return w.convert("fptrunc", w.bitcast(odd, vector_type("double", lanes), lanes), "float")
