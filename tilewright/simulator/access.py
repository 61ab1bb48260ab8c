"""Which buffers a piece of IR names, and which it writes."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.ir.expr import Buffer, Load
from tilewright.ir.node import Node
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Atomic, Copy, Fill, Gemm, Reduce, Region, Scan, Store, Transpose


def storage(buffer: Buffer) -> Buffer:
    """The buffer that owns the memory of `buffer`."""
    while buffer.view_of is not None:
        buffer = buffer.view_of
    return buffer


def named(body: Node) -> Iterator[Buffer]:
    """The buffer of every element access and region below `body`, views as such."""
    for item in walk(body):
        if isinstance(item, (Load, Store, Region)):
            yield item.buffer


def written(body: Node) -> Iterator[Buffer]:
    """The storage behind everything that `body` writes."""
    for item in walk(body):
        if isinstance(item, Store):
            yield storage(item.buffer)
        elif isinstance(item, Gemm):
            yield storage(item.c.buffer)
        elif isinstance(item, (Copy, Transpose, Fill, Reduce, Scan, Atomic)):
            yield storage(item.dst.buffer)
