"""Statements of a launch's body to LLVM instructions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.errors import TilewrightError, UnsupportedOnTargetError, VerificationError
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.node import Node
from tilewright.ir.stmt import (
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    For,
    If,
    Let,
    Prefetch,
    Print,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.targets.cpu import arena, atomics, emit_memory, reports
from tilewright.targets.cpu.emit_expr import Emitter
from tilewright.targets.cpu.emit_memory import Place
from tilewright.targets.cpu.values import Item, Linear, Value, integer, storage_bytes, storage_scalar, vector_type
from tilewright.targets.cpu.writer import Writer

_UNROLL_LIMIT = 4096
"""Iterations of an `unroll` loop that are still written out."""

_PREFETCH_LOCALITY = 2
"""To the second-level cache: the data is for a later step."""


class StatementEmitter(Emitter):
    """Emits statements.

    plan: where on-chip buffers are.  tags: alias metadata by group of the plan.  report: collects prints and asserts.
    done: label that ends the function.  block: number of the running block.
    """

    def __init__(self, w: Writer, plan: arena.Plan, tags: dict[int, str], report: reports.Reports) -> None:
        super().__init__(w)
        self.plan = plan
        self.tags = tags
        self.report = report
        self.done = "done"
        self.block = integer(0)
        self.loops: list[tuple[str, str]] = []  # labels for break and continue
        self._jumps: dict[int, bool] = {}

    def statement(self, stmt: Stmt) -> None:
        """`stmt` emitted."""
        method = _METHODS.get(type(stmt))
        if method is None:
            raise VerificationError(f"{type(stmt).__name__} has no place in lowered code for a CPU", location=stmt.loc)
        try:
            method(self, stmt)
        except TilewrightError as error:
            raise error.at(stmt.loc) from None

    # --- structure --------------------------------------------------------------------------------

    def _seq(self, seq: Seq) -> None:
        for stmt in seq.stmts:
            self.statement(stmt)

    def _let(self, stmt: Let) -> None:
        self.env[id(stmt.var)] = self.code(stmt.value)

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        self.places[id(buffer)] = self._new_place(buffer)
        if stmt.init is not None:
            self.statement(Store(buffer, (), stmt.init, loc=stmt.loc))

    def _new_place(self, buffer: Buffer) -> Place:
        strides = emit_memory.row_major(self, buffer)
        if arena.on_stack(buffer):
            count = max(arena.elements(buffer), 1)
            element = vector_type(storage_scalar(buffer.dtype), buffer.dtype.lanes)
            align = min(storage_bytes(buffer.dtype) & -storage_bytes(buffer.dtype), arena.ALIGNMENT)
            pointer = self.w.alloca(f"[{count} x {element}]", buffer.name, align)
            return Place(buffer, pointer, strides, on_stack=True)
        offset = self.plan.offsets.get(id(buffer))
        if offset is None:
            raise UnsupportedOnTargetError(
                f"{buffer.name} cannot be allocated here", hint="allocate global memory outside of the kernel"
            )
        return Place(buffer, self.scratch(offset), strides, self.tags.get(self.plan.groups[id(buffer)], ""))

    def scratch(self, offset: int) -> Value:
        """An address in the arena."""
        base = Value("%scratch", "ptr")
        return self.w.pure(f"getelementptr i8, ptr %scratch, i64 {offset}", "ptr", 1, base) if offset else base

    def _alias(self, stmt: Alias) -> None:
        buffer, base = stmt.buffer, stmt.buffer.view_of
        if base is None:
            raise VerificationError(f"{buffer.name} is not a view of another buffer")
        of = self.place(base)
        self.places[id(buffer)] = Place(
            buffer, of.pointer, emit_memory.row_major(self, buffer), of.tags, of.shared, of.on_stack
        )

    # --- control flow -----------------------------------------------------------------------------

    def _if(self, stmt: If) -> None:
        w = self.w
        condition = self.value(stmt.condition)
        if condition.number is not None:
            chosen = stmt.then_body if condition.number & 1 else stmt.else_body
            if chosen is not None:
                self.statement(chosen)
            return
        then, end = w.name("then"), w.name("endif")
        otherwise = end if stmt.else_body is None else w.name("else")
        before = w.hoist_point()
        w.branch(condition, then, otherwise)
        for label, body in ((then, stmt.then_body), (otherwise, stmt.else_body)):
            if body is not None:
                w.open(before, branch=True)
                w.place(label)
                self.statement(body)
                w.jump(end)
                w.close()
        w.place(end)

    def _for(self, stmt: For) -> None:
        start, stop, step = self.linear(stmt.start), self.linear(stmt.stop), self.linear(stmt.step)
        literal = (start.number, stop.number, step.number)
        if step.number == 0:
            raise VerificationError(f"the step of loop {stmt.var.name} is 0")
        if None not in literal:
            values = range(*[n for n in literal if n is not None])
            if not values:
                return
            if len(values) == 1 or (stmt.kind == "unroll" and len(values) <= _UNROLL_LIMIT):
                self._unrolled(stmt, values)
                return
        self._counted(stmt.var, start, stop, step, lambda: self.statement(stmt.body))

    def nest(self, axes: list[tuple[Var, int]], body: Callable[[], None]) -> None:
        """`body` for every point of a box, the last variable fastest."""
        if not axes:
            body()
            return
        (var, extent), rest = axes[0], axes[1:]
        if extent > 0:
            zero, end, one = Linear.constant(0), Linear.constant(extent), Linear.constant(1)
            self._counted(var, zero, end, one, lambda: self.nest(rest, body))

    def _unrolled(self, stmt: For, values: range) -> None:
        if not self._jumps_out(stmt.body):
            for number in values:
                self._bind(stmt.var, Linear.constant(number))
                self.statement(stmt.body)
            return
        w = self.w
        end = w.name("unrolled")
        before = w.hoist_point()
        for number in values:
            following = w.name("next")
            w.open(before, branch=True)
            self._bind(stmt.var, Linear.constant(number))
            with self._in_loop(end, following):
                self.statement(stmt.body)
            w.jump(following)
            w.place(following)
            w.close()
        w.jump(end)
        w.place(end)

    def _counted(self, var: Var, start: Linear, stop: Linear, step: Linear, body: Callable[[], None]) -> None:
        """The test at the end of the loop, and once before it unless the first iteration is certain."""
        w = self.w
        first, last, by = w.linear(start), w.linear(stop), w.linear(step)
        head, latch, end = w.name(f"loop_{var.name}"), w.name("latch"), w.name("endloop")
        before = w.hoist_point()
        entered = w.label
        certain = None not in (start.number, stop.number, step.number)
        if certain:
            w.jump(head)
        else:
            w.branch(self._continues(first, last, by, hoist=True), head, end)
        w.open(before)
        w.place(head)
        counter = Value(f"%{w.name(var.name)}", "i64", depth=w.depth)
        following = f"%{w.name('next')}"
        w.emit(f"{counter.text} = phi i64 [ {first.text}, %{entered} ], [ {following}, %{latch} ]")
        self._bind(var, Linear.atom(counter))
        with self._in_loop(end, latch):
            body()
        w.jump(latch)
        w.place(latch)
        w.emit(f"{following} = add nsw i64 {counter.text}, {by.text}")
        more = self._continues(Value(following, "i64", depth=w.depth), last, by, hoist=False)
        w.emit(f"br i1 {more.text}, label %{head}, label %{end}, !llvm.loop {w.module.loop_node()}")
        w.close()
        w.place(end)

    def _continues(self, value: Value, last: Value, by: Value, *, hoist: bool) -> Value:
        """Whether an iteration at `value` takes place."""
        w = self.w
        if by.number is not None:
            predicate = "slt" if by.number > 0 else "sgt"
            return w.compare(predicate, value, last) if hoist else w.icmp(predicate, value, last)
        up, down = w.icmp("slt", value, last), w.icmp("sgt", value, last)
        rising, falling = w.icmp("sgt", by, integer(0)), w.icmp("slt", by, integer(0))
        return w.bin("or", w.bin("and", rising, up), w.bin("and", falling, down))

    def _while(self, stmt: While) -> None:
        w = self.w
        test, body, end = w.name("while"), w.name("body"), w.name("endwhile")
        before = w.hoist_point()
        w.jump(test)
        w.open(before)
        w.place(test)
        w.branch(self.value(stmt.condition), body, end)
        w.place(body)
        with self._in_loop(end, test):
            self.statement(stmt.body)
        w.jump(test)
        w.close()
        w.place(end)

    def _break(self, stmt: Break) -> None:
        self._leave(stmt, 0)

    def _continue(self, stmt: Continue) -> None:
        self._leave(stmt, 1)

    def _leave(self, stmt: Stmt, which: int) -> None:
        if not self.loops:
            raise VerificationError(f"{type(stmt).__name__.lower()} outside of a loop")
        self.w.jump(self.loops[-1][which])
        self.w.place(self.w.name("dead"))  # what follows in the Seq is never reached

    @contextmanager
    def _in_loop(self, end: str, following: str) -> Iterator[None]:
        self.loops.append((end, following))
        try:
            yield
        finally:
            self.loops.pop()

    def _bind(self, var: Var, value: Linear) -> None:
        self.env[id(var)] = Item(var.dtype, "index", linear=value)
        self.alive.append(var)

    def _jumps_out(self, body: Seq) -> bool:
        """Whether `body` has a break or continue of its own loop."""
        found = self._jumps.get(id(body))
        if found is None:
            found = self._jumps[id(body)] = _has_jump(body)
        return found

    # --- effects ----------------------------------------------------------------------------------

    def _store(self, stmt: Store) -> None:
        emit_memory.store(self, stmt)

    def _atomic(self, stmt: Atomic) -> None:
        atomics.emit(self, stmt)

    def _prefetch(self, stmt: Prefetch) -> None:
        access = emit_memory.locate(self, stmt.region.buffer, stmt.region.starts)
        if access.pointer is not None:
            w = self.w
            w.module.declare("llvm.prefetch.p0", "void", ("ptr", "i32", "i32", "i32"))
            w.emit(f"call void @llvm.prefetch.p0(ptr {access.pointer.text}, i32 0, i32 {_PREFETCH_LOCALITY}, i32 1)")

    def _print(self, stmt: Print) -> None:
        reports.emit_print(self, stmt)

    def _assert(self, stmt: Assert) -> None:
        reports.emit_assert(self, stmt)


def _has_jump(item: Node) -> bool:
    if isinstance(item, (Break, Continue)):
        return True
    if isinstance(item, (For, While, Expr)):
        return False
    return any(_has_jump(child) for child in item.children())


_METHODS: dict[type[Stmt], Callable[[StatementEmitter, Any], None]] = {
    Seq: StatementEmitter._seq,
    Let: StatementEmitter._let,
    Alloc: StatementEmitter._alloc,
    Alias: StatementEmitter._alias,
    Store: StatementEmitter._store,
    For: StatementEmitter._for,
    While: StatementEmitter._while,
    If: StatementEmitter._if,
    Break: StatementEmitter._break,
    Continue: StatementEmitter._continue,
    Print: StatementEmitter._print,
    Assert: StatementEmitter._assert,
    Atomic: StatementEmitter._atomic,
    Prefetch: StatementEmitter._prefetch,
}
