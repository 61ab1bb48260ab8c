"""Neighbouring elementwise loops joined, with the reductions that follow them.

    parallel (j < 4096): x[0, j] = X[bx, j]
    parallel (j < 4096): square[0, j] = x[0, j] * x[0, j]
    reduce sum square -> total (dim=1, clear)
becomes
    parallel (j < 4096):
        let x_here: float32 = X[bx, j]
        x[0, j] = x_here
        let square_here: float32 = x_here * x_here
        total_terms[0] = total_terms[0] + square_here
    total[0] = total_terms[0]
where `total_terms` is a reducer.  Arithmetic then runs while memory works, and tiles that are only read where they
are made need no memory at all.

Two loops are joined when every element that one writes and the other touches belongs to the same iteration in
both.  Arrays of one shape and dtype may be the same array (a kernel called in place), so they count as one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analysis.index import IndexContext, mentions
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Binary, Buffer, Call, Expr, Load, Var, binary, cast, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.neutral import neutral_value
from tilewright.ir.node import Node
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alias, Alloc, Launch, Let, Parallel, Reduce, Region, Seq, Stmt, Store
from tilewright.ir.structural import key, same
from tilewright.options import CompileOptions
from tilewright.passes.lower_tiles import sum_dtype
from tilewright.target import Target

# reduction -> (reducer, whether magnitudes are reduced)
FUSED_REDUCTIONS = {
    "sum": ("sum", False),
    "abssum": ("sum", True),
    "max": ("max", False),
    "min": ("min", False),
    "absmax": ("max", True),
}
SHORTEST_ROW = 16  # a shorter reduction is done in registers by `lower_reduce`


def fuse_loops(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Join neighbouring elementwise loops and reductions of every launch."""
    result: PrimFunc = _Fuse().rewrite(func)
    return result


class _Fuse(Rewriter):
    def __init__(self) -> None:
        self.viewed: set[int] = set()

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        self.viewed = {
            id(b) for n in walk(stmt) if isinstance(n, Alias) for b in (n.buffer, n.buffer.view_of) if b is not None
        }
        body = _drop_unread(self.rewrite(stmt.body))
        return stmt if body is stmt.body else stmt.replace(body=body)

    def rewrite_Parallel(self, stmt: Parallel) -> Stmt:
        return stmt

    def rewrite_Seq(self, seq: Seq) -> Seq:
        inner = super().rewrite_Seq(seq)
        stmts: list[Stmt] = []
        for stmt in inner.stmts:
            self._append(stmts, _without_unit_axes(stmt) if isinstance(stmt, Parallel) else stmt)
        if len(stmts) == len(seq.stmts) and all(a is b for a, b in zip(stmts, seq.stmts, strict=True)):
            return seq
        return Seq(tuple(stmts), loc=seq.loc)

    def _append(self, stmts: list[Stmt], stmt: Stmt) -> None:
        """Add a statement, joined with the loop before it where that is possible."""
        at = next((p for p in range(len(stmts) - 1, -1, -1) if not isinstance(stmts[p], Alloc)), None)
        before = stmts[at] if at is not None else None
        if at is None or not isinstance(before, Parallel) or not _is_plain(before):
            stmts.append(stmt)
            return
        allocations = stmts[at + 1 :]
        if isinstance(stmt, Parallel) and _is_plain(stmt) and self._can_join(before, stmt):
            stmts[at:] = [*allocations, _join(before, stmt)]
        elif isinstance(stmt, Reduce) and (parts := self._reduction(before, stmt)) is not None:
            stmts[at:] = [*allocations, *parts]
        else:
            stmts.append(stmt)

    # --- loops ---------------------------------------------------------------------------------------

    def _can_join(self, first: Parallel, second: Parallel) -> bool:
        if len(first.vars) != len(second.vars) or not all(
            same(a, b) for a, b in zip(first.extents, second.extents, strict=True)
        ):
            return False
        renamed = substitute(second.body, dict(zip(second.vars, first.vars, strict=True)))
        earlier, later = list(_accesses(first.body)), list(_accesses(renamed))
        if any(id(a.buffer) in self.viewed for a in (*earlier, *later)):
            return False
        return all(
            not (a.writes or b.writes) or not _may_meet(a.buffer, b.buffer) or _is_own(a, b, first.vars)
            for a in earlier
            for b in later
        )

    # --- reductions ----------------------------------------------------------------------------------

    def _reduction(self, loop: Parallel, stmt: Reduce) -> list[Stmt] | None:
        """The loop with the reduction's updates in it, between the start and the end of a reducer."""
        source, extents = stmt.src, stmt.src.const_extents
        if stmt.op not in FUSED_REDUCTIONS or stmt.nan_propagate or extents is None or id(source.buffer) in self.viewed:
            return None
        if source.buffer.scope == "global" or stmt.dim != len(extents) - 1 or extents[-1] < SHORTEST_ROW:
            return None
        if any(const_int(s) != 0 for s in source.starts) or source.buffer.const_shape() != extents:
            return None
        axes = [d for d, e in enumerate(extents) if e != 1]
        if [const_int(e) for e in loop.extents] != [extents[d] for d in axes]:
            return None
        indices: list[Expr] = [const(0)] * len(extents)
        for d, variable in zip(axes, loop.vars, strict=True):
            indices[d] = variable
        names = [key(i) for i in indices]
        made = [s for s in loop.body.stmts if isinstance(s, Store) and s.buffer is source.buffer and s.mask is None]
        if not made or any([key(i) for i in s.indices] != names for s in made):
            return None
        return _fused_reduction(loop, stmt, tuple(indices))


def _fused_reduction(loop: Parallel, stmt: Reduce, indices: tuple[Expr, ...]) -> list[Stmt]:
    loc = stmt.loc
    reducer, absolute = FUSED_REDUCTIONS[stmt.op]
    element, target = stmt.src.buffer.dtype, stmt.dst.buffer
    wide = _wide_dtype(element, target.dtype)
    kept = loop.vars[:-1]
    sizes = tuple(loop.extents[:-1])
    terms = Buffer(f"{target.name}_terms", sizes or (const(1),), wide, "fragment", reducer=reducer, loc=loc)
    at: tuple[Expr, ...] = kept or (const(0),)
    value = cast(Load(element, stmt.src.buffer, indices, loc=loc), wide, loc=loc)
    if absolute:
        value = Call(wide, "abs", (value,), loc=loc)
    op = {"sum": "add"}.get(reducer, reducer)
    update = Store(terms, at, Binary(wide, op, Load(wide, terms, at, loc=loc), value, loc=loc), loc=loc)
    body = _forwarded(Seq((*loop.body.stmts, update), loc=loop.body.loc))
    joined = Parallel(loop.vars, loop.extents, body, loc=loop.loc)
    outer = tuple(Var(v.dtype, v.name, loc=v.loc) for v in kept)
    start = Store(terms, outer or at, _start(reducer, wide), loc=loc)
    result: Expr = Load(wide, terms, outer or at, loc=loc)
    where = _destination(stmt.dst, outer)
    if not stmt.clear:
        old = cast(Load(target.dtype, target, where, loc=loc), wide, loc=loc)
        result = Binary(wide, op, old, result, loc=loc)
    end = Store(target, where, cast(result, target.dtype, loc=loc), loc=loc)
    return [
        Alloc(terms, loc=loc),
        _over(outer, sizes, start),
        joined,
        _over(tuple(outer), sizes, end),
    ]


def _wide_dtype(element: DType, target: DType) -> DType:
    if element.is_float:
        return sum_dtype(element if element.bits >= target.bits else target)
    return sum_dtype(target if target.bits >= element.bits else element)


def _start(reducer: str, wide: DType) -> Expr:
    """What a reducer starts from.  NaN is neutral for max and min of floats, and stays where all elements are NaN."""
    if wide.is_float and reducer != "sum":
        return const(math.nan, wide)
    return neutral_value(reducer, wide)


def _destination(region: Region, variables: Sequence[Var]) -> tuple[Expr, ...]:
    remaining = iter(variables)
    return tuple(
        start if const_int(extent) == 1 else binary("add", start, next(remaining))
        for start, extent in zip(region.starts, region.extents, strict=True)
    )


def _over(variables: tuple[Var, ...], extents: tuple[Expr, ...], store: Store) -> Stmt:
    if not variables:
        return store
    return Parallel(variables, extents, Seq((store,), loc=store.loc), loc=store.loc)


# --- joining -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    buffer: Buffer
    indices: tuple[Expr, ...]
    writes: bool


def _accesses(body: Seq) -> Iterator[_Access]:
    for node in walk(body):
        if isinstance(node, (Load, Store)):
            yield _Access(node.buffer, node.indices, isinstance(node, Store))


def _is_plain(stmt: Parallel) -> bool:
    """Whether the body only stores elements, in terms of names and loads, to buffers that are not an iteration's own."""
    return all(
        isinstance(inner, Let) or (isinstance(inner, Store) and inner.buffer.scope in ("global", "shared", "fragment"))
        for inner in stmt.body.stmts
    )


def _may_meet(a: Buffer, b: Buffer) -> bool:
    """Whether two buffers may share memory."""
    if a is b:
        return True
    if a.scope != "global" or b.scope != "global" or a.dtype is not b.dtype or len(a.shape) != len(b.shape):
        return False
    return all(
        const_int(x) is None or const_int(y) is None or const_int(x) == const_int(y)
        for x, y in zip(a.shape, b.shape, strict=True)
    )


def _is_own(a: _Access, b: _Access, variables: Sequence[Var]) -> bool:
    """Whether two accesses meet in the same iteration only: equal indices, each variable alone in a dimension."""
    if len(a.indices) != len(b.indices) or any(key(x) != key(y) for x, y in zip(a.indices, b.indices, strict=True)):
        return False
    context = IndexContext()
    for variable in variables:
        alone = any(
            context.linear(index).coefficient(variable) in (1, -1)
            and not any(mentions(index, other) for other in variables if other is not variable)
            for index in a.indices
        )
        if not alone:
            return False
    return True


def _join(first: Parallel, second: Parallel) -> Parallel:
    renamed: Seq = substitute(second.body, dict(zip(second.vars, first.vars, strict=True)))
    body = Seq((*first.body.stmts, *renamed.stmts), loc=first.body.loc)
    return Parallel(first.vars, first.extents, _forwarded(body), loc=first.loc)


def _without_unit_axes(stmt: Parallel) -> Stmt:
    """A loop without the axes that have one iteration."""
    zeros = {v: const(0, v.dtype) for v, e in zip(stmt.vars, stmt.extents, strict=True) if const_int(e) == 1}
    if not zeros or len(zeros) == len(stmt.vars):
        return stmt
    kept = [(v, e) for v, e in zip(stmt.vars, stmt.extents, strict=True) if v not in zeros]
    body: Seq = substitute(stmt.body, zeros)
    return Parallel(tuple(v for v, _ in kept), tuple(e for _, e in kept), body, loc=stmt.loc)


def _forwarded(body: Seq) -> Seq:
    """Loads of elements that the same iteration has stored, replaced by what was stored."""
    stmts: list[Stmt] = []
    known: dict[object, Var] = {}
    for stmt in body.stmts:
        stmt = _Forward(known).rewrite(stmt) if known else stmt
        if not isinstance(stmt, Store) or stmt.buffer.scope == "global" or stmt.buffer.reducer is not None:
            stmts.append(stmt)
            continue
        for name in [n for n in known if n[0] == id(stmt.buffer)]:  # type: ignore[index]
            del known[name]
        if not isinstance(stmt.value, Var):
            kept = Var(stmt.value.dtype, f"{stmt.buffer.name}_here", loc=stmt.loc)
            stmts.append(Let(kept, stmt.value, loc=stmt.loc))
            stmt = stmt.replace(value=kept)
        stmts.append(stmt)
        assert isinstance(stmt.value, Var)
        known[(id(stmt.buffer), tuple(key(i) for i in stmt.indices))] = stmt.value
    return Seq(tuple(stmts), loc=body.loc)


class _Forward(Rewriter):
    def __init__(self, known: dict[object, Var]) -> None:
        self.known = known

    def rewrite_Load(self, item: Load) -> Expr:
        found = self.known.get((id(item.buffer), tuple(key(i) for i in item.indices)))
        result: Expr = self.generic(item)
        return result if found is None else found


def _drop_unread(body: Seq) -> Seq:
    """Without stores to tiles that nothing reads, and without names that nothing uses; each can make more of the other."""
    while True:
        used = {id(n.buffer) for n in walk(body) if isinstance(n, (Load, Region))}
        used |= {
            id(b) for n in walk(body) if isinstance(n, Alias) for b in (n.buffer, n.buffer.view_of) if b is not None
        }
        named = {id(n) for n in (*walk(body), *_in_buffers(body)) if isinstance(n, Var)}
        idle = {
            id(n.buffer)
            for n in walk(body)
            if isinstance(n, Alloc) and id(n.buffer) not in used and n.buffer.scope != "global"
        }
        idle |= {id(n.var) for n in walk(body) if isinstance(n, Let) and id(n.var) not in named}
        if not idle:
            return body
        body = _Drop(idle).rewrite(body)


def _in_buffers(body: Seq) -> Iterator[Node]:
    """The expressions that buffers consist of."""
    buffers = {id(b): b for n in walk(body) if isinstance(b := getattr(n, "buffer", None), Buffer)}
    for buffer in buffers.values():
        for part in (*buffer.shape, *(buffer.strides or ()), buffer.safe_value):
            if part is not None:
                yield from walk(part)


class _Drop(Rewriter):
    """Removes the buffers and names whose ids it is given."""

    def __init__(self, idle: set[int]) -> None:
        self.idle = idle

    def rewrite_Store(self, stmt: Store) -> Stmt:
        return Seq((), loc=stmt.loc) if id(stmt.buffer) in self.idle else stmt

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        return Seq((), loc=stmt.loc) if id(stmt.buffer) in self.idle else stmt

    def rewrite_Let(self, stmt: Let) -> Stmt:
        return Seq((), loc=stmt.loc) if id(stmt.var) in self.idle else stmt
