"""Moving tiles: copy, transpose, fill and clear."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ShapeError
from tilewright.ir.expr import as_expr, cast, const
from tilewright.ir.stmt import Copy, Fill, Transpose
from tilewright.language.operands import (
    begin,
    describe,
    matrix,
    matrix_extents,
    paired_regions,
    require_number,
    require_writable,
    same_size,
)
from tilewright.language.tensor import to_region


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
    builder, loc = begin("T.copy")
    source, target = paired_regions(src, dst, "T.copy")
    require_number(source, "T.copy")
    builder.emit(Copy(source, require_writable(target, "T.copy"), loc=loc))


def async_copy(src: Any, dst: Any, **hints: Any) -> None:
    """A copy that may be in flight until `wait_group`; its meaning is that of `copy`."""
    copy(src, dst, **hints)


def commit_group() -> None:
    """Close a group of asynchronous copies; they are already done in the language's meaning."""
    begin("T.commit_group")


def wait_group(n: int = 0) -> None:
    """Wait until at most `n` groups of asynchronous copies are in flight."""
    begin("T.wait_group")


def transpose(src: Any, dst: Any) -> None:
    """dst[j, i] = cast(src[i, j], dst.dtype).  Raises ShapeError with both shapes where extents do not fit."""
    builder, loc = begin("T.transpose")
    source, target = matrix(src, "source of T.transpose"), matrix(dst, "destination of T.transpose")
    rows, columns = matrix_extents(source)
    target_rows, target_columns = matrix_extents(target)
    if not (same_size(rows, target_columns) and same_size(columns, target_rows)):
        raise ShapeError(f"T.transpose: {describe(source)} and {describe(target)} are no transposed pair", location=loc)
    builder.emit(Transpose(source, require_writable(target, "T.transpose"), loc=loc))


def fill(buffer: Any, value: Any) -> None:
    """Set every element of a tensor or slice to `value`, cast to its dtype."""
    builder, loc = begin("T.fill")
    target = require_writable(to_region(buffer, "target of T.fill"), "T.fill")
    element = target.buffer.dtype
    builder.emit(Fill(target, cast(as_expr(value, element, loc=loc), element, loc=loc), loc=loc))


def clear(buffer: Any) -> None:
    """Set every element of a tensor or slice to 0."""
    builder, loc = begin("T.clear")
    target = require_writable(to_region(buffer, "target of T.clear"), "T.clear")
    builder.emit(Fill(target, const(0, target.buffer.dtype, loc=loc), loc=loc))


__all__ = ["async_copy", "clear", "commit_group", "copy", "fill", "transpose", "wait_group"]
