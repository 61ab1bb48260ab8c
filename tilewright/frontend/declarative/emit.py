"""Tile IR from the recognised loops of a declarative kernel."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.expressions import (
    Scope,
    evaluate_size,
    literal_size,
    translate,
)
from tilewright.frontend.declarative.findings import Finding, axes_text, contraction_text, map_text, reduction_text
from tilewright.frontend.declarative.literals import convert
from tilewright.frontend.declarative.plan import (
    CHUNK,
    FULL_ROW,
    NestPlan,
    ceil_div,
    index_dtype,
    round_up,
)
from tilewright.frontend.declarative.program import Loop, Schedule
from tilewright.frontend.declarative.recognise import ContractionLoop, MapLoop, Nest, ReductionLoop
from tilewright.frontend.declarative.statements import Statements, element_reader
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    Buffer,
    Expr,
    Load,
    Var,
    binary,
    cast,
    const,
    select,
)
from tilewright.ir.stmt import (
    Alloc,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Reduce,
    Region,
    Seq,
    Stmt,
    Store,
)
from tilewright.source import Location


@dataclass
class Saved:
    """A value that a reduction computed for every iteration, kept for later loops over the same range."""

    value: ast.expr
    variable: str
    extent: int
    buffer: Buffer
    reads: set[str]


class NestEmitter:
    """Emits one parallel nest as a launch."""

    def __init__(self, builder: Builder, scope: Scope, nest: Nest, schedule: Schedule, findings: list[Finding]) -> None:
        self.builder = builder
        self.scope = scope.child()
        self.program = scope.program
        self.nest = nest
        self.schedule = schedule
        self.findings = findings
        self.plan = NestPlan(self.scope, nest, schedule)
        self.axes = self.plan.axes
        self.types = self.plan.types
        self.tiled = self.plan.tiled
        self.fragments: dict[str, Buffer] = {}
        self.saved: list[Saved] = []

    def finds_patterns(self) -> bool:
        """Whether any statement of the body is a known pattern."""
        return any(pattern is not None for pattern in self.plan.patterns.values())

    def emit(self) -> None:
        """Append the launch to the builder."""
        loc = self.program.location(self.nest.node)
        if not isinstance(self.nest.node.iter, ast.Constant):  # which says that the statements run once
            self._report(self.nest.node, axes_text(self.axes))
        grid, block_vars = self._grid(loc)
        with self.builder.scope("launch", loc=loc) as frame:
            self._allocate_scalars(loc)
            self._emit_body(list(self.nest.body))
        self.builder.emit(Launch(grid, block_vars, frame.seq(), threads=(self.schedule.threads, 1, 1), loc=loc))

    def _report(self, node: ast.stmt, text: str, *, plain: bool = False) -> None:
        self.findings.append(Finding(node.lineno, text, plain))

    def _grid(self, loc: Location) -> tuple[tuple[Expr, ...], tuple[Var, ...]]:
        """Grid and block variables: the last axis is x, the one before y, all others share z."""
        grid: list[Expr] = []
        block_vars: list[Var] = []
        counts = [ceil_div(axis.extent, axis.tile) for axis in self.axes]
        for name, axis, count in zip(("bx", "by"), reversed(self.axes), reversed(counts), strict=False):
            block = self.builder.fresh_var(name, index_dtype(axis.extent), loc)
            axis.origin = binary("mul", block, axis.tile, loc=loc)
            grid.append(const(count, block.dtype, loc=loc))
            block_vars.append(block)
        outer = list(zip(self.axes[:-2], counts[:-2], strict=True))
        if outer:
            total = math.prod(count for _, count in outer)
            block = self.builder.fresh_var("bz", index_dtype(total), loc)
            grid.append(const(total, block.dtype, loc=loc))
            block_vars.append(block)
            rest: Expr = block
            for position, (axis, count) in enumerate(reversed(outer)):
                is_first = position == len(outer) - 1
                part = rest if is_first else binary("floormod", rest, count, loc=loc)
                axis.origin = binary("mul", part, axis.tile, loc=loc)
                rest = binary("floordiv", rest, count, loc=loc)
        return tuple(grid), tuple(block_vars)

    def _allocate_scalars(self, loc: Location) -> None:
        """A fragment for every scalar that outlives one pass over the tile."""
        shape = tuple(const(axis.tile) for axis in self.tiled)
        for name in self.types:
            if self.plan.is_kept(name):
                buffer = Buffer(self.builder.unique_name(name), shape, self.types[name], "fragment", loc=loc)
                self.fragments[name] = buffer
                self.builder.emit(Alloc(buffer, loc=loc))

    def _emit_body(self, body: list[ast.stmt]) -> None:
        for run in self.plan.runs(body):
            found = self.plan.recognised(run[0]) if len(run) == 1 else None
            if isinstance(found, ContractionLoop):
                self._emit_contraction(found)
            elif isinstance(found, ReductionLoop):
                self._emit_reduction(found)
            elif isinstance(found, MapLoop):
                self._emit_map(found)
            else:
                self._emit_run(run)
            self._forget(run)

    def _forget(self, statements: Sequence[ast.stmt]) -> None:
        """Drop saved values that read what `statements` changed."""
        changed = self._changed(statements)
        self.saved = [s for s in self.saved if not s.reads & changed]

    def _changed(self, statements: Sequence[ast.stmt]) -> set[str]:
        """The scalars and tensors that statements assign or store to."""
        stored = recognise.subscripts(statements, stored=True)
        return {*recognise.assigned_names(statements), *(recognise.tensor_name(self.program, s) for s in stored)}

    def _point_scope(self) -> tuple[Scope, list[Var]]:
        """A scope for one point of the tile: the axes' indices, and the scalars kept in fragments."""
        scope = self.scope.child()
        local = []
        for axis in self.axes:
            if axis in self.tiled:
                variable = self.builder.fresh_var(axis.loop.name, index_dtype(axis.extent))
                local.append(variable)
                index = binary("add", axis.origin, variable)
            else:
                index = axis.origin
            scope.names[axis.loop.name] = _index_reader(index)
        for name, buffer in self.fragments.items():
            scope.names[name] = element_reader(buffer, tuple(local))
        return scope, local

    def _store_scalar(self, local: Sequence[Var]) -> Callable[[str, Expr, Location], Stmt | None]:
        def store(name: str, value: Expr, loc: Location) -> Stmt | None:
            buffer = self.fragments.get(name)
            if buffer is None:
                return None
            return Store(buffer, tuple(local), convert(value, buffer.dtype, loc), loc=loc)

        return store

    def _extents(self) -> tuple[Expr, ...]:
        return tuple(const(axis.tile) for axis in self.tiled)

    def _emit_run(self, run: list[ast.stmt]) -> None:
        """Statements for every point of the tile."""
        if self._emit_fills(run) or self._emit_copy(run):
            return
        loops = [statement for statement in run if isinstance(statement, ast.For)]
        for statement in loops:
            self._report(statement, "this loop is no known pattern; it runs serially in each point", plain=True)
        if not loops:
            self._report(run[0], "computed for every point of the tile, in parallel")
        loc = self.program.location(run[0])
        scope, local = self._point_scope()
        translator = Statements(self.builder, scope, self._store_scalar(local))
        body = translator.sequence(run)
        if not any(not isinstance(stmt, Seq) or stmt.stmts for stmt in body.stmts):
            return
        self.builder.emit(Parallel(tuple(local), self._extents(), self._guard(body, run, scope), loc=loc))

    def _emit_fills(self, run: list[ast.stmt]) -> bool:
        """`acc = 0.0` for scalars kept in fragments."""
        values = []
        for statement in run:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                return False
            target = statement.targets[0]
            if not isinstance(target, ast.Name) or target.id not in self.fragments:
                return False
            if recognise.read_names([statement.value]) & (set(self.types) | {a.loop.name for a in self.axes}):
                return False
            if any(True for _ in recognise.subscripts([statement.value])):
                return False
            values.append((self.fragments[target.id], translate(statement.value, self.scope), statement))
        for buffer, value, statement in values:
            loc = self.program.location(statement)
            self.builder.emit(Fill(whole(buffer), convert(value, buffer.dtype, loc), loc=loc))
        return True

    def _emit_copy(self, run: list[ast.stmt]) -> bool:
        """`T[i, j] = acc` for the whole tile is a copy."""
        statement = run[0]
        if len(run) != 1 or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target, value = statement.targets[0], statement.value
        if not isinstance(target, ast.Subscript) or not isinstance(value, ast.Name) or value.id not in self.fragments:
            return False
        names = recognise.index_names(target)
        order = [axis.loop.name for axis in self.axes]
        tiled = [axis.loop.name for axis in self.tiled]
        if names is None or sorted(names) != sorted(order) or [n for n in names if n in tiled] != tiled:
            return False
        tensor = self.scope.tensors[recognise.tensor_name(self.program, target)]
        by_name = {axis.loop.name: axis for axis in self.axes}
        if any(literal_size(tensor.shape[p]) != by_name[n].extent for p, n in enumerate(names)):
            return False
        loc = self.program.location(statement)
        region = Region(
            tensor, tuple(by_name[n].origin for n in names), tuple(const(by_name[n].tile) for n in names), loc=loc
        )
        self.builder.emit(Copy(whole(self.fragments[value.id]), region, loc=loc))
        return True

    def _guard(self, body: Seq, statements: Sequence[ast.stmt], scope: Scope) -> Seq:
        """`body` under the conditions that keep points beyond an axis's end from storing."""
        conditions: list[Expr] = []
        for axis in self.axes:
            if axis.extent % axis.tile and not self.plan.drops_by_itself(axis, statements):
                loc = self.program.location(axis.loop.node)
                conditions.append(binary("lt", scope.names[axis.loop.name](loc), axis.extent, loc=loc))
        for condition in reversed(conditions):
            body = Seq((If(condition, body, loc=condition.loc),), loc=body.loc)
        return body

    # --- loops over rows -------------------------------------------------------------------------

    def _emit_reduction(self, found: ReductionLoop) -> None:
        loop = found.loop
        extent = self.plan.row_extent(loop) or 0
        loc = self.program.location(loop.node)
        self._report(loop.node, reduction_text(found, extent))
        kept = []
        for update in found.updates:
            shape = (*self._extents(), const(min(extent, CHUNK) if extent > FULL_ROW else extent))
            buffer = Buffer(
                self.builder.unique_name(f"{update.accumulator}_terms"),
                shape,
                self.types[update.accumulator],
                "fragment",
                loc=loc,
            )
            kept.append(buffer)
        if extent == 0:
            return
        for buffer in kept:
            self.builder.emit(Alloc(buffer, loc=loc))

        cast_terms: set[str] = set()  # buffers that hold a term in another dtype than its own

        def step(chunk_start: Expr | None, width: int) -> None:
            scope, local = self._point_scope()
            index, variable = self._row_index(scope, local, loop, extent, chunk_start)
            translator = Statements(self.builder, scope, _no_scalars)
            stmts = list(translator.sequence(found.locals).stmts)
            for update, buffer in zip(found.updates, kept, strict=True):
                place = self.program.location(update.node)
                value = translate(update.value, translator.scope)
                if value.dtype is not buffer.dtype:
                    cast_terms.add(buffer.name)
                term = convert(value, buffer.dtype, place)
                if chunk_start is not None and extent % width:
                    inside = binary("lt", index, extent, loc=place)
                    term = select(inside, term, _neutral(update.op, buffer.dtype), loc=place)
                stmts.append(Store(buffer, (*local, variable), term, loc=place))
            extents = (*self._extents(), const(width))
            self.builder.emit(Parallel((*local, variable), extents, Seq(tuple(stmts), loc=loc), loc=loc))
            for update, buffer in zip(found.updates, kept, strict=True):
                place = self.program.location(update.node)
                target = whole(self.fragments[update.accumulator])
                self.builder.emit(Reduce(update.op, whole(buffer), target, buffer.ndim - 1, clear=False, loc=place))

        self._in_chunks(loop, extent, step)
        local_names = set(recognise.assigned_names(found.locals))
        if extent <= FULL_ROW:
            for update, buffer in zip(found.updates, kept, strict=True):
                reads = recognise.read_names([update.value])
                if not reads & local_names and buffer.name not in cast_terms:
                    staged = {self.program.staged.get(n, (n, None))[0] for n in reads}
                    self.saved.append(Saved(update.value, loop.name, extent, buffer, (reads | staged) - {loop.name}))

    def _row_index(
        self, scope: Scope, local: Sequence[Var], loop: Loop, extent: int, chunk_start: Expr | None
    ) -> tuple[Expr, Var]:
        """The index of a row loop in `scope`, and the variable that runs over the row (or chunk)."""
        variable = self.builder.fresh_var(loop.name, index_dtype(extent))
        index: Expr = variable if chunk_start is None else binary("add", chunk_start, variable)
        scope.names[loop.name] = lambda loc: index
        if chunk_start is None:
            changed = self._changed(loop.node.body)
            for saved in self.saved:
                if saved.extent == extent and not saved.reads & changed:
                    key = recognise.rename(saved.value, saved.variable, loop.name)
                    scope.shared[key] = _saved_reader(saved.buffer, (*local, variable))
        return index, variable

    def _in_chunks(self, loop: Loop, extent: int, step: Callable[[Expr | None, int], None]) -> None:
        """`step` once for the whole row, or in a loop over chunks of it."""
        if extent <= FULL_ROW:
            step(None, extent)
            return
        loc = self.program.location(loop.node)
        chunk = self.builder.fresh_var(f"{loop.name}_chunk", index_dtype(extent), loc)
        with self.builder.scope("serial", loc=loc) as frame:
            step(binary("mul", chunk, CHUNK, loc=loc), CHUNK)
        count = const(ceil_div(extent, CHUNK), chunk.dtype)
        zero, one = const(0, chunk.dtype), const(1, chunk.dtype)
        self.builder.emit(For(chunk, zero, count, one, frame.seq(), loc=loc))

    def _emit_map(self, found: MapLoop) -> None:
        loop = found.loop
        extent = self.plan.row_extent(loop) or 0
        loc = self.program.location(loop.node)
        self._report(loop.node, map_text(loop.name, extent))
        if extent == 0:
            return

        def step(chunk_start: Expr | None, width: int) -> None:
            scope, local = self._point_scope()
            index, variable = self._row_index(scope, local, loop, extent, chunk_start)
            body = Statements(self.builder, scope, _no_scalars).sequence(found.body)
            if chunk_start is not None and extent % width:
                body = Seq((If(binary("lt", index, extent, loc=loc), body, loc=loc),), loc=loc)
            body = self._guard(body, found.body, scope)
            extents = (*self._extents(), const(width))
            self.builder.emit(Parallel((*local, variable), extents, body, loc=loc))

        self._in_chunks(loop, extent, step)

    # --- contractions ----------------------------------------------------------------------------

    def _emit_contraction(self, found: ContractionLoop) -> None:
        loop = found.loop
        extent = evaluate_size(loop.stop, self.scope, "the bound of a contraction")
        loc = self.program.location(loop.node)
        step = max(1, min(self.schedule.block_k, round_up(extent, 16)))
        variable = self.builder.fresh_var(loop.name, index_dtype(extent), loc)
        staged: dict[str, tuple[Buffer, Region]] = {}
        gemms = []
        for product in found.products:
            operands = []
            left, right = product.left.element, product.right.element
            first = self.tiled[0].loop.name
            if first not in (recognise.index_names(left) or ()):
                left, right = right, left
            common = self.plan.staged_dtype(product)
            assert common is not None
            for operand in (left, right):
                key = f"{ast.dump(operand)} {common}"
                if key not in staged:
                    staged[key] = self._stage(operand, common, loop.name, variable, step)
                operands.append((staged[key][0], self._k_first(operand, loop.name)))
            (a, a_k_first), (b, b_k_first) = operands
            gemms.append(
                Gemm(
                    whole(a),
                    whole(b),
                    whole(self.fragments[product.accumulator]),
                    transpose_a=a_k_first,
                    transpose_b=not b_k_first,
                    loc=self.program.location(product.node),
                )
            )
        for buffer, _ in staged.values():
            self.builder.emit(Alloc(buffer, loc=loc))
        element = self.types[found.products[0].accumulator]
        buffers = [buffer for buffer, _ in staged.values()]
        self._report(loop.node, contraction_text(found, element, buffers, extent, step))
        copies: list[Stmt] = [Copy(region, whole(buffer), loc=loc) for buffer, region in staged.values()]
        body = Seq((*copies, *gemms), loc=loc)
        stop = const(ceil_div(extent, step), variable.dtype)
        zero, one = const(0, variable.dtype), const(1, variable.dtype)
        self.builder.emit(
            For(variable, zero, stop, one, body, kind="pipelined", num_stages=self.schedule.stages, loc=loc)
        )

    def _k_first(self, operand: ast.Subscript, k: str) -> bool:
        """Whether the contraction index comes before the tiled axis in the operand."""
        names = recognise.index_names(operand) or []
        tiled = [axis.loop.name for axis in self.tiled]
        return next(n for n in names if n == k or n in tiled) == k

    def _stage(self, operand: ast.Subscript, element: DType, k: str, variable: Var, step: int) -> tuple[Buffer, Region]:
        """The shared buffer for an operand's tile, and the region that is copied to it."""
        loc = self.program.location(operand)
        tensor = self.scope.tensors[recognise.tensor_name(self.program, operand)]
        by_name = {axis.loop.name: axis for axis in self.axes}
        starts: list[Expr] = []
        extents: list[Expr] = []
        shape: list[Expr] = []
        for name in recognise.index_names(operand) or []:
            if name == k:
                starts.append(binary("mul", variable, step, loc=loc))
                extents.append(const(step))
                shape.append(const(step))
                continue
            axis = by_name[name]
            starts.append(axis.origin)
            extents.append(const(axis.tile))
            if axis in self.tiled:
                shape.append(const(axis.tile))
        buffer = Buffer(self.builder.unique_name(f"{tensor.name}_shared"), tuple(shape), element, "shared", loc=loc)
        return buffer, Region(tensor, tuple(starts), tuple(extents), loc=loc)


def whole(buffer: Buffer) -> Region:
    """All of a buffer."""
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape, loc=buffer.loc)


def _no_scalars(name: str, value: Expr, loc: Location) -> Stmt | None:
    return None


def _saved_reader(buffer: Buffer, indices: tuple[Expr, ...]) -> Callable[[], Expr]:
    return lambda: Load(buffer.dtype, buffer, indices, loc=buffer.loc)


def _index_reader(index: Expr) -> Callable[[Location], Expr]:
    return lambda loc: index


def _neutral(op: str, element: DType) -> Expr:
    if op == "sum":
        return cast(const(0), element)
    if element.is_float:
        return const(-math.inf if op == "max" else math.inf, element)
    low, high = element.int_range()
    return const(low if op == "max" else high, element)
