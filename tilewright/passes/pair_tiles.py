"""Matrices as vectors of pairs along K: element [i, j] holds B[2 * i +: 2, j * lanes +: lanes], pairs side by side.

From rows of B, two rows are interleaved:
    B_pairs[i, j] = shuffle(B[2 * i, j * 16 +: 16], B[2 * i + 1, j * 16 +: 16], [0, 16, 1, 17, ...])
From rows of a transposed B, whose pairs are neighbours, blocks of 32-bit elements are transposed in registers:
    for j in serial(8):
        for i in serial(0, 128, 16):
            unroll (r < 16): t[r] = bits of B[j * 16 + r, 2 * i +: 32]
            for each distance d of 8, 4, 2, 1: rows r and r + d exchange every other group of d lanes
            unroll (r < 16): B_pairs[i + r, j] = bits of t[r]
Where K is odd the last row counts as zeros; what the lanes beyond the last column hold does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.analysis.index import IndexContext
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import (
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Expr,
    Load,
    Ramp,
    Reinterpret,
    Shuffle,
    Var,
    binary,
    cast,
    const,
    const_int,
)
from tilewright.ir.stmt import Alloc, If, Region, Seq, Stmt, Store
from tilewright.passes.gemm_operands import BFLOAT16
from tilewright.passes.gemm_products import UINT32, vector_indices
from tilewright.passes.names import index_var
from tilewright.passes.transpose_tiles import exchange_rows, stepping, unrolled

UINT16 = dtype("uint16")


def pairs_capacity(longest: int, lanes: int, transposed: bool) -> int:
    """Rows of pairs that `interleaved_pairs` may write for `longest` of K."""
    pairs = -(-longest // 2)
    return -(-pairs // lanes) * lanes if transposed else pairs


def interleaved_pairs(source: Region, pairs: Buffer, depth: Expr, columns: int, *, transposed: bool) -> Stmt:
    """`depth` × `columns` of a matrix (of its transpose, if it is transposed) as pairs, rounded to bfloat16."""
    if transposed:
        return _transposed(source, pairs, depth, columns)
    rows = _Rows(source, pairs, columns)
    whole, loc = binary("floordiv", depth, 2), source.loc
    i = index_var("i", whole)
    loop = stepping(i, whole, 1, rows.row(i, odd=True), loc)
    left = IndexContext().simplify(binary("floormod", depth, 2))
    known = const_int(left)
    if known == 0:
        return loop
    last = rows.row(whole, odd=False)
    if known == 1:
        return Seq((loop, *last), loc=loc)
    return Seq((loop, If(binary("eq", left, 1), Seq(tuple(last), loc=loc), loc=loc)), loc=loc)


class _Rows:
    """Two rows of the source as a row of pairs."""

    def __init__(self, source: Region, pairs: Buffer, columns: int) -> None:
        self.source, self.pairs, self.columns = source, pairs, columns
        self.lanes = pairs.dtype.lanes // 2
        self.bits = UINT16.with_lanes(self.lanes)

    def row(self, i: Expr, *, odd: bool) -> list[Stmt]:
        """Row `i` of the pairs; without an odd row of the source, zeros stand for that."""
        whole = self.columns // self.lanes
        j = index_var("j", const(whole))
        stmts: list[Stmt] = []
        if whole:
            stmts.append(stepping(j, const(whole), 1, [self._vector(i, j, None, odd=odd)], self.source.loc))
        if self.columns % self.lanes:
            stmts.append(self._vector(i, const(whole), _below(self.lanes, self.columns % self.lanes), odd=odd))
        return stmts

    def _vector(self, i: Expr, j: Expr, mask: Expr | None, *, odd: bool) -> Stmt:
        loc, row = self.source.loc, binary("mul", i, 2)
        first = self._half(row, j, mask)
        second = self._half(binary("add", row, 1), j, mask) if odd else Broadcast(self.bits, const(0, UINT16), loc=loc)
        order = tuple(lane for pair in range(self.lanes) for lane in (pair, self.lanes + pair))
        mixed = Shuffle(UINT16.with_lanes(2 * self.lanes), first, second, order, loc=loc)
        return Store(self.pairs, (i, j), Reinterpret(self.pairs.dtype, mixed, loc=loc), loc=loc)

    def _half(self, row: Expr, j: Expr, mask: Expr | None) -> Expr:
        indices = vector_indices(self.source, row, binary("mul", j, self.lanes), self.lanes)
        return Reinterpret(self.bits, _rounded(self.source, indices, self.lanes, mask), loc=self.source.loc)


def _transposed(source: Region, pairs: Buffer, depth: Expr, columns: int) -> Stmt:
    loc, lanes = source.loc, pairs.dtype.lanes // 2
    vector = UINT32.with_lanes(lanes)
    t = Buffer("t", (const(lanes),), vector, "register", loc=loc)
    steps = binary("floordiv", binary("add", depth, 1), 2)
    i, j = index_var("i", steps), index_var("j", pairs.shape[1])
    whole = IndexContext().divisible(depth, 2 * lanes)

    def load(r: Var) -> Sequence[Stmt]:
        # A row beyond the last is read as the last: it makes lanes that do not matter.
        row = binary("add", binary("mul", j, lanes), r)
        if columns % lanes:
            row = binary("min", row, columns - 1)
        first = binary("mul", i, 2)
        mask = None if whole else _below(2 * lanes, cast(binary("sub", depth, first), first.dtype))
        value = _rounded(source, vector_indices(source, row, first, 2 * lanes), 2 * lanes, mask)
        return [Store(t, (r,), Reinterpret(vector, value, loc=loc), loc=loc)]

    def store(r: Var) -> Sequence[Stmt]:
        value = Reinterpret(pairs.dtype, Load(vector, t, (r,), loc=loc), loc=loc)
        return [Store(pairs, (binary("add", i, r), j), value, loc=loc)]

    body: list[Stmt] = [Alloc(t, loc=loc), unrolled("r", lanes, load, loc)]
    distance = lanes // 2
    while distance:
        body.append(exchange_rows(t, vector, distance, loc))
        distance //= 2
    body.append(unrolled("r", lanes, store, loc))
    return stepping(j, pairs.shape[1], 1, [stepping(i, steps, lanes, body, loc)], loc)


def _rounded(source: Region, indices: tuple[Expr, ...], lanes: int, mask: Expr | None) -> Expr:
    """A vector of the source as bfloat16; 0 where the mask does not hold."""
    kind = source.buffer.dtype.with_lanes(lanes)
    value = Load(kind, source.buffer, indices, mask, loc=source.loc)
    return cast(value, BFLOAT16.with_lanes(lanes), loc=source.loc)


def _below(lanes: int, limit: int | Expr) -> Expr:
    """The mask of the first `limit` lanes."""
    bound = const(limit) if isinstance(limit, int) else limit
    kind = bound.dtype.with_lanes(lanes)
    numbers = Ramp(kind, const(0, bound.dtype), const(1, bound.dtype))
    return Binary(BOOL.with_lanes(lanes), "lt", numbers, Broadcast(kind, bound))
