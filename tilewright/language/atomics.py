"""Indivisible updates of single elements, slices and tiles."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ArgumentValueError, DTypeError, ShapeError
from tilewright.ir.expr import Expr, as_expr, const_int
from tilewright.ir.stmt import Atomic, Region
from tilewright.language.operands import begin, choice, describe, is_box, paired_regions, require_writable
from tilewright.language.tensor import element_value, refuse_in_parallel, to_region

_ORDERS: dict[Any, str] = {
    None: "relaxed",
    "relaxed": "relaxed",
    "consume": "acquire",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "seq_cst",
}
_INTEGER_OPS = ("or", "and", "xor")


def _atomic(op: str, dst: Any, value: Any, memory_order: str | None, return_prev: bool) -> Expr | None:
    what = f"T.atomic_{op}"
    builder, loc = begin(what)
    order = choice(memory_order, _ORDERS, f"the memory order of {what}")
    if is_box(value) or (is_box(dst) and not _is_scalar(value)):
        refuse_in_parallel(builder, what + " of a tile", loc)
        source, target = paired_regions(value, dst, what)
        _check(op, target, what)
        if return_prev:
            raise ArgumentValueError(
                f"{what} returns the old value of one element only", location=loc, hint="loop with T.Parallel"
            )
        builder.emit(Atomic(op, require_writable(target, what), None, source, order, loc=loc))
        return None
    target = to_region(dst, f"target of {what}")
    _check(op, target, what)
    operand = element_value(value, target.buffer, loc)
    result = None
    if return_prev:
        if any(const_int(e) != 1 for e in target.extents):
            raise ShapeError(f"{what} returns the old value of one element, not of {describe(target)}", location=loc)
        result = builder.fresh_var("previous", target.buffer.dtype, loc)
    builder.emit(Atomic(op, require_writable(target, what), operand, None, order, result, loc=loc))
    return result


def _is_scalar(value: Any) -> bool:
    return not is_box(value) and (isinstance(value, (bool, int, float, Expr)) or hasattr(value, "as_expr"))


def _check(op: str, target: Region, what: str) -> None:
    element = target.buffer.dtype
    if element.kind == "handle" or (op in _INTEGER_OPS and not element.is_int):
        raise DTypeError(f"{what} has no meaning on {describe(target)}", location=begin(what)[1])


def atomic_add(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, use_tma: bool = False
) -> Expr | None:
    """dst += value, indivisibly for each element; the old value of a single element when `return_prev`."""
    return _atomic("add", dst, value, memory_order, return_prev)


def atomic_max(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Expr | None:
    """dst = max(dst, value), indivisibly for each element."""
    return _atomic("max", dst, value, memory_order, return_prev)


def atomic_min(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Expr | None:
    """dst = min(dst, value), indivisibly for each element."""
    return _atomic("min", dst, value, memory_order, return_prev)


def atomic_or(dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False) -> Expr | None:
    """dst |= value, indivisibly for each element."""
    return _atomic("or", dst, value, memory_order, return_prev)


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> None:
    """Two neighbouring elements at once: `dst` and `value` name the first of each pair."""
    _vector_add("T.atomic_addx2", dst, value, 2, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> None:
    """Four neighbouring elements at once: `dst` and `value` name the first of each four."""
    _vector_add("T.atomic_addx4", dst, value, 4, return_prev)


def _vector_add(what: str, dst: Any, value: Any, width: int, return_prev: bool) -> None:
    builder, loc = begin(what)
    if return_prev:
        raise ArgumentValueError(f"{what} returns no old value here", location=loc, hint="use T.atomic_add")
    boxes = [_widened(to_region(v, f"operand of {what}"), width) for v in (dst, value)]
    _check("add", boxes[0], what)
    builder.emit(Atomic("add", require_writable(boxes[0], what), None, boxes[1], "relaxed", loc=loc))


def _widened(region: Region, width: int) -> Region:
    if const_int(region.extents[-1]) == width:
        return region
    extents = (*region.extents[:-1], as_expr(width))
    return Region(region.buffer, region.starts, extents, loc=region.loc)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Expr | None:
    """The value of one element, read indivisibly."""
    return _atomic("load", src, 0, memory_order, True)


def atomic_store(dst: Any, src: Any, memory_order: str = "seq_cst") -> None:
    """dst = src, written indivisibly."""
    _atomic("store", dst, src, memory_order, False)


__all__ = [
    "atomic_add",
    "atomic_addx2",
    "atomic_addx4",
    "atomic_load",
    "atomic_max",
    "atomic_min",
    "atomic_or",
    "atomic_store",
]
