"""Blocks of matrix products no larger than their share of the result.

    launch (bx < 1, by < 7):                                            (C is 777 × 77)
        fill C_local = 0                                                (128 × 128)
        for k in pipelined(32):
            copy A[by * 128 +: 128, k * 32 +: 32] -> A_shared
            copy B[k * 32 +: 32, bx * 128 +: 128] -> B_shared
            gemm C_local += A_shared @ B_shared
        copy C_local -> C[by * 128 +: 128, bx * 128 +: 128]
becomes
    launch (bx < 1, by < 7):
        fill C_local = 0                                                (112 × 80)
        for k in pipelined(32):
            copy A[by * 112 +: 112, k * 32 +: 32] -> A_shared
            copy B[k * 32 +: 32, bx * 80 +: 80] -> B_shared
            gemm C_local += A_shared @ B_shared
        copy C_local -> C[by * 112 +: 112, bx * 80 +: 80]
so that little is multiplied only to be dropped at the tensor's edge.  This holds where the program does nothing with
its result but copy it to tensors.
"""

from __future__ import annotations

from tilewright.analysis.index import IndexContext, mentions
from tilewright.ir.expr import Buffer, Var, binary, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, substitute
from tilewright.ir.stmt import Alloc, Copy, Fill, Gemm, Launch, Region, Stmt
from tilewright.ir.structural import same
from tilewright.options import CompileOptions
from tilewright.passes.coarsen_blocks import Product, Side, recognise_product
from tilewright.passes.gemm_operands import is_whole, matrix_axes
from tilewright.target import Target

# Sizes of blocks are multiples of these: of a vector along rows in memory, and of a few rows.
COLUMN_UNIT = 16
ROW_UNIT = 4


def fit_blocks(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Divide results among the blocks of a matrix product evenly."""
    result: PrimFunc = _Fit().rewrite(func)
    return result


class _Fit(Rewriter):
    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        product = recognise_product(stmt)
        if product is None:
            return stmt
        sizes = []
        for number, side in enumerate((product.rows, product.columns)):
            size = _fitting(stmt, product, side, number)
            if size is None:
                return stmt
            sizes.append(size)
        if (sizes[0], sizes[1]) == (product.rows.size, product.columns.size):
            return stmt
        result: Stmt = _Resize(stmt, product, sizes[0], sizes[1]).generic(stmt)
        return result


def _fitting(launch: Launch, product: Product, side: Side, number: int) -> int | None:
    """The block's size along a side, at most the present one; None where it has to stay."""
    blocks = const_int(launch.grid[side.position])
    needed = 0
    for stmt in product.others:
        length = _length(launch, product, stmt, side, number)
        if length is None:
            return None
        needed = max(needed, length)
    if not blocks or not needed or blocks * side.size < needed:
        return None
    along_memory = number == 1 or product.gemm.transpose_a
    unit = COLUMN_UNIT if along_memory else ROW_UNIT
    share = -(-needed // blocks)
    return min(side.size, -(-share // unit) * unit)


def _length(launch: Launch, product: Product, stmt: Stmt, side: Side, number: int) -> int | None:
    """The size along a side of the tensor that `stmt` copies the result to; None for any other statement."""
    result = product.gemm.c.buffer
    if not isinstance(stmt, Copy) or stmt.src.buffer is not result or not is_whole(stmt.src):
        return None
    axes = matrix_axes(stmt.dst)
    if axes is None or stmt.dst.buffer.scope != "global" or const_int(stmt.dst.extents[axes[number]]) != side.size:
        return None
    variable = launch.block_vars[side.position]
    wanted = binary("mul", variable, side.size)
    place = IndexContext().simplify(stmt.dst.starts[axes[number]])
    if not same(place, IndexContext().simplify(wanted)):
        return None
    if any(mentions(start, variable) for d, start in enumerate(stmt.dst.starts) if d != axes[number]):
        return None
    return const_int(stmt.dst.buffer.shape[axes[number]])


class _Resize(Rewriter):
    """The launch with blocks of another size."""

    def __init__(self, launch: Launch, product: Product, rows: int, columns: int) -> None:
        gemm = product.gemm
        self.sides = ((product.rows, rows), (product.columns, columns))
        self.variables = launch.block_vars
        self.buffers: dict[Buffer, Buffer] = {
            gemm.a.buffer: _resized(gemm.a.buffer, {product.rows.axis: rows}),
            gemm.b.buffer: _resized(gemm.b.buffer, {product.columns.axis: columns}),
            gemm.c.buffer: _resized(gemm.c.buffer, {0: rows, 1: columns}),
        }

    def rewrite_Alloc(self, stmt: Alloc) -> Stmt:
        new = self.buffers.get(stmt.buffer)
        return stmt if new is None else Alloc(new, loc=stmt.loc)

    def rewrite_Fill(self, stmt: Fill) -> Stmt:
        new = self.buffers.get(stmt.dst.buffer)
        return stmt if new is None else stmt.replace(dst=_whole(new))

    def rewrite_Gemm(self, stmt: Gemm) -> Stmt:
        a, b, c = (_whole(self.buffers[r.buffer]) for r in (stmt.a, stmt.b, stmt.c))
        return stmt.replace(a=a, b=b, c=c)

    def rewrite_Copy(self, stmt: Copy) -> Stmt:
        for side, size in self.sides:
            if stmt is side.copy:
                source = self._moved(stmt.src, {side.source_axis: (side, size)})
                return Copy(source, _whole(self.buffers[stmt.dst.buffer]), loc=stmt.loc)
        axes = matrix_axes(stmt.dst) or (0, 1)
        target = self._moved(stmt.dst, dict(zip(axes, self.sides, strict=True)))
        return Copy(_whole(self.buffers[stmt.src.buffer]), target, loc=stmt.loc)

    def _moved(self, region: Region, along: dict[int, tuple[Side, int]]) -> Region:
        """A region of a tensor with blocks of the new sizes along the given dimensions."""
        starts, extents = list(region.starts), list(region.extents)
        for axis, (side, size) in along.items():
            variable: Var = self.variables[side.position]
            # start = variable * old size + rest, and the rest does not depend on the variable.
            rest = substitute(starts[axis], {variable: const(0, variable.dtype)})
            starts[axis] = IndexContext().simplify(binary("add", binary("mul", variable, size), rest))
            extents[axis] = const(size)
        return region.replace(starts=tuple(starts), extents=tuple(extents))


def _resized(buffer: Buffer, sizes: dict[int, int]) -> Buffer:
    shape = tuple(const(sizes.get(d, size)) for d, size in enumerate(buffer.const_shape() or ()))
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, safe_value=buffer.safe_value, loc=buffer.loc)


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape, loc=buffer.loc)
