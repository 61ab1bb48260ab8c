"""Arithmetic of indices, on exact 64-bit integers; sums stay symbolic (`Linear`) as long as they are small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.dtype import DType
from tilewright.ir.dtype import dtype as make_dtype
from tilewright.ir.expr import (
    BINARY_OPS,
    Broadcast,
    Ramp,
    const_int,
)
from tilewright.targets.cpu import arithmetic
from tilewright.targets.cpu.values import (
    Item,
    Linear,
    Value,
    integer,
)

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_expr import Emitter

INT64 = make_dtype("int64")
BOOL = make_dtype("bool")


def index_binary(emitter: Emitter, op: str, lhs: Item, rhs: Item, dtype: DType) -> Item:
    """`lhs op rhs` on exact 64-bit integers; `dtype`: of the operands."""
    w = emitter.w
    if lhs.linear is not None and rhs.linear is not None:
        folded = _index_linear(op, lhs.linear, rhs.linear, dtype.bits)
        if folded is not None:
            return Item(dtype, "index", linear=folded)
        difference = lhs.linear.plus(rhs.linear, -1).number
        x, y = lhs.linear.number, rhs.linear.number
        if difference is not None and BINARY_OPS[op][1] == "compare":
            x, y = difference, 0
        if x is not None and y is not None:
            number = arithmetic.fold_index(op, x, y, dtype.bits)
            if isinstance(number, bool):
                return Item(BOOL, value=integer(number, 1))
            if number is not None:
                return Item(dtype, "index", linear=Linear.constant(number))
    a, b = emitter.wide(lhs), emitter.wide(rhs)
    if BINARY_OPS[op][1] == "compare":
        mask = w.compare(arithmetic.SIGNED_COMPARE[op], a, b)
        return Item(BOOL.with_lanes(a.lanes), value=mask)
    result = _hoisted_index(emitter, op, a, b, dtype.bits)
    if a.lanes == 1:
        return Item(dtype, "index", linear=Linear.atom(result))
    return Item(dtype, "index", result)


def _hoisted_index(emitter: Emitter, op: str, a: Value, b: Value, bits: int) -> Value:
    w = emitter.w
    if op in ("add", "sub", "mul"):
        return {"add": w.add, "sub": w.sub, "mul": w.mul}[op](a, b)
    number = b.number
    if number is not None and number > 0 and number & (number - 1) == 0:
        size = integer(number.bit_length() - 1, 64, b.lanes)
        if op == "floordiv":
            return w.binary("ashr", a, size)
        if op == "floormod":
            return w.binary("and", a, integer(number - 1, 64, b.lanes))
    with w.hoisting(a, b):
        result = arithmetic.int_binary(w, op, a, b, True, bits)
    if result is None:
        raise arithmetic.undefined(op, INT64)
    return result


def tail_mask(emitter: Emitter, ramp: Ramp, bound: Broadcast) -> Item | None:
    """base + i < n for lanes i as i < n - base, in narrow lanes; None for what is no index arithmetic."""
    if const_int(ramp.stride) != 1:
        return None
    start, end = emitter.code(ramp.base), emitter.code(bound.value)
    if start.linear is None or end.linear is None or "index" not in (start.kind, end.kind):
        return None
    lanes, w = ramp.dtype.lanes, emitter.w
    scalar = "i32" if lanes <= 16 else "i8"
    if lanes > 127:
        return None
    left = w.linear(end.linear.plus(start.linear, -1))
    if left.number is not None:
        if left.number >= lanes or left.number <= 0:
            return Item(BOOL.with_lanes(lanes), value=integer(int(left.number > 0), 1, lanes))
        count = integer(left.number, int(scalar[1:]))
    else:
        with w.hoisting(left):
            clamped = w.intrinsic("smax", w.intrinsic("smin", left, integer(lanes)), integer(0))
            count = w.convert("trunc", clamped, scalar)
    return Item(BOOL.with_lanes(lanes), value=w.compare("ult", w.iota(lanes, scalar), w.splat(count, lanes)))


def _index_linear(op: str, a: Linear, b: Linear, bits: int) -> Linear | None:
    """Sums and products of sums, as long as they stay small; literals of any operation."""
    if op in ("add", "sub"):
        return a.plus(b, 1 if op == "add" else -1)
    if op == "mul" and (a.number is not None or b.number is not None or len(a.terms) * len(b.terms) <= _LARGEST_SUM):
        return a.times(b)
    shift = b.number
    if op == "shl" and shift is not None and 0 <= shift < bits:
        return a.scaled(1 << shift)
    return None


_LARGEST_SUM = 6
"""Terms of a product of sums that is still multiplied out."""
