"""Copies and prefetches that are done in between the steps of a gemm, a vector or a cache line at a time.

A micro-kernel keeps the multiply-add units busy and leaves room for loads and stores; a copy done on its own would
wait for the caches instead.
    copy A[by * 128 +: 128, k * 256 +: 256] -> A_shared[k % 2, 0 +: 128, 0 +: 256] (overlap)
becomes, in iteration k of register tile number `call` of a gemm that has 64 iterations for each of 40 register tiles,
    let row = min(call * 4, 124) + k // 64
    let column = k % 64 * 4
    prefetch A[by * 128 + row + 2, k * 256 + column]
    A_shared[k % 2, row, column +: 16] = A[by * 128 + row, k * 256 + column +: 16]
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.expr import INT32, Expr, Load, Ramp, Var, binary, cast, const, const_int
from tilewright.ir.stmt import Copy, For, Let, Prefetch, Region, Seq, Stmt, Store
from tilewright.passes.gemm_operands import consecutive_columns, matrix_axes, matrix_extents
from tilewright.source import Location
from tilewright.target import Target

# Bytes; of every x86-64 and of nearly every arm64 core.
CACHE_LINE = 64
# How many vectors, in whole rows, a copy's prefetch runs ahead of it: more than the latency of memory (100 ns) at one
# vector for each iteration of a micro-kernel (some 10 ns).  It may leave the tile, and the tensor, at the end.
AHEAD = 32


@dataclass(frozen=True, slots=True)
class Companion:
    """A prefetch of `src`, or a copy of it to `dst`, of constant size: `rows` times `vectors` of `lanes` elements."""

    src: Region
    dst: Region | None
    rows: int
    vectors: int
    lanes: int
    loc: Location | None

    def each(self, slots: int) -> int:
        """How many vectors a slot takes, where `slots` take all."""
        return -(-self.rows * self.vectors // slots)

    def slot(self, call: Expr, iteration: Expr, calls: int, iterations: int) -> list[list[Stmt]]:
        """What is done in an iteration of a register tile, so that all is done after the last; vector by vector."""
        each = self.each(calls * iterations)
        if not each:
            return []
        rows_a_call, left = divmod(iterations * each, self.vectors)
        first = binary("mul", iteration, each)
        if left or self.vectors % each or rows_a_call > self.rows:
            position = binary("add", binary("mul", call, iterations * each), first)
            total = self.rows * self.vectors
            places = [binary("min", binary("add", position, part), total - 1) for part in range(each)]
            return [
                self._vector(binary("floordiv", p, self.vectors), binary("floormod", p, self.vectors)) for p in places
            ]
        start = binary("min", binary("mul", call, rows_a_call), self.rows - rows_a_call)
        row = binary("add", start, binary("floordiv", first, self.vectors))
        column = binary("floormod", first, self.vectors)
        return [self._vector(row, binary("add", column, part)) for part in range(each)]

    def alone(self) -> list[Stmt]:
        """All of it at once."""
        if self.dst is None:
            return []
        row, vector = Var(INT32, "row", loc=self.loc), Var(INT32, "vector", loc=self.loc)
        body: list[Stmt] = self._vector(row, vector)
        for variable, stop in ((vector, self.vectors), (row, self.rows)):
            body = [For(variable, const(0), const(stop), const(1), Seq(tuple(body), loc=self.loc), loc=self.loc)]
        return body

    def _vector(self, row: Expr, vector: Expr) -> list[Stmt]:
        """One vector, or the prefetch of one cache line."""
        i, j = Var(INT32, "row", loc=self.loc), Var(INT32, "column", loc=self.loc)
        place: list[Stmt] = [
            Let(i, cast(row, INT32), loc=self.loc),
            Let(j, cast(binary("mul", vector, self.lanes), INT32), loc=self.loc),
        ]
        if self.dst is None:
            return [*place, self._prefetch(i, j)]
        kind = self.src.buffer.dtype.with_lanes(self.lanes)
        value = Load(kind, self.src.buffer, self._at(self.src, i, j), loc=self.loc)
        ahead = binary("add", i, -(-AHEAD // self.vectors))
        return [
            *place,
            self._prefetch(ahead, j),
            Store(self.dst.buffer, self._at(self.dst, i, j), cast(value, self.dst.buffer.dtype), loc=self.loc),
        ]

    def _prefetch(self, row: Expr, column: Expr) -> Stmt:
        starts = tuple(i.base if isinstance(i, Ramp) else i for i in self._at(self.src, row, column))
        one = tuple(const(1) for _ in starts)
        return Prefetch(Region(self.src.buffer, starts, one, loc=self.loc), loc=self.loc)

    def _at(self, region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
        """The indices of a vector."""
        i, j = matrix_axes(region) or (0, 1)
        indices = list(region.starts)
        indices[i] = binary("add", region.starts[i], row)
        base = binary("add", region.starts[j], column)
        indices[j] = Ramp(base.dtype.with_lanes(self.lanes), base, const(1, base.dtype))
        return tuple(indices)


def companion_of(stmt: Stmt, target: Target) -> Companion | None:
    """The companion that `stmt` becomes, None for other statements; a prefetch of unknown size is one of nothing."""
    if isinstance(stmt, Copy) and stmt.overlap:
        lanes = copy_lanes(stmt, target)
        assert lanes is not None
        rows, columns = sizes_of(stmt.src) or (0, 0)
        return Companion(stmt.src, stmt.dst, rows, columns // lanes, lanes, stmt.loc)
    if isinstance(stmt, Prefetch) and any(const_int(e) != 1 for e in stmt.region.extents):
        line = CACHE_LINE * 8 // max(stmt.region.buffer.dtype.bits, 8)
        rows, columns = (sizes_of(stmt.region) if consecutive_columns(stmt.region) else None) or (0, 0)
        return Companion(stmt.region, None, rows, -(-columns // line), line, stmt.loc)
    return None


def sizes_of(region: Region) -> tuple[int, int] | None:
    """Rows and columns of a matrix region, None when it is none or they are known at launch only."""
    if matrix_axes(region) is None:
        return None
    rows, columns = (const_int(e) for e in matrix_extents(region))
    return None if rows is None or columns is None else (rows, columns)


def copy_lanes(stmt: Copy, target: Target) -> int | None:
    """The lanes of the vectors that a copy consists of; None when it is not made of whole vectors."""
    sizes = sizes_of(stmt.src)
    if sizes is None or sizes != sizes_of(stmt.dst):
        return None
    if not consecutive_columns(stmt.src) or not consecutive_columns(stmt.dst):
        return None
    lanes = target.lanes(32)
    kinds = (stmt.src.buffer.dtype, stmt.dst.buffer.dtype)
    if any(k.lanes > 1 or k.bits < 8 for k in kinds):
        return None
    return lanes if 0 not in sizes and sizes[1] % lanes == 0 else None
