"""Parallel loops as serial loops with vectors in the innermost one.

    parallel (i < 16, j < 77):
        y[i, j] = exp(x[i, j])
becomes, for 16 lanes,
    for i in serial(16):
        for j in serial(0, 64, 16):
            y[i, j +: 16] = exp(x[i, j +: 16])
        y[i, 64 +: 16] = exp((x[i, 64 +: 16] where ramp(64, 1, 16) < broadcast(77, 16))) where ...

A branch becomes a mask.  What has no vector form (while, print, atomics, loops whose bounds differ from lane
to lane) leaves its nest scalar.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.index import IndexContext
from tilewright.ir.expr import (
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Expr,
    Load,
    Ramp,
    Var,
    binary,
    cast,
    const,
    const_int,
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, walk
from tilewright.ir.stmt import For, If, Parallel, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.vector_code import LaneSums, NotVectorisable, Vectoriser, lane_factor, mentions
from tilewright.target import Target

GATHER_COST = 16  # of a gathered vector, against 1 for consecutive elements


def vectorise(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace every Parallel by serial loops, vectorised where that has a meaning."""
    result: PrimFunc = _LowerParallel(target).rewrite(func)
    return result


class _LowerParallel(Rewriter):
    def __init__(self, target: Target) -> None:
        self.target = target

    def rewrite_Parallel(self, stmt: Parallel) -> Stmt:
        body = self.rewrite(stmt.body)
        for position in self._candidates(stmt):
            extent = const_int(stmt.extents[position])
            if extent is None:
                extent_expr: Expr = stmt.extents[position]
            else:
                extent_expr = const(extent, stmt.vars[position].dtype)
            lanes = self._lanes(stmt.body, extent)
            if lanes < 2:
                continue
            try:
                inner = _vector_loop(stmt.vars[position], extent_expr, lanes, body)
            except NotVectorisable:
                continue
            rest = [p for p in range(len(stmt.vars)) if p != position]
            return _loops([stmt.vars[p] for p in rest], [stmt.extents[p] for p in rest], inner, stmt)
        return _loops(stmt.vars, stmt.extents, body, stmt)

    def _lanes(self, body: Seq, extent: int | None) -> int:
        """Lanes for the widest element that is computed with; not more than the loop needs."""
        widest = 8
        for node in walk(body):
            if isinstance(node, (Load, Store)):
                widest = max(widest, node.buffer.dtype.bits)
            if isinstance(node, Expr) and node.dtype.is_float:
                widest = max(widest, 32, node.dtype.bits)
            if isinstance(node, Cast):
                widest = max(widest, node.dtype.bits, node.value.dtype.bits)
        lanes = self.target.lanes(widest)
        while extent is not None and lanes > 1 and lanes >= 2 * extent:
            lanes //= 2
        return lanes

    def _candidates(self, stmt: Parallel) -> list[int]:
        """The loop's dimensions, the one with the most consecutive accesses first."""
        context = IndexContext()
        costs = []
        for position, variable in enumerate(stmt.vars):
            cost = 0
            for node in walk(stmt.body):
                if isinstance(node, (Load, Store)):
                    cost += _access_cost(context, node.buffer, node.indices, variable)
            extent = const_int(stmt.extents[position])
            small = 1 if extent is not None and extent < 4 else 0
            costs.append((small, cost, -position, position))
        return [position for *_, position in sorted(costs)]


def _access_cost(context: IndexContext, buffer: Buffer, indices: Sequence[Expr], variable: Var) -> int:
    touched = [d for d, index in enumerate(indices) if mentions(index, variable)]
    if not touched:
        return 0
    last = len(indices) - 1
    contiguous = buffer.strides is None or const_int(buffer.strides[-1]) == 1
    if touched == [last] and contiguous and lane_factor(context, indices[last], variable) == 1:
        return 1
    return GATHER_COST


def _loops(variables: Sequence[Var], extents: Sequence[Expr], body: Stmt, stmt: Parallel) -> Stmt:
    for variable, extent in reversed(list(zip(variables, extents, strict=True))):
        inner = body if isinstance(body, Seq) else Seq((body,), loc=stmt.loc)
        zero, one = const(0, variable.dtype), const(1, variable.dtype)
        body = For(variable, zero, cast(extent, variable.dtype), one, inner, loc=stmt.loc)
    return body


def _vector_loop(variable: Var, extent: Expr, lanes: int, body: Seq) -> Seq:
    """The loop over `variable` in steps of `lanes`, and a masked step for what is left."""
    loc = body.loc
    known = const_int(extent)
    kind = variable.dtype
    step = const(lanes, kind)
    base = Var(kind, variable.name, loc=variable.loc)
    whole: Expr = const(known // lanes * lanes, kind) if known is not None else _round_down(cast(extent, kind), lanes)
    stmts: list[Stmt] = []
    sums = LaneSums(lanes)
    if known is None or known >= lanes:
        vectoriser = Vectoriser(variable, base, lanes, None, sums)
        vectoriser.hoists = known is not None
        inner = vectoriser.sequence(body)
        stmts.extend(vectoriser.hoisted)
        stmts.append(For(base, const(0, kind), whole, step, inner, loc=loc))
    if known is None or known % lanes:
        ramp = Ramp(kind.with_lanes(lanes), whole, const(1, kind))
        limit = Broadcast(kind.with_lanes(lanes), cast(extent, kind))
        mask = Binary(BOOL.with_lanes(lanes), "lt", ramp, limit)
        tail = Vectoriser(variable, whole, lanes, mask, sums).sequence(body)
        if known is None:
            some_left = binary("and", binary("ge", whole, 0), binary("lt", whole, extent))  # extents may be negative
            tail = Seq((If(some_left, tail, loc=loc),), loc=loc)
        stmts.extend(tail.stmts if known is None else [Seq(tail.stmts, loc=loc)])
    return Seq((*sums.before, *stmts, *sums.after), loc=loc)


def _round_down(extent: Expr, lanes: int) -> Expr:
    return binary("mul", binary("floordiv", extent, lanes), lanes)
