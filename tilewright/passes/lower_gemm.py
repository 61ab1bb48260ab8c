"""Gemms on staged operands as register-blocked loops.

    gemm C_local += A_shared @ B_shared
becomes, for 32 vector registers of 16 lanes,
    for n in serial(0, 128, 32):
        for m in serial(0, 104, 13):
            alloc acc: float32x16[13, 2] in register
            unroll (i < 13, j < 2): acc[i, j] = C_local[m + i, n + j * 16 +: 16]
            for k in serial(0, 256, 4):
                unroll (u < 4):
                    unroll (j < 2): b[j] = B_shared[k + u, n + j * 16 +: 16]
                    unroll (i < 13):
                        let a = broadcast(A_shared[m + i, k + u])
                        unroll (j < 2): acc[i, j] = fma(a, b[j], acc[i, j])
            unroll (i < 13, j < 2): C_local[m + i, n + j * 16 +: 16] = acc[i, j]
        for m in serial(104, 128, 12): the same with 12 rows

The panel of B stays in the level 1 cache while all rows of A pass.  Prefetches and overlapping copies just before a
gemm are spread over its k loops (`companions`).  Of `if first: gemm (clear_accum) else: gemm` only the start of the
accumulators is conditional.  How a k is multiplied, or two at once, is in `gemm_products`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tilewright.analysis.index import IndexContext
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    BOOL,
    INT32,
    Binary,
    Broadcast,
    Buffer,
    Const,
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
from tilewright.ir.stmt import Alloc, For, Gemm, If, Let, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.companions import Companion, companion_of
from tilewright.passes.contexts import ContextRewriter
from tilewright.passes.gemm_operands import conditional_gemm, depth_of, is_blocked, matrix_extents
from tilewright.passes.gemm_products import products_of, vector_indices
from tilewright.passes.gemm_tiling import K_UNROLL, LONGEST_K, Strip, register_tiles
from tilewright.target import Target

# Vectors copied at the start of an iteration of the loop over k; more of them are spread over its steps.
BESIDE_AT_ONCE = 2


def lower_gemm(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace the gemms that `gemm_tiling.is_blocked` accepts by register-blocked loops."""
    result: PrimFunc = _LowerGemm(target).rewrite(func)
    return result


class _LowerGemm(ContextRewriter):
    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target

    def rewrite_Seq(self, seq: Seq) -> Seq:
        stmts: list[Stmt] = []
        waiting: list[Companion] = []
        for stmt in seq.stmts:
            companion = companion_of(stmt, self.target)
            if companion is not None:
                waiting.append(companion)
                continue
            found = conditional_gemm(stmt)
            blocked = found is not None and is_blocked(found[0])
            # A copy beside a gemm is complete only if it is known how many iterations the gemm has.
            if not blocked or found is None or not const_int(depth_of(found[0])):
                stmts.extend([loop for c in waiting for loop in c.alone()])
                waiting = []
            if blocked and found is not None:
                new: Stmt = _Blocks(self.target, self.context, *found, waiting).lower()
            else:
                new = self.rewrite(stmt)
            waiting = []
            stmts.extend(new.stmts if isinstance(new, Seq) else [new])
        return Seq((*stmts, *[loop for c in waiting for loop in c.alone()]), loc=seq.loc)


class _Blocks:
    """The loops of one gemm."""

    def __init__(
        self, target: Target, context: IndexContext, gemm: Gemm, cleared: Expr, companions: Sequence[Companion]
    ) -> None:
        self.gemm = gemm
        self.cleared = cleared
        self.companions = companions
        self.context = context
        self.loc = gemm.loc
        self.products = products_of(gemm, target)
        element = self.element = self.products.element
        self.lanes = target.lanes(element.bits)
        self.vector = element.with_lanes(self.lanes)
        rows, columns = (const_int(e) for e in matrix_extents(gemm.c))
        assert rows is not None and columns is not None
        self.m, self.n = rows, columns
        self.k = self.products.steps
        longest = context.bounds(self.k)[1]
        self.tiles = register_tiles(target, element, self.m, self.n, LONGEST_K if longest is None else longest)
        self.index: DType = self.k.dtype if self.k.dtype.is_int else INT32
        known = const_int(self.k)
        self.unroll = K_UNROLL if known is None else max(1, min(K_UNROLL, known))

    def lower(self) -> Seq:
        """All register tiles, panel after panel of B."""
        panels: list[Stmt] = []
        pieces = self._panels()
        calls_a_panel = sum(r.count for r in self.tiles.rows)
        panel_number = 0
        for strip in pieces:
            masked = strip is pieces[-1] and self.n % self.lanes != 0

            def panel(n: Expr, number: Expr, strip: Strip = strip, masked: bool = masked) -> list[Stmt]:
                return self._rows(strip.size, n, masked, binary("mul", number, calls_a_panel))

            panels += self._strip_loop("n", strip, self.lanes, panel_number, panel)
            panel_number += strip.count
        return Seq(tuple(panels), loc=self.loc)

    def _panels(self) -> list[Strip]:
        """The strips of columns; a last piece with fewer columns than its vectors stands alone."""
        strips = list(self.tiles.vectors)
        last = strips[-1]
        if self.n % self.lanes and last.count > 1:
            strips[-1:] = [
                Strip(last.start, last.count - 1, last.size),
                Strip(last.start + (last.count - 1) * last.size, 1, last.size),
            ]
        return strips

    def _rows(self, vectors: int, n: Expr, masked: bool, first_call: Expr) -> list[Stmt]:
        stmts: list[Stmt] = []
        number = 0
        for strip in self.tiles.rows:

            def tile(m: Expr, call: Expr, strip: Strip = strip) -> list[Stmt]:
                return self._tile(strip.size, vectors, m, n, masked, binary("add", first_call, call))

            stmts += self._strip_loop("m", strip, 1, number, tile)
            number += strip.count
        return stmts

    def _strip_loop(
        self, name: str, strip: Strip, unit: int, number: int, body: Callable[[Expr, Expr], list[Stmt]]
    ) -> list[Stmt]:
        """`body(offset, number)` for every piece of a strip; numbers count on from `number`."""
        start, step = strip.start * unit, strip.size * unit
        if strip.count == 1:
            return body(const(start), const(number))
        variable = Var(INT32, name, loc=self.loc)
        done = binary("floordiv", binary("sub", variable, start), step)
        stmts = body(variable, binary("add", done, number))
        return [self._loop(variable, start, start + strip.count * step, step, stmts)]

    def _loop(
        self, variable: Var, start: int | Expr, stop: int | Expr, step: int, body: list[Stmt], kind: str = "serial"
    ) -> For:
        first, last = (cast(e, variable.dtype) for e in (start, stop))
        seq = Seq(tuple(body), loc=self.loc)
        return For(variable, first, last, const(step, variable.dtype), seq, kind, loc=self.loc)

    def _unrolled(self, name: str, count: int, body: Callable[[Var], list[Stmt]]) -> Stmt:
        variable = Var(INT32, name, loc=self.loc)
        return self._loop(variable, 0, count, 1, body(variable), "unroll")

    # --- one register tile -------------------------------------------------------------------------

    def _tile(self, rows: int, vectors: int, m: Expr, n: Expr, masked: bool, call: Expr) -> list[Stmt]:
        accumulators = self._register("acc", (rows, vectors), self.vector)
        b_row = self._register("b", (vectors,), self.products.operand)
        tile = _Tile(self, accumulators, b_row, rows, vectors, m, n, masked)
        return [
            Alloc(accumulators, loc=self.loc),
            Alloc(b_row, loc=self.loc),
            *tile.start(self.cleared),
            *self._depth(tile, call),
            tile.finish(),
        ]

    def _register(self, name: str, shape: tuple[int, ...], vector: DType) -> Buffer:
        return Buffer(name, tuple(const(s) for s in shape), vector, "register", loc=self.loc)

    def _depth(self, tile: _Tile, call: Expr) -> list[Stmt]:
        """The loop over K: some k an iteration, and a second loop for what is left."""
        step, zero = self.unroll, const(0, self.index)
        if step == 1:
            return [self._over_k(zero, self.k, tile, call)]
        whole = self.context.simplify(binary("mul", binary("floordiv", self.k, step), step))
        loops: list[Stmt] = [self._over_k(zero, whole, tile, call)]
        if not self.context.divisible(self.k, step):
            k = Var(self.index, "k", loc=self.loc)
            loops.append(self._loop(k, whole, self.k, 1, tile.step(k)))
        return loops

    def _over_k(self, start: Expr, stop: Expr, tile: _Tile, call: Expr) -> Stmt:
        step = self.unroll
        k = Var(self.index, "k", loc=self.loc)
        beside = self._beside(call, binary("floordiv", k, step), binary("floordiv", self.k, step))
        if step == 1:
            body = [s for part in beside for s in part] + tile.step(k)
        elif len(beside) <= BESIDE_AT_ONCE:
            body = [s for part in beside for s in part]
            body.append(self._unrolled("u", step, lambda u: tile.step(binary("add", k, u))))
        else:  # spread over the steps, because each of them takes a register
            body = []
            for u in range(step):
                body += [s for part in beside[u::step] for s in part]
                body += tile.step(binary("add", k, u))
        return self._loop(k, start, stop, step, body)

    def _beside(self, call: Expr, iteration: Expr, iterations: Expr) -> list[list[Stmt]]:
        """What this iteration of this register tile does for the copies and prefetches that go with the gemm."""
        if not self.companions:
            return []
        slots = const_int(iterations)
        assert slots
        calls = sum(r.count for r in self.tiles.rows) * sum(s.count for s in self._panels())
        return [part for c in self.companions for part in c.slot(call, iteration, calls, slots)]


@dataclass(slots=True)
class _Tile:
    """A tile of the result in registers."""

    blocks: _Blocks
    accumulators: Buffer
    b_row: Buffer
    rows: int
    vectors: int
    m: Expr
    n: Expr
    masked: bool

    def start(self, cleared: Expr) -> list[Stmt]:
        """Accumulators from the result, or 0."""
        zero = Broadcast(self.blocks.vector, const(0, self.blocks.element), loc=self.blocks.loc)
        clear = self._each(lambda i, j: Store(self.accumulators, (i, j), zero, loc=self.blocks.loc))
        load = self._each(lambda i, j: Store(self.accumulators, (i, j), self._old(i, j), loc=self.blocks.loc))
        if isinstance(cleared, Const):
            return [clear if cleared.value else load]
        loc = self.blocks.loc
        return [If(cleared, Seq((clear,), loc=loc), Seq((load,), loc=loc), loc=loc)]

    def step(self, k: Expr) -> list[Stmt]:
        """One step along K for the whole tile."""
        blocks, loc = self.blocks, self.blocks.loc
        products = blocks.products

        def multiply(a: Var, i: Var, j: Var) -> Stmt:
            b = Load(products.operand, self.b_row, (j,), loc=loc)
            old = Load(blocks.vector, self.accumulators, (i, j), loc=loc)
            return Store(self.accumulators, (i, j), products.accumulate(a, b, old), loc=loc)

        def row(i: Var) -> list[Stmt]:
            a = Var(products.operand, "a", loc=loc)
            return [
                Let(a, products.left(binary("add", self.m, i), k), loc=loc),
                blocks._unrolled("j", self.vectors, lambda j: [multiply(a, i, j)]),
            ]

        def load_b(j: Var) -> list[Stmt]:
            return [Store(self.b_row, (j,), products.right(k, self.n, j, self._mask(j)), loc=loc)]

        return [blocks._unrolled("j", self.vectors, load_b), blocks._unrolled("i", self.rows, row)]

    def finish(self) -> Stmt:
        """The accumulators into the result."""
        loc = self.blocks.loc

        def store(i: Var, j: Var) -> Stmt:
            c = self.blocks.gemm.c
            value = cast(Load(self.blocks.vector, self.accumulators, (i, j), loc=loc), c.buffer.dtype, loc=loc)
            return Store(c.buffer, self._place(i, j), value, self._mask(j), loc=loc)

        return self._each(store)

    def _old(self, i: Var, j: Var) -> Expr:
        c = self.blocks.gemm.c.buffer
        kind = c.dtype.with_lanes(self.blocks.lanes)
        return cast(Load(kind, c, self._place(i, j), self._mask(j), loc=self.blocks.loc), self.blocks.vector)

    def _place(self, i: Var, j: Var) -> tuple[Expr, ...]:
        """The indices of a vector of the result."""
        return vector_indices(self.blocks.gemm.c, binary("add", self.m, i), self._column(j), self.blocks.lanes)

    def _each(self, make: Callable[[Var, Var], Stmt]) -> Stmt:
        blocks = self.blocks
        return blocks._unrolled("i", self.rows, lambda i: [blocks._unrolled("j", self.vectors, lambda j: [make(i, j)])])

    def _column(self, j: Var) -> Expr:
        return binary("add", self.n, binary("mul", j, self.blocks.lanes))

    def _mask(self, j: Var) -> Expr | None:
        """Which lanes are columns of the result; None for all."""
        if not self.masked:
            return None
        lanes, base = self.blocks.lanes, self._column(j)
        kind = base.dtype.with_lanes(lanes)
        limit = Broadcast(kind, const(self.blocks.n, base.dtype))
        return Binary(BOOL.with_lanes(lanes), "lt", Ramp(kind, base, const(1, base.dtype)), limit)
