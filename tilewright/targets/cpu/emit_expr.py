"""Expressions to LLVM instructions.

What an expression gives is an `Item`: an exact 64-bit index value, a signed literal (which fits in with
either), or a typed value, in compute form, in storage form, or both; the other form is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from tilewright.errors import TilewrightError, VerificationError
from tilewright.ir.dtype import DType
from tilewright.ir.dtype import dtype as make_dtype
from tilewright.ir.expr import (
    BINARY_OPS,
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
)
from tilewright.ir.rewriter import walk
from tilewright.targets.cpu import arithmetic, casts, emit_index, emit_lanes, emit_memory, intrinsics, literals
from tilewright.targets.cpu.values import (
    Item,
    Linear,
    Value,
    compute_scalar,
    integer,
    real,
    storage_scalar,
    vector_type,
)
from tilewright.targets.cpu.writer import Writer

if TYPE_CHECKING:
    from tilewright.targets.cpu.emit_memory import Place

INT64 = make_dtype("int64")
BOOL = make_dtype("bool")
BFLOAT16 = make_dtype("bfloat16")


class Emitter:
    """Emits expressions into a function."""

    def __init__(self, w: Writer) -> None:
        self.w = w
        self.env: dict[int, Item] = {}
        self.places: dict[int, Place] = {}
        self.guards: list[Value] = []
        self._loads: dict[int, bool] = {}
        self._literals: dict[int, Item] = {}
        self.alive: list[Any] = []  # owners of the ids that are keys above

    # --- entry points ---------------------------------------------------------------------------

    def code(self, expr: Expr) -> Item:
        """`expr` emitted."""
        method = _METHODS.get(type(expr))
        if method is None:
            raise VerificationError(f"{type(expr).__name__} is not an expression", location=expr.loc)
        try:
            return method(self, expr)
        except TilewrightError as error:
            raise error.at(expr.loc) from None

    def value(self, expr: Expr) -> Value:
        """`expr` in the compute form of its dtype; index values wrap."""
        return self.compute(self.code(expr))

    def linear(self, expr: Expr) -> Linear:
        """A scalar integer expression as an exact sum."""
        item = self.code(expr)
        if item.linear is not None:
            return item.linear
        value = self.compute(item)
        if value.number is None:
            op = "sext" if item.dtype.kind == "int" else "zext"
            value = value if value.type == "i64" else self.w.pure(f"{op} {value.operand} to i64", "i64", 1, value)
        return Linear.atom(value)

    def index(self, expr: Expr) -> Value:
        """A scalar integer expression as an i64."""
        return self.w.linear(self.linear(expr))

    def index_vector(self, expr: Expr) -> Value:
        """A vector of integers as i64 lanes."""
        item = self.code(expr)
        value = item.value if item.kind != "typed" and item.value is not None else self.compute(item)
        return self.w.convert("sext" if item.dtype.kind == "int" else "zext", value, "i64")

    def lookup(self, var: Var) -> Item:
        """What a variable stands for.  Raises VerificationError outside of its scope."""
        found = self.env.get(id(var))
        if found is None:
            raise VerificationError(f"variable {var.name} is used outside of its scope")
        return found

    def place(self, buffer: Buffer) -> Place:
        """Where a buffer is.  Raises VerificationError outside of its scope."""
        found = self.places.get(id(buffer))
        if found is None:
            raise VerificationError(f"buffer {buffer.name} is used outside of its scope")
        return found

    # --- forms ------------------------------------------------------------------------------------

    def wide(self, item: Item) -> Value:
        """An index or literal item as i64 (lanes)."""
        if item.linear is not None:
            return self.w.linear(item.linear)
        assert item.value is not None
        return item.value

    def compute(self, item: Item) -> Value:
        """In the compute form of the item's dtype."""
        if item.kind != "typed":
            value = self.wide(item)
            scalar = compute_scalar(item.dtype)
            if scalar != "i64":
                if value.number is not None:
                    value = self.w.convert("trunc", value, scalar)
                else:
                    target = vector_type(scalar, value.lanes)
                    value = self.w.pure(f"trunc {value.operand} to {target}", target, value.lanes, value)
            return casts.wrap(self.w, value, item.dtype)
        if item.value is not None:
            return item.value
        assert item.stored is not None
        value = casts.decode(self.w, item.stored, item.dtype.scalar)
        if value.depth <= item.stored.depth:  # else it was made in a branch, and may be asked for outside of it
            item.value = value
        return value

    def stored(self, item: Item, dtype: DType) -> Value:
        """Converted to the scalar dtype `dtype`, in storage form."""
        if item.dtype.scalar is not dtype:
            typed = Item(item.dtype, value=self.compute(item))  # an index value wraps where it is stored
            item = self.convert(typed, dtype.with_lanes(item.dtype.lanes), "rn", False)
        if item.kind == "typed" and item.stored is not None:
            return item.stored
        made = self.compute(item)
        value = casts.encode(self.w, made, dtype)
        if item.kind == "typed" and value.depth <= made.depth:
            item.stored = value
        return value

    def rounded(self, value: Value, dtype: DType) -> Item:
        """The result of an operation in compute form, rounded (or wrapped) into `dtype`."""
        if dtype.is_narrow_float:
            return Item(dtype, stored=casts.encode(self.w, value, dtype.scalar))
        return Item(dtype, value=casts.wrap(self.w, value, dtype) if dtype.is_int else value)

    def convert(self, item: Item, target: DType, rounding: str, saturate: bool) -> Item:
        """A cast."""
        source = item.dtype
        if item.kind != "typed":
            if target.kind == "int" and target.bits >= source.bits:
                return Item(target, item.kind, item.value, None, item.linear)
            value, source = self.wide(item), INT64
        else:
            value = self.compute(item)
        w = self.w
        if target.is_bool:
            if source.is_float:
                return Item(target, value=w.fcmp("une", value, real(0.0, value.scalar_type, value.lanes)))
            if source.is_bool:
                return Item(target, value=value)
            zero = integer(0, int(value.scalar_type[1:]), value.lanes)
            return Item(target, value=w.icmp("ne", value, zero))
        if target.is_float:
            if source.is_float:
                result, stored = casts.float_to_float(w, value, target.scalar, rounding, saturate)
            else:
                result, stored = casts.int_to_float(w, value, source, target.scalar, rounding, saturate)
            return Item(target, stored=result) if stored else Item(target, value=result)
        if source.is_float:
            return Item(target, value=casts.float_to_int(w, value, target.scalar))
        return Item(target, value=casts.int_to_int(w, value, source.kind == "int", target.scalar))

    # --- guards -------------------------------------------------------------------------------------

    def guarded(self, mask: Value | None, lanes: int) -> Value | None:
        """`mask` and every condition under which the expression being emitted counts."""
        for guard in self.guards:
            fitted = guard
            if guard.lanes != lanes:
                if guard.lanes > 1:
                    fitted = self.reduce_lanes("or", guard)
                fitted = self.w.splat(fitted, lanes)
            if mask is None:
                mask = fitted
            else:
                mask = self.w.bin("and", self.w.splat(mask, lanes) if mask.lanes != lanes else mask, fitted)
        return mask

    def code_under(self, expr: Expr, condition: Value, holds: bool) -> Item:
        """`expr` where it only counts where `condition` is `holds`: its loads read nothing elsewhere."""
        if not self._has_load(expr):
            return self.code(expr)
        if not holds:
            condition = self.w.bin("xor", condition, integer(1, 1, condition.lanes))
        self.guards.append(condition)
        try:
            return self.code(expr)
        finally:
            self.guards.pop()

    @contextmanager
    def across_lanes(self) -> Iterator[None]:
        """In the body lanes move: a guard of single lanes holds for all as soon as it holds for one."""
        outer = self.guards
        self.guards = [self.reduce_lanes("or", g) if g.lanes > 1 else g for g in outer]
        try:
            yield
        finally:
            self.guards = outer

    def _has_load(self, expr: Expr) -> bool:
        found = self._loads.get(id(expr))
        if found is None:
            found = self._loads[id(expr)] = any(isinstance(item, Load) for item in walk(expr))
            self.alive.append(expr)
        return found

    def reduce_lanes(self, op: str, vector: Value) -> Value:
        """All lanes of a vector of integers or bools combined by an LLVM reduction."""
        name = f"llvm.vector.reduce.{op}.v{vector.lanes}{vector.scalar_type}"
        self.w.module.declare(name, vector.scalar_type, (vector.type,))
        return self.w.call(name, vector.scalar_type, 1, vector)

    # --- leaves -----------------------------------------------------------------------------------

    def _const(self, expr: Const) -> Item:
        found = self._literals.get(id(expr))
        if found is None:
            found = self._literals[id(expr)] = self._literal(expr)
            self.alive.append(expr)
        return found

    def _literal(self, expr: Const) -> Item:
        dtype, lanes = expr.dtype, expr.dtype.lanes
        if dtype.kind == "int":
            number = int(expr.value)
            if lanes == 1:
                return Item(dtype, "literal", linear=Linear.constant(number))
            return Item(dtype, "literal", integer(number, 64, lanes))
        if dtype.is_float:
            if dtype.is_narrow_float:
                code = literals.narrow_code(float(expr.value), dtype.scalar)
                decoded = real(literals.narrow_value(code, dtype.scalar), "float", lanes)
                return Item(dtype, value=decoded, stored=integer(code, max(dtype.bits, 8), lanes))
            exact = literals.rounded(float(expr.value), dtype.scalar)
            return Item(dtype, value=real(exact, compute_scalar(dtype), lanes))
        bits = 1 if dtype.is_bool else max(dtype.bits, 8)
        return Item(dtype, value=integer(int(expr.value), bits, lanes))

    def _var(self, expr: Var) -> Item:
        return self.lookup(expr)

    def _load(self, expr: Load) -> Item:
        stored = emit_memory.load(self, expr)
        return Item(expr.buffer.dtype.scalar.with_lanes(stored.lanes), stored=stored)

    # --- operators --------------------------------------------------------------------------------

    def _unary(self, expr: Unary) -> Item:
        item = self.code(expr.operand)
        op, dtype, w = expr.op, expr.operand.dtype, self.w
        if item.kind == "index" and op in ("neg", "bitnot"):
            if item.linear is not None:
                return Item(dtype, "index", linear=Linear.constant(-(op == "bitnot")).plus(item.linear, -1))
            base = integer(-(op == "bitnot"), 64, dtype.lanes)
            return Item(dtype, "index", w.binary("sub", base, self.wide(item)))
        value = self.compute(item)
        if op == "not" and dtype.is_bool:
            return Item(dtype, value=w.bin("xor", value, integer(1, 1, value.lanes)))
        if op == "neg" and dtype.is_float:
            return self.rounded(w.op(f"fneg {value.operand}", value.type, value.lanes, value), dtype)
        if dtype.is_int and op in ("neg", "bitnot"):
            base = integer(-(op == "bitnot"), int(value.scalar_type[1:]), value.lanes)
            return self.rounded(w.bin("sub", base, value), dtype)
        raise arithmetic.undefined(op, dtype)

    def _binary(self, expr: Binary) -> Item:
        op = expr.op
        if op in ("and", "or"):
            return self._logic(expr)
        if op == "lt" and isinstance(expr.lhs, Ramp) and isinstance(expr.rhs, Broadcast):
            mask = emit_index.tail_mask(self, expr.lhs, expr.rhs)
            if mask is not None:
                return mask
        lhs, rhs = self.code(expr.lhs), self.code(expr.rhs)
        kinds = {lhs.kind, rhs.kind}
        if "index" in kinds and "typed" not in kinds:
            return emit_index.index_binary(self, op, lhs, rhs, expr.lhs.dtype)
        dtype, w = expr.lhs.dtype, self.w
        a, b = self.compute(lhs), self.compute(rhs)
        if BINARY_OPS[op][1] == "compare":
            return Item(expr.dtype, value=arithmetic.compare(w, op, a, b, dtype))
        result: Value | None = None
        if dtype.is_float:
            result = arithmetic.float_binary(w, op, a, b)
        elif dtype.is_bool and op in arithmetic.LOGIC:
            result = w.bin(arithmetic.LOGIC[op], a, b)
        elif not dtype.is_bool:
            result = arithmetic.int_binary(w, op, a, b, dtype.kind == "int", dtype.bits)
        if result is None:
            raise arithmetic.undefined(op, dtype)
        return self.rounded(result, dtype)

    def _logic(self, expr: Binary) -> Item:
        lhs = self.value(expr.lhs)
        rhs = self.compute(self.code_under(expr.rhs, lhs, expr.op == "and"))
        if not expr.lhs.dtype.is_bool:
            raise arithmetic.undefined(expr.op, expr.lhs.dtype)
        return Item(expr.dtype, value=self.w.bin(arithmetic.LOGIC[expr.op], lhs, rhs))

    def _select(self, expr: Select) -> Item:
        condition = self.value(expr.condition)
        first = self.code_under(expr.on_true, condition, True)
        second = self.code_under(expr.on_false, condition, False)
        kinds, w, dtype = {first.kind, second.kind}, self.w, expr.dtype
        if "index" in kinds and "typed" not in kinds:
            chosen = w.choose(condition, self.wide(first), self.wide(second))
            if chosen.lanes == 1:
                return Item(dtype, "index", linear=Linear.atom(chosen))
            return Item(dtype, "index", chosen)
        if first.stored is not None and second.stored is not None:
            return Item(dtype, stored=w.select(condition, first.stored, second.stored))
        return Item(dtype, value=w.select(condition, self.compute(first), self.compute(second)))

    def _cast(self, expr: Cast) -> Item:
        return self.convert(self.code(expr.value), expr.dtype, expr.rounding, expr.saturate)

    def _reinterpret(self, expr: Reinterpret) -> Item:
        source, target = expr.value.dtype, expr.dtype
        if source.bits * source.lanes != target.bits * target.lanes:
            raise VerificationError(f"cannot read the bits of {source} as {target}: the widths differ")
        with self.across_lanes() if source.lanes != target.lanes else nullcontext():
            bits = self.stored(self.code(expr.value), source.scalar)
        return Item(
            target, stored=self.w.bitcast(bits, vector_type(storage_scalar(target), target.lanes), target.lanes)
        )

    def _call(self, expr: Call) -> Item:
        if expr.name == "dot2_bf16":
            return emit_lanes.dot2(self, expr)
        dtype = expr.args[0].dtype
        values = [self.value(a) for a in expr.args]
        result = intrinsics.emit(self.w, expr.name, values, dtype)
        if expr.dtype.is_bool or expr.dtype.scalar is not dtype.scalar:
            return Item(expr.dtype, value=result)
        return self.rounded(result, dtype)


_METHODS: dict[type[Expr], Callable[[Emitter, Any], Item]] = {
    Const: Emitter._const,
    Var: Emitter._var,
    Unary: Emitter._unary,
    Binary: Emitter._binary,
    Cast: Emitter._cast,
    Reinterpret: Emitter._reinterpret,
    Select: Emitter._select,
    Load: Emitter._load,
    Call: Emitter._call,
    Ramp: emit_lanes.ramp,
    Broadcast: emit_lanes.broadcast,
    Shuffle: emit_lanes.shuffle,
    VectorReduce: emit_lanes.vector_reduce,
}
