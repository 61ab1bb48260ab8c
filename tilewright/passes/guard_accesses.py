"""What happens beyond a tensor's edge, made explicit.

After this pass every access is in range wherever its mask holds; a mask is there only where the range could
not be proven.

    parallel (i < 128, j < 32):
        A_shared[i, j] = A[by * 128 + i, k * 32 + j]
becomes, for A of 1000 × 333,
    if by * 128 + 127 < 1000 and k * 32 + 31 < 333:
        parallel (i < 128, j < 32):
            A_shared[i, j] = A[by * 128 + i, k * 32 + j]
    else:
        parallel (i < 128, j < 32):
            A_shared[i, j] = (A[by * 128 + i, k * 32 + j] where by * 128 + i < 1000 and k * 32 + j < 333)
so that whole tiles run without masks.
"""

from __future__ import annotations

from contextlib import ExitStack

from tilewright.analysis.index import IndexContext, mentions
from tilewright.ir.expr import (
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    binary,
    cast,
    const,
    select,
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import substitute, walk
from tilewright.ir.stmt import Alloc, Atomic, If, Let, Parallel, Region, Seq, Stmt, Store
from tilewright.ir.structural import key
from tilewright.options import CompileOptions
from tilewright.passes.contexts import ContextRewriter
from tilewright.target import Target


def guard_accesses(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Give every access that may leave its buffer a mask; keep whole tiles free of masks."""
    result: PrimFunc = _Guard().rewrite(func)
    return result


def range_conditions(context: IndexContext, buffer: Buffer, indices: tuple[Expr, ...]) -> list[Expr]:
    """The conditions, not provable in `context`, under which `indices` are in range."""
    found: list[Expr] = []
    for index, size in zip(indices, buffer.shape, strict=True):
        lanes = index.dtype.lanes
        lower, upper = const(0), size
        if lanes == 1:
            checks = [binary("ge", index, lower), binary("lt", index, upper)]
        else:
            checks = [_vector_compare("ge", index, lower), _vector_compare("lt", index, upper)]
        low, high = context.bounds(index)
        if not (low is not None and low >= 0) and not (lanes == 1 and context.prove(checks[0])):
            found.append(checks[0])
        limit = context.bounds(size)[0]
        known = high is not None and limit is not None and high < limit
        if not known and not (lanes == 1 and context.prove(checks[1])):
            found.append(checks[1])
    return found


def _vector_compare(op: str, index: Expr, bound: Expr) -> Expr:
    wide = cast(bound, index.dtype.scalar)
    return Binary(BOOL.with_lanes(index.dtype.lanes), op, index, Broadcast(index.dtype, wide), loc=index.loc)


def conjunction(conditions: list[Expr], lanes: int = 1) -> Expr | None:
    """All conditions at once, with `lanes` lanes at least; None for none.  Scalars are broadcast where there are vectors."""
    unique = list({key(c): c for c in conditions}.values())
    lanes = max([lanes, *[c.dtype.lanes for c in unique]])
    result: Expr | None = None
    for condition in unique:
        if condition.dtype.lanes < lanes:
            condition = Broadcast(BOOL.with_lanes(lanes), condition)
        result = condition if result is None else Binary(condition.dtype, "and", result, condition, loc=condition.loc)
    return result


class _Guard(ContextRewriter):
    """One walk; inside a Parallel it first tries a version for whole tiles."""

    def __init__(self) -> None:
        super().__init__()
        self.collecting: list[Expr] | None = None

    def inside_parallel(self, stmt: Parallel) -> Stmt:
        if self.collecting is not None:
            result: Stmt = self.generic(stmt)
            return result
        self.collecting = []
        guarded: Parallel = self.generic(stmt)
        conditions, self.collecting = self.collecting, None
        whole = self._whole_tile(stmt, conditions)
        if whole is None:
            return guarded
        with ExitStack() as stack:
            for part in whole:
                stack.enter_context(self.context.assuming(part))
            self.collecting = []
            fast: Parallel = self.generic(stmt)
            self.collecting = None
        condition = conjunction(whole)
        assert condition is not None
        return If(condition, Seq((fast,), loc=stmt.loc), Seq((guarded,), loc=stmt.loc), loc=stmt.loc)

    def _whole_tile(self, stmt: Parallel, conditions: list[Expr]) -> list[Expr] | None:
        """Conditions, free of the loop's own variables, under which some of `conditions` hold at every point."""
        own = [node for node in walk(stmt) if isinstance(node, Parallel)]
        inner = {id(v) for p in own for v in p.vars}
        inner |= {id(v) for node in walk(stmt) if (v := getattr(node, "var", None)) is not None}
        found: dict[object, Expr] = {}
        for condition in conditions:
            lifted = self._at_extreme(condition, stmt, inner)
            if lifted is not None:
                simplified = self.context.simplify(lifted)
                if isinstance(simplified, Const):
                    if not simplified.value:
                        return None
                    continue
                found[key(simplified)] = simplified
        return list(found.values()) or None

    def _at_extreme(self, condition: Expr, stmt: Parallel, inner: set[int]) -> Expr | None:
        """`index < size` (or `>= 0`) where the parallel variables make it hardest to hold."""
        if not isinstance(condition, Binary) or condition.dtype.lanes > 1:
            return None
        form = self.context.linear(condition.lhs)
        worst: dict[Var, Expr] = {}
        for variable, extent in zip(stmt.vars, stmt.extents, strict=True):
            factor = form.coefficient(variable)
            if not factor:
                if mentions(condition.lhs, variable):
                    return None
                continue
            at_end = (factor > 0) == (condition.op == "lt")
            worst[variable] = binary("sub", extent, 1) if at_end else const(0, variable.dtype)
        atoms = [self.context.simplify(condition.lhs), condition.rhs]
        lifted: Expr = binary(condition.op, substitute(atoms[0], worst), atoms[1], loc=condition.loc)
        leaves = [node for node in walk(lifted) if isinstance(node, (Var, Load))]
        if any(isinstance(leaf, Load) or id(leaf) in inner for leaf in leaves):
            return None
        return lifted

    def _mask(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None) -> Expr | None:
        conditions = range_conditions(self.context, buffer, indices)
        if self.collecting is not None:
            self.collecting.extend(conditions)
        lanes = max([1, *[index.dtype.lanes for index in indices]])
        return conjunction([*([mask] if mask is not None else []), *conditions], lanes)

    def rewrite_Load(self, item: Load) -> Expr:
        indices = tuple(self.rewrite(i) for i in item.indices)
        mask = self._mask(item.buffer, item.indices, item.mask)
        if mask is not None and mask is not item.mask:
            mask = self._inner(mask)
        loaded: Expr = Load(item.dtype, item.buffer, indices, mask, loc=item.loc)
        safe = item.buffer.safe_value
        if mask is not None and safe is not None:
            value = cast(safe, item.dtype.scalar)
            if item.dtype.lanes > 1:
                value = Broadcast(item.dtype, value, loc=item.loc)
            loaded = select(mask, loaded, value, loc=item.loc)
        return loaded

    def _inner(self, mask: Expr) -> Expr:
        """Loads inside a mask's own indices get their masks too."""
        has_loads = any(isinstance(node, Load) for node in walk(mask))
        result: Expr = mask.map_children(self.rewrite) if has_loads else mask
        return result

    def rewrite_Store(self, item: Store) -> Stmt:
        mask = self._mask(item.buffer, item.indices, item.mask)
        if mask is not None:
            mask = self._inner(mask)
        indices = tuple(self.rewrite(i) for i in item.indices)
        return Store(item.buffer, indices, self.rewrite(item.value), mask, item.nontemporal, loc=item.loc)

    def rewrite_Region(self, item: Region) -> Region:
        return item

    def rewrite_Atomic(self, item: Atomic) -> Stmt:
        mask = self._mask(item.dst.buffer, item.dst.starts, None)
        starts = tuple(self.rewrite(s) for s in item.dst.starts)
        region = Region(item.dst.buffer, starts, item.dst.extents, loc=item.dst.loc)
        value = self.rewrite(item.value) if item.value is not None else None
        updated = Atomic(item.op, region, value, None, item.memory_order, item.result, loc=item.loc)
        if mask is None:
            return updated
        mask = self._inner(mask)
        if item.result is not None:
            return _masked_atomic(updated, mask)
        return If(mask, Seq((updated,), loc=item.loc), loc=item.loc)


def _masked_atomic(stmt: Atomic, mask: Expr) -> Stmt:
    """An atomic whose old value is used, under a mask: 0 comes back where it does not hold."""
    result = stmt.result
    assert result is not None
    inner = Var(result.dtype, result.name, loc=stmt.loc)
    kept = Buffer(f"{result.name}_or_0", (), result.dtype, "var", loc=stmt.loc)
    update = Atomic(stmt.op, stmt.dst, stmt.value, None, stmt.memory_order, inner, loc=stmt.loc)
    body = Seq((update, Store(kept, (), inner, loc=stmt.loc)), loc=stmt.loc)
    return Seq(
        (
            Alloc(kept, cast(const(0), result.dtype), loc=stmt.loc),
            If(mask, body, loc=stmt.loc),
            Let(result, Load(result.dtype, kept, (), loc=stmt.loc), loc=stmt.loc),
        ),
        loc=stmt.loc,
    )
