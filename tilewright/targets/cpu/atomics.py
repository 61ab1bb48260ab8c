"""Atomic updates: instructions where the hardware has them, compare-and-swap loops else, plain code on chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.errors import UnsupportedOnTargetError, VerificationError
from tilewright.ir.dtype import DType
from tilewright.ir.stmt import ATOMIC_OPS, Atomic
from tilewright.targets.cpu import arithmetic, casts, emit_memory
from tilewright.targets.cpu.emit_memory import Access
from tilewright.targets.cpu.values import Item, Value, width
from tilewright.targets.cpu.writer import Writer

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_expr import Emitter

# The orders of the language -> LLVM's for reading, writing, and doing both.
_ORDERS: dict[str, tuple[str, str, str]] = {
    "relaxed": ("monotonic", "monotonic", "monotonic"),
    "consume": ("acquire", "monotonic", "acquire"),
    "acquire": ("acquire", "monotonic", "acquire"),
    "release": ("monotonic", "release", "release"),
    "acq_rel": ("acquire", "release", "acq_rel"),
    "seq_cst": ("seq_cst", "seq_cst", "seq_cst"),
}
_BINARY = {"or": "bitor", "and": "bitand", "xor": "bitxor"}
_NATIVE = {"add": "add", "or": "or", "and": "and", "xor": "xor", "exchange": "xchg"}


def emit(emitter: Emitter, stmt: Atomic) -> None:
    """One atomic on one element; `result` is bound to the old value."""
    buffer = stmt.dst.buffer
    dtype = buffer.dtype
    if stmt.op not in ATOMIC_OPS or stmt.memory_order not in _ORDERS:
        raise VerificationError(f"atomic {stmt.op!r} with order {stmt.memory_order!r} is not defined")
    if dtype.lanes > 1 or stmt.source is not None:
        raise UnsupportedOnTargetError(f"atomic {stmt.op} on more than one element of {buffer.name} at once")
    if stmt.value is None and stmt.op != "load":
        raise VerificationError(f"atomic {stmt.op!r} needs a value")
    value = None if stmt.value is None else emitter.stored(emitter.code(stmt.value), dtype)
    access = emit_memory.locate(emitter, buffer, stmt.dst.starts)
    order = _ORDERS[stmt.memory_order]
    if access.place.shared:
        old = _shared(emitter, access, stmt.op, value, dtype, order)
    else:
        old = _private(emitter, access, stmt.op, value, dtype)
    if stmt.result is not None:
        if old is None:
            raise VerificationError("an atomic store has no result")
        emitter.env[id(stmt.result)] = Item(dtype, stored=old)


def _private(emitter: Emitter, access: Access, op: str, value: Value | None, dtype: DType) -> Value | None:
    """Nobody else sees the memory."""
    w, pointer = emitter.w, access.pointer
    assert pointer is not None
    suffix = f", align {access.align}{access.place.tags}"
    old = w.ins(f"load {access.type}, ptr {pointer.text}{suffix}", access.type)
    if value is not None:
        new = value if op in ("store", "exchange") else _update(w, op, old, value, dtype)
        w.emit(f"store {new.operand}, ptr {pointer.text}{suffix}")
    return old


def _shared(
    emitter: Emitter, access: Access, op: str, value: Value | None, dtype: DType, order: tuple[str, str, str]
) -> Value | None:
    w, pointer = emitter.w, access.pointer
    assert pointer is not None
    bits = f"i{width(access.place.element)}"
    if op == "load" or value is None:
        return _from_bits(
            w, w.ins(f"load atomic {bits}, ptr {pointer.text} {order[0]}, align {access.align}", bits), access
        )
    stored = w.as_bits(value) if dtype.is_float else value
    if op == "store":
        w.emit(f"store atomic {stored.operand}, ptr {pointer.text} {order[1]}, align {access.align}")
        return None
    native = _native(op, dtype)
    if native:
        old = w.ins(f"atomicrmw {native} ptr {pointer.text}, {stored.operand} {order[2]}, align {access.align}", bits)
        return _from_bits(w, old, access)
    return _swap_loop(w, access, op, value, dtype, order)


def _native(op: str, dtype: DType) -> str:
    """LLVM's name of the operation where it has it on this dtype, else nothing."""
    if op == "exchange":
        return "xchg"
    if dtype.is_float or (dtype.is_int and dtype.bits == 4):
        return ""
    if dtype.is_bool:
        return {"or": "or", "and": "and", "xor": "xor", "max": "or", "min": "and"}.get(op, "")
    if op in ("max", "min"):
        return op if dtype.kind == "int" else f"u{op}"
    return _NATIVE[op]


def _swap_loop(w: Writer, access: Access, op: str, value: Value, dtype: DType, order: tuple[str, str, str]) -> Value:
    """Compute the new value from what was read until nobody changed it meanwhile."""
    pointer = access.pointer
    assert pointer is not None
    bits = f"i{width(access.place.element)}"
    seen = w.ins(f"load atomic {bits}, ptr {pointer.text} monotonic, align {access.align}", bits)
    entered, again, done = w.label, w.name("again"), w.name("swapped")
    w.jump(again)
    w.place(again)
    current, found = Value(f"%{w.name()}", bits, depth=w.depth), f"%{w.name()}"
    w.emit(f"{current.text} = phi {bits} [ {seen.text}, %{entered} ], [ {found}, %{again} ]")
    new = _update(w, op, _from_bits(w, current, access), value, dtype)
    new_bits = w.as_bits(new) if dtype.is_float else new
    swapped = w.ins(
        f"cmpxchg ptr {pointer.text}, {current.operand}, {new_bits.operand} {order[2]} {order[0]}, align {access.align}",
        f"{{ {bits}, i1 }}",
    )
    w.emit(f"{found} = extractvalue {swapped.operand}, 0")
    won = w.ins(f"extractvalue {swapped.operand}, 1", "i1")
    w.branch(won, done, again)
    w.place(done)
    return _from_bits(w, current, access)


def _from_bits(w: Writer, value: Value, access: Access) -> Value:
    return w.bitcast(value, access.place.element, 1)


def _update(w: Writer, op: str, old: Value, value: Value, dtype: DType) -> Value:
    """old op value, in storage form."""
    name = _BINARY.get(op, op)
    if dtype.is_bool and op in ("max", "min"):
        name = "bitor" if op == "max" else "bitand"
    a, b = casts.decode(w, old, dtype), casts.decode(w, value, dtype)
    if dtype.is_float:
        result = arithmetic.float_binary(w, name, a, b)
    elif dtype.is_bool:
        result = w.bin(arithmetic.LOGIC[name], a, b) if name in arithmetic.LOGIC else None
    else:
        result = arithmetic.int_binary(w, name, a, b, dtype.kind == "int", dtype.bits)
    if result is None:
        raise arithmetic.undefined(f"atomic {op}", dtype)
    return casts.encode(w, result, dtype)
