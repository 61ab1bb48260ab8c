"""Reductions as explicit loops.

Over the innermost dimension: vector accumulators that are joined at the end.

    reduce sum x -> s (dim=1, clear)
becomes (16 lanes, 2 accumulators)
    for i in serial(4):
        alloc acc: float32x16[2] register
        for u in unroll(2): acc[u] = broadcast(0.0, 16)
        for j in serial(8):
            for u in unroll(2):
                acc[u] = acc[u] + x[i, j * 32 + u * 16 +: 16]
        s[i] = reduce_add(acc[0] + acc[1])

Over another dimension: parallel over the kept ones, serial along it.  `max` and `min` start from the first
element, so that NaN comes out only where all elements are NaN.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    BOOL,
    INT32,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Expr,
    Load,
    Ramp,
    VectorReduce,
    binary,
    cast,
    const,
    const_int,
    promote,
    select,
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.stmt import Alloc, For, Parallel, Reduce, Seq, Stmt, Store
from tilewright.options import CompileOptions
from tilewright.passes.lower_tiles import serial_nest, sum_dtype
from tilewright.passes.names import axis_name, index_var
from tilewright.source import Location
from tilewright.target import Target

ACCUMULATORS = 4  # independent sums hide the latency of an addition (4 cycles, two a cycle, on current cores)


@dataclass(frozen=True)
class Combine:
    """How a reduction joins values.  op: of Binary, or of Call when `is_call`; idempotent: x op x = x."""

    op: str
    neutral: str
    absolute: bool = False
    is_call: bool = False
    idempotent: bool = False


COMBINES: dict[str, Combine] = {
    "sum": Combine("add", "zero"),
    "abssum": Combine("add", "zero", absolute=True),
    "max": Combine("max", "lowest", idempotent=True),
    "min": Combine("min", "highest", idempotent=True),
    "absmax": Combine("max", "zero", absolute=True, idempotent=True),
    "bitand": Combine("bitand", "ones"),
    "bitor": Combine("bitor", "zero"),
    "bitxor": Combine("bitxor", "zero"),
    "any": Combine("max", "zero"),
    "all": Combine("min", "one"),
}
PROPAGATING: dict[str, str] = {"max": "max_nan", "min": "min_nan", "absmax": "max_nan"}


def lower_reduce(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace every Reduce by loops."""
    result: PrimFunc = _LowerReduce(target).rewrite(func)
    return result


class _LowerReduce(Rewriter):
    def __init__(self, target: Target) -> None:
        self.target = target

    def rewrite_Reduce(self, stmt: Reduce) -> Stmt:
        return _Reduction(stmt, self.target).loops()


class _Reduction:
    def __init__(self, stmt: Reduce, target: Target) -> None:
        self.stmt = stmt
        self.loc: Location | None = stmt.loc
        self.combine = COMBINES[stmt.op]
        if stmt.nan_propagate and stmt.op in PROPAGATING and stmt.src.buffer.dtype.is_float:
            propagating = PROPAGATING[stmt.op]
            self.combine = Combine(propagating, self.combine.neutral, self.combine.absolute, True, True)
        self.wide = self._wide_dtype()
        rank = len(stmt.src.extents)
        self.kept = [d for d in range(rank) if d != stmt.dim and const_int(stmt.src.extents[d]) != 1]
        self.variables = tuple(index_var(axis_name(p), stmt.src.extents[d]) for p, d in enumerate(self.kept))
        self.length = stmt.src.extents[stmt.dim]
        self.lanes = target.lanes(self.wide.bits)
        strides = stmt.src.buffer.strides
        self.contiguous = stmt.dim == rank - 1 and (strides is None or const_int(strides[-1]) == 1)

    def _wide_dtype(self) -> DType:
        if self.stmt.op in ("any", "all"):
            return INT32
        source, target = self.stmt.src.buffer.dtype, self.stmt.dst.buffer.dtype
        if source.is_float:
            return sum_dtype(promote(source, target)) if promote(source, target).is_float else sum_dtype(source)
        return sum_dtype(target) if target.is_int and target.bits >= source.bits else sum_dtype(source)

    def loops(self) -> Stmt:
        known = const_int(self.length)
        if self.contiguous and known is not None and known >= self.lanes:
            body = self._over_lanes(known)
            extents = [self.stmt.src.extents[d] for d in self.kept]
            return serial_nest(self.variables, extents, body, self.loc)
        body = self._one_by_one()
        extents_tuple = tuple(self.stmt.src.extents[d] for d in self.kept)
        return Parallel(self.variables, extents_tuple, body, loc=self.loc) if self.variables else body

    # --- pieces ------------------------------------------------------------------------------------

    def element(self, along: Expr, lanes: int = 1) -> Expr:
        """The source's element (or `lanes` elements from there on), prepared for combining."""
        region = self.stmt.src
        indices = list(region.starts)
        for d, variable in zip(self.kept, self.variables, strict=True):
            indices[d] = binary("add", region.starts[d], variable)
        position = binary("add", region.starts[self.stmt.dim], along)
        indices[self.stmt.dim] = (
            position
            if lanes == 1
            else Ramp(position.dtype.with_lanes(lanes), position, const(1, position.dtype), loc=self.loc)
        )
        element = region.buffer.dtype.with_lanes(lanes)
        value: Expr = Load(element, region.buffer, tuple(indices), loc=self.loc)
        if self.stmt.op in ("any", "all"):
            value = _not_zero(value)
        value = cast(value, self.wide, loc=self.loc)
        if self.combine.absolute:
            value = Call(value.dtype, "abs", (value,), loc=self.loc)
        return value

    def join(self, a: Expr, b: Expr) -> Expr:
        """Two values combined."""
        if self.combine.is_call:
            return Call(a.dtype, self.combine.op, (a, b), loc=self.loc)
        return Binary(a.dtype, self.combine.op, a, b, loc=self.loc)

    def neutral(self) -> Expr:
        """The value of an empty reduction."""
        kind = self.combine.neutral
        if kind in ("lowest", "highest"):
            if self.wide.is_float:
                return const(-math.inf if kind == "lowest" else math.inf, self.wide)
            return const(self.wide.int_range()[kind == "highest"], self.wide)
        if kind == "ones":
            return const(-1 if self.wide.kind == "int" else self.wide.int_range()[1], self.wide)
        return const(1 if kind == "one" else 0, self.wide)

    def first(self) -> Expr:
        """What an accumulator starts from."""
        known = const_int(self.length)
        if not self.combine.idempotent or known == 0:
            return self.neutral()
        if known is None:
            return select(binary("gt", self.length, 0), self.element(const(0)), self.neutral(), loc=self.loc)
        return self.element(const(0))

    def store_result(self, value: Expr) -> Stmt:
        """The combined value joined with the old one, in the destination."""
        region = self.stmt.dst
        free = [d for d, e in enumerate(region.extents) if const_int(e) != 1]
        indices = list(region.starts)
        for d, variable in zip(free, self.variables, strict=True):
            indices[d] = binary("add", region.starts[d], variable)
        element = region.buffer.dtype
        if not self.stmt.clear:
            old: Expr = Load(element, region.buffer, tuple(indices), loc=self.loc)
            if self.stmt.op in ("any", "all"):
                old = _not_zero(old)
            value = self.join(cast(old, self.wide, loc=self.loc), value)
        if self.stmt.op in ("any", "all"):
            value = cast(_not_zero(value), BOOL, loc=self.loc)
        return Store(region.buffer, tuple(indices), cast(value, element, loc=self.loc), loc=self.loc)

    # --- the two shapes of loops -------------------------------------------------------------------

    def _one_by_one(self) -> Seq:
        loc = self.loc
        total = Buffer("acc", (), self.wide, "var", loc=loc)
        step = index_var("r", self.length)
        old = Load(self.wide, total, (), loc=loc)
        update = Store(total, (), self.join(old, self.element(step)), loc=loc)
        zero, one = const(0, step.dtype), const(1, step.dtype)
        loop = For(step, zero, cast(self.length, step.dtype), one, Seq((update,), loc=loc), loc=loc)
        start = Store(total, (), self.first(), loc=loc)
        return Seq((Alloc(total, loc=loc), start, loop, self.store_result(old)), loc=loc)

    def _over_lanes(self, length: int) -> Seq:
        loc, lanes = self.loc, self.lanes
        count = max(1, min(ACCUMULATORS, length // lanes))
        vector = self.wide.with_lanes(lanes)
        acc = Buffer("acc", (const(count),), vector, "register", loc=loc)
        unrolled, step = index_var("u", const(count)), index_var("j", const(length))
        start = Broadcast(vector, self.first(), loc=loc)
        block = lanes * count

        def at(u: Expr) -> Load:
            return Load(vector, acc, (u,), loc=loc)

        def loop(kind: str, variable: Expr, stop: int, body: Stmt) -> For:
            return For(variable, const(0), const(stop), const(1), Seq((body,), loc=loc), kind=kind, loc=loc)  # type: ignore[arg-type]

        position = binary("add", binary("mul", step, block), binary("mul", unrolled, lanes))
        update = Store(acc, (unrolled,), self.join(at(unrolled), self.element(position, lanes)), loc=loc)
        stmts: list[Stmt] = [
            Alloc(acc, loc=loc),
            loop("unroll", unrolled, count, Store(acc, (unrolled,), start, loc=loc)),
            loop("serial", step, length // block, loop("unroll", unrolled, count, update)),
        ]
        done = length // block * block
        while done + lanes <= length:
            more = self.join(at(const(0)), self.element(const(done), lanes))
            stmts.append(Store(acc, (const(0),), more, loc=loc))
            done += lanes
        total: Expr = at(const(0))
        for u in range(1, count):
            total = self.join(total, at(const(u)))
        value: Expr = VectorReduce(self.wide, self.combine.op, total, loc=loc)
        for rest in range(done, length):
            value = self.join(value, self.element(const(rest)))
        stmts.append(self.store_result(value))
        return Seq(tuple(stmts), loc=loc)


def _not_zero(value: Expr) -> Expr:
    if value.dtype.is_bool:
        return value
    zero: Expr = const(0, value.dtype.scalar)
    if value.dtype.lanes > 1:
        zero = Broadcast(value.dtype, zero)
    return Binary(BOOL.with_lanes(value.dtype.lanes), "ne", value, zero, loc=value.loc)
