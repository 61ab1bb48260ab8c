"""Bfloat16 operands of gemms as pairs along K, for the instruction that adds two products to each float32 lane.

    copy A[by * 128 +: 128, k * 256 +: 256] -> A_shared             (bfloat16[128, 256])
    copy B[k * 256 +: 256, bx * 128 +: 128] -> B_shared             (bfloat16[256, 128])
    gemm C_local += A_shared @ B_shared
becomes, for 16 float32 lanes, with the second copy as loops that interleave two rows (`pair_tiles`),
    copy A[by * 128 +: 128, k * 256 +: 256] -> A_shared             (bfloat16[128, 256])
    for i in serial(128):
        for j in serial(8):
            B_shared[i, j] = pairs of B[k * 256 + 2 * i, bx * 128 + j * 16 +: 16] and of the row after it
                                                                    (bfloat16x32[128, 8])
    gemm C_local += A_shared @ B_shared
where the gemm is one on pairs (`gemm_operands.is_paired`): element [i, j] of B holds B[2 * i +: 2, j * 16 +: 16], a
column's two values side by side, and A stays rows of K.  `lower_gemm` takes two k a step.  A transposed A is staged as
rows; where K is odd, A gets a column of zeros and B a row of them.
- A staging buffer that only brings data from copies to such gemms gets the form itself.  No such copy overlaps a gemm.
- Any other operand is copied to a buffer of its own before the gemm; an A that is rows of an even K is read in place.
- A gemm whose result is no float32 matrix in range, whose sizes have no bound, or with few rows keeps its form.

Only with the pass setting "cpu.bf16_dot": vdpbf16ps takes subnormal operands for 0 and gives 0 for subnormal sums,
whatever the control register says (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2,
VDPBF16PS), while the reference evaluator keeps both.  Targets without the instruction keep their form in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.expr import FLOAT32, Buffer, Expr, binary, cast, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.stmt import Alloc, Copy, Fill, Gemm, If, Launch, Region, Seq, Stmt
from tilewright.ir.structural import same
from tilewright.options import CompileOptions
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import (
    BFLOAT16,
    Staging,
    conditional_gemm,
    consecutive_columns,
    depth_of,
    matrix_axes,
    matrix_extents,
    padded_strides,
    same_region,
    staging_buffers,
)
from tilewright.passes.pair_tiles import interleaved_pairs, pairs_capacity
from tilewright.passes.prepare_gemm import FEW_ROWS
from tilewright.passes.transpose_tiles import transposed_copy
from tilewright.target import Target

SETTING = "cpu.bf16_dot"


def pair_gemm(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Make gemms on pairs of those that may be, where the target has the instruction and the user allows it."""
    if not target.dot_bf16 or not options.config(SETTING):
        return func
    scan = _Scan()
    scan.rewrite(func)
    result: PrimFunc = _PairGemm(target, scan.found).rewrite(func)
    return result


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A gemm that may be one on pairs.  longest: bound of K; even: K is; in_place: A can be read as it is."""

    gemm: Gemm
    longest: int
    even: bool
    in_place: bool


class _Scan(ContextRewriter):
    """Finds the gemms that may be ones on pairs; changes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[int, _Candidate] = {}

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        if _has_form(stmt) and self._in_range(stmt.c) and consecutive_columns(stmt.c):
            depth = depth_of(stmt)
            longest = self.context.bounds(depth)[1]
            if longest:
                even = self.context.divisible(depth, 2)
                rows = not stmt.transpose_a and consecutive_columns(stmt.a)
                in_place = rows and even and self._in_range(stmt.a)
                self.found[id(stmt)] = _Candidate(stmt, longest, even, in_place)
        return stmt

    def _in_range(self, region: Region) -> bool:
        return all(
            self.context.prove(binary("ge", start, 0))
            and self.context.prove(binary("le", binary("add", start, extent), size))
            for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True)
        )


def _has_form(gemm: Gemm) -> bool:
    """Whether dtypes and sizes are those of a gemm on pairs."""
    kinds = [r.buffer.dtype for r in (gemm.a, gemm.b, gemm.c)]
    if kinds != [BFLOAT16, BFLOAT16, FLOAT32] or any(matrix_axes(r) is None for r in (gemm.a, gemm.b, gemm.c)):
        return False
    if gemm.a.buffer.safe_value is not None or gemm.b.buffer.safe_value is not None:
        return False
    rows, columns = (const_int(e) for e in matrix_extents(gemm.c))
    return bool(rows and columns and rows > FEW_ROWS)


@dataclass(frozen=True, slots=True)
class _Form:
    """What becomes of an operand.

    new: the buffer in the form of a gemm on pairs.  is_b: whether it is B.  transposed: whether the source is.
    even: whether K is.  columns: N, of B.
    """

    new: Buffer
    is_b: bool
    transposed: bool
    even: bool
    columns: int

    def fill(self, source: Region, depth: Expr, target: Target) -> list[Stmt]:
        """The matrix `source` brought into the new buffer."""
        loc = source.loc
        if self.is_b:
            return [interleaved_pairs(source, self.new, depth, self.columns, transposed=self.transposed)]
        rows = matrix_extents(source)[1 if self.transposed else 0]
        whole = Region(self.new, (const(0), const(0)), (rows, depth), loc=loc)
        copied = transposed_copy(source, whole, target, loc) if self.transposed else Copy(source, whole, loc=loc)
        if self.even:
            return [copied]
        behind = Region(self.new, (const(0), depth), (rows, const(1)), loc=loc)
        return [copied, Fill(behind, cast(const(0.0), BFLOAT16), loc=loc)]

    def region(self, old: Region, depth: Expr) -> Region:
        """The operand of the gemm on pairs."""
        if self.is_b:
            extents = (binary("floordiv", binary("add", depth, 1), 2), self.new.shape[1])
        else:
            extents = (matrix_extents(old)[1 if self.transposed else 0], depth)
        return Region(self.new, (const(0), const(0)), extents, loc=old.loc)


class _PairGemm(Rewriter):
    def __init__(self, target: Target, candidates: dict[int, _Candidate]) -> None:
        self.target = target
        self.lanes = target.lanes(FLOAT32.bits)
        self.candidates = candidates
        self.forms: dict[int, _Form] = {}

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        self.forms = {}
        for staging in staging_buffers(stmt):
            form = self._staged_form(staging)
            if form is not None:
                self.forms[id(staging.buffer)] = form
        result: Stmt = self.generic(stmt)
        return result

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        form = self.forms.get(id(stmt.buffer))
        return stmt if form is None else Alloc(form.new, loc=stmt.loc)

    def rewrite_Copy(self, stmt: Copy) -> Stmt:
        form = self.forms.get(id(stmt.dst.buffer))
        if form is None:
            return stmt
        depth = matrix_extents(stmt.dst)[1 if form.is_b == form.transposed else 0]
        return Seq(tuple(form.fill(stmt.src, depth, self.target)), loc=stmt.loc)

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        candidate = self.candidates.get(id(stmt))
        return stmt if candidate is None else self._paired(candidate, stmt)

    def rewrite_If(self, stmt: If) -> Stmt:
        found = conditional_gemm(stmt)
        candidate = None if found is None else self.candidates.get(id(found[0]))
        if candidate is None:
            result: Stmt = self.generic(stmt)
            return result
        return self._paired(candidate, stmt)

    # --- forms -------------------------------------------------------------------------------------

    def _staged_form(self, staging: Staging) -> _Form | None:
        """The form of a staging buffer all of whose uses allow it."""
        buffer = staging.buffer
        candidates = [self.candidates.get(id(g)) for g in staging.gemms]
        known = [c for c in candidates if c is not None]
        if staging.elements or len(known) < len(candidates) or len(buffer.shape) != 2:
            return None
        uses = {_use(g, buffer) for g in staging.gemms}
        regions = [_operand(g, buffer) for g in staging.gemms]
        # Sizes that differ from turn to turn need a copy just before each gemm: K says where the zeros are.
        if not staging.fresh and regions[0].const_extents is None:
            return None
        if len(uses) != 1 or not all(_is_filled_by(c, regions) for c in staging.copies):
            return None
        is_b, transposed = uses.pop() or (None, False)
        if is_b is None or (not is_b and all(c.in_place for c in known)):
            return None
        return self._form(known, is_b=is_b, transposed=transposed, name=buffer.name, scope=buffer.scope)

    def _form(
        self, candidates: Sequence[_Candidate], *, is_b: bool, transposed: bool, name: str, scope: str = "fragment"
    ) -> _Form:
        gemm = candidates[0].gemm
        longest = max(c.longest for c in candidates)
        even = all(c.even for c in candidates)
        rows, columns = (const_int(e) or 0 for e in matrix_extents(gemm.c))
        if is_b:
            kind = BFLOAT16.with_lanes(2 * self.lanes)
            shape = [pairs_capacity(longest, self.lanes, transposed), -(-columns // self.lanes)]
            strides = None
        else:
            kind = BFLOAT16
            shape = [rows, longest if even else (longest + 2) // 2 * 2]
            strides = padded_strides(shape, kind)
        new = Buffer(name, tuple(const(s) for s in shape), kind, scope, strides, loc=gemm.loc)
        return _Form(new, is_b, transposed, even, columns)

    # --- gemms -------------------------------------------------------------------------------------

    def _paired(self, candidate: _Candidate, stmt: Stmt) -> Stmt:
        """A gemm, or an If around two that differ in whether they clear the result, on pairs."""
        gemm = candidate.gemm
        before: list[Stmt] = []
        in_place = candidate.in_place and id(gemm.a.buffer) not in self.forms
        a = gemm.a if in_place else self._operand(candidate, before, is_b=False)
        b = self._operand(candidate, before, is_b=True)
        ready = gemm.replace(a=a, b=b, transpose_a=False, transpose_b=False)
        new: Stmt = ready
        if isinstance(stmt, If):
            cleared = Seq((ready.replace(clear_accum=True),), loc=stmt.loc)
            new = If(stmt.condition, cleared, Seq((ready,), loc=stmt.loc), loc=stmt.loc)
        return Seq((*before, new), loc=stmt.loc) if before else new

    def _operand(self, candidate: _Candidate, before: list[Stmt], *, is_b: bool) -> Region:
        """The operand in its form; of a buffer that has another one, a copy is made first."""
        gemm = candidate.gemm
        old, depth = gemm.b if is_b else gemm.a, depth_of(gemm)
        form = self.forms.get(id(old.buffer))
        if form is None:
            transposed = gemm.transpose_b if is_b else gemm.transpose_a
            form = self._form([candidate], is_b=is_b, transposed=transposed, name=f"{old.buffer.name}_pairs")
            before += [Alloc(form.new, loc=old.loc), *form.fill(old, depth, self.target)]
        return form.region(old, depth)


def _use(gemm: Gemm, buffer: Buffer) -> tuple[bool, bool] | None:
    """Whether a gemm reads the buffer as B, and whether transposed; None where it is both operands."""
    if gemm.a.buffer is gemm.b.buffer:
        return None
    return (True, gemm.transpose_b) if gemm.b.buffer is buffer else (False, gemm.transpose_a)


def _operand(gemm: Gemm, buffer: Buffer) -> Region:
    return gemm.b if gemm.b.buffer is buffer else gemm.a


def _is_filled_by(copy: Copy, regions: Sequence[Region]) -> bool:
    """Whether a copy fills, from the buffer's start, just what the gemms read, from a matrix that can be read in vectors."""
    source, kind = copy.src, copy.src.buffer.dtype
    if any(const_int(s) != 0 for s in copy.dst.starts) or not all(same_region(copy.dst, r) for r in regions):
        return False
    if kind.lanes > 1 or kind.bits < 8 or not (kind.is_float or kind.is_int):
        return False
    if source.buffer.safe_value is not None or matrix_axes(source) is None:
        return False
    return all(same(x, y) for x, y in zip(matrix_extents(source), matrix_extents(copy.dst), strict=True))
