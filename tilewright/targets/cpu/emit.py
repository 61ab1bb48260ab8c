"""A lowered function to an LLVM module with the functions of the CPU ABI, and the metadata that describes them.

For each launch: `int64 blocks(int64* args)` and `void entry(int64* args, int64* counter, int64 total,
int8* scratch, int64* status)`; for each global workspace: `int64 bytes(int64* args)`.
"""

from __future__ import annotations

import re
from typing import Any

from tilewright.errors import UnsupportedOnTargetError, VerificationError
from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Alloc, Launch, Let, Seq, Stmt
from tilewright.target import Target
from tilewright.targets.cpu import arena, casts, emit_memory
from tilewright.targets.cpu.emit_memory import Place
from tilewright.targets.cpu.emit_stmt import StatementEmitter
from tilewright.targets.cpu.reports import Reports
from tilewright.targets.cpu.values import Item, Linear, Value, compute_scalar, integer, storage_bytes
from tilewright.targets.cpu.writer import Module, Writer

ABI = 1
_CHUNK = 8  # blocks that a worker takes at once, at most
_SHARES = 6  # ... and at most a 64th (2 to the 6th) of all, so that workers end together
_ATTRIBUTES = "nounwind"


def emit_module(func: PrimFunc, target: Target) -> tuple[str, dict[str, Any]]:
    """LLVM IR text, and metadata (see `tilewright.runtime.drivers.cpu`).

    Raises UnsupportedOnTargetError for what a CPU block cannot do, VerificationError for IR that is not lowered.
    """
    return _FunctionEmitter(func, target).emit()


class _FunctionEmitter:
    """Walks the function's level: lets, workspaces and launches, in order."""

    def __init__(self, func: PrimFunc, target: Target) -> None:
        self.func = func
        self.module = Module(target)
        self.report = Reports()
        self.lets: dict[int, Let] = {}
        self.moments: dict[int, int] = {}  # lets that read memory -> launches before them
        self.slots = _slots(func)
        self.workspaces: list[dict[str, Any]] = []
        self.launches: list[dict[str, Any]] = []
        self.scratch_bytes = 0
        self.symbol = re.sub(r"\W", "_", func.name, flags=re.ASCII)

    def emit(self) -> tuple[str, dict[str, Any]]:
        for stmt in _flat(self.func.body):
            if isinstance(stmt, Let):
                self.lets[id(stmt.var)] = stmt
                if any(isinstance(item, Load) for item in walk(stmt.value)):
                    self.moments[id(stmt.var)] = len(self.launches)
            elif isinstance(stmt, Alloc):
                self._workspace(stmt)
            elif isinstance(stmt, Launch):
                self._launch(stmt)
            else:
                raise VerificationError(f"{type(stmt).__name__} has no place outside of a launch", location=stmt.loc)
        metadata = {
            "abi": ABI,
            "launches": self.launches,
            "workspaces": self.workspaces,
            "scratch_bytes": self.scratch_bytes,
            "prints": self.report.prints,
            "asserts": self.report.asserts,
            "externals": sorted(self.module.externals),
        }
        return self.module.text(), metadata

    def _emitter(self, signature: str, plan: arena.Plan) -> _BodyEmitter:
        return _BodyEmitter(Writer(self.module, signature), self, plan)

    def _workspace(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer.scope != "global":
            raise VerificationError(f"{buffer.name} must be allocated inside a launch", location=stmt.loc)
        name = f"{self.symbol}_bytes{len(self.workspaces)}"
        emitter = self._emitter(f"define i64 @{name}(ptr %args) {_ATTRIBUTES}", arena.Plan())
        total = Linear.constant(storage_bytes(buffer.dtype))
        for size in buffer.shape:
            total = total.times(Linear.atom(_not_negative(emitter, size)))
        emitter.w.emit(f"ret i64 {emitter.w.linear(total).text}")
        emitter.w.finish()
        self.slots[id(buffer)] = len(self.func.params) + len(self.func.sizes) + len(self.workspaces)
        self.workspaces.append({"bytes": name})

    def _launch(self, stmt: Launch) -> None:
        if len(stmt.grid) != len(stmt.block_vars):
            raise VerificationError("a launch needs one variable for each dimension of its grid", location=stmt.loc)
        base = self.symbol if not self.launches else f"{self.symbol}_{len(self.launches)}"
        self._blocks(stmt, f"{base}_blocks")
        plan = arena.plan(stmt.body)
        self.scratch_bytes = max(self.scratch_bytes, plan.nbytes)
        emitter = self._emitter(
            f"define void @{base}_entry(ptr noalias %args, ptr %counter, i64 %total, ptr noalias %scratch, ptr %status)"
            f" {_ATTRIBUTES}",
            plan,
        )
        emitter.alias_groups()
        emitter.block_loop(stmt)
        emitter.w.finish()
        self.launches.append({"entry": f"{base}_entry", "blocks": f"{base}_blocks"})

    def _blocks(self, stmt: Launch, name: str) -> None:
        emitter = self._emitter(f"define i64 @{name}(ptr %args) {_ATTRIBUTES}", arena.Plan())
        total = integer(1)
        for extent in stmt.grid:
            total = emitter.w.mul(total, _not_negative(emitter, extent))
        emitter.w.emit(f"ret i64 {total.text}")
        emitter.w.finish()


def _not_negative(emitter: _BodyEmitter, size: Expr) -> Value:
    value = emitter.index(size)
    if value.number is not None:
        return integer(max(value.number, 0))
    with emitter.w.hoisting(value):
        return emitter.w.intrinsic("smax", value, integer(0))


class _BodyEmitter(StatementEmitter):
    """Statements of one launch; what the function's level defines is fetched when it is first used."""

    def __init__(self, w: Writer, owner: _FunctionEmitter, plan: arena.Plan) -> None:
        super().__init__(w, plan, {}, owner.report)
        self.owner = owner
        self._global_tags: dict[int, str] = {}

    # --- names of the function's level --------------------------------------------------------------

    def lookup(self, var: Var) -> Item:
        if id(var) not in self.env:
            slot, let = self.owner.slots.get(id(var)), self.owner.lets.get(id(var))
            if slot is not None:
                self.env[id(var)] = self._argument(var, slot)
            elif let is not None:
                if self.owner.moments.get(id(var), len(self.owner.launches)) != len(self.owner.launches):
                    raise UnsupportedOnTargetError(
                        f"{var.name} is read from memory before another launch, and used after it",
                        hint="read it inside the launch that uses it",
                    )
                with self.w.hoisting():
                    self.env[id(var)] = self.code(let.value)
        return super().lookup(var)

    def _argument(self, var: Var, slot: int) -> Item:
        w, dtype = self.w, var.dtype
        raw = self._slot_value(slot, "i64")
        if any(var is size for size in self.owner.func.sizes):
            return Item(dtype, "index", linear=Linear.atom(raw))
        bits = f"i{max(dtype.bits, 8)}"
        with w.hoisting(raw):
            stored = w.convert("trunc", raw, bits)
            if dtype.is_float:
                stored = w.bitcast(stored, compute_scalar(dtype), 1) if dtype.bits >= 32 else stored
            if dtype.bits == 4 and dtype.is_int:
                return Item(dtype, value=casts.wrap(w, stored, dtype))
            return Item(dtype, stored=stored)

    def _slot_value(self, slot: int, type_text: str) -> Value:
        w = self.w
        args = Value("%args", "ptr")
        address = w.pure(f"getelementptr i64, ptr %args, i64 {slot}", "ptr", 1, args) if slot else args
        return w.pure(f"load {type_text}, ptr {address.text}, align 8", type_text, 1, address)

    def place(self, buffer: Buffer) -> Place:
        if id(buffer) not in self.places:
            slot = self.owner.slots.get(id(buffer))
            if slot is not None:
                pointer = self._slot_value(slot, "ptr")
                strides = emit_memory.row_major(self, buffer)
                self.places[id(buffer)] = Place(
                    buffer, pointer, strides, self._global_tags.get(id(buffer), ""), shared=True
                )
        return super().place(buffer)

    # --- alias metadata -------------------------------------------------------------------------------

    def alias_groups(self) -> None:
        """A scope for each global buffer and each group of the arena: none overlaps another."""
        module = self.w.module
        buffers = [key for key in self.owner.slots if key in self.owner_buffers]
        groups = sorted(set(self.plan.groups.values()))
        if len(buffers) + len(groups) < 2:
            return
        domain = module.node(f'distinct !{{!{len(module.metadata)}, !"{self.owner.symbol}"}}')
        scopes = [
            module.node(f"distinct !{{!{len(module.metadata)}, {domain}}}") for _ in range(len(buffers) + len(groups))
        ]
        tags = []
        for scope in scopes:
            own = module.node(f"!{{{scope}}}")
            others = module.node(f"!{{{', '.join([s for s in scopes if s != scope])}}}")
            tags.append(f", !alias.scope {own}, !noalias {others}")
        self._global_tags = dict(zip(buffers, tags, strict=False))
        self.tags = dict(zip(groups, tags[len(buffers) :], strict=True))

    @property
    def owner_buffers(self) -> set[int]:
        """Ids of the global buffers."""
        func = self.owner.func
        known = {id(b) for b in func.buffers()}
        return known | {id(s.buffer) for s in _flat(func.body) if isinstance(s, Alloc)}

    # --- blocks -----------------------------------------------------------------------------------------

    def block_loop(self, stmt: Launch) -> None:
        """Take blocks from the counter until none is left or the kernel has been stopped.

        A few consecutive blocks at a time where there are many, so that what a block leaves in the cache, or asks
        for ahead, is of use to the next.
        """
        w = self.w
        total = Value("%total", "i64")
        chunk = w.intrinsic(
            "umax", w.intrinsic("umin", w.bin("lshr", total, integer(_SHARES)), integer(_CHUNK)), integer(1)
        )
        position, limit = w.alloca("i64", "position", 8), w.alloca("i64", "limit", 8)
        for slot in (position, limit):
            w.emit(f"store i64 0, ptr {slot.text}, align 8")
        before = w.hoist_point()
        w.jump("next")
        w.open(before)
        w.place("next")
        stopped = w.ins("load atomic i64, ptr %status monotonic, align 8", "i64")
        w.branch(w.icmp("eq", stopped, integer(0)), "go_on", self.done)
        w.place("go_on")
        following = w.ins(f"load i64, ptr {position.text}, align 8", "i64")
        end = w.ins(f"load i64, ptr {limit.text}, align 8", "i64")
        w.branch(w.icmp("slt", following, end), "run", "take")
        w.place("take")
        first = w.ins(f"atomicrmw add ptr %counter, i64 {chunk.text} monotonic, align 8", "i64", hint="first")
        more = w.icmp("slt", first, total)
        w.emit(f"store i64 {first.text}, ptr {position.text}, align 8")
        w.emit(f"store i64 {w.intrinsic('smin', w.bin('add', first, chunk), total).text}, ptr {limit.text}, align 8")
        w.branch(more, "run", self.done)
        w.place("run")
        number = w.ins(f"load i64, ptr {position.text}, align 8", "i64", hint="block")
        w.emit(f"store i64 {w.bin('add', number, integer(1)).text}, ptr {position.text}, align 8")
        self._decode(stmt, number)
        self.statement(stmt.body)
        w.jump("next")
        w.close()
        w.place(self.done)
        if w.streaming and w.facts.x86:
            # Streaming stores are not ordered with the store that tells other threads that this one is done.
            w.module.declare("llvm.x86.sse.sfence", "void", ())
            w.emit("call void @llvm.x86.sse.sfence()")
        w.emit("ret void")

    def _decode(self, stmt: Launch, number: Value) -> None:
        """Bind the block's indices; the first varies fastest."""
        w = self.w
        sizes = [self.index(extent) for extent in stmt.grid]
        if stmt.swizzle is not None and len(sizes) > 1:
            indices = self._swizzled(stmt.swizzle, sizes, number)
        else:
            indices = []
            rest = number
            for size in sizes[:-1]:
                indices.append(self._divided("urem", rest, size))
                rest = self._divided("udiv", rest, size)
            indices.append(rest)
        linear, step = Linear.constant(0), Linear.constant(1)
        for var, index, size in zip(stmt.block_vars, indices, sizes, strict=True):
            named = w.ins(f"add i64 {index.text}, 0", "i64", hint=var.name)
            self._bind(var, Linear.atom(named))
            linear = linear.plus(Linear.atom(named).times(step))
            step = step.times(Linear.atom(size))
        self.block = w.linear(linear) if stmt.swizzle is not None else number

    def _divided(self, op: str, a: Value, b: Value) -> Value:
        if b.number == 1:
            return a if op == "udiv" else integer(0)
        return self.w.bin(op, a, b)

    def _swizzled(self, swizzle: tuple[int, str], sizes: list[Value], number: Value) -> list[Value]:
        """Panels of some rows (or columns): within a panel the row varies fastest, so that blocks share what is in cache."""
        w = self.w
        panel, order = integer(max(swizzle[0], 1)), swizzle[1]
        inner, outer = (
            (sizes[1], sizes[0]) if order == "row" else (sizes[0], sizes[1])
        )  # inner: what a panel is cut from
        plane = w.mul(sizes[0], sizes[1])
        within, rest = self._divided("urem", number, plane), self._divided("udiv", number, plane)
        per_panel = w.mul(panel, outer)
        index, place = self._divided("udiv", within, per_panel), self._divided("urem", within, per_panel)
        first = w.bin("mul", index, panel)
        left = w.bin("sub", inner, first)
        depth = w.intrinsic("umin", panel, left)
        fast = w.bin("add", first, w.bin("urem", place, depth))
        slow = w.bin("udiv", place, depth)
        indices = [slow, fast] if order == "row" else [fast, slow]
        return [*indices, rest] if len(sizes) == 3 else indices


def _slots(func: PrimFunc) -> dict[int, int]:
    """Places of parameters and sizes in the argument array, by id."""
    slots = {id(size): len(func.params) + i for i, size in enumerate(func.sizes)}
    slots.update({id(param): i for i, param in enumerate(func.params) if id(param) not in slots})
    return slots


def _flat(seq: Seq) -> list[Stmt]:
    """The statements of the function's level."""
    result: list[Stmt] = []
    for stmt in seq.stmts:
        result.extend(_flat(stmt) if isinstance(stmt, Seq) else [stmt])
    return result
