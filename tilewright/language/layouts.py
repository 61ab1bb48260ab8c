"""Layouts that a user fixes by hand with `T.annotate_layout`: hints, written as functions of the tile's indices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from tilewright.errors import ArgumentValueError, ShapeError
from tilewright.ir.expr import INT32, Buffer, Expr, Var, as_expr, const_int
from tilewright.ir.printer import print_expr
from tilewright.language.annotations import shape_tuple
from tilewright.source import caller_location


def _sizes(shape: Any) -> tuple[int, ...]:
    known = [const_int(s) for s in shape_tuple(shape)]
    if None in known:
        raise ShapeError("a layout needs a shape that is known while compiling", location=caller_location())
    return tuple(k for k in known if k is not None)


def _apply(function: Callable[..., Any], variables: tuple[Var, ...], what: str) -> tuple[Expr, ...]:
    loc = caller_location()
    try:
        result = function(*variables)
    except TypeError as error:
        raise ArgumentValueError(
            f"the function of a layout is called with {len(variables)} indices, and failed: "
            + re.sub(r"^[\w.<>]+\(\)", "it", str(error)),
            location=loc,
        ) from None
    places = tuple(as_expr(r, loc=loc) for r in (result if isinstance(result, (tuple, list)) else (result,)))
    if not all(p.dtype.is_int for p in places):
        raise ArgumentValueError(f"the {what} of a layout must be integers", location=loc)
    return places


class Layout:
    """Where element (i, j, ...) of a tile of `shape` lies: `forward(i, j, ...)` gives the index or indices."""

    def __init__(self, shape: Any, forward: Callable[..., Any]) -> None:
        self.shape = _sizes(shape)
        self.vars = tuple(Var(INT32, f"i{d}") for d in range(len(self.shape)))
        self.index = _apply(forward, self.vars, "indices")

    def __repr__(self) -> str:
        return f"Layout({self.shape} -> {', '.join(map(print_expr, self.index))})"


class Fragment(Layout):
    """Which thread holds element (i, j, ...) of a tile in registers, and in which of its registers.

    forward: gives (thread, register); or forward_thread_fn and forward_index_fn apart.  replicate: how many
    threads hold every element; the functions take the copy's number as a last argument then.
    """

    def __init__(
        self,
        shape: Any,
        forward: Callable[..., Any] | None = None,
        forward_thread_fn: Callable[..., Any] | None = None,
        replicate: int = 1,
        forward_index_fn: Callable[..., Any] | None = None,
    ) -> None:
        loc = caller_location()
        if (forward is None) == (forward_thread_fn is None):
            raise ArgumentValueError("a fragment needs forward, or forward_thread_fn", location=loc)
        self.shape = _sizes(shape)
        self.replicate = replicate
        copies = (Var(INT32, "copy"),) if replicate > 1 else ()
        self.vars = (*(Var(INT32, f"i{d}") for d in range(len(self.shape))), *copies)
        if forward is not None:
            places = _apply(forward, self.vars, "thread and register")
            if len(places) < 2:
                raise ArgumentValueError("forward of a fragment gives (thread, register)", location=loc)
            self.thread, self.index = places[0], places[1:]
        elif forward_thread_fn is not None:
            self.thread = _apply(forward_thread_fn, self.vars, "thread")[0]
            plain = self.vars[: len(self.shape)]
            self.index = () if forward_index_fn is None else _apply(forward_index_fn, plain, "register")

    def __repr__(self) -> str:
        index = ", ".join(map(print_expr, self.index))
        return f"Fragment({self.shape} -> thread {print_expr(self.thread)}, index {index}, replicate {self.replicate})"


# Sixteen bytes are what a thread moves at once; eight such chunks are the row of all shared-memory banks.
_CHUNK_BITS = 128
_CHUNKS = 8


def make_swizzled_layout(buffer: Any, k_major: bool = True, allow_pad: bool = True) -> Layout:
    """The XOR swizzle of a matrix in shared memory: 16-byte chunks of row i are exchanged by i modulo their number.

    Where the columns are no power of two of chunks the layout is the plain one.  k_major, allow_pad: hints.
    Raises ShapeError for what is no matrix of known size.
    """
    loc = caller_location()
    shape = buffer.const_shape() if isinstance(buffer, Buffer) else None
    if shape is None or len(shape) < 2:
        raise ShapeError(f"a swizzled layout is one of a matrix, not of {buffer!r}", location=loc)
    width = max(_CHUNK_BITS // buffer.dtype.bits, 1)
    chunks = shape[-1] // width
    if chunks < 2 or chunks & (chunks - 1) or shape[-1] % width:
        return Layout(shape, lambda *index: index)
    mask = min(chunks, _CHUNKS) - 1

    def forward(*index: Any) -> tuple[Any, ...]:
        row, column = index[-2:]
        return (*index[:-1], (column // width ^ (row & mask)) * width + column % width)

    return Layout(shape, forward)


__all__ = ["Fragment", "Layout"]
