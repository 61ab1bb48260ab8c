"""Reductions and scans of tiles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.errors import ArgumentValueError, DTypeError, ShapeError
from tilewright.ir.expr import BOOL, Buffer, Load, const_int
from tilewright.ir.stmt import Alloc, Reduce, Region, Scan
from tilewright.language.operands import (
    begin,
    begin_tile,
    describe,
    require_same_extents,
    require_writable,
    same_size,
    squeezed,
)
from tilewright.language.tensor import to_region
from tilewright.source import Location

_INTEGER_OPS = ("bitand", "bitor", "bitxor")


def _reduce(op: str, src: Any, dst: Any, dim: int, clear: bool, nan_propagate: bool = False) -> None:
    what = f"T.reduce_{op}"
    builder, loc = begin_tile(what)
    source = to_region(src, f"source of {what}")
    target = require_writable(to_region(dst, f"destination of {what}"), what)
    position = _dimension(source, dim, what, loc)
    rest = [e for d, e in enumerate(source.extents) if d != position and const_int(e) != 1]
    kept = squeezed(target)
    if len(rest) != len(kept) or not all(same_size(x, y) for x, y in zip(rest, kept, strict=True)):
        raise ShapeError(
            f"{what}: {describe(source)} without dimension {position} does not fit {describe(target)}", location=loc
        )
    element = source.buffer.dtype
    if op in _INTEGER_OPS and not (element.is_int or element.is_bool):
        raise DTypeError(f"{what} needs integers, got {element}", location=loc)
    if target.buffer.dtype.is_float != element.is_float and not element.is_bool:
        raise DTypeError(
            f"{what}: source is {element}, destination is {target.buffer.dtype}", location=loc, hint="T.copy casts"
        )
    builder.emit(Reduce(op, source, target, position, bool(clear), bool(nan_propagate), loc=loc))


def _dimension(region: Region, dim: int, what: str, loc: Location | None) -> int:
    """`dim` as a dimension of the region's buffer; counted over the region's own dimensions from the end for negatives."""
    rank = len(region.extents)
    if isinstance(dim, bool) or not isinstance(dim, int) or not -rank <= dim < rank:
        raise ArgumentValueError(
            f"{what}: dim {dim!r} is no dimension of {describe(region)}",
            location=loc,
            hint=f"dimensions are 0 to {rank - 1}, or negative from the end",
        )
    return dim % rank


def reduce(
    buffer: Any,
    out: Any,
    reduce_type: str,
    dim: int = -1,
    clear: bool = True,
    batch: int = 1,
    nan_propagate: bool = False,
    annotations: dict[str, Any] | None = None,
) -> None:
    """Reduction by name: "sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor"."""
    operations = ("sum", "max", "min", "abssum", "absmax", *_INTEGER_OPS)
    if reduce_type not in operations:
        raise ArgumentValueError(
            f"unknown reduction {reduce_type!r}", location=begin("T.reduce")[1], hint=f"known: {', '.join(operations)}"
        )
    _reduce(reduce_type, buffer, out, dim, clear, nan_propagate)


def _reduction(op: str, purpose: str) -> Callable[..., None]:
    def function(
        buffer: Any,
        out: Any,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        annotations: dict[str, Any] | None = None,
    ) -> None:
        _reduce(op, buffer, out, dim, clear)

    function.__name__ = function.__qualname__ = f"reduce_{op}"
    function.__doc__ = f"out = {purpose} over `dim`; joined with out's old value unless `clear`.  batch: a hint."
    return function


def _comparison(op: str, purpose: str) -> Callable[..., None]:
    def function(
        buffer: Any,
        out: Any,
        dim: int = -1,
        clear: bool = True,
        batch: int = 1,
        nan_propagate: bool = False,
        annotations: dict[str, Any] | None = None,
    ) -> None:
        _reduce(op, buffer, out, dim, clear, nan_propagate)

    function.__name__ = function.__qualname__ = f"reduce_{op}"
    function.__doc__ = (
        f"out = {purpose} over `dim`; joined with out's old value unless `clear`.\n\n"
        "    NaN is left out unless `nan_propagate`.  batch: a hint.\n"
    )
    return function


reduce_sum = _reduction("sum", "sum")
reduce_abssum = _reduction("abssum", "sum of magnitudes")
reduce_max = _comparison("max", "largest")
reduce_min = _comparison("min", "smallest")
reduce_absmax = _comparison("absmax", "largest magnitude")
reduce_bitand = _reduction("bitand", "bitwise and")
reduce_bitor = _reduction("bitor", "bitwise or")
reduce_bitxor = _reduction("bitxor", "bitwise exclusive or")


def _whole_truth(op: str, buffer: Any) -> Load:
    """`any` or `all` over every element, dimension by dimension."""
    builder, loc = begin_tile(f"T.{op}_of")
    source = to_region(buffer, f"operand of T.{op}_of")
    while True:
        shape = source.extents[:-1]
        scope = "fragment" if shape else "var"
        target = Buffer(f"{op}_of", shape, BOOL, scope, loc=loc)
        target.name = builder.unique_name(target.name)
        builder.emit(Alloc(target, loc=loc))
        region = to_region(target)
        builder.emit(Reduce(op, source, region, len(source.extents) - 1, loc=loc))
        if not shape:
            return Load(BOOL, target, (), loc=loc)
        source = region


def any_of(buffer: Any) -> Load:
    """Whether any element of a tile is not 0."""
    return _whole_truth("any", buffer)


def all_of(buffer: Any) -> Load:
    """Whether no element of a tile is 0."""
    return _whole_truth("all", buffer)


def _scan(op: str, src: Any, dst: Any, dim: int, reverse: bool) -> None:
    what = f"T.cum{op}"
    builder, loc = begin_tile(what)
    source = to_region(src, f"source of {what}")
    target = require_writable(source if dst is None else to_region(dst, f"destination of {what}"), what)
    require_same_extents(source, target, what)
    if len(source.extents) != len(target.extents):
        raise ShapeError(f"{what}: {describe(source)} and {describe(target)} differ in rank", location=loc)
    position = _dimension(source, dim, what, loc)
    builder.emit(Scan(op, source, target, position, bool(reverse), loc=loc))


def cumsum(
    src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: dict[str, Any] | None = None
) -> None:
    """dst[i] = sum of src[0..i] along `dim` (of src[i..] when `reverse`); in place when `dst` is left out."""
    _scan("sum", src, dst, dim, reverse)


def cummax(
    src: Any, dst: Any = None, dim: int = 0, reverse: bool = False, annotations: dict[str, Any] | None = None
) -> None:
    """dst[i] = largest of src[0..i] along `dim` (of src[i..] when `reverse`); in place when `dst` is left out."""
    _scan("max", src, dst, dim, reverse)


__all__ = [
    "all_of",
    "any_of",
    "cummax",
    "cumsum",
    "reduce",
    "reduce_absmax",
    "reduce_abssum",
    "reduce_bitand",
    "reduce_bitor",
    "reduce_bitxor",
    "reduce_max",
    "reduce_min",
    "reduce_sum",
]
