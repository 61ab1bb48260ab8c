"""Operands of gemms in the form that the register-blocked loops take.

The micro-kernel wants B's rows consecutive in memory and not transposed, operands in the dtype that it computes
in, and everything in range.
- A staging buffer that copies fill and gemms read gets the wanted form itself, and the copy makes it:
        copy B[n +: 128, k +: 64] -> B_shared           (float16[128, 64])
        gemm C_local += A_shared @ B_shared (transpose_b)
    becomes
        transpose B[n +: 128, k +: 64] -> B_shared      (float32[64, 128])
        gemm C_local += A_shared @ B_shared
- Any other operand that does not fit is copied to a buffer of its own first.
- What cannot be brought into this form (extents known at launch only) becomes plain loops.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Expr, Load, binary, cast, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, walk
from tilewright.ir.stmt import Alloc, Copy, Fill, Gemm, If, Launch, Region, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import (
    Staging,
    compute_dtype,
    conditional_gemm,
    consecutive_columns,
    is_blocked,
    is_paired,
    matrix_axes,
    matrix_extents,
    padded_strides,
    staging_buffers,
)
from tilewright.passes.lower_tiles import elementwise, free_axes, place, plain_gemm, read
from tilewright.passes.transpose_tiles import transposed_copy
from tilewright.target import Target

# With so few rows a conversion of B costs more than it saves.
FEW_ROWS = 4


def prepare_gemm(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Bring the operands of gemms into the micro-kernel's form; gemms that have none become plain loops."""
    result: PrimFunc = _Pack(target).rewrite(_Restage(target).rewrite(func))
    return result


class _Restage(Rewriter):
    """Operand buffers with another dtype, and transposed where all gemms read them as a transposed B."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.forms: dict[int, _Form] = {}

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        self.forms = {}
        for staging in staging_buffers(stmt):
            form = _form(staging)
            if form is not None:
                self.forms[id(staging.buffer)] = form
        if not self.forms:
            return stmt
        result: Stmt = self.generic(stmt)
        return result

    def _of(self, buffer: Buffer) -> _Form:
        return self.forms.get(id(buffer)) or _Form(buffer, buffer, False)

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        form = self._of(stmt.buffer)
        return stmt if form.new is stmt.buffer else Alloc(form.new, loc=stmt.loc)

    def rewrite_Copy(self, stmt: Copy) -> Stmt:
        stmt = self.generic(stmt)
        source, target = self._of(stmt.src.buffer), self._of(stmt.dst.buffer)
        src, dst = source.region(stmt.src), target.region(stmt.dst)
        # What is held wide has the values of the narrow dtype that the program asked for.
        through = target.old.dtype if target.wide and source.old.dtype is not target.old.dtype else None
        if source.transposed != target.transposed:
            return transposed_copy(src, dst, self.target, stmt.loc, through)
        if through is not None:
            variables, extents = free_axes(dst)
            value = read(src, place(src, variables), stmt.loc)
            return elementwise(dst, variables, extents, cast(value, through, loc=stmt.loc), stmt.loc)
        return stmt if src is stmt.src and dst is stmt.dst else Copy(src, dst, stmt.overlap, loc=stmt.loc)

    def rewrite_Fill(self, stmt: Fill) -> Stmt:
        stmt = self.generic(stmt)
        form = self._of(stmt.dst.buffer)
        if form.new is form.old:
            return stmt
        return Fill(form.region(stmt.dst), cast(form.rounded(stmt.value), form.new.dtype, loc=stmt.loc), loc=stmt.loc)

    def rewrite_Load(self, item: Load) -> Expr:
        item = self.generic(item)
        form = self._of(item.buffer)
        if form.new is form.old:
            return item
        wide = Load(form.new.dtype, form.new, form.ordered(item.indices), item.mask, loc=item.loc)
        return cast(wide, form.old.dtype, loc=item.loc)

    def rewrite_Store(self, stmt: Store) -> Stmt:
        stmt = self.generic(stmt)
        form = self._of(stmt.buffer)
        if form.new is form.old:
            return stmt
        value = cast(form.rounded(stmt.value), form.new.dtype, loc=stmt.loc)
        return Store(form.new, form.ordered(stmt.indices), value, stmt.mask, stmt.nontemporal, loc=stmt.loc)

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        stmt = self.generic(stmt)
        a, b = self._of(stmt.a.buffer), self._of(stmt.b.buffer)
        if a.new is a.old and b.new is b.old:
            return stmt
        transpose_b = stmt.transpose_b and not b.transposed
        return stmt.replace(a=a.region(stmt.a), b=b.region(stmt.b), transpose_b=transpose_b)


@dataclass(frozen=True, slots=True)
class _Form:
    """What an operand buffer becomes."""

    old: Buffer
    new: Buffer
    transposed: bool

    @property
    def wide(self) -> bool:
        """Whether the dtype changes."""
        return self.new.dtype is not self.old.dtype

    def region(self, old: Region) -> Region:
        """The same part of the new buffer."""
        if self.new is self.old:
            return old
        return Region(self.new, self.ordered(old.starts), self.ordered(old.extents), loc=old.loc)

    def ordered(self, per_dimension: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Indices of the old buffer in the order of the new one's dimensions."""
        return per_dimension[::-1] if self.transposed else per_dimension

    def rounded(self, value: Expr) -> Expr:
        """A value as the old buffer would hold it."""
        return cast(value, self.old.dtype, loc=value.loc) if self.wide else value


def _form(staging: Staging) -> _Form | None:
    """The form that all gemms reading this buffer want; None for the present one."""
    old = staging.buffer
    shape = old.const_shape()
    wanted = {compute_dtype(gemm) for gemm in staging.gemms}
    element = wanted.pop() if len(wanted) == 1 else None
    if shape is None or element is None or old.dtype.lanes > 1 or old.safe_value is not None:
        return None
    kind = element if _holds(element, old.dtype) else old.dtype
    transposed = len(shape) == 2 and all(
        g.transpose_b and g.b.buffer is old and g.a.buffer is not old for g in staging.gemms
    )
    if kind is old.dtype and not transposed:
        return None
    sizes = list(shape[::-1] if transposed else shape)
    extents = tuple(const(s) for s in sizes)
    new = Buffer(old.name, extents, kind, old.scope, padded_strides(sizes, kind), loc=old.loc)
    return _Form(old, new, transposed)


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is one of `wide`."""
    if wide.is_float != narrow.is_float:
        return wide.is_float and narrow.is_int and narrow.bits <= 16
    if wide.is_float:
        return wide.bits >= max(32, narrow.bits) and narrow.name != "tfloat32"
    return wide.bits > narrow.bits or (wide.bits == narrow.bits and wide.kind == narrow.kind)


class _Pack(ContextRewriter):
    """Copies of operands that do not fit, gemm by gemm."""

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        return self._prepared(stmt, stmt)

    def rewrite_If(self, stmt: If) -> Stmt:
        found = conditional_gemm(stmt)
        return super().rewrite_If(stmt) if found is None else self._prepared(found[0], stmt)

    def _prepared(self, gemm: Gemm, stmt: Stmt) -> Stmt:
        if is_paired(gemm):
            return stmt
        element = compute_dtype(gemm)
        rows, columns = (const_int(e) for e in matrix_extents_or_none(gemm.c))
        if element is None or not rows or not columns:
            return _plain(stmt)
        before: list[Stmt] = []
        after: list[Stmt] = []
        widen = rows > FEW_ROWS
        a = self._operand(gemm.a, element, before, name="A", convert=widen)
        b = self._operand(gemm.b, element, before, name="B", convert=widen, transpose=gemm.transpose_b)
        c = self._result(gemm.c, element, before, after)
        if a is None or b is None or c is None:
            return _plain(stmt)
        ready = gemm.replace(a=a, b=b, c=c, transpose_b=False)
        if not is_blocked(ready):
            return _plain(stmt)
        new: Stmt = ready
        if isinstance(stmt, If):
            cleared = Seq((ready.replace(clear_accum=True),), loc=stmt.loc)
            new = If(stmt.condition, cleared, Seq((ready,), loc=stmt.loc), loc=stmt.loc)
        return Seq((*before, new, *after), loc=stmt.loc) if before or after else new

    def _operand(
        self,
        region: Region,
        element: DType,
        before: list[Stmt],
        *,
        name: str,
        convert: bool,
        transpose: bool = False,
    ) -> Region | None:
        """`region`, or a copy of it in the wanted form; None when its size is not known."""
        fits = self._in_range(region) and not transpose and (region.buffer.dtype is element or not convert)
        if fits and (name == "A" or consecutive_columns(region)):
            return region
        packed = self._buffer(region, element, f"{region.buffer.name}_packed", transpose)
        if packed is None:
            return None
        before.append(Alloc(packed.buffer, loc=region.loc))
        if transpose:
            before.append(transposed_copy(region, packed, self.target, region.loc))
        else:
            before.append(Copy(region, packed, loc=region.loc))
        return packed

    def _result(self, region: Region, element: DType, before: list[Stmt], after: list[Stmt]) -> Region | None:
        if self._in_range(region) and consecutive_columns(region):
            return region
        packed = self._buffer(region, element, f"{region.buffer.name}_packed", False)
        if packed is None:
            return None
        before += [Alloc(packed.buffer, loc=region.loc), Copy(region, packed, loc=region.loc)]
        after.append(Copy(packed, region, loc=region.loc))
        return packed

    def _buffer(self, region: Region, element: DType, name: str, transpose: bool) -> Region | None:
        """A new buffer that holds a matrix region."""
        extents = matrix_extents(region)[:: -1 if transpose else 1]
        sizes = [self.context.bounds(e)[1] for e in extents]
        if any(s is None for s in sizes):
            return None
        shape = [max(s or 0, 1) for s in sizes]
        buffer = Buffer(
            name,
            tuple(const(s) for s in shape),
            element,
            "fragment",
            padded_strides(shape, element),
            loc=region.loc,
        )
        return Region(buffer, (const(0), const(0)), extents, loc=region.loc)

    def _in_range(self, region: Region) -> bool:
        for start, extent, size in zip(region.starts, region.extents, region.buffer.shape, strict=True):
            stop = binary("add", start, extent)
            if not self.context.prove(binary("ge", start, 0)) or not self.context.prove(binary("le", stop, size)):
                return False
        return True


def _plain(stmt: Stmt) -> Stmt:
    """A gemm, or an If around two, as plain loops."""
    if isinstance(stmt, Gemm):
        return plain_gemm(stmt)
    bodies = [Seq((plain_gemm(g),), loc=g.loc) for g in walk(stmt) if isinstance(g, Gemm)]
    assert isinstance(stmt, If)
    return If(stmt.condition, bodies[0], bodies[1], loc=stmt.loc)


def matrix_extents_or_none(region: Region) -> tuple[Expr, Expr]:
    """Rows and columns; of a region that is no matrix, zeros."""
    return matrix_extents(region) if matrix_axes(region) is not None else (const(0), const(0))
