"""Tile operations as elementwise parallel loops.

    copy A[by * 128 +: 128, k * 32 +: 32] -> A_shared
becomes
    parallel (i < 128, j < 32):
        A_shared[i, j] = A[by * 128 + i, k * 32 + j]

Reading beyond a tensor still means 0 and writing there nothing: `guard_accesses` makes that explicit.
Gemms that no faster lowering took become loops with one accumulator for each element.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    FLOAT32,
    INT32,
    Buffer,
    Call,
    Expr,
    Load,
    Var,
    binary,
    cast,
    const,
    const_int,
    promote,
    select,
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.stmt import (
    Alloc,
    Atomic,
    Copy,
    Fill,
    For,
    Gemm,
    Parallel,
    Print,
    Region,
    Scan,
    Seq,
    Stmt,
    Store,
    Transpose,
)
from tilewright.options import CompileOptions
from tilewright.passes.gemm_operands import is_blocked
from tilewright.passes.names import axis_name, index_var
from tilewright.source import Location
from tilewright.target import Target


def lower_tiles(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace copies, fills, transposes, scans, atomics on tiles, and remaining gemms by loops."""
    result: PrimFunc = _LowerTiles().rewrite(func)
    return result


class _LowerTiles(Rewriter):
    def rewrite_Copy(self, stmt: Copy) -> Stmt:
        if stmt.overlap:
            return stmt
        variables, extents = free_axes(stmt.dst)
        source = place(stmt.src, variables)
        return elementwise(stmt.dst, variables, extents, read(stmt.src, source, stmt.loc), stmt.loc)

    def rewrite_Fill(self, stmt: Fill) -> Stmt:
        variables, extents = free_axes(stmt.dst)
        return elementwise(stmt.dst, variables, extents, stmt.value, stmt.loc)

    def rewrite_Transpose(self, stmt: Transpose) -> Stmt:
        variables, extents = free_axes(stmt.dst, keep=2)
        source = place(stmt.src, variables[::-1], keep=2)
        return elementwise(stmt.dst, variables, extents, read(stmt.src, source, stmt.loc), stmt.loc, keep=2)

    def rewrite_Atomic(self, stmt: Atomic) -> Stmt:
        if stmt.source is None and all(const_int(e) == 1 for e in stmt.dst.extents):
            return stmt
        variables, extents = free_axes(stmt.dst)
        value = stmt.value
        if stmt.source is not None:
            value = read(stmt.source, place(stmt.source, variables), stmt.loc)
        assert value is not None
        one = tuple(const(1) for _ in stmt.dst.extents)
        target = Region(stmt.dst.buffer, place(stmt.dst, variables), one, loc=stmt.dst.loc)
        element = cast(value, stmt.dst.buffer.dtype, loc=stmt.loc)
        body: Stmt = Atomic(stmt.op, target, element, None, stmt.memory_order, loc=stmt.loc)
        return serial_nest(variables, extents, body, stmt.loc)

    def rewrite_Scan(self, stmt: Scan) -> Stmt:
        """Serial along the dimension, parallel over the others."""
        loc = stmt.loc
        rank = len(stmt.src.extents)
        others = [d for d in range(rank) if d != stmt.dim and const_int(stmt.src.extents[d]) != 1]
        variables = tuple(index_var(axis_name(p), stmt.src.extents[d]) for p, d in enumerate(others))
        step = index_var("r", stmt.src.extents[stmt.dim])
        length = stmt.src.extents[stmt.dim]
        last = binary("sub", binary("sub", length, 1), step)
        along: Expr = last if stmt.reverse else step
        offsets: list[Expr] = [const(0)] * rank
        for d, variable in zip(others, variables, strict=True):
            offsets[d] = variable
        offsets[stmt.dim] = along
        source = tuple(binary("add", s, o) for s, o in zip(stmt.src.starts, offsets, strict=True))
        target = tuple(binary("add", s, o) for s, o in zip(stmt.dst.starts, offsets, strict=True))
        element = stmt.dst.buffer.dtype
        total = Buffer("total", (), sum_dtype(promote(stmt.src.buffer.dtype, element)), "var", loc=loc)
        value = cast(read(stmt.src, source, loc), total.dtype, loc=loc)
        old = Load(total.dtype, total, (), loc=loc)
        combined = binary("add" if stmt.op == "sum" else "max", old, value, loc=loc)
        first = binary("eq", step, 0)
        joined = cast(select(first, value, combined, loc=loc), total.dtype)
        body = Seq(
            (
                Store(total, (), joined, loc=loc),
                Store(stmt.dst.buffer, target, cast(old, element, loc=loc), loc=loc),
            ),
            loc=loc,
        )
        zero, one = const(0, step.dtype), const(1, step.dtype)
        loop = For(step, zero, cast(length, step.dtype), one, body, loc=loc)
        inner = Seq((Alloc(total, cast(const(0), total.dtype), loc=loc), loop), loc=loc)
        extents = tuple(stmt.src.extents[d] for d in others)
        return Parallel(variables, extents, inner, loc=loc) if variables else inner

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        return stmt if is_blocked(stmt) else plain_gemm(stmt)

    def rewrite_Print(self, stmt: Print) -> Stmt:
        """Printed regions as copies, because a region may reach beyond its buffer."""
        if not stmt.regions:
            return stmt
        stmts: list[Stmt] = []
        regions = []
        for region in stmt.regions:
            if const_shape(region) is None:
                regions.append(region)
                continue
            shown = Buffer(region.buffer.name, region.extents, region.buffer.dtype, "fragment", loc=stmt.loc)
            whole = Region(shown, tuple(const(0) for _ in region.extents), region.extents, loc=region.loc)
            stmts += [Alloc(shown, loc=stmt.loc), self.rewrite(Copy(region, whole, loc=stmt.loc))]
            regions.append(whole)
        return Seq((*stmts, Print(stmt.message, stmt.values, tuple(regions), loc=stmt.loc)), loc=stmt.loc)


def const_shape(region: Region) -> tuple[int, ...] | None:
    """The extents of a region as integers, None when one is known at launch only or the buffer is on chip."""
    return region.const_extents if region.buffer.scope == "global" else None


def plain_gemm(stmt: Gemm) -> Stmt:
    """A gemm as parallel loops over rows and columns, with a serial loop over K inside."""
    loc = stmt.loc
    m, n = matrix_axes(stmt.c)
    a_row, a_column = matrix_axes(stmt.a)
    rows, columns = stmt.c.extents[m], stmt.c.extents[n]
    depth = stmt.a.extents[a_row if stmt.transpose_a else a_column]
    i, j, k = index_var("i", rows), index_var("j", columns), index_var("k", depth)
    element = stmt.c.buffer.dtype
    accumulator = Buffer("acc", (), sum_dtype(element), "var", loc=loc)
    wide = accumulator.dtype
    left = matrix_element(stmt.a, (k, i) if stmt.transpose_a else (i, k), loc)
    right = matrix_element(stmt.b, (j, k) if stmt.transpose_b else (k, j), loc)
    old = Load(wide, accumulator, (), loc=loc)
    product = multiply_add(cast(left, wide, loc=loc), cast(right, wide, loc=loc), old, loc)
    zero, one = const(0, k.dtype), const(1, k.dtype)
    update = Seq((Store(accumulator, (), product, loc=loc),), loc=loc)
    where = matrix_indices(stmt.c, (i, j))
    target = stmt.c.buffer
    start = cast(const(0), wide) if stmt.clear_accum else cast(Load(element, target, where, loc=loc), wide, loc=loc)
    body = Seq(
        (
            Alloc(accumulator, loc=loc),
            Store(accumulator, (), start, loc=loc),
            For(k, zero, cast(depth, k.dtype), one, update, loc=loc),
            Store(target, where, cast(old, element, loc=loc), loc=loc),
        ),
        loc=loc,
    )
    return Parallel((i, j), (rows, columns), body, loc=loc)


def multiply_add(a: Expr, b: Expr, c: Expr, loc: Location | None) -> Expr:
    """a · b + c, with one rounding for floats."""
    if a.dtype.is_float:
        return Call(a.dtype, "fma", (a, b, c), loc=loc)
    return binary("add", binary("mul", a, b, loc=loc), c, loc=loc)


def sum_dtype(element: DType) -> DType:
    """The dtype that sums of `element` are done in."""
    if element.is_narrow_float or element.name == "tfloat32":
        return FLOAT32
    return INT32 if element.is_bool else element


def matrix_axes(region: Region) -> tuple[int, int]:
    """The two dimensions of a matrix region: the last two, or those whose extent is not 1."""
    rank = len(region.extents)
    if all(const_int(e) == 1 for e in region.extents[:-2]):
        return rank - 2, rank - 1
    kept = [d for d, e in enumerate(region.extents) if const_int(e) != 1]
    return kept[0], kept[1]


def matrix_indices(region: Region, at: tuple[Expr, Expr]) -> tuple[Expr, ...]:
    """The buffer indices of element `at` of a matrix region."""
    indices = list(region.starts)
    for axis, offset in zip(matrix_axes(region), at, strict=True):
        indices[axis] = binary("add", region.starts[axis], offset)
    return tuple(indices)


def matrix_element(region: Region, at: tuple[Expr, Expr], loc: Location | None) -> Load:
    """Element `at` of a matrix region."""
    return Load(region.buffer.dtype, region.buffer, matrix_indices(region, at), loc=loc)


def free_axes(region: Region, keep: int = 0) -> tuple[tuple[Var, ...], tuple[Expr, ...]]:
    """A loop variable for each dimension whose extent is not 1 (and for the last `keep`), and the extents."""
    rank = len(region.extents)
    axes = [d for d in range(rank) if const_int(region.extents[d]) != 1 or d >= rank - keep]
    variables = tuple(index_var(axis_name(p), region.extents[d]) for p, d in enumerate(axes))
    return variables, tuple(region.extents[d] for d in axes)


def place(region: Region, variables: Sequence[Expr], keep: int = 0) -> tuple[Expr, ...]:
    """The buffer indices of the element of `region` that the loop variables name."""
    remaining = iter(variables)
    rank = len(region.extents)
    indices = []
    for d, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
        if const_int(extent) == 1 and d < rank - keep:
            indices.append(start)
        else:
            indices.append(binary("add", start, next(remaining)))
    return tuple(indices)


def read(region: Region, indices: tuple[Expr, ...], loc: Location | None) -> Load:
    """An element of a region's buffer."""
    return Load(region.buffer.dtype, region.buffer, indices, loc=loc)


def elementwise(
    dst: Region,
    variables: tuple[Var, ...],
    extents: tuple[Expr, ...],
    value: Expr,
    loc: Location | None,
    keep: int = 0,
) -> Stmt:
    """`dst[variables] = value` for all points."""
    store = Store(dst.buffer, place(dst, variables, keep), cast(value, dst.buffer.dtype, loc=loc), loc=loc)
    return Parallel(variables, extents, Seq((store,), loc=loc), loc=loc) if variables else store


def serial_nest(variables: Sequence[Var], extents: Sequence[Expr], body: Stmt, loc: Location | None) -> Stmt:
    """`body` in serial loops."""
    for variable, extent in reversed(list(zip(variables, extents, strict=True))):
        zero, one = const(0, variable.dtype), const(1, variable.dtype)
        body = For(variable, zero, cast(extent, variable.dtype), one, Seq((body,), loc=loc), loc=loc)
    return body
