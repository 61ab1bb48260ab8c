"""Which buffers a program reads and which it writes."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import Buffer, Load
from tilewright.ir.node import Node
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Atomic, Copy, Fill, Gemm, Print, Reduce, Region, Scan, Store, Transpose

# Statement -> fields that hold the regions it reads, and those it writes.
REGION_FIELDS: dict[type[Node], tuple[tuple[str, ...], tuple[str, ...]]] = {
    Copy: (("src",), ("dst",)),
    Transpose: (("src",), ("dst",)),
    Fill: ((), ("dst",)),
    Gemm: (("a", "b", "c"), ("c",)),
    Reduce: (("src", "dst"), ("dst",)),
    Scan: (("src",), ("dst",)),
    Atomic: (("dst", "source"), ("dst",)),
    Print: (("regions",), ()),
}


@dataclass(frozen=True, slots=True)
class Effects:
    """Buffers that own storage, each once, in order of first use."""

    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]

    def is_written(self, buffer: Buffer) -> bool:
        """Whether the storage of `buffer` is written."""
        root = storage(buffer)
        return any(written is root for written in self.writes)


def storage(buffer: Buffer) -> Buffer:
    """The buffer that owns the memory of `buffer`: itself unless it is a view."""
    while buffer.view_of is not None:
        buffer = buffer.view_of
    return buffer


def effects(item: Node) -> Effects:
    """What `item` (a statement, or a function's body) reads and writes, of either IR level."""
    reads: dict[int, Buffer] = {}
    writes: dict[int, Buffer] = {}
    for found in walk(item):
        if isinstance(found, Load):
            _note(reads, found.buffer)
        elif isinstance(found, Store):
            _note(writes, found.buffer)
        else:
            for names, into in zip(_fields(found), (reads, writes), strict=True):
                for name in names:
                    for region in _regions(getattr(found, name)):
                        _note(into, region.buffer)
    return Effects(tuple(reads.values()), tuple(writes.values()))


def _fields(item: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    reads, writes = REGION_FIELDS.get(type(item), ((), ()))
    if (isinstance(item, Gemm) and item.clear_accum) or (isinstance(item, Reduce) and item.clear):
        reads = tuple(name for name in reads if name not in writes)
    if isinstance(item, Atomic):
        if item.op == "load":
            writes = ()
        elif item.op == "store":
            reads = ("source",)
    return reads, writes


def _regions(value: object) -> tuple[Region, ...]:
    if isinstance(value, Region):
        return (value,)
    return tuple(v for v in value if isinstance(v, Region)) if isinstance(value, tuple) else ()


def _note(into: dict[int, Buffer], buffer: Buffer) -> None:
    root = storage(buffer)
    into.setdefault(id(root), root)
