"""The body of a parallel loop for several iterations at once: scalars become vectors, branches become masks.

    y[i, j] = x[i, j] + b[i]
becomes, for lanes j, j + 1, ..., j + 7,
    y[i, j +: 8] = x[i, j +: 8] + broadcast(b[i], 8)
What is the same in all lanes stays scalar.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any

from tilewright.analysis.index import IndexContext
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Reinterpret,
    Select,
    Unary,
    Var,
    VectorReduce,
    binary,
    cast,
    const,
    unary,
)
from tilewright.ir.neutral import neutral_value
from tilewright.ir.node import Node
from tilewright.ir.rewriter import substitute, walk
from tilewright.ir.stmt import Alloc, Atomic, For, If, Let, Seq, Stmt, Store
from tilewright.ir.structural import key
from tilewright.passes.guard_accesses import conjunction
from tilewright.passes.ramps import ramp_binary

REDUCER_OPS = {"sum": "add", "max": "max", "min": "min"}


class NotVectorisable(Exception):
    """Internal: this nest has no vector form."""


def mentions(item: Node, variable: Var) -> bool:
    return any(node is variable for node in walk(item))


def lane_factor(context: IndexContext, index: Expr, variable: Var) -> int | None:
    """c where index = c · variable + rest and the rest does not mention the variable, else None."""
    form = context.linear(index)
    factor = form.coefficient(variable)
    restmentions = any(atom is not variable and mentions(atom, variable) for atom, _ in form.terms.values())
    return None if restmentions else factor


class LaneSums:
    """Partial values of reducers, one for each lane, that are joined after the loop."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.before: list[Stmt] = []
        self.after: list[Stmt] = []
        self._found: dict[Hashable, Buffer] = {}

    def buffer(self, op: str, element: Load, dtype: DType) -> Buffer:
        """The lanes that take the updates of `element`, which is the same in every iteration."""
        name = (op, key(element))
        found = self._found.get(name)
        if found is None:
            loc = element.loc
            vector = dtype.with_lanes(self.lanes)
            found = self._found[name] = Buffer(f"{element.buffer.name}_lanes", (), vector, "register", loc=loc)
            start = Broadcast(vector, lane_start(op, dtype), loc=loc)
            self.before += [Alloc(found, loc=loc), Store(found, (), start, loc=loc)]
            joined = VectorReduce(dtype, op, Load(vector, found, (), loc=loc), loc=loc)
            combined = binary(op, cast(element, dtype), joined, loc=loc)
            self.after.append(Store(element.buffer, element.indices, cast(combined, element.dtype), loc=loc))
        return found


def lane_start(op: str, dtype: DType) -> Expr:
    """What changes nothing: for max and min of floats NaN, which they leave out."""
    if dtype.is_float and op in ("max", "min"):
        return const(math.nan, dtype)
    return neutral_value(op, dtype)


class Vectoriser:
    """Rewrites a loop body for `lanes` iterations at once: `variable` is base, base + 1, ..."""

    def __init__(self, variable: Var, base: Expr, lanes: int, mask: Expr | None, sums: LaneSums) -> None:
        self.sums = sums
        self.variable = variable
        self.base = base
        self.lanes = lanes
        self.mask = mask
        self.some_lane_on = True  # a tail has at least one iteration; a branch may have none
        self.context = IndexContext()
        self.multiples = {id(base): lanes}  # the loop starts at 0 and goes in steps of `lanes`, a power of two
        self.vectors: dict[int, Var] = {}
        self.renamed: dict[int, Var] = {}
        self.private: dict[int, Buffer] = {}
        self.hoists = False
        self.hoisted: list[Let] = []
        self.invariants: dict[Hashable, Var] = {}
        self.written: set[int] = set()
        self.inside = 0  # branches and loops around the present statement

    # --- statements --------------------------------------------------------------------------------

    def sequence(self, body: Seq) -> Seq:
        """A Seq of vector code.  Raises NotVectorisable."""
        if not self.inside:
            self.written |= {id(node.buffer) for node in walk(body) if isinstance(node, (Store, Alloc))}
            self.written |= {id(node.dst.buffer) for node in walk(body) if isinstance(node, Atomic)}
        self.inside += 1
        try:
            return self._sequence(body)
        finally:
            self.inside -= 1

    def _sequence(self, body: Seq) -> Seq:
        stmts: list[Stmt] = []
        for stmt in body.stmts:
            handler = _STATEMENTS.get(type(stmt))
            if handler is None:
                raise NotVectorisable(type(stmt).__name__)
            made = handler(self, stmt)
            stmts.extend(made.stmts if isinstance(made, Seq) else [made])
        return Seq(tuple(stmts), loc=body.loc)

    def _seq(self, stmt: Seq) -> Stmt:
        return self.sequence(stmt)

    def _let(self, stmt: Let) -> Stmt:
        value = self.expr(stmt.value)
        variable = Var(value.dtype, stmt.var.name, loc=stmt.var.loc)
        (self.vectors if value.dtype.lanes > 1 else self.renamed)[id(stmt.var)] = variable
        return Let(variable, value, loc=stmt.loc)

    def _alloc(self, stmt: Alloc) -> Stmt:
        """A buffer of an iteration becomes one of vectors."""
        old = stmt.buffer
        if old.scope not in ("var", "local", "fragment") or old.dtype.lanes > 1:
            raise NotVectorisable(old.scope)
        scope = "register" if old.scope == "var" else old.scope
        new = Buffer(old.name, old.shape, old.dtype.with_lanes(self.lanes), scope, loc=old.loc)
        self.private[id(old)] = new
        result: Stmt = Alloc(new, loc=stmt.loc)
        if stmt.init is not None:
            start = Store(new, (), self.vector(self.expr(stmt.init)), loc=stmt.loc)
            result = Seq((result, start), loc=stmt.loc)
        return result

    def _store(self, stmt: Store) -> Stmt:
        value = self.expr(stmt.value)
        indices = tuple(self.expr(i) for i in stmt.indices)
        private = self.private.get(id(stmt.buffer))
        if private is not None:
            return self._store_private(stmt, private, indices, value)
        mask = self._combined(stmt.mask)
        if all(i.dtype.lanes == 1 for i in indices):
            return self._store_uniform(stmt, indices, value, mask)
        return Store(stmt.buffer, indices, self.vector(value), mask, stmt.nontemporal, loc=stmt.loc)

    def _store_private(self, stmt: Store, buffer: Buffer, indices: tuple[Expr, ...], value: Expr) -> Stmt:
        if any(i.dtype.lanes > 1 for i in indices):
            raise NotVectorisable("private buffer with an index for each lane")
        value = self.vector(value)
        own = self.expr(stmt.mask) if stmt.mask is not None else None
        if own is not None and own.dtype.lanes == 1:
            return Store(buffer, indices, self._blend(buffer, indices, value, self.mask), own, loc=stmt.loc)
        mask = conjunction([m for m in (self.mask, own) if m is not None])
        return Store(buffer, indices, self._blend(buffer, indices, value, mask), loc=stmt.loc)

    def _blend(self, buffer: Buffer, indices: tuple[Expr, ...], value: Expr, mask: Expr | None) -> Expr:
        if mask is None:
            return value
        return Select(value.dtype, self._lanes_of(mask), value, Load(buffer.dtype, buffer, indices), loc=value.loc)

    def _store_uniform(self, stmt: Store, indices: tuple[Expr, ...], value: Expr, mask: Expr | None) -> Stmt:
        """All lanes store to one element: a reducer's update, or the same value from all."""
        update = self._reducer_update(stmt)
        if update is not None:
            return self._update_lanes(stmt, *update, indices, mask)
        if value.dtype.lanes > 1 or mask is not None:
            raise NotVectorisable("lanes store to one element")
        return Store(stmt.buffer, indices, value, None, stmt.nontemporal, loc=stmt.loc)

    def _update_lanes(self, stmt: Store, op: str, term: Expr, indices: tuple[Expr, ...], mask: Expr | None) -> Stmt:
        """A reducer's update: lane by lane where the element is the same in every iteration, else joined at once."""
        loc = stmt.loc
        lanes = self.vector(self.expr(term))
        if mask is not None:
            filler = Broadcast(lanes.dtype, lane_start(op, lanes.dtype.scalar))
            lanes = Select(lanes.dtype, self._lanes_of(mask), lanes, filler, loc=loc)
        element = Load(stmt.buffer.dtype, stmt.buffer, indices, loc=loc)
        if self.inside == 1 and not any(self._is_bound_here(n) for i in indices for n in walk(i) if isinstance(n, Var)):
            kept = self.sums.buffer(op, element, lanes.dtype.scalar)
            combined = Binary(lanes.dtype, op, Load(lanes.dtype, kept, (), loc=loc), lanes, loc=loc)
            return Store(kept, (), combined, loc=loc)
        joined = VectorReduce(lanes.dtype.scalar, op, lanes, loc=loc)
        total = binary(op, cast(element, joined.dtype), joined, loc=loc)
        return Store(stmt.buffer, indices, cast(total, element.dtype), loc=loc)

    def _reducer_update(self, stmt: Store) -> tuple[str, Expr] | None:
        """(op, x) for `r[i] = r[i] op x` on a reducer."""
        if stmt.buffer.reducer is None:
            return None
        op = REDUCER_OPS[stmt.buffer.reducer]
        value = stmt.value
        while isinstance(value, Cast):
            value = value.value
        if not isinstance(value, Binary) or value.op != op:
            return None
        for own, term in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
            while isinstance(own, Cast):
                own = own.value
            if isinstance(own, Load) and own.buffer is stmt.buffer:
                return op, term
        return None

    def _if(self, stmt: If) -> Stmt:
        condition = self.expr(stmt.condition)
        if condition.dtype.lanes == 1:
            else_body = self.sequence(stmt.else_body) if stmt.else_body is not None else None
            return If(condition, self.sequence(stmt.then_body), else_body, loc=stmt.loc)
        outer, outer_on = self.mask, self.some_lane_on
        self.some_lane_on = False
        decided = Var(condition.dtype, "mask", loc=stmt.loc)
        stmts: list[Stmt] = [Let(decided, condition, loc=stmt.loc)]
        self.mask = conjunction([m for m in (outer, decided) if m is not None])
        stmts.extend(self.sequence(stmt.then_body).stmts)
        if stmt.else_body is not None:
            opposite = Unary(condition.dtype, "not", decided, loc=stmt.loc)
            self.mask = conjunction([m for m in (outer, opposite) if m is not None])
            stmts.extend(self.sequence(stmt.else_body).stmts)
        self.mask, self.some_lane_on = outer, outer_on
        return Seq(tuple(stmts), loc=stmt.loc)

    def _for(self, stmt: For) -> Stmt:
        bounds = [self.expr(e) for e in (stmt.start, stmt.stop, stmt.step)]
        if any(b.dtype.lanes > 1 for b in bounds):
            raise NotVectorisable("a loop whose bounds differ from lane to lane")
        variable = Var(stmt.var.dtype, stmt.var.name, loc=stmt.var.loc)
        self.renamed[id(stmt.var)] = variable
        start, stop, step = bounds
        return For(variable, start, stop, step, self.sequence(stmt.body), stmt.kind, loc=stmt.loc)

    # --- expressions -------------------------------------------------------------------------------

    def vector(self, value: Expr) -> Expr:
        """`value` with all lanes."""
        if value.dtype.lanes == self.lanes:
            return value
        return Broadcast(value.dtype.with_lanes(self.lanes), value, loc=value.loc)

    def _lanes_of(self, mask: Expr) -> Expr:
        return self.vector(mask)

    def _combined(self, own: Expr | None) -> Expr | None:
        parts = [m for m in (self.mask, self.expr(own) if own is not None else None) if m is not None]
        found = conjunction(parts)
        return None if found is None else self._lanes_of(found)

    def expr(self, item: Expr) -> Expr:
        """An expression for all lanes; it stays scalar where all lanes agree."""
        if item.dtype.lanes > 1:
            raise NotVectorisable("vector code inside")
        if item.dtype.is_int and isinstance(item, (Binary, Cast, Unary)):
            affine = self._affine(item)
            if affine is not None:
                return affine
        return _EXPRESSIONS[type(item)](self, item)

    def _affine(self, item: Expr) -> Expr | None:
        """An index that grows evenly from lane to lane as a Ramp; None for anything else."""
        if not mentions(item, self.variable) or any(id(n) in self.vectors for n in walk(item)):
            return None
        if any(isinstance(n, Load) for n in walk(item)):
            return None
        factor = lane_factor(self.context, item, self.variable)
        if not factor or not -(1 << item.dtype.bits - 1) <= factor < 1 << item.dtype.bits - 1:
            return None
        base = substitute(item, {self.variable: cast(self.base, self.variable.dtype)})
        base = self._rename(base)
        return Ramp(item.dtype.with_lanes(self.lanes), base, const(factor, item.dtype), loc=item.loc)

    def _rename(self, item: Expr) -> Expr:
        changes = {n: self.renamed[id(n)] for n in walk(item) if isinstance(n, Var) and id(n) in self.renamed}
        result: Expr = substitute(item, changes) if changes else item
        return result

    def _const(self, item: Const) -> Expr:
        return item

    def _var(self, item: Var) -> Expr:
        if item is self.variable:
            return Ramp(item.dtype.with_lanes(self.lanes), self.base, const(1, item.dtype), loc=item.loc)
        return self.vectors.get(id(item), self.renamed.get(id(item), item))

    def _unary(self, item: Unary) -> Expr:
        operand = self.expr(item.operand)
        if operand.dtype.lanes == 1:
            return unary(item.op, operand, loc=item.loc)
        return Unary(operand.dtype, item.op, operand, loc=item.loc)

    def _binary(self, item: Binary) -> Expr:
        left, right = self.expr(item.lhs), self.expr(item.rhs)
        if left.dtype.lanes == right.dtype.lanes == 1:
            if left is item.lhs and right is item.rhs:
                return item
            return binary(item.op, left, right, loc=item.loc)
        if item.dtype.is_int:
            even = ramp_binary(item.op, left, right, self.multiples, item.loc)
            if even is not None:
                return even
        result = item.dtype.with_lanes(self.lanes)
        return Binary(result, item.op, self.vector(left), self.vector(right), loc=item.loc)

    def _cast(self, item: Cast) -> Expr:
        value = self.expr(item.value)
        kind = item.dtype.with_lanes(value.dtype.lanes)
        return Cast(kind, value, item.rounding, item.saturate, loc=item.loc)

    def _reinterpret(self, item: Reinterpret) -> Expr:
        value = self.expr(item.value)
        return Reinterpret(item.dtype.with_lanes(value.dtype.lanes), value, loc=item.loc)

    def _select(self, item: Select) -> Expr:
        parts = [self.expr(e) for e in (item.condition, item.on_true, item.on_false)]
        if all(p.dtype.lanes == 1 for p in parts):
            return Select(item.dtype, parts[0], parts[1], parts[2], loc=item.loc)
        condition, on_true, on_false = (self.vector(p) for p in parts)
        return Select(on_true.dtype, condition, on_true, on_false, loc=item.loc)

    def _load(self, item: Load) -> Expr:
        indices = tuple(self.expr(i) for i in item.indices)
        private = self.private.get(id(item.buffer))
        if private is not None:
            if any(i.dtype.lanes > 1 for i in indices):
                raise NotVectorisable("private buffer with an index for each lane")
            return Load(private.dtype, private, indices, loc=item.loc)
        own = self.expr(item.mask) if item.mask is not None else None
        uniform = all(i.dtype.lanes == 1 for i in indices) and (own is None or own.dtype.lanes == 1)
        if uniform and (self.mask is None or self.some_lane_on or not indices):
            return self._invariant(Load(item.dtype, item.buffer, indices, own, loc=item.loc))
        mask = conjunction([m for m in (self.mask, own) if m is not None])
        if all(i.dtype.lanes == 1 for i in indices):
            indices = (*indices[:-1], self.vector(indices[-1]))
        kind = item.dtype.with_lanes(self.lanes)
        return Load(kind, item.buffer, indices, None if mask is None else self._lanes_of(mask), loc=item.loc)

    def _invariant(self, item: Load) -> Expr:
        """A load that is the same in every iteration, taken out of the loop where it is executed in any case."""
        movable = self.hoists and self.inside == 1 and id(item.buffer) not in self.written and item.mask is None
        if not movable or item.buffer.view_of is not None or any(mentions(i, self.base) for i in item.indices):  # type: ignore[arg-type]
            return item
        if any(isinstance(n, Var) and self._is_bound_here(n) for i in item.indices for n in walk(i)):
            return item
        name = key(item)
        if name not in self.invariants:
            self.invariants[name] = Var(item.dtype, f"{item.buffer.name}_here", loc=item.loc)
            self.hoisted.append(Let(self.invariants[name], item, loc=item.loc))
        return self.invariants[name]

    def _is_bound_here(self, variable: Var) -> bool:
        """Whether a variable is bound inside the loop."""
        return any(variable is v for v in (*self.renamed.values(), *self.vectors.values()))

    def _call(self, item: Call) -> Expr:
        args = [self.expr(a) for a in item.args]
        if all(a.dtype.lanes == 1 for a in args):
            return Call(item.dtype, item.name, tuple(args), loc=item.loc)
        return Call(item.dtype.with_lanes(self.lanes), item.name, tuple(self.vector(a) for a in args), loc=item.loc)


_STATEMENTS: dict[type[Stmt], Callable[[Vectoriser, Any], Stmt]] = {
    Seq: Vectoriser._seq,
    Let: Vectoriser._let,
    Alloc: Vectoriser._alloc,
    Store: Vectoriser._store,
    If: Vectoriser._if,
    For: Vectoriser._for,
}
_EXPRESSIONS: dict[type[Expr], Callable[[Vectoriser, Any], Expr]] = {
    Const: Vectoriser._const,
    Var: Vectoriser._var,
    Unary: Vectoriser._unary,
    Binary: Vectoriser._binary,
    Cast: Vectoriser._cast,
    Reinterpret: Vectoriser._reinterpret,
    Select: Vectoriser._select,
    Load: Vectoriser._load,
    Call: Vectoriser._call,
}
