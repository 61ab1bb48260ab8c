"""Patches of images as the rows of a matrix, for convolutions as matrix products."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ArgumentValueError, ScopeError, ShapeError
from tilewright.ir.expr import Buffer, Expr, Load, as_bool, as_expr, binary, cast, const, const_int, select
from tilewright.ir.stmt import Region, Store
from tilewright.language.loops import ParallelLoop
from tilewright.language.operands import begin_tile, matrix, matrix_extents, require_number
from tilewright.language.tensor import plain
from tilewright.source import Location


def c2d_im2col(
    img: Any,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: Any = None,
) -> None:
    """A tile of the patch matrix of `img` (N, H, W, C) for a square 2D convolution.

    The matrix has a row for every output pixel (n, y, x) and a column for every (ky, kx, c); `col` is its tile
    number `nhw_step` in rows and `c_step` in columns.  What lies in the padding, or beyond the matrix, is 0.
    Raises ShapeError, ScopeError or ArgumentValueError.
    """
    what = "T.c2d_im2col"
    builder, loc = begin_tile(what)
    if not isinstance(img, Buffer) or img.ndim != 4:
        raise ShapeError(f"the image of {what} is a whole tensor (N, H, W, C)", location=loc)
    target = matrix(col, f"destination of {what}")
    require_number(target, what)
    if target.buffer is img:
        raise ScopeError(f"{what} cannot write to a tensor that it reads", location=loc)
    for name, given, least in (
        ("kernel", kernel, 1),
        ("stride", stride, 1),
        ("dilation", dilation, 1),
        ("pad", pad, 0),
    ):
        if not isinstance(given, int) or isinstance(given, bool) or given < least:
            raise ArgumentValueError(
                f"{what}: {name} must be an integer of at least {least}, got {given!r}", location=loc
            )
    rows, columns = matrix_extents(target)
    loop = ParallelLoop((rows, columns), loc)
    i, j = loop.open(builder, ("i", "j"))
    places = (as_expr(nhw_step, loc=loc) * rows + i, as_expr(c_step, loc=loc) * columns + j)
    value = _patch(img, *places, (kernel, stride, dilation, pad), loc)
    builder.emit(Store(target.buffer, _element(target, i, j), cast(value, target.buffer.dtype, loc=loc), loc=loc))
    loop.close(builder)


def _patch(img: Buffer, row: Expr, column: Expr, geometry: tuple[int, int, int, int], loc: Location | None) -> Expr:
    """Element (row, column) of the patch matrix."""
    kernel, stride, dilation, pad = geometry
    batch, height, width, channels = (plain(size) for size in img.shape)
    reach = dilation * (kernel - 1) + 1
    out_height: Any = (height + (2 * pad - reach)) // stride + 1
    out_width: Any = (width + (2 * pad - reach)) // stride + 1
    if any(isinstance(size, int) and size < 1 for size in (out_height, out_width)):
        raise ShapeError(
            f"T.c2d_im2col: a kernel of {reach} by {reach} does not fit the image {height} by {width} with pad {pad}",
            location=loc,
        )
    y = row // out_width % out_height * stride + column // (kernel * channels) * dilation - pad
    x = row % out_width * stride + column // channels % kernel * dilation - pad
    inside = [
        row < batch * out_height * out_width,
        column < kernel * kernel * channels,
        y >= 0,
        y < height,
        x >= 0,
        x < width,
    ]
    condition = as_bool(inside[0], loc=loc)
    for test in inside[1:]:
        condition = binary("and", condition, as_bool(test, loc=loc), loc=loc)
    pixel = Load(img.dtype, img, (row // (out_height * out_width), y, x, column % channels), loc=loc)
    return select(condition, pixel, const(0, img.dtype, loc=loc), loc=loc)


def _element(target: Region, i: Expr, j: Expr) -> tuple[Expr, ...]:
    """The indices of element (i, j) of a region that is a matrix."""
    free = [d for d, extent in enumerate(target.extents) if const_int(extent) != 1]
    free = free if len(free) == 2 else [len(target.extents) - 2, len(target.extents) - 1]
    offsets = dict(zip(free, (i, j), strict=True))
    return tuple(start + offsets[d] if d in offsets else start for d, start in enumerate(target.starts))


im2col = c2d_im2col

__all__ = ["c2d_im2col", "im2col"]
