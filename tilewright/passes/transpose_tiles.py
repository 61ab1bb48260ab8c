"""Transposing copies as transposes of square blocks in registers.

    transpose B[n +: 128, k +: 64] -> B_packed
becomes, for 16 lanes,
    for i in serial(0, 128, 16):
        for j in serial(0, 64, 16):
            unroll (r < 16): t[r] = B[n + i + r, k + j +: 16]
            for each distance d of 8, 4, 2, 1: rows r and r + d exchange every other group of d lanes
            unroll (r < 16): B_packed[j + r, i +: 16] = t[r]
Rows and columns that fill no block are copied element by element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.analysis.index import IndexContext
from tilewright.ir.dtype import DType
from tilewright.ir.expr import INT32, Buffer, Expr, Load, Ramp, Shuffle, Var, binary, cast, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.stmt import Alloc, For, Let, Parallel, Region, Seq, Stmt, Store, Transpose
from tilewright.options import CompileOptions
from tilewright.passes.gemm_operands import consecutive_columns, matrix_axes, matrix_extents
from tilewright.passes.names import index_var
from tilewright.source import Location
from tilewright.target import Target

# A block is as many registers as it has lanes.  Of blocks narrower than 4 single elements are as good.
WIDEST_BLOCK, NARROWEST_BLOCK = 16, 4


def transpose_tiles(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace transposes by loops over blocks in registers."""
    result: PrimFunc = _TransposeTiles(target).rewrite(func)
    return result


class _TransposeTiles(Rewriter):
    def __init__(self, target: Target) -> None:
        self.target = target

    def rewrite_Transpose(self, stmt: Transpose) -> Stmt:
        if matrix_axes(stmt.src) is None or matrix_axes(stmt.dst) is None:
            return stmt
        return transposed_copy(stmt.src, stmt.dst, self.target, stmt.loc)


def transposed_copy(
    src: Region, dst: Region, target: Target, loc: Location | None, through: DType | None = None
) -> Stmt:
    """dst[j, i] = cast(src[i, j]) for two matrix regions; rounded to `through` on the way where that is given."""
    rows, columns = matrix_extents(src)
    lanes = block_lanes(src, dst, target)
    if lanes < 2:
        return _elements(src, dst, (const(0), const(0)), (rows, columns), loc, through)
    context = IndexContext()
    whole_rows, whole_columns = (_whole_blocks(context, e, lanes) for e in (rows, columns))
    stmts = [_blocks(src, dst, (whole_rows, whole_columns), lanes, loc, through)]
    for start, extent in (
        ((whole_rows, const(0)), (binary("sub", rows, whole_rows), columns)),
        ((const(0), whole_columns), (whole_rows, binary("sub", columns, whole_columns))),
    ):
        if not any(const_int(context.simplify(e)) == 0 for e in extent):
            stmts.append(_elements(src, dst, start, extent, loc, through))
    return Seq(tuple(stmts), loc=loc)


def block_lanes(src: Region, dst: Region, target: Target) -> int:
    """The side of the blocks; 1 for regions whose rows are not consecutive in memory, or smaller than a block."""
    if not consecutive_columns(src) or not consecutive_columns(dst):
        return 1
    kinds = (src.buffer.dtype, dst.buffer.dtype)
    if any(k.lanes > 1 or k.bits < 8 for k in kinds):
        return 1
    widest = max(k.bits if not k.is_float else max(k.bits, 32) for k in kinds)
    lanes = min(target.lanes(widest), WIDEST_BLOCK)
    shortest = min([n for e in matrix_extents(src) if (n := const_int(e)) is not None], default=lanes)
    while lanes > shortest:
        lanes //= 2
    return lanes if lanes >= NARROWEST_BLOCK else 1


def _whole_blocks(context: IndexContext, extent: Expr, lanes: int) -> Expr:
    return context.simplify(binary("mul", binary("floordiv", extent, lanes), lanes))


def _elements(
    src: Region,
    dst: Region,
    start: tuple[Expr, Expr],
    extents: tuple[Expr, Expr],
    loc: Location | None,
    through: DType | None,
) -> Stmt:
    i, j = index_var("i", extents[0]), index_var("j", extents[1])
    row, column = binary("add", start[0], i), binary("add", start[1], j)
    value: Expr = Load(src.buffer.dtype, src.buffer, matrix_indices(src, row, column), loc=loc)
    if through is not None:
        value = cast(value, through, loc=loc)
    store = Store(dst.buffer, matrix_indices(dst, column, row), cast(value, dst.buffer.dtype, loc=loc), loc=loc)
    return Parallel((i, j), extents, Seq((store,), loc=loc), loc=loc)


def matrix_indices(region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """The buffer indices of an element of a matrix region."""
    indices = list(region.starts)
    for axis, offset in zip(matrix_axes(region) or (0, 1), (row, column), strict=True):
        indices[axis] = binary("add", region.starts[axis], offset)
    return tuple(indices)


def _blocks(
    src: Region, dst: Region, extents: tuple[Expr, Expr], lanes: int, loc: Location | None, through: DType | None
) -> Stmt:
    i, j = index_var("i", extents[0]), index_var("j", extents[1])
    vector = dst.buffer.dtype.with_lanes(lanes)
    t = Buffer("t", (const(lanes),), vector, "register", loc=loc)

    def load(r: Var) -> Sequence[Stmt]:
        indices = _row_vector(src, binary("add", i, r), j, lanes)
        value: Expr = Load(src.buffer.dtype.with_lanes(lanes), src.buffer, indices, loc=loc)
        if through is not None:
            value = cast(value, through, loc=loc)
        return [Store(t, (r,), cast(value, vector, loc=loc), loc=loc)]

    def store(r: Var) -> Sequence[Stmt]:
        indices = _row_vector(dst, binary("add", j, r), i, lanes)
        return [Store(dst.buffer, indices, Load(vector, t, (r,), loc=loc), loc=loc)]

    body: list[Stmt] = [Alloc(t, loc=loc), unrolled("r", lanes, load, loc)]
    distance = lanes // 2
    while distance:
        body.append(exchange_rows(t, vector, distance, loc))
        distance //= 2
    body.append(unrolled("r", lanes, store, loc))
    return stepping(i, extents[0], lanes, [stepping(j, extents[1], lanes, body, loc)], loc)


def exchange_rows(t: Buffer, vector: DType, distance: int, loc: Location | None) -> Stmt:
    """Rows r and r + distance exchange the upper groups of `distance` lanes of one with the lower ones of the other."""
    lanes = vector.lanes
    upper = [bool(lane & distance) for lane in range(lanes)]
    low = tuple(lane - distance + lanes if up else lane for lane, up in enumerate(upper))
    high = tuple(lane + lanes if up else lane + distance for lane, up in enumerate(upper))

    def pair(group: Var, r: Var) -> list[Stmt]:
        first = binary("add", binary("mul", group, 2 * distance), r)
        second = binary("add", first, distance)
        x, y = Var(vector, "x", loc=loc), Var(vector, "y", loc=loc)
        return [
            Let(x, Load(vector, t, (first,), loc=loc), loc=loc),
            Let(y, Load(vector, t, (second,), loc=loc), loc=loc),
            Store(t, (first,), Shuffle(vector, x, y, low, loc=loc), loc=loc),
            Store(t, (second,), Shuffle(vector, x, y, high, loc=loc), loc=loc),
        ]

    groups = lanes // (2 * distance)
    return unrolled("g", groups, lambda g: [unrolled("r", distance, lambda r: pair(g, r), loc)], loc)


def _row_vector(region: Region, row: Expr, column: Expr, lanes: int) -> tuple[Expr, ...]:
    indices = matrix_indices(region, row, column)
    base = indices[-1]
    return (*indices[:-1], Ramp(base.dtype.with_lanes(lanes), base, const(1, base.dtype)))


def unrolled(name: str, count: int, body: Callable[[Var], Sequence[Stmt]], loc: Location | None) -> Stmt:
    variable = Var(INT32, name, loc=loc)
    return For(variable, const(0), const(count), const(1), Seq(tuple(body(variable)), loc=loc), "unroll", loc=loc)


def stepping(variable: Var, stop: Expr, step: int, body: Sequence[Stmt], loc: Location | None) -> Stmt:
    kind = variable.dtype
    seq = Seq(tuple(body), loc=loc)
    return For(variable, const(0, kind), cast(stop, kind), const(step, kind), seq, "serial", loc=loc)
