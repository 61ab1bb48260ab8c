"""Staging copies that run while the gemm of the step before is computed.

    for k in serial(4):
        copy A[by * 128 +: 128, k * 256 +: 256] -> A_shared
        gemm C_local += A_shared @ ...
becomes, with two stages of the staging buffer,
    copy A[by * 128 +: 128, 0 +: 256] -> A_shared[0, 0 +: 128, 0 +: 256]
    for k in serial(4):
        copy A[by * 128 +: 128, min(k + 1, 3) * 256 +: 256] -> A_shared[(k + 1) % 2, 0 +: 128, 0 +: 256] (overlap)
        gemm C_local += A_shared[k % 2, 0 +: 128, 0 +: 256] @ ...
where the source is a tensor, the copy is made of whole vectors, and no part of it lies outside of the tensor: masks
between the multiply-adds take registers from them (with AVX2, 1.5 times the time for 1000³).
The last step stages its own tile again, which costs less than a second version of the step would.
"""

from __future__ import annotations

from tilewright.analysis.effects import effects
from tilewright.ir.expr import Buffer, Expr, Load, Var, binary, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alloc, Copy, For, Gemm, Launch, Prefetch, Region, Seq, Stmt
from tilewright.options import CompileOptions
from tilewright.passes.companions import copy_lanes
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import (
    compute_dtype,
    conditional_gemm,
    is_whole,
    padded_strides,
    staging_buffers,
)
from tilewright.target import Target

STAGES = 2


def overlap_copies(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Give staging copies in K loops a second stage, and let them overlap the gemm."""
    result: PrimFunc = _OverlapCopies(target).rewrite(func)
    return result


class _OverlapCopies(ContextRewriter):
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target
        self.private: set[int] = set()
        self.staged: dict[int, Buffer] = {}

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        self.private = {id(s.buffer) for s in staging_buffers(stmt) if s.private and len(s.copies) == 1}
        self.staged = {}
        result = super().rewrite_Launch(stmt)
        return _Restage(self.staged).rewrite(result) if self.staged else result

    def rewrite_For(self, stmt: For) -> Stmt:
        bounds = [const_int(e) for e in (stmt.start, stmt.stop, stmt.step)]
        gemm = conditional_gemm(stmt.body.stmts[-1]) if stmt.body.stmts else None
        others = stmt.body.stmts[:-1]
        simple = all(isinstance(s, (Copy, Prefetch)) for s in others)
        if stmt.kind != "serial" or gemm is None or not simple or bounds[0] != 0 or bounds[2] != 1 or not bounds[1]:
            return super().rewrite_For(stmt)
        chosen = [
            s
            for s in others
            if isinstance(s, Copy) and bounds[1] > 1 and self._may_overlap(s, gemm[0], stmt, bounds[1])
        ]
        return self._overlapped(stmt, chosen) if chosen else stmt

    def _may_overlap(self, copy: Copy, gemm: Gemm, loop: For, turns: int) -> bool:
        """Whether the copy may run beside the gemm of the turn before."""
        if id(copy.dst.buffer) not in self.private or copy.src.buffer.scope != "global" or not is_whole(copy.dst):
            return False
        if gemm.transpose_b and gemm.b.buffer is copy.dst.buffer:
            return False  # transposed while it is staged, in blocks
        if compute_dtype(gemm) is None or copy_lanes(copy, self.target) is None:
            return False
        # It runs a turn earlier: before what this loop writes, and its place may not depend on that either.
        if effects(loop.body).is_written(copy.src.buffer) or any(isinstance(n, Load) for n in walk(copy.src)):
            return False
        return self._in_range(copy.src, loop.var, turns)

    def _in_range(self, region: Region, turn: Var, turns: int) -> bool:
        with self.context.bound(turn, 0, turns - 1):
            return all(
                self.context.prove(binary("ge", start, 0))
                and self.context.prove(binary("le", binary("add", start, extent), size))
                for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True)
            )

    def _overlapped(self, loop: For, chosen: list[Copy]) -> Stmt:
        turn, loc = loop.var, loop.loc
        after = binary("add", turn, 1)
        following = binary("min", after, binary("sub", loop.stop, 1))
        first: list[Stmt] = []
        beside: list[Stmt] = []
        stages: dict[Buffer, Buffer] = {}
        sources: set[int] = set()
        for copy in chosen:
            staged = _staged(copy.dst.buffer)
            stages[copy.dst.buffer] = staged
            self.staged[id(copy.dst.buffer)] = staged
            sources.add(id(copy.src.buffer))
            zero = const(0, turn.dtype)
            first.append(Copy(_at(copy.src, turn, zero), _stage(copy.dst, staged, const(0)), loc=copy.loc))
            target = _stage(copy.dst, staged, binary("floormod", after, STAGES))
            beside.append(Copy(_at(copy.src, turn, following), target, True, loc=copy.loc))
        kept = [
            s
            for s in loop.body.stmts[:-1]
            if not any(s is c for c in chosen) and not (isinstance(s, Prefetch) and id(s.region.buffer) in sources)
        ]
        current = _UseStage(stages, binary("floormod", turn, STAGES)).rewrite(loop.body.stmts[-1])
        body = Seq((*kept, *beside, current), loc=loop.body.loc)
        return Seq((*first, loop.replace(body=body)), loc=loc)


class _UseStage(Rewriter):
    """Regions of buffers that have got stages, as those of one stage."""

    def __init__(self, stages: dict[Buffer, Buffer], stage: Expr) -> None:
        self.stages = stages
        self.stage = stage

    def rewrite_Region(self, item: Region) -> Region:
        staged = self.stages.get(item.buffer)
        return item if staged is None else _stage(item, staged, self.stage)


class _Restage(Rewriter):
    """Allocations of buffers that have got stages."""

    def __init__(self, staged: dict[int, Buffer]) -> None:
        self.staged = staged

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        staged = self.staged.get(id(stmt.buffer))
        return stmt if staged is None else Alloc(staged, loc=stmt.loc)


def _staged(buffer: Buffer) -> Buffer:
    """The buffer with two stages."""
    shape = [STAGES, *(buffer.const_shape() or ())]
    extents = tuple(const(s) for s in shape)
    strides = padded_strides(shape, buffer.dtype)
    return Buffer(buffer.name, extents, buffer.dtype, buffer.scope, strides, loc=buffer.loc)


def _stage(region: Region, staged: Buffer, stage: Expr) -> Region:
    """A region of the old buffer as that of one stage."""
    return Region(staged, (stage, *region.starts), (const(1), *region.extents), loc=region.loc)


def _at(region: Region, turn: Var, value: Expr) -> Region:
    starts = tuple(substitute(s, {turn: value}) for s in region.starts)
    return region.replace(starts=starts)
