"""Access to buffers: addresses, contiguous and masked vectors, gathers and scatters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Expr, Load, Ramp, const_int
from tilewright.ir.stmt import Store
from tilewright.targets.cpu.values import Linear, Value, integer, storage_scalar, suffix, vector_type
from tilewright.targets.cpu.writer import ZEROS, Writer

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_expr import Emitter

Indices = tuple[Expr, ...]

_WIDEST_STORE = 64
"""Bytes of the widest store instruction; longer vectors are stored in pieces."""
_NEVER_TRUNCATED = 8
"""Bytes of elements that no wider one is truncated to."""
_STREAM_PIECE = 16
"""Bytes of the narrowest streaming vector store."""


@dataclass(slots=True, eq=False)
class Place:
    """Where a buffer is.

    strides: in elements; tags: alias metadata of its accesses; shared: other blocks see it; element: LLVM type
    of one lane of an element in memory.
    """

    buffer: Buffer
    pointer: Value
    strides: list[Linear]
    tags: str = ""
    shared: bool = False
    on_stack: bool = False
    element: str = field(init=False)

    def __post_init__(self) -> None:
        self.element = storage_scalar(self.buffer.dtype)


@dataclass(slots=True, eq=False)
class Access:
    """The address of an access.  pointers: a vector of addresses where it is no contiguous piece."""

    place: Place
    lanes: int
    pointer: Value | None = None
    pointers: Value | None = None

    @property
    def type(self) -> str:
        """Type of the value in memory."""
        return vector_type(self.place.element, self.lanes)

    @property
    def align(self) -> int:
        """Alignment that holds for any element, in bytes."""
        return max(self.place.buffer.dtype.bits, 8) // 8


def row_major(emitter: Emitter, buffer: Buffer) -> list[Linear]:
    """The strides of a buffer in elements."""
    if buffer.strides is not None:
        return [emitter.linear(s) for s in buffer.strides]
    strides: list[Linear] = []
    step = Linear.constant(1)
    for size in reversed(buffer.shape):
        strides.append(step)
        step = step.times(emitter.linear(size))
    return strides[::-1]


# --- addresses ------------------------------------------------------------------------------------------


def locate(emitter: Emitter, buffer: Buffer, indices: Indices) -> Access:
    """The address of `buffer[indices]`."""
    place = emitter.place(buffer)
    if len(indices) != len(place.strides):
        raise VerificationError(f"{buffer.name} has {len(place.strides)} dimensions, but {len(indices)} indices")
    vectors = [d for d, index in enumerate(indices) if index.dtype.lanes > 1]
    if not vectors:
        return Access(place, buffer.dtype.lanes, _address(emitter.w, place, _offset(emitter, place, indices)))
    if buffer.dtype.lanes > 1:
        raise VerificationError(f"{buffer.name} has vectors as elements, so its indices must be scalars")
    lanes = indices[vectors[0]].dtype.lanes
    index = indices[vectors[0]]
    adjacent = len(vectors) == 1 and place.strides[vectors[0]].number == 1
    if adjacent and isinstance(index, Ramp) and const_int(index.stride) == 1:
        scalars = (*indices[: vectors[0]], index.base, *indices[vectors[0] + 1 :])
        return Access(place, lanes, _address(emitter.w, place, _offset(emitter, place, scalars)))
    return Access(place, lanes, None, _addresses(emitter, place, indices, lanes))


def _offset(emitter: Emitter, place: Place, indices: Indices) -> Linear:
    total, constant = Linear({}), 0
    for index, stride in zip(indices, place.strides, strict=True):
        value = emitter.linear(index)
        number, step = value.number, stride.number
        if step is None:
            total = total.plus(value.times(stride))
        elif number is not None:
            constant += number * step
        else:
            total = total.plus(value, step)
    return total.plus(Linear.constant(constant)) if constant else total


def _address(w: Writer, place: Place, offset: Linear) -> Value:
    """Base, then the terms from the outermost inwards, then the constant: what loops share is computed outside."""
    lanes, element = place.buffer.dtype.lanes, place.element
    pointer = place.pointer
    pending: Value | None = None
    for term in w.terms(offset.scaled(lanes)):
        if pending is not None and term.depth > pending.depth:
            pointer = _step(w, element, pointer, pending)
            pending = None
        pending = term if pending is None else w.add(pending, term)
    if pending is not None:
        pointer = _step(w, element, pointer, pending)
    constant = offset.offset * lanes
    if not constant:
        return pointer
    return w.ins(f"getelementptr {element}, ptr {pointer.text}, i64 {constant}", "ptr")


def _step(w: Writer, element: str, pointer: Value, offset: Value) -> Value:
    return w.pure(f"getelementptr {element}, ptr {pointer.text}, i64 {offset.text}", "ptr", 1, pointer, offset)


def _addresses(emitter: Emitter, place: Place, indices: Indices, lanes: int) -> Value:
    """A vector of addresses."""
    w = emitter.w
    scalar = Linear.constant(0)
    total: Value | None = None
    for index, stride in zip(indices, place.strides, strict=True):
        if index.dtype.lanes == 1:
            scalar = scalar.plus(emitter.linear(index).times(stride))
            continue
        if isinstance(index, Ramp) and const_int(index.stride) is not None and stride.number is not None:
            scalar = scalar.plus(emitter.linear(index.base).times(stride))
            term = w.iota(lanes, "i64", (const_int(index.stride) or 0) * stride.number)
        else:
            term = w.mul(emitter.index_vector(index), w.splat(w.linear(stride), lanes))
        total = term if total is None else w.add(total, term)
    base = _address(w, place, scalar)
    if total is None:
        raise VerificationError(f"the access to {place.buffer.name} has no vector index")
    rhs = f"getelementptr {place.element}, ptr {base.text}, {total.operand}"
    return w.op(rhs, vector_type("ptr", lanes), lanes, base, total)


# --- loads ----------------------------------------------------------------------------------------------


def load(emitter: Emitter, expr: Load) -> Value:
    """The element or elements in storage form; 0 where the mask (or a guard of the emitter) does not hold."""
    mask = None if expr.mask is None else emitter.value(expr.mask)
    access = locate(emitter, expr.buffer, expr.indices)
    mask = emitter.guarded(mask, 1 if expr.buffer.dtype.lanes > 1 else access.lanes)
    if mask is not None and mask.number is not None:
        if mask.number & 1:
            mask = None
        else:
            return Value("zeroinitializer" if access.lanes > 1 else _zero(access.type), access.type, access.lanes)
    w = emitter.w
    if access.pointers is not None:
        return _gather(w, access, access.pointers, mask)
    pointer = access.pointer
    assert pointer is not None
    if mask is None:
        return _plain_load(w, access, pointer)
    if mask.lanes == 1:
        return _plain_load(w, access, _or_zeros(w, mask, pointer))
    return _masked_load(w, access, pointer, mask)


def _zero(scalar: str) -> str:
    return "0" if scalar.startswith("i") else "0x0000000000000000"


def _plain_load(w: Writer, access: Access, pointer: Value) -> Value:
    name = access.place.buffer.name
    return w.ins(
        f"load {access.type}, ptr {pointer.text}, align {access.align}{access.place.tags}",
        access.type,
        access.lanes,
        name,
    )


def _or_zeros(w: Writer, mask: Value, pointer: Value) -> Value:
    return w.op(f"select i1 {mask.text}, ptr {pointer.text}, ptr {ZEROS}", "ptr", 1, mask, pointer)


def _masked_load(w: Writer, access: Access, pointer: Value, mask: Value) -> Value:
    name = f"llvm.masked.load.{suffix(access.type)}.p0"
    w.module.declare(name, access.type, ("ptr", mask.type, access.type))
    return w.ins(
        f"call {access.type} @{name}(ptr align {access.align} {pointer.text}, {mask.operand},"
        f" {access.type} zeroinitializer){access.place.tags}",
        access.type,
        access.lanes,
        access.place.buffer.name,
    )


def _gather(w: Writer, access: Access, pointers: Value, mask: Value | None) -> Value:
    lanes = access.lanes
    if mask is not None and mask.lanes == 1:
        mask = w.splat(mask, lanes)
    if access.align >= 4 and w.facts.avx512:
        name = f"llvm.masked.gather.{suffix(access.type)}.{suffix(pointers.type)}"
        chosen = mask or integer(1, 1, lanes)
        w.module.declare(name, access.type, (pointers.type, chosen.type, access.type))
        return w.ins(
            f"call {access.type} @{name}({pointers.type} align {access.align} {pointers.text},"
            f" {chosen.operand}, {access.type} zeroinitializer){access.place.tags}",
            access.type,
            lanes,
        )
    result = Value("poison", access.type, lanes)
    for lane in range(lanes):
        pointer = w.extract(pointers, lane)
        if mask is not None:
            pointer = _or_zeros(w, w.extract(mask, lane), pointer)
        element = w.ins(
            f"load {access.place.element}, ptr {pointer.text}, align {access.align}{access.place.tags}",
            access.place.element,
        )
        result = w.insert(result, element, lane)
    return result


# --- stores ---------------------------------------------------------------------------------------------


def store(emitter: Emitter, stmt: Store) -> None:
    """Write a value, converted to the buffer's dtype, where the mask holds."""
    dtype: DType = stmt.buffer.dtype
    mask = None if stmt.mask is None else emitter.value(stmt.mask)
    access = locate(emitter, stmt.buffer, stmt.indices)
    value = emitter.stored(emitter.code(stmt.value), dtype.scalar)
    w = emitter.w
    if value.lanes == 1 and access.lanes > 1:
        value = w.splat(value, access.lanes)
    if value.lanes != access.lanes:
        raise VerificationError(
            f"{value.lanes} lanes cannot be stored in {access.lanes} elements of {stmt.buffer.name}"
        )
    if mask is not None and mask.number is not None:
        if not mask.number & 1:
            return
        mask = None
    if mask is not None and mask.lanes == 1:
        _conditional_store(w, access, value, mask)
    elif access.pointers is not None:
        _scatter(w, access, access.pointers, value, mask)
    elif mask is not None:
        _masked_store(w, access, value, mask)
    elif stmt.nontemporal and access.lanes > 1:
        _streaming_store(w, access, value)
    else:
        _plain_store(w, access, value)


def _plain_store(w: Writer, access: Access, value: Value, align: int = 0, extra: str = "") -> None:
    pointer = access.pointer
    assert pointer is not None
    w.emit(f"store {value.operand}, ptr {pointer.text}, align {align or access.align}{access.place.tags}{extra}")


def _conditional_store(w: Writer, access: Access, value: Value, mask: Value) -> None:
    """The mask is one bool for all lanes."""
    do, skip = w.name("store"), w.name("stored")
    before = w.hoist_point()
    w.branch(mask, do, skip)
    w.open(before, branch=True)
    w.place(do)
    if access.pointers is not None:
        _scatter(w, access, access.pointers, value, None)
    else:
        _plain_store(w, access, value)
    w.jump(skip)
    w.close()
    w.place(skip)


def _masked_store(w: Writer, access: Access, value: Value, mask: Value) -> None:
    """Consecutive lanes where the mask holds.

    LLVM 22 lowers a truncating masked store whose constant mask has one lane on to a store of the *untruncated*
    lane, which writes over the elements beside it.  So constant masks are kept from it.
    """
    pointer = access.pointer
    assert pointer is not None
    if mask.depth == 0 and access.align < _NEVER_TRUNCATED:
        mask = w.bin("and", mask, w.splat(w.always(), mask.lanes))
    name = f"llvm.masked.store.{suffix(access.type)}.p0"
    w.module.declare(name, "void", (access.type, "ptr", mask.type))
    w.emit(
        f"call void @{name}({value.operand}, ptr align {access.align} {pointer.text}, {mask.operand}){access.place.tags}"
    )


def _scatter(w: Writer, access: Access, pointers: Value, value: Value, mask: Value | None) -> None:
    name = f"llvm.masked.scatter.{suffix(access.type)}.{suffix(pointers.type)}"
    chosen = mask or integer(1, 1, access.lanes)
    w.module.declare(name, "void", (access.type, pointers.type, chosen.type))
    w.emit(
        f"call void @{name}({value.operand}, {pointers.type} align {access.align} {pointers.text},"
        f" {chosen.operand}){access.place.tags}"
    )


def _streaming_store(w: Writer, access: Access, value: Value) -> None:
    """Past the caches: whole where the address has the vector's alignment, in pieces where it has a piece's.

    Streaming stores need the alignment of their width; arrays of NumPy begin 16 bytes into a page.
    """
    pointer = access.pointer
    assert pointer is not None
    size = min(access.align * access.lanes, _WIDEST_STORE)
    w.streaming = True
    address = w.ins(f"ptrtoint ptr {pointer.text} to i64", "i64")
    done = w.name("done")
    hint = f", !nontemporal {w.module.one()}"
    _if_aligned(w, address, size, done, lambda: _plain_store(w, access, value, size, hint))
    if size > _STREAM_PIECE and access.lanes * access.align == size:
        _if_aligned(w, address, _STREAM_PIECE, done, lambda: _stream_pieces(w, access, value, size, hint))
    _plain_store(w, access, value)
    w.jump(done)
    w.place(done)


def _if_aligned(w: Writer, address: Value, size: int, done: str, store: Callable[[], None]) -> None:
    """`store` and go to `done` where the address is a multiple of `size`, else go on."""
    aligned = w.icmp("eq", w.bin("and", address, integer(size - 1)), integer(0))
    stream, other = w.name("stream"), w.name("other")
    before = w.hoist_point()
    w.branch(aligned, stream, other)
    w.open(before, branch=True)
    w.place(stream)
    store()
    w.jump(done)
    w.close()
    w.place(other)


def _stream_pieces(w: Writer, access: Access, value: Value, size: int, hint: str) -> None:
    pointer = access.pointer
    assert pointer is not None
    count = size // _STREAM_PIECE
    lanes = value.lanes // count
    for piece in range(count):
        part = w.shuffle(value, None, tuple(range(piece * lanes, (piece + 1) * lanes)))
        at = w.ins(f"getelementptr i8, ptr {pointer.text}, i64 {piece * _STREAM_PIECE}", "ptr")
        w.emit(f"store {part.operand}, ptr {at.text}, align {_STREAM_PIECE}{access.place.tags}{hint}")
