"""The rules of each IR level.  Valid IR in, valid IR out is what every pass promises; this checks it.

Between the passes a function has the level "lowering", which allows what either level allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    BINARY_OPS,
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Reinterpret,
    Select,
    Shuffle,
    Unary,
    Var,
    VectorReduce,
    const_int,
)
from tilewright.ir.intrinsics import INTRINSICS
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node
from tilewright.ir.stmt import (
    ATOMIC_OPS,
    FOR_KINDS,
    REDUCE_OPS,
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Prefetch,
    Print,
    Reduce,
    Region,
    Scan,
    Seq,
    Stmt,
    Store,
    Transpose,
    While,
)

LEVELS = ("tile", "lowering", "lowered")
LOWERED_CALLS = {"dot2_bf16": 3}
TILE_ONLY = (Parallel, Copy, Transpose, Fill, Gemm, Reduce, Scan)
VECTOR_REDUCE_OPS = ("add", "max", "min", "max_nan", "min_nan", "bitand", "bitor", "bitxor")


def verify(func: PrimFunc) -> None:
    """Raise VerificationError, with the place, unless `func` keeps the rules of its level."""
    if func.level not in LEVELS:
        raise VerificationError(f"level {func.level!r} is unknown", location=func.loc)
    _Verifier(func.level).function(func)


class _Verifier:
    def __init__(self, level: str) -> None:
        self.lowered = level == "lowered"
        self.tile = level == "tile"
        self.names: list[dict[int, Node | Buffer]] = [{}]
        self.loops = 0
        self.in_launch = False

    def fail(self, item: Any, message: str) -> NoReturn:
        raise VerificationError(f"{type(item).__name__}: {message}", location=getattr(item, "loc", None))

    # --- scopes --------------------------------------------------------------------------------------

    def declare(self, item: Node | Buffer, at: Any) -> None:
        """`item` is known from here to the end of the innermost scope."""
        if any(id(item) in scope for scope in self.names):
            self.fail(at, f"{getattr(item, 'name', '?')!r} is declared twice")
        self.names[-1][id(item)] = item

    def known(self, item: Node | Buffer) -> bool:
        return any(id(item) in scope for scope in self.names)

    def scoped(self, declared: Iterable[Node | Buffer], body: Seq, at: Stmt) -> None:
        """A body in a scope of its own, with some names declared first."""
        self.names.append({})
        for item in declared:
            self.declare(item, at)
        self.sequence(body)
        self.names.pop()

    # --- functions and statements --------------------------------------------------------------------

    def function(self, func: PrimFunc) -> None:
        for size in func.sizes:
            self.declare(size, func)
        for param in func.params:
            self.declare(param, func)
        for param in func.buffers():
            self.buffer_sizes(param, func)
            if param.scope != "global":
                self.fail(func, f"parameter {param.name!r} has scope {param.scope!r}")
        for position in func.outputs:
            if not 0 <= position < len(func.params) or not isinstance(func.params[position], Buffer):
                self.fail(func, f"output {position} is no buffer parameter")
        self.sequence(func.body)

    def sequence(self, body: Seq) -> None:
        self.names.append({})
        for stmt in body.stmts:
            self.statement(stmt)
        self.names.pop()

    def statement(self, stmt: Stmt) -> None:
        if self.lowered and isinstance(stmt, TILE_ONLY):
            self.fail(stmt, "does not belong into lowered IR")
        check = _STATEMENTS.get(type(stmt))
        if check is None:
            self.fail(stmt, "is no statement")
        check(self, stmt)

    def _let(self, stmt: Let) -> None:
        self.expr(stmt.value)
        if stmt.var.dtype is not stmt.value.dtype:
            self.fail(stmt, f"{stmt.var.name!r} is {stmt.var.dtype}, its value {stmt.value.dtype}")
        self.declare(stmt.var, stmt)

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        if buffer.scope not in Buffer.SCOPES or (buffer.scope == "register" and self.tile):
            self.fail(stmt, f"scope {buffer.scope!r} is unknown at this level")
        if buffer.scope != "global" and buffer.const_shape() is None:
            self.fail(stmt, f"on-chip buffer {buffer.name!r} has a size known at launch only")
        if buffer.scope == "var" and buffer.shape:
            self.fail(stmt, "a var has no dimensions")
        self.buffer_sizes(buffer, stmt)
        if stmt.init is not None:
            self.typed(stmt.init, buffer.dtype, stmt, "the first value")
        self.declare(buffer, stmt)

    def _alias(self, stmt: Alias) -> None:
        if stmt.buffer.view_of is None or not self.known(stmt.buffer.view_of):
            self.fail(stmt, f"{stmt.buffer.name!r} views no known buffer")
        self.buffer_sizes(stmt.buffer, stmt)
        self.declare(stmt.buffer, stmt)

    def buffer_sizes(self, buffer: Buffer, at: Any) -> None:
        for size in (*buffer.shape, *(buffer.strides or ())):
            self.index(size, at)
        if buffer.strides is not None and len(buffer.strides) != len(buffer.shape):
            self.fail(at, f"{buffer.name!r} has {len(buffer.shape)} dimensions but {len(buffer.strides)} strides")

    def _store(self, stmt: Store) -> None:
        lanes = self.access(stmt.buffer, stmt.indices, stmt.mask, stmt)
        element = stmt.buffer.dtype if lanes is None else stmt.buffer.dtype.with_lanes(lanes)
        self.typed(stmt.value, element, stmt, "the value")

    def access(self, buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None, at: Any) -> int | None:
        """Check an access; the lanes of a vector access, None for one element."""
        if not self.known(buffer):
            self.fail(at, f"buffer {buffer.name!r} is not known here")
        if len(indices) != len(buffer.shape):
            self.fail(at, f"{len(indices)} indices for {buffer.name!r} of {len(buffer.shape)} dimensions")
        widths = {1}
        for index in indices:
            self.expr(index)
            if not index.dtype.is_int:
                self.fail(at, f"an index of {buffer.name!r} is {index.dtype}")
            widths.add(index.dtype.lanes)
        if len(widths) > 2:
            self.fail(at, f"indices with different lanes: {sorted(widths)}")
        lanes = max(widths)
        if mask is not None:
            if self.tile:
                self.fail(at, "a mask belongs into lowered IR")
            self.typed(mask, BOOL.with_lanes(lanes), at, "the mask")
        return lanes if lanes > 1 else None

    def _for(self, stmt: For) -> None:
        for bound in (stmt.start, stmt.stop, stmt.step):
            self.typed(bound, stmt.var.dtype, stmt, "a bound")
        if stmt.kind not in FOR_KINDS or (self.lowered and stmt.kind not in ("serial", "unroll")):
            self.fail(stmt, f"kind {stmt.kind!r} is unknown at this level")
        if const_int(stmt.step) == 0:
            self.fail(stmt, "the step is 0")
        if stmt.kind == "unroll" and None in [const_int(b) for b in (stmt.start, stmt.stop, stmt.step)]:
            self.fail(stmt, "an unrolled loop needs literal bounds")
        self.loops += 1
        self.scoped((stmt.var,), stmt.body, stmt)
        self.loops -= 1

    def _while(self, stmt: While) -> None:
        self.typed(stmt.condition, BOOL, stmt, "the condition")
        self.loops += 1
        self.sequence(stmt.body)
        self.loops -= 1

    def _if(self, stmt: If) -> None:
        self.typed(stmt.condition, BOOL, stmt, "the condition")
        self.sequence(stmt.then_body)
        if stmt.else_body is not None:
            self.sequence(stmt.else_body)

    def _leave(self, stmt: Break | Continue) -> None:
        if not self.loops:
            self.fail(stmt, "stands in no loop")

    def _print(self, stmt: Print) -> None:
        for value in stmt.values:
            self.expr(value)
        for region in stmt.regions:
            self.region(region)

    def _assert(self, stmt: Assert) -> None:
        self.typed(stmt.condition, BOOL, stmt, "the condition")

    def _prefetch(self, stmt: Prefetch) -> None:
        for child in stmt.children():
            if isinstance(child, Region):
                self.region(child)
            elif isinstance(child, Expr):
                self.expr(child)

    # --- tile operations -----------------------------------------------------------------------------

    def _parallel(self, stmt: Parallel) -> None:
        if len(stmt.vars) != len(stmt.extents) or not stmt.vars:
            self.fail(stmt, f"{len(stmt.vars)} variables for {len(stmt.extents)} extents")
        for extent in stmt.extents:
            self.index(extent, stmt)
        outer, self.loops = self.loops, 0
        self.scoped(stmt.vars, stmt.body, stmt)
        self.loops = outer

    def region(self, item: Region) -> None:
        if not self.known(item.buffer):
            self.fail(item, f"buffer {item.buffer.name!r} is not known here")
        if not len(item.starts) == len(item.extents) == len(item.buffer.shape):
            self.fail(item, f"the box of {item.buffer.name!r} has another rank than its buffer")
        for part in (*item.starts, *item.extents):
            self.index(part, item)

    def _same_extents(self, a: Region, b: Region, at: Stmt) -> None:
        left = [e for e in a.extents if const_int(e) != 1]
        right = [e for e in b.extents if const_int(e) != 1]
        if len(left) != len(right) or any(_differ(x, y) for x, y in zip(left, right, strict=True)):
            self.fail(at, f"extents of {a.buffer.name!r} and {b.buffer.name!r} differ")

    def _copy(self, stmt: Copy) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        self._same_extents(stmt.src, stmt.dst, stmt)

    def _transpose(self, stmt: Transpose) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)

    def _fill(self, stmt: Fill) -> None:
        self.region(stmt.dst)
        self.typed(stmt.value, stmt.dst.buffer.dtype, stmt, "the value")

    def _gemm(self, stmt: Gemm) -> None:
        for region in (stmt.a, stmt.b, stmt.c):
            self.region(region)
            if len([e for e in region.extents if const_int(e) != 1]) > 2:
                self.fail(stmt, f"{region.buffer.name!r} is no matrix")

    def _reduce(self, stmt: Reduce) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        if stmt.op not in REDUCE_OPS:
            self.fail(stmt, f"operation {stmt.op!r} is unknown")
        if not 0 <= stmt.dim < len(stmt.src.extents):
            self.fail(stmt, f"dimension {stmt.dim} of {len(stmt.src.extents)}")
        kept = [e for d, e in enumerate(stmt.src.extents) if d != stmt.dim and const_int(e) != 1]
        found = [e for e in stmt.dst.extents if const_int(e) != 1]
        if len(kept) != len(found) or any(_differ(x, y) for x, y in zip(kept, found, strict=True)):
            self.fail(stmt, "the destination's extents are not the source's without the dimension")

    def _scan(self, stmt: Scan) -> None:
        self.region(stmt.src)
        self.region(stmt.dst)
        if stmt.op not in ("sum", "max") or not 0 <= stmt.dim < len(stmt.src.extents):
            self.fail(stmt, f"operation {stmt.op!r} over dimension {stmt.dim}")
        self._same_extents(stmt.src, stmt.dst, stmt)

    def _atomic(self, stmt: Atomic) -> None:
        self.region(stmt.dst)
        if stmt.op not in ATOMIC_OPS:
            self.fail(stmt, f"operation {stmt.op!r} is unknown")
        if stmt.source is not None:
            self.region(stmt.source)
            self._same_extents(stmt.source, stmt.dst, stmt)
        elif stmt.value is not None:
            self.typed(stmt.value, stmt.dst.buffer.dtype, stmt, "the value")
        if self.lowered and (stmt.source is not None or any(const_int(e) != 1 for e in stmt.dst.extents)):
            self.fail(stmt, "lowered IR has atomics on single elements only")
        if stmt.result is not None:
            if stmt.result.dtype is not stmt.dst.buffer.dtype:
                self.fail(stmt, "the old value has another dtype than the buffer")
            self.declare(stmt.result, stmt)

    def _launch(self, stmt: Launch) -> None:
        if self.in_launch:
            self.fail(stmt, "stands inside another launch")
        if len(stmt.grid) != len(stmt.block_vars) or not 1 <= len(stmt.grid) <= 3:
            self.fail(stmt, f"{len(stmt.block_vars)} block variables for a grid of {len(stmt.grid)}")
        for count in stmt.grid:
            self.index(count, stmt)
        self.in_launch = True
        self.scoped(stmt.block_vars, stmt.body, stmt)
        self.in_launch = False

    # --- expressions ---------------------------------------------------------------------------------

    def index(self, item: Expr, at: Any) -> None:
        """A scalar integer."""
        self.expr(item)
        if not item.dtype.is_int or item.dtype.lanes != 1:
            self.fail(at, f"a size or index is {item.dtype}")

    def typed(self, item: Expr, dtype: DType, at: Any, what: str) -> None:
        """An expression of exactly `dtype`."""
        self.expr(item)
        if item.dtype is not dtype:
            self.fail(at, f"{what} is {item.dtype}, not {dtype}")

    def expr(self, item: Expr) -> None:
        if item.dtype.lanes > 1 and self.tile and not isinstance(item, (Const, Cast, Load, Reinterpret)):
            self.fail(item, f"{item.dtype} belongs into lowered IR")
        check = _EXPRESSIONS.get(type(item))
        if check is None:
            self.fail(item, "is no expression")
        check(self, item)

    def _const(self, item: Const) -> None:
        wanted = {"bool": bool, "float": float}.get(item.dtype.kind, int)
        if type(item.value) is not wanted:
            self.fail(item, f"{item.value!r} is no value of {item.dtype}")

    def _var(self, item: Var) -> None:
        if not self.known(item):
            self.fail(item, f"{item.name!r} is not known here")

    def _unary(self, item: Unary) -> None:
        self.typed(item.operand, item.dtype, item, "the operand")
        fits = {"neg": not item.dtype.is_bool, "not": item.dtype.is_bool, "bitnot": item.dtype.is_int}
        if not fits.get(item.op, False):
            self.fail(item, f"{item.op!r} has no meaning on {item.dtype}")

    def _binary(self, item: Binary) -> None:
        entry = BINARY_OPS.get(item.op)
        if entry is None:
            self.fail(item, f"operation {item.op!r} is unknown")
        self.expr(item.lhs)
        self.typed(item.rhs, item.lhs.dtype, item, "the right operand")
        lanes = item.lhs.dtype.lanes
        result = BOOL.with_lanes(lanes) if entry[1] in ("compare", "logic") else item.lhs.dtype
        if item.dtype is not result:
            self.fail(item, f"{item.op!r} on {item.lhs.dtype} gives {result}, not {item.dtype}")
        if entry[1] == "logic" and not item.lhs.dtype.is_bool:
            self.fail(item, f"{item.op!r} needs conditions, not {item.lhs.dtype}")

    def _cast(self, item: Cast) -> None:
        self.expr(item.value)
        if item.value.dtype.lanes != item.dtype.lanes or item.rounding not in ("rn", "rz"):
            self.fail(item, f"from {item.value.dtype} to {item.dtype}, rounding {item.rounding!r}")

    def _reinterpret(self, item: Reinterpret) -> None:
        self.expr(item.value)
        if item.value.dtype.bits * item.value.dtype.lanes != item.dtype.bits * item.dtype.lanes:
            self.fail(item, f"{item.value.dtype} and {item.dtype} differ in width")

    def _select(self, item: Select) -> None:
        self.expr(item.condition)
        self.typed(item.on_true, item.dtype, item, "the value if true")
        self.typed(item.on_false, item.dtype, item, "the value if false")
        if item.condition.dtype not in (BOOL, BOOL.with_lanes(item.dtype.lanes)):
            self.fail(item, f"the condition is {item.condition.dtype}")

    def _load(self, item: Load) -> None:
        lanes = self.access(item.buffer, item.indices, item.mask, item)
        expected = item.buffer.dtype if lanes is None else item.buffer.dtype.with_lanes(lanes)
        if item.dtype is not expected:
            self.fail(item, f"{item.buffer.name!r} gives {expected}, not {item.dtype}")

    def _call(self, item: Call) -> None:
        entry = INTRINSICS.get(item.name)
        arity = entry.arity if entry is not None else None if self.tile else LOWERED_CALLS.get(item.name)
        if arity is None:
            self.fail(item, f"intrinsic {item.name!r} is unknown at this level")
        if len(item.args) != arity:
            self.fail(item, f"{item.name!r} takes {arity} arguments, not {len(item.args)}")
        for argument in item.args:
            self.expr(argument)

    def _ramp(self, item: Ramp) -> None:
        self.index(item.base, item)
        self.typed(item.stride, item.base.dtype, item, "the stride")
        if item.dtype.scalar is not item.base.dtype:
            self.fail(item, f"a ramp of {item.base.dtype} cannot be {item.dtype}")

    def _broadcast(self, item: Broadcast) -> None:
        self.typed(item.value, item.dtype.scalar, item, "the value")

    def _shuffle(self, item: Shuffle) -> None:
        self.expr(item.first)
        self.typed(item.second, item.first.dtype, item, "the second vector")
        width = 2 * item.first.dtype.lanes
        if len(item.lanes) != item.dtype.lanes or not all(0 <= lane < width for lane in item.lanes):
            self.fail(item, f"lanes {item.lanes} of {width}")

    def _vector_reduce(self, item: VectorReduce) -> None:
        self.expr(item.value)
        if item.value.dtype.scalar is not item.dtype or item.op not in VECTOR_REDUCE_OPS:
            self.fail(item, f"{item.op!r} of {item.value.dtype} to {item.dtype}")


def _differ(a: Expr, b: Expr) -> bool:
    """Whether two extents are known to differ."""
    x, y = const_int(a), const_int(b)
    return x is not None and y is not None and x != y


_STATEMENTS: dict[type[Stmt], Callable[[_Verifier, Any], None]] = {
    Seq: _Verifier.sequence,
    Let: _Verifier._let,
    Alloc: _Verifier._alloc,
    Alias: _Verifier._alias,
    Store: _Verifier._store,
    For: _Verifier._for,
    While: _Verifier._while,
    If: _Verifier._if,
    Break: _Verifier._leave,
    Continue: _Verifier._leave,
    Print: _Verifier._print,
    Assert: _Verifier._assert,
    Prefetch: _Verifier._prefetch,
    Parallel: _Verifier._parallel,
    Copy: _Verifier._copy,
    Transpose: _Verifier._transpose,
    Fill: _Verifier._fill,
    Gemm: _Verifier._gemm,
    Reduce: _Verifier._reduce,
    Scan: _Verifier._scan,
    Atomic: _Verifier._atomic,
    Launch: _Verifier._launch,
}
_EXPRESSIONS: dict[type[Expr], Callable[[_Verifier, Any], None]] = {
    Const: _Verifier._const,
    Var: _Verifier._var,
    Unary: _Verifier._unary,
    Binary: _Verifier._binary,
    Cast: _Verifier._cast,
    Reinterpret: _Verifier._reinterpret,
    Select: _Verifier._select,
    Load: _Verifier._load,
    Call: _Verifier._call,
    Ramp: _Verifier._ramp,
    Broadcast: _Verifier._broadcast,
    Shuffle: _Verifier._shuffle,
    VectorReduce: _Verifier._vector_reduce,
}
