"""K loops of a gemm with several of their steps at once.

    fill C_local = 0
    for k in pipelined(32):
        copy A[by * 128 +: 128, k * 32 +: 32] -> A_shared
        copy B[k * 32 +: 32, bx * 128 +: 128] -> B_shared
        gemm C_local += A_shared @ B_shared
becomes, with the staging buffers eight times as deep,
    for k in serial(4):
        copy A[by * 128 +: 128, k * 256 +: 256] -> A_shared
        copy B[k * 256 +: 256, bx * 128 +: 128] -> B_shared
        prefetch A[by * 128 +: 128, min(k + 1, 3) * 256 +: 256]
        prefetch B[min(k + 1, 3) * 256 +: 256, bx * 128 +: 128]
        if k == 0: gemm C_local = A_shared @ B_shared
        else:      gemm C_local += A_shared @ B_shared
A CPU core has caches that hold more than one step, and each gemm loads and stores its whole result.  The steps may be
joined when the staging buffers serve this loop only and the regions of consecutive steps are neighbours along K.
The last turn may have steps beyond the end of the loop where both tensors end before it, since they add zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.analysis.effects import storage
from tilewright.analysis.index import IndexContext, mentions
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Const, Expr, Load, Var, binary, cast, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alloc, Copy, Fill, For, Gemm, If, Launch, Prefetch, Region, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import (
    compute_dtype,
    is_whole,
    matrix_axes,
    matrix_extents,
    padded_strides,
    staging_buffers,
)
from tilewright.passes.gemm_tiling import longest_k
from tilewright.target import Target

# What a turn costs besides its steps, as a depth of K: the result is loaded and stored once more.
TURN_COST = 6


def chunk_gemm(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Join the steps of K loops that stage tiles and multiply them."""
    result: PrimFunc = _ChunkGemm(target).rewrite(func)
    return result


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of the gemm in a K loop.

    region: what the gemm reads.  axis: the dimension of `region` along K.  copy: what stages it in each
    step, with `source_axis` the dimension of its source along K; None where it is read in place.
    """

    region: Region
    axis: int
    copy: Copy | None = None
    source_axis: int = 0

    @property
    def source(self) -> Region:
        """What is read in each step and moves along K."""
        return self.region if self.copy is None else self.copy.src


@dataclass(frozen=True, slots=True)
class Steps:
    """A K loop that can be joined: `loop` stages `operands` and runs `gemm`, `depth` of K a step."""

    loop: For
    gemm: Gemm
    operands: tuple[Operand, Operand]
    depth: int


class _ChunkGemm(ContextRewriter):
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.private: set[int] = set()

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        self.private = {id(s.buffer) for s in staging_buffers(stmt) if s.private}
        result = super().rewrite_Launch(stmt)
        unused = self.private - {id(n.buffer) for n in walk(result) if isinstance(n, (Load, Store, Region))}
        return result if not unused else _DropAllocs(unused).rewrite(result)

    def rewrite_Seq(self, seq: Seq) -> Seq:
        stmts: list[Stmt] = []
        for stmt in seq.stmts:
            steps = self._steps(stmt) if isinstance(stmt, For) else None
            if steps is None:
                new = self.rewrite(stmt)
                stmts.extend(new.stmts if isinstance(new, Seq) else [new])
                continue
            cleared = _clearing_fill(stmts, steps.gemm) if self._runs(steps.loop) else None
            if cleared is not None:
                del stmts[cleared]
            stmts.append(self._joined(steps, clear_first=cleared is not None))
        return Seq(tuple(stmts), loc=seq.loc)

    # --- recognising -------------------------------------------------------------------------------

    def _runs(self, loop: For) -> bool:
        """Whether the loop is known to have a first step."""
        return self.context.prove(binary("lt", loop.start, loop.stop))

    def _steps(self, loop: For) -> Steps | None:
        if loop.kind not in ("pipelined", "serial") or const_int(loop.step) != 1 or not loop.body.stmts:
            return None
        *copies, gemm = loop.body.stmts
        if not isinstance(gemm, Gemm) or gemm.clear_accum or not all(isinstance(c, Copy) for c in copies):
            return None
        if compute_dtype(gemm) is None or _mentions(gemm.c, loop.var):
            return None
        staged = {id(c.dst.buffer): c for c in copies if isinstance(c, Copy)}
        a = self._operand(gemm.a, 0 if gemm.transpose_a else 1, staged, loop.var)
        b = self._operand(gemm.b, 1 if gemm.transpose_b else 0, staged, loop.var)
        used = {id(o.copy) for o in (a, b) if o is not None and o.copy is not None}
        if a is None or b is None or len(used) != len(copies) or (a.copy is not None and a.copy is b.copy):
            return None
        written = {id(storage(gemm.c.buffer)), *[id(storage(c.dst.buffer)) for c in staged.values()]}
        if any(id(storage(o.source.buffer)) in written for o in (a, b)):
            return None
        depth = const_int(a.region.extents[a.axis])
        return Steps(loop, gemm, (a, b), depth) if depth and depth == const_int(b.region.extents[b.axis]) else None

    def _operand(self, region: Region, which: int, staged: dict[int, Copy], step: Var) -> Operand | None:
        axes = matrix_axes(region)
        if axes is None or region.buffer.view_of is not None:
            return None
        copy = staged.get(id(region.buffer))
        if copy is None:
            return Operand(region, axes[which]) if self._advances(region, axes[which], step) else None
        source_axes = matrix_axes(copy.src)
        whole = is_whole(copy.dst) and is_whole(region) and region.buffer.strides is None
        if source_axes is None or not whole or id(region.buffer) not in self.private:
            return None
        axis = source_axes[which]
        advances = self._advances(copy.src, axis, step)
        return Operand(region, axes[which], copy, axis) if advances else None

    def _advances(self, region: Region, axis: int, step: Var) -> bool:
        """Whether the region of the next step begins where this one ends along `axis`, and is level with it otherwise."""
        extent = const_int(region.extents[axis])
        form = self.context.linear(region.starts[axis])
        if extent is None or form.coefficient(step) != extent:
            return False
        rest = [atom for atom, _ in form.terms.values() if atom is not step]
        rest += [s for d, s in enumerate(region.starts) if d != axis]
        return not any(mentions(e, step) or _loads(e) for e in rest)

    # --- rebuilding --------------------------------------------------------------------------------

    def _joined(self, steps: Steps, *, clear_first: bool) -> Stmt:
        loop, loc = steps.loop, steps.loop.loc
        count = self._steps_at_once(steps)
        total = const_int(binary("sub", loop.stop, loop.start))
        even = total is not None and (total % count == 0 or self._surplus_is_zero(steps))
        turn = Var(loop.var.dtype, loop.var.name, loc=loop.var.loc)
        turns = binary("floordiv", binary("add", binary("sub", loop.stop, loop.start), count - 1), count)
        step = self._first_step(loop, turn, count)
        together = const(count, turn.dtype) if even else binary("min", count, binary("sub", loop.stop, step))
        depth = cast(binary("mul", together, steps.depth), turn.dtype)
        allocs: list[Stmt] = []
        body: list[Stmt] = []
        hints: list[Stmt] = []
        replaced = []
        after = self._first_step(loop, binary("min", binary("add", turn, 1), binary("sub", turns, 1)), count)
        for operand in steps.operands:
            deep = operand.region
            if operand.copy is not None:
                deep = _whole(_deeper(operand, count))
                allocs.append(Alloc(deep.buffer, loc=loc))
                source = _at(operand.copy.src, operand.source_axis, depth, loop.var, step)
                target = _with_extent(deep, operand.axis, depth)
                body.append(Copy(source, target, loc=operand.copy.loc))
                if operand.copy.src.buffer.scope == "global" and even and total is not None and total > count:
                    ahead = _at(operand.copy.src, operand.source_axis, depth, loop.var, after)
                    hints.append(Prefetch(ahead, loc=operand.copy.loc))
                replaced.append(target)
            else:
                replaced.append(_at(deep, operand.axis, depth, loop.var, step))
        gemm = steps.gemm.replace(a=replaced[0], b=replaced[1])
        multiply: Stmt = gemm
        if clear_first:
            first = binary("eq", turn, 0)
            cleared = gemm.replace(clear_accum=True)
            multiply = If(first, Seq((cleared,), loc=loc), Seq((gemm,), loc=loc), loc=loc)
        inner = Seq((*body, *hints, multiply), loc=loop.body.loc)
        zero, one = const(0, turn.dtype), const(1, turn.dtype)
        joined = For(turn, zero, cast(turns, turn.dtype), one, inner, "serial", loc=loc)
        return Seq((*allocs, joined), loc=loc)

    def _first_step(self, loop: For, turn: Expr, count: int) -> Expr:
        """The step of the old loop that turn number `turn` of the new one begins with."""
        return self.context.simplify(binary("add", loop.start, binary("mul", turn, count)))

    def _steps_at_once(self, steps: Steps) -> int:
        """Steps to join: none deeper than the caches like, few turns, and few steps beyond the end of the loop."""
        element: DType | None = compute_dtype(steps.gemm)
        m, n = (const_int(e) for e in matrix_extents(steps.gemm.c))
        assert element is not None
        limit = max(1, longest_k(self.target, element, m or 1, n or 1) // steps.depth)
        total = const_int(binary("sub", steps.loop.stop, steps.loop.start))
        if total is None:
            return limit
        total = max(total, 1)
        whole = self._surplus_is_zero(steps)

        def cost(count: int) -> int:
            turns = -(-total // count)
            return (turns * count if whole else total) * steps.depth + turns * TURN_COST

        return min(range(1, min(limit, total) + 1), key=cost)

    def _surplus_is_zero(self, steps: Steps) -> bool:
        """Whether steps beyond the end of the loop would read only zeros: both sources end before it does."""
        for operand in steps.operands:
            if operand.copy is None or operand.copy.src.buffer.safe_value is not None:
                return False
            start = substitute(operand.copy.src.starts[operand.source_axis], {steps.loop.var: steps.loop.stop})
            if not self.context.prove(binary("ge", start, operand.copy.src.buffer.shape[operand.source_axis])):
                return False
        return True


class _DropAllocs(Rewriter):
    """Removes the allocations of buffers that have been replaced."""

    def __init__(self, unused: set[int]) -> None:
        self.unused = unused

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        return Seq((), loc=stmt.loc) if id(stmt.buffer) in self.unused else stmt


def _clearing_fill(stmts: list[Stmt], gemm: Gemm) -> int | None:
    """The position of a fill with 0 of the gemm's whole result, with nothing after it that touches the result."""
    for position in range(len(stmts) - 1, -1, -1):
        stmt = stmts[position]
        if isinstance(stmt, Fill) and stmt.dst.buffer is gemm.c.buffer:
            zero = isinstance(stmt.value, Const) and stmt.value.value == 0
            return position if zero and is_whole(stmt.dst) and is_whole(gemm.c) else None
        if not isinstance(stmt, (Alloc, Fill)) or (isinstance(stmt, Alloc) and stmt.init is not None):
            return None
    return None


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape, loc=buffer.loc)


def _deeper(operand: Operand, count: int) -> Buffer:
    """The staging buffer for `count` steps."""
    old = operand.region.buffer
    shape = [int(s) for s in old.const_shape() or ()]
    shape[operand.axis] *= count
    return Buffer(
        old.name, tuple(const(s) for s in shape), old.dtype, old.scope, padded_strides(shape, old.dtype), loc=old.loc
    )


def _at(region: Region, axis: int, extent: Expr, old: Var, new: Expr) -> Region:
    """The region of the steps from `new` on."""
    context = IndexContext()
    starts = tuple(context.simplify(substitute(s, {old: cast(new, old.dtype)})) for s in region.starts)
    return _with_extent(region.replace(starts=starts), axis, extent)


def _with_extent(region: Region, axis: int, extent: Expr) -> Region:
    extents = (*region.extents[:axis], extent, *region.extents[axis + 1 :])
    return region.replace(extents=extents)


def _mentions(region: Region, variable: Var) -> bool:
    return any(mentions(e, variable) for e in region.starts + region.extents)


def _loads(item: Expr) -> bool:
    return any(isinstance(node, Load) for node in walk(item))
