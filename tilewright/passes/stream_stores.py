"""Stores past the caches, to results that are larger than them.

    y[bx, j +: 16] = ...
becomes, for a result beyond the last-level cache that the function never reads,
    y[bx, j +: 16] = ... nontemporal
A cached store first reads the line that it will overwrite whole; a streaming one does not.
"""

from __future__ import annotations

from tilewright.ir.expr import Buffer, Load, Ramp, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, walk
from tilewright.ir.stmt import Atomic, Region, Store
from tilewright.options import CompileOptions
from tilewright.target import Target


def stream_stores(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Mark the stores that fill large results."""
    read = {id(node.buffer) for node in walk(func.body) if isinstance(node, (Load, Region))}
    read |= {id(node.dst.buffer) for node in walk(func.body) if isinstance(node, Atomic)}
    large = {
        id(b) for b in func.buffers() if id(b) not in read and _bytes(b) > target.cache_bytes[2] and b.strides is None
    }
    if not large:
        return func
    result: PrimFunc = _Stream(large).rewrite(func)
    return result


def _bytes(buffer: Buffer) -> int:
    """The size of a buffer, 0 when it is known at launch only."""
    shape = buffer.const_shape()
    if shape is None:
        return 0
    total = buffer.dtype.nbytes
    for size in shape:
        total *= size
    return total


class _Stream(Rewriter):
    def __init__(self, large: set[int]) -> None:
        self.large = large

    def rewrite_Store(self, stmt: Store) -> Store:
        if id(stmt.buffer) not in self.large or stmt.mask is not None or not stmt.indices:
            return stmt
        last = stmt.indices[-1]
        consecutive = isinstance(last, Ramp) and const_int(last.stride) == 1
        if not consecutive or any(index.dtype.lanes > 1 for index in stmt.indices[:-1]):
            return stmt
        return stmt.replace(nontemporal=True)
