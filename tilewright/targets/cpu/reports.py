"""What a kernel tells its caller while it runs: prints and failed asserts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir.expr import Load, binary, const
from tilewright.ir.expr import Var as IrVar
from tilewright.ir.stmt import Assert, Print, Region
from tilewright.targets.cpu import arena, emit_memory
from tilewright.targets.cpu.values import Linear, Value, storage_bytes, storage_scalar, vector_type

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_stmt import StatementEmitter

_STATUS = "%status"
_PRINT_SLOT = 1
_BLOCK_SLOT = 2


@dataclass(slots=True)
class Reports:
    """The prints and asserts of a function, as they go into the artifact's metadata."""

    prints: list[dict[str, Any]] = field(default_factory=list)
    asserts: list[dict[str, Any]] = field(default_factory=list)


def _slot(emitter: StatementEmitter, number: int) -> Value:
    status = Value(_STATUS, "ptr")
    return emitter.w.pure(f"getelementptr i64, ptr {_STATUS}, i64 {number}", "ptr", 1, status)


def emit_assert(emitter: StatementEmitter, stmt: Assert) -> None:
    """Leave the function when the condition does not hold; the first failure of all blocks is kept."""
    w = emitter.w
    condition = emitter.value(stmt.condition)
    if condition.lanes > 1:
        condition = emitter.reduce_lanes("and", condition)
    loc = stmt.loc
    place = None if loc is None else [loc.file, loc.line, loc.column, loc.end_column]
    emitter.report.asserts.append({"message": stmt.message, "location": place})
    number = len(emitter.report.asserts)
    block_slot = _slot(emitter, _BLOCK_SLOT)
    failed, first, holds = w.name("failed"), w.name("first"), w.name("holds")
    w.emit(f"br i1 {condition.text}, label %{holds}, label %{failed}, !prof {w.module.likely()}")
    w.place(failed)
    swapped = w.ins(f"cmpxchg ptr {_STATUS}, i64 0, i64 {number} monotonic monotonic, align 8", "{ i64, i1 }")
    won = w.ins(f"extractvalue {swapped.operand}, 1", "i1")
    w.branch(won, first, emitter.done)
    w.place(first)
    w.emit(f"store i64 {emitter.block.text}, ptr {block_slot.text}, align 8")
    w.jump(emitter.done)
    w.place(holds)


def emit_print(emitter: StatementEmitter, stmt: Print) -> None:
    """Pack the values into scratch memory and hand them to the callback."""
    w = emitter.w
    values = [(v, emitter.stored(emitter.code(v), v.dtype.scalar)) for v in stmt.values]
    entry: dict[str, Any] = {
        "message": stmt.message,
        "dtypes": [v.dtype.scalar.name for v in stmt.values] + [r.buffer.dtype.scalar.name for r in stmt.regions],
        "shapes": [[v.dtype.lanes] if v.dtype.lanes > 1 else None for v in stmt.values]
        + [_region_shape(r) for r in stmt.regions],
        "names": list(stmt.names),
        "location": None if stmt.loc is None else [stmt.loc.file, stmt.loc.line, stmt.loc.column, stmt.loc.end_column],
    }
    number = len(emitter.report.prints)
    emitter.report.prints.append(entry)
    data = emitter.scratch(emitter.plan.offsets[id(stmt)])
    position = 0
    for expr, value in values:
        target = w.ins(f"getelementptr i8, ptr {data.text}, i64 {position}", "ptr")
        w.emit(f"store {value.operand}, ptr {target.text}, align 1")
        position += storage_bytes(expr.dtype)
    for region in stmt.regions:
        position = _pack_region(emitter, region, data, position)
    callback = w.ins(f"load ptr, ptr {_slot(emitter, _PRINT_SLOT).text}, align 8", "ptr")
    w.emit(f"call void {callback.text}(i64 {number}, ptr {data.text}, i64 {arena.print_bytes(stmt)})")


def _region_shape(region: Region) -> list[int]:
    shape = [max(n, 0) for n in region.const_extents or ()]
    return [*shape, region.buffer.dtype.lanes] if region.buffer.dtype.lanes > 1 else shape


def _pack_region(emitter: StatementEmitter, region: Region, data: Value, position: int) -> int:
    """Copy a region's elements, row-major; those out of range are 0."""
    buffer, extents = region.buffer, [max(n, 0) for n in region.const_extents or ()]
    variables = [IrVar(index.dtype, f"p{d}") for d, index in enumerate(region.starts)]
    size = storage_bytes(buffer.dtype)
    element = vector_type(storage_scalar(buffer.dtype), buffer.dtype.lanes)

    def body() -> None:
        w = emitter.w
        offset, mask = Linear.constant(0), None
        indices = []
        for d, (start, extent) in enumerate(zip(region.starts, extents, strict=True)):
            offset = offset.scaled(extent).plus(emitter.linear(variables[d]))
            index = binary("add", start, variables[d])
            indices.append(index)
            inside = binary("and", binary("ge", index, const(0, index.dtype)), binary("lt", index, buffer.shape[d]))
            mask = inside if mask is None else binary("and", mask, inside)
        load = Load(buffer.dtype, buffer, tuple(indices), mask)
        value = emit_memory.load(emitter, load)
        target = w.ins(
            f"getelementptr i8, ptr {data.text}, i64 {w.linear(offset.scaled(size).plus(Linear.constant(position))).text}",
            "ptr",
        )
        w.emit(f"store {element} {value.text}, ptr {target.text}, align 1")

    emitter.nest(list(zip(variables, extents, strict=True)), body)
    count = 1
    for extent in extents:
        count *= extent
    return position + count * size
