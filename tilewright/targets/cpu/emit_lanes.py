"""Expressions that make vectors, move their lanes, or combine them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir.dtype import dtype as make_dtype
from tilewright.ir.expr import (
    Broadcast,
    Call,
    Ramp,
    Shuffle,
    VectorReduce,
)
from tilewright.targets.cpu import intrinsics
from tilewright.targets.cpu.values import (
    Item,
    Value,
    vector_type,
)

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_expr import Emitter

BFLOAT16 = make_dtype("bfloat16")


def dot2(emitter: Emitter, expr: Call) -> Item:
    """Pairs of bfloat16 products added to float32 lanes."""
    with emitter.across_lanes():
        acc, a, b = [emitter.code(arg) for arg in expr.args]
    return Item(
        expr.dtype,
        value=intrinsics.dot2(
            emitter.w, emitter.compute(acc), emitter.stored(a, BFLOAT16), emitter.stored(b, BFLOAT16)
        ),
    )


def ramp(emitter: Emitter, expr: Ramp) -> Item:
    """base, base + stride, ...: on exact 64-bit integers for indices."""
    base, stride = emitter.code(expr.base), emitter.code(expr.stride)
    lanes, w = expr.dtype.lanes, emitter.w
    if "typed" not in (base.kind, stride.kind):
        assert stride.linear is not None
        step = stride.linear.number
        steps = (
            w.iota(lanes, "i64", step)
            if step is not None
            else w.binary("mul", w.iota(lanes), w.splat(emitter.wide(stride), lanes))
        )
        start = w.splat(emitter.wide(base), lanes)
        return Item(expr.dtype, "index", steps if start.number == 0 else w.binary("add", start, steps))
    first, step_value = emitter.compute(base), emitter.compute(stride)
    steps = w.bin("mul", w.iota(lanes, first.type), w.splat(step_value, lanes))
    return emitter.rounded(w.bin("add", w.splat(first, lanes), steps), expr.dtype)


def broadcast(emitter: Emitter, expr: Broadcast) -> Item:
    """One scalar in all lanes, in the form that it has."""
    item, lanes, w = emitter.code(expr.value), expr.dtype.lanes, emitter.w
    if item.kind != "typed":
        return Item(expr.dtype, "index", w.splat(emitter.wide(item), lanes))
    if item.value is None and item.stored is not None:
        return Item(expr.dtype, stored=w.splat(item.stored, lanes))
    return Item(expr.dtype, value=w.splat(emitter.compute(item), lanes))


def shuffle(emitter: Emitter, expr: Shuffle) -> Item:
    """Lanes picked from two vectors or scalars."""
    with emitter.across_lanes():
        first, second = emitter.code(expr.first), emitter.code(expr.second)
    if first.stored is not None and second.stored is not None and first.kind == second.kind == "typed":
        return Item(expr.dtype, stored=_pick(emitter, first.stored, second.stored, expr.lanes))
    return Item(expr.dtype, value=_pick(emitter, emitter.compute(first), emitter.compute(second), expr.lanes))


def _pick(emitter: Emitter, a: Value, b: Value, lanes: tuple[int, ...]) -> Value:
    w = emitter.w
    split, size = a.lanes, max(a.lanes, b.lanes)
    a, b = _widened(emitter, a, size), _widened(emitter, b, size)
    if size == 1:
        chosen = [a if lane == 0 else b for lane in lanes]
        if len(chosen) == 1:
            return chosen[0]
        result = Value("poison", vector_type(a.type, len(lanes)), len(lanes))
        for lane, item in enumerate(chosen):
            result = w.insert(result, item, lane)
        return result
    places = tuple([lane if lane < split else lane - split + size for lane in lanes])
    return w.shuffle(a, None if max(places) < size else b, places)


def _widened(emitter: Emitter, value: Value, lanes: int) -> Value:
    if value.lanes == lanes:
        return value
    w = emitter.w
    if value.lanes == 1:
        return w.insert(Value("poison", vector_type(value.type, lanes), lanes), value, 0)
    return w.shuffle(value, None, tuple([min(i, value.lanes - 1) for i in range(lanes)]))


def vector_reduce(emitter: Emitter, expr: VectorReduce) -> Item:
    """All lanes combined to a scalar."""
    dtype = expr.value.dtype
    with emitter.across_lanes():
        vector = emitter.value(expr.value)
    return emitter.rounded(intrinsics.reduce(emitter.w, expr.op, vector, dtype), expr.dtype)
