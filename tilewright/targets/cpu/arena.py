"""Where the on-chip buffers of a launch live: on the stack, or in the scratch arena of the worker.

A buffer's place in the arena is free again at the end of the Seq that allocates it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.errors import UnsupportedOnTargetError
from tilewright.ir.expr import Buffer, const_int
from tilewright.ir.node import Node
from tilewright.ir.stmt import Alloc, Print, Seq
from tilewright.targets.cpu.values import storage_bytes

ALIGNMENT = 64
"""Of every buffer in the arena: a cache line, and the widest vector."""

STACK_LIMIT = 4096
"""Bytes of the largest `local` buffer that goes on the stack."""


@dataclass(slots=True)
class Plan:
    """offsets: by id of a Buffer or Print; groups: ids that share memory with one another; nbytes: of the arena."""

    offsets: dict[int, int] = field(default_factory=dict)
    groups: dict[int, int] = field(default_factory=dict)
    nbytes: int = 0


def elements(buffer: Buffer) -> int:
    """How many elements an on-chip buffer spans.  Raises UnsupportedOnTargetError when that is not known while compiling."""
    shape = buffer.const_shape()
    strides = None if buffer.strides is None else [const_int(s) for s in buffer.strides]
    if shape is None or (strides is not None and None in strides):
        raise UnsupportedOnTargetError(
            f"the size of {buffer.name} is not known while compiling",
            location=buffer.loc,
            hint="on-chip buffers need literal extents; T.alloc_global takes run-time ones",
        )
    if 0 in shape:
        return 0
    if strides is None:
        total = 1
        for size in shape:
            total *= size
        return total
    return 1 + sum((n - 1) * (s or 0) for n, s in zip(shape, strides, strict=True))


def on_stack(buffer: Buffer) -> bool:
    """Whether a buffer lives in the function's frame, where LLVM turns it into registers if it can."""
    if buffer.scope in ("var", "register"):
        return True
    return buffer.scope == "local" and elements(buffer) * storage_bytes(buffer.dtype) <= STACK_LIMIT


def print_bytes(stmt: Print) -> int:
    """Bytes of the values that a Print hands over.  Raises UnsupportedOnTargetError when that is not known while compiling."""
    total = sum(storage_bytes(value.dtype) for value in stmt.values)
    for region in stmt.regions:
        extents = region.const_extents
        if extents is None:
            raise UnsupportedOnTargetError(
                f"the extent of the printed part of {region.buffer.name} is not known while compiling",
                location=stmt.loc,
                hint="print single elements, or a part with literal extents",
            )
        count = 1
        for extent in extents:
            count *= max(extent, 0)
        total += count * storage_bytes(region.buffer.dtype)
    return total


def plan(body: Node) -> Plan:
    """Places for everything that `body` (of a launch) allocates."""
    result = Plan()
    spans: list[tuple[int, int, int]] = []
    _walk(body, 0, result, spans)
    _group(spans, result)
    return result


def _walk(item: Node, top: int, result: Plan, spans: list[tuple[int, int, int]]) -> int:
    """The first free byte after `item`; inside a Seq what follows an Alloc lies above it."""
    if isinstance(item, Seq):
        inner = top
        for stmt in item.stmts:
            inner = _walk(stmt, inner, result, spans)
        return top
    if isinstance(item, Alloc):
        if item.buffer.scope == "global" or on_stack(item.buffer):
            return top
        return _place(item.buffer, elements(item.buffer) * storage_bytes(item.buffer.dtype), top, result, spans)
    if isinstance(item, Print):
        _place(item, print_bytes(item), top, result, spans)
        return top
    for child in item.children():
        if child.child_fields:
            _walk(child, top, result, spans)
    return top


def _place(key: object, nbytes: int, top: int, result: Plan, spans: list[tuple[int, int, int]]) -> int:
    end = top + max(-(-nbytes // ALIGNMENT), 1) * ALIGNMENT
    result.offsets[id(key)] = top
    result.nbytes = max(result.nbytes, end)
    spans.append((top, end, id(key)))
    return end


def _group(spans: list[tuple[int, int, int]], result: Plan) -> None:
    """Number the groups of overlapping spans."""
    reach, group = 0, -1
    for start, end, key in sorted(spans):
        if start >= reach:
            group += 1
        reach = max(reach, end)
        result.groups[key] = group
