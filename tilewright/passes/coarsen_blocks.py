"""Blocks of a matrix product joined two by two, or more.

    launch (bx < 8, by < 8):
        fill C_local = 0
        for k in pipelined(32):
            copy A[by * 128 +: 128, k * 32 +: 32] -> A_shared
            copy B[k * 32 +: 32, bx * 128 +: 128] -> B_shared
            gemm C_local += A_shared @ B_shared
        copy C_local -> C[by * 128 +: 128, bx * 128 +: 128]
becomes
    launch (bx < 4, by < 4) swizzle(4, row):
        fill C_local = 0
        for k in pipelined(32):
            copy A[by * 256 +: 256, k * 32 +: 32] -> A_shared
            copy B[k * 32 +: 32, bx * 256 +: 256] -> B_shared
            gemm C_local += A_shared @ B_shared
        for row in serial(2):
            for column in serial(2):
                copy C_local[row * 128 +: 128, column * 128 +: 128]
                    -> C[by * 256 + row * 128 +: 128, bx * 256 + column * 128 +: 128]
Twice the rows and columns halve what has to be staged for each multiply-add.  What the program does before and
after its K loop runs once for each of the old blocks, after the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilewright.analysis.effects import effects
from tilewright.analysis.index import IndexContext, mentions
from tilewright.ir.expr import Buffer, Expr, Load, Var, binary, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alias, Alloc, Assert, Copy, Fill, For, Gemm, Launch, Let, Print, Region, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import is_whole, matrix_axes, staging_buffers
from tilewright.target import Target

# Rows and columns of a joined block: its result and two stages of its operands fill a good part of a level 2 cache.
LARGEST_TILE = 256
# Blocks left for each core, so that the last ones to finish do not keep the others waiting for long.
BLOCKS_A_CORE = 4
# Cores where the target does not say.
CORES = 8
# Block rows of a strip of blocks that run one after the other: they use the same columns of B.
STRIP = 4


def coarsen_blocks(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Join neighbouring blocks of matrix products, and run the blocks in strips."""
    result: PrimFunc = _Coarsen(target).rewrite(func)
    return result


@dataclass(frozen=True, slots=True)
class Side:
    """The rows or the columns of the result, as blocks divide them.

    position: of the block variable in the grid.  size: of a block.  copy: what stages the operand that has this
    side; axis, source_axis: the dimensions of its destination and source along it.
    """

    position: int
    size: int
    copy: Copy
    axis: int
    source_axis: int


@dataclass(frozen=True, slots=True)
class Product:
    """A launch that is a matrix product: `others` is what it does besides, before and after the K loop."""

    allocs: tuple[Alloc, ...]
    fill: Fill
    loop: For
    gemm: Gemm
    rows: Side
    columns: Side
    others: tuple[Stmt, ...]


class _Coarsen(Rewriter):
    def __init__(self, target: Target) -> None:
        self.target = target

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        product = recognise_product(stmt)
        if product is None:
            return stmt
        if stmt.swizzle is None and (product.columns.position, product.rows.position) == (0, 1):
            stmt = stmt.replace(swizzle=(STRIP, "row"))
        factors = self._factors(stmt, product)
        return stmt if factors == (1, 1) else _joined(stmt, product, *factors)

    def _factors(self, stmt: Launch, product: Product) -> tuple[int, int]:
        """How many block rows and columns to join."""
        grid = [const_int(e) for e in stmt.grid]
        total = 1
        for size in grid:
            if size is None:
                return (1, 1)
            total *= size
        cores = dict(self.target.extras).get("cores", CORES)
        assert isinstance(cores, int)
        best = (1, 1)
        for r in _divisors(grid[product.rows.position], product.rows.size):
            for s in _divisors(grid[product.columns.position], product.columns.size):
                enough = total // (r * s) >= BLOCKS_A_CORE * cores
                if enough and (r * s, -abs(r - s)) > (best[0] * best[1], -abs(best[0] - best[1])):
                    best = (r, s)
        return best


def _divisors(blocks: int | None, size: int) -> Iterator[int]:
    factor = 1
    while blocks is not None and blocks % factor == 0 and factor * size <= LARGEST_TILE:
        yield factor
        factor *= 2


# --- recognising ------------------------------------------------------------------------------------


def recognise_product(launch: Launch) -> Product | None:
    """The matrix product that a launch is, if it is one whose blocks may be cut in another way."""
    stmts = launch.body.stmts
    loops = [p for p, s in enumerate(stmts) if isinstance(s, For) and _is_product_loop(s)]
    if len(loops) != 1 or len(launch.grid) < 2:
        return None
    before, loop, after = stmts[: loops[0]], stmts[loops[0]], stmts[loops[0] + 1 :]
    assert isinstance(loop, For)
    gemm = loop.body.stmts[-1]
    assert isinstance(gemm, Gemm)
    fills = [s for s in before if isinstance(s, Fill) and s.dst.buffer is gemm.c.buffer and is_whole(s.dst)]
    allocs = tuple(s for s in before if isinstance(s, Alloc) and s.init is None)
    others = (*[s for s in before if not any(s is x for x in (*allocs, *fills))], *after)
    if len(fills) != 1 or gemm.clear_accum or not is_whole(gemm.c) or len(gemm.c.buffer.shape) != 2:
        return None
    private = {id(s.buffer) for s in staging_buffers(launch) if s.private and len(s.copies) == 1}
    rows = _side(launch, loop, gemm.a, 1 if gemm.transpose_a else 0, private)
    columns = _side(launch, loop, gemm.b, 0 if gemm.transpose_b else 1, private)
    if rows is None or columns is None or rows.position == columns.position:
        return None
    product = Product(allocs, fills[0], loop, gemm, rows, columns, others)
    return product if _independent(launch, product, before) else None


def _is_product_loop(loop: For) -> bool:
    *copies, gemm = loop.body.stmts or (None,)
    return loop.kind in ("pipelined", "serial") and isinstance(gemm, Gemm) and all(isinstance(c, Copy) for c in copies)


def _side(launch: Launch, loop: For, operand: Region, which: int, private: set[int]) -> Side | None:
    """The side of the result along dimension `which` of the operand's matrix."""
    copies = [s for s in loop.body.stmts if isinstance(s, Copy) and s.dst.buffer is operand.buffer]
    if len(copies) != 1 or id(operand.buffer) not in private or operand.buffer.strides is not None:
        return None
    copy = copies[0]
    axes, source_axes = matrix_axes(operand), matrix_axes(copy.src)
    if axes is None or source_axes is None or not is_whole(operand) or not is_whole(copy.dst):
        return None
    axis, source_axis = axes[which], source_axes[which]
    size = const_int(copy.src.extents[source_axis])
    used = [p for p, v in enumerate(launch.block_vars) if any(mentions(s, v) for s in copy.src.starts)]
    for position in used:
        variable = launch.block_vars[position]
        elsewhere = [s for d, s in enumerate(copy.src.starts) if d != source_axis]
        form = IndexContext().linear(copy.src.starts[source_axis])
        rest = [atom for atom, _ in form.terms.values() if atom is not variable]
        if form.coefficient(variable) == size and not any(mentions(e, variable) for e in elsewhere + rest):
            return Side(position, size, copy, axis, source_axis)
    return None


def _independent(launch: Launch, product: Product, before: Sequence[Stmt]) -> bool:
    """Whether the K loop depends on a block only through the two regions, and the rest of the program not on it."""
    rows, columns = launch.block_vars[product.rows.position], launch.block_vars[product.columns.position]
    own = {id(product.rows.copy): columns, id(product.columns.copy): rows}
    named = {id(s.var) for s in before if isinstance(s, Let)}
    for stmt in product.loop.body.stmts:
        other = own.get(id(stmt))
        if isinstance(stmt, Copy) and (other is None or _uses(stmt, {id(other)} | named)):
            return False
    bounds = Seq((product.loop.replace(body=Seq(())),))
    if _uses(bounds, {id(rows), id(columns)} | named):
        return False
    tiles = {id(product.gemm.a.buffer), id(product.gemm.b.buffer)}
    result = product.gemm.c.buffer
    for stmt in product.others:
        for node in walk(stmt):
            if isinstance(node, (Print, Assert)) or (isinstance(node, Alias) and node.buffer.view_of is result):
                return False
            if isinstance(node, (Load, Store, Region)) and id(node.buffer) in tiles:
                return False
    written = effects(Seq(tuple(before)))
    if any(written.is_written(side.copy.src.buffer) for side in (product.rows, product.columns)):
        return False
    if any(_names_buffer(s, result) for s in before if s is not product.fill and not isinstance(s, Alloc)):
        return False
    return _AllInRange(result).check(launch.replace(body=Seq(product.others)))


def _uses(stmt: Node, variables: set[int]) -> bool:
    return any(isinstance(node, Var) and id(node) in variables for node in walk(stmt))


def _names_buffer(stmt: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(node, (Load, Store, Region)) and node.buffer is buffer for node in walk(stmt))


class _AllInRange(ContextRewriter):
    """Whether every access to a buffer is known to be in range."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__()
        self.buffer = buffer
        self.proven = True

    def check(self, launch: Launch) -> bool:
        """The answer for the body of a launch."""
        self.rewrite(launch)
        return self.proven

    def _note(self, buffer: Buffer, starts: tuple[Expr, ...], extents: tuple[Expr, ...]) -> None:
        if buffer is not self.buffer:
            return
        for start, extent, size in zip(starts, extents, buffer.shape, strict=True):
            low = self.context.prove(binary("ge", start, 0))
            high = self.context.prove(binary("le", binary("add", start, extent), size))
            self.proven = self.proven and low and high

    def rewrite_Region(self, item: Region) -> Region:
        self._note(item.buffer, item.starts, item.extents)
        result: Region = self.generic(item)
        return result

    def rewrite_Load(self, item: Load) -> Load:
        self._note(item.buffer, item.indices, tuple(const(1) for _ in item.indices))
        result: Load = self.generic(item)
        return result

    def rewrite_Store(self, stmt: Store) -> Store:
        self._note(stmt.buffer, stmt.indices, tuple(const(1) for _ in stmt.indices))
        result: Store = self.generic(stmt)
        return result


# --- rebuilding -------------------------------------------------------------------------------------


def _joined(launch: Launch, product: Product, rows: int, columns: int) -> Launch:
    """The launch with `rows` by `columns` blocks in one."""
    gemm, loc = product.gemm, launch.loc
    grid, variables = list(launch.grid), list(launch.block_vars)
    first: dict[Var, Expr] = {}
    every: dict[Var, Expr] = {}
    places: list[Expr] = []
    turns: list[tuple[Var, int]] = []
    for side, factor, name in ((product.rows, rows, "row"), (product.columns, columns, "column")):
        old = launch.block_vars[side.position]
        new = Var(old.dtype, old.name, loc=old.loc)
        variables[side.position] = new
        grid[side.position] = const((const_int(launch.grid[side.position]) or 0) // factor, old.dtype)
        turn = Var(old.dtype, name, loc=loc)
        start = binary("mul", new, factor)
        first[old] = start
        every[old] = binary("add", start, turn) if factor > 1 else start
        places.append(binary("mul", turn, side.size) if factor > 1 else const(0))
        if factor > 1:
            turns.append((turn, factor))
    a = _larger(gemm.a.buffer, {product.rows.axis: rows})
    b = _larger(gemm.b.buffer, {product.columns.axis: columns})
    c = _larger(gemm.c.buffer, {0: rows, 1: columns})
    new_buffers = {gemm.a.buffer: a, gemm.b.buffer: b, gemm.c.buffer: c}
    copies = {
        id(side.copy): Copy(_wider(side.copy.src, side, factor, first), _whole(buffer), loc=side.copy.loc)
        for side, factor, buffer in ((product.rows, rows, a), (product.columns, columns, b))
    }
    multiply = gemm.replace(a=_whole(a), b=_whole(b), c=_whole(c))
    steps = tuple(multiply if s is gemm else copies[id(s)] for s in product.loop.body.stmts)
    loop = product.loop.replace(body=Seq(steps, loc=product.loop.body.loc))
    rest: Stmt = substitute(_Shift(gemm.c.buffer, c, tuple(places)).rewrite(Seq(product.others, loc=loc)), every)
    for turn, factor in reversed(turns):
        zero, one = const(0, turn.dtype), const(1, turn.dtype)
        body = rest if isinstance(rest, Seq) else Seq((rest,), loc=loc)
        rest = For(turn, zero, const(factor, turn.dtype), one, body, loc=loc)
    allocs = [Alloc(new_buffers.get(s.buffer, s.buffer), loc=s.loc) for s in product.allocs]
    fill = product.fill.replace(dst=_whole(c))
    body = Seq((*allocs, fill, loop, rest), loc=launch.body.loc)
    return launch.replace(grid=tuple(grid), block_vars=tuple(variables), body=body)


def _larger(buffer: Buffer, factors: dict[int, int]) -> Buffer:
    shape = tuple(const(size * factors.get(d, 1)) for d, size in enumerate(buffer.const_shape() or ()))
    return Buffer(buffer.name, shape, buffer.dtype, buffer.scope, safe_value=buffer.safe_value, loc=buffer.loc)


def _whole(buffer: Buffer) -> Region:
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape, loc=buffer.loc)


def _wider(region: Region, side: Side, factor: int, first: dict[Var, Expr]) -> Region:
    """The source of all joined blocks along one side."""
    context = IndexContext()
    starts = tuple(context.simplify(substitute(s, first)) for s in region.starts)
    extents = list(region.extents)
    extents[side.source_axis] = const(side.size * factor)
    return region.replace(starts=starts, extents=tuple(extents))


class _Shift(Rewriter):
    """Accesses to a block's result as accesses to its place in the joined result."""

    def __init__(self, old: Buffer, new: Buffer, places: tuple[Expr, ...]) -> None:
        self.old = old
        self.new = new
        self.places = places

    def _shifted(self, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(binary("add", place, index) for place, index in zip(self.places, indices, strict=True))

    def rewrite_Region(self, item: Region) -> Region:
        item = self.generic(item)
        if item.buffer is not self.old:
            return item
        return item.replace(buffer=self.new, starts=self._shifted(item.starts))

    def rewrite_Load(self, item: Load) -> Load:
        item = self.generic(item)
        if item.buffer is not self.old:
            return item
        return item.replace(buffer=self.new, indices=self._shifted(item.indices))

    def rewrite_Store(self, stmt: Store) -> Store:
        stmt = self.generic(stmt)
        if stmt.buffer is not self.old:
            return stmt
        return stmt.replace(buffer=self.new, indices=self._shifted(stmt.indices))
