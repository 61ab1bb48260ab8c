"""Moving tiles: copy, transpose, fill and clear."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ArgumentValueError, ShapeError
from tilewright.ir.expr import Load, cast
from tilewright.ir.stmt import Copy, Store, Transpose
from tilewright.language.operands import (
    begin,
    begin_tile,
    describe,
    is_box,
    matrix,
    matrix_extents,
    paired_regions,
    require_disjoint,
    require_number,
    require_writable,
    same_size,
)
from tilewright.language.tensor import fill_region, refuse_in_parallel, to_region


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: Any = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
    prefer_async: bool = False,
) -> None:
    """dst = cast(src, dst.dtype): buffers, slices, or head addresses such as `A[by * bm, k * bk]`.

    A head address takes the other side's extents.  Reads beyond a tensor give 0, writes there are dropped.
    The keyword arguments are hints for GPUs.  Raises ShapeError with both shapes where extents differ.
    """
    _copy("T.copy", src, dst)


def _copy(what: str, src: Any, dst: Any) -> None:
    builder, loc = begin(what)
    source, target = paired_regions(src, dst, what)
    require_number(source, what)
    require_number(target, what)
    require_writable(target, what)
    if not is_box(src) and not is_box(dst):  # one element to another is a store, also for each point of T.Parallel
        element = Load(source.buffer.dtype, source.buffer, source.starts, loc=source.loc)
        builder.emit(Store(target.buffer, target.starts, cast(element, target.buffer.dtype, loc=loc), loc=loc))
        return
    refuse_in_parallel(builder, what, loc)
    require_disjoint(source, target, what)
    builder.emit(Copy(source, target, loc=loc))


def async_copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    annotations: dict[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """A copy that may be in flight until `wait_group`; its meaning is that of `copy`."""
    _copy("T.async_copy", src, dst)


def commit_group() -> None:
    """Close a group of asynchronous copies; they are already done in the language's meaning."""
    begin("T.commit_group")


def wait_group(n: int = 0) -> None:
    """Wait until at most `n` groups of asynchronous copies are in flight."""
    begin("T.wait_group")


def transpose(src: Any, dst: Any) -> None:
    """dst[j, i] = cast(src[i, j], dst.dtype).  Raises ShapeError with both shapes where extents do not fit."""
    builder, loc = begin_tile("T.transpose")
    source, target = matrix(src, "source of T.transpose"), matrix(dst, "destination of T.transpose")
    require_number(source, "T.transpose")
    require_number(target, "T.transpose")
    if source.buffer is target.buffer:
        raise ArgumentValueError(
            f"T.transpose cannot write to {source.buffer.name}, which it reads", location=loc, hint="use another tile"
        )
    rows, columns = matrix_extents(source)
    target_rows, target_columns = matrix_extents(target)
    if not (same_size(rows, target_columns) and same_size(columns, target_rows)):
        raise ShapeError(f"T.transpose: {describe(source)} and {describe(target)} are no transposed pair", location=loc)
    builder.emit(Transpose(source, require_writable(target, "T.transpose"), loc=loc))


def fill(buffer: Any, value: Any) -> None:
    """Set every element of a tensor or slice to `value`, cast to its dtype."""
    fill_region("T.fill", to_region(buffer, "target of T.fill"), value)


def clear(buffer: Any) -> None:
    """Set every element of a tensor or slice to 0."""
    fill_region("T.clear", to_region(buffer, "target of T.clear"), 0)


__all__ = ["async_copy", "clear", "commit_group", "copy", "fill", "transpose", "wait_group"]
