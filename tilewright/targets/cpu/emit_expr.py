"""Expressions to LLVM instructions.

What an expression gives is an `Item`: an exact 64-bit index value, a signed literal (which fits in with
either), or a typed value, in compute form, in storage form, or both; the other form is made when it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
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
    const_int,
)
from tilewright.ir.rewriter import walk
from tilewright.targets.cpu import arithmetic, casts, emit_memory, intrinsics, literals
from tilewright.targets.cpu.values import (
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


@dataclass(slots=True, eq=False)
class Item:
    """kind: "typed", "index" or "literal".  Scalars of the latter two have `linear`, vectors `value` (i64 lanes)."""

    dtype: DType
    kind: str = "typed"
    value: Value | None = None
    stored: Value | None = None
    linear: Linear | None = None


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
            mask = self._tail_mask(expr.lhs, expr.rhs)
            if mask is not None:
                return mask
        lhs, rhs = self.code(expr.lhs), self.code(expr.rhs)
        kinds = {lhs.kind, rhs.kind}
        if "index" in kinds and "typed" not in kinds:
            return self._index_binary(op, lhs, rhs, expr.lhs.dtype)
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

    def _index_binary(self, op: str, lhs: Item, rhs: Item, dtype: DType) -> Item:
        """On exact 64-bit integers."""
        w = self.w
        if lhs.linear is not None and rhs.linear is not None:
            folded = _index_linear(op, lhs.linear, rhs.linear, dtype.bits)
            if folded is not None:
                return Item(dtype, "index", linear=folded)
            difference = lhs.linear.plus(rhs.linear, -1).number
            x, y = lhs.linear.number, rhs.linear.number
            if difference is not None and BINARY_OPS[op][1] == "compare":
                x, y = difference, 0
            if x is not None and y is not None:
                number = arithmetic.fold_index(op, x, y, dtype.bits)
                if isinstance(number, bool):
                    return Item(BOOL, value=integer(number, 1))
                if number is not None:
                    return Item(dtype, "index", linear=Linear.constant(number))
        a, b = self.wide(lhs), self.wide(rhs)
        if BINARY_OPS[op][1] == "compare":
            mask = w.compare(arithmetic.SIGNED_COMPARE[op], a, b)
            return Item(BOOL.with_lanes(a.lanes), value=mask)
        result = self._hoisted_index(op, a, b, dtype.bits)
        if a.lanes == 1:
            return Item(dtype, "index", linear=Linear.atom(result))
        return Item(dtype, "index", result)

    def _hoisted_index(self, op: str, a: Value, b: Value, bits: int) -> Value:
        w = self.w
        if op in ("add", "sub", "mul"):
            return {"add": w.add, "sub": w.sub, "mul": w.mul}[op](a, b)
        number = b.number
        if number is not None and number > 0 and number & (number - 1) == 0:
            size = integer(number.bit_length() - 1, 64, b.lanes)
            if op == "floordiv":
                return w.binary("ashr", a, size)
            if op == "floormod":
                return w.binary("and", a, integer(number - 1, 64, b.lanes))
        with w.hoisting(a, b):
            result = arithmetic.int_binary(w, op, a, b, True, bits)
        if result is None:
            raise arithmetic.undefined(op, INT64)
        return result

    def _tail_mask(self, ramp: Ramp, bound: Broadcast) -> Item | None:
        """base + i < n for lanes i as i < n - base, in narrow lanes; None for what is no index arithmetic."""
        if const_int(ramp.stride) != 1:
            return None
        start, end = self.code(ramp.base), self.code(bound.value)
        if start.linear is None or end.linear is None or "index" not in (start.kind, end.kind):
            return None
        lanes, w = ramp.dtype.lanes, self.w
        scalar = "i32" if lanes <= 16 else "i8"
        if lanes > 127:
            return None
        left = w.linear(end.linear.plus(start.linear, -1))
        if left.number is not None:
            if left.number >= lanes or left.number <= 0:
                return Item(BOOL.with_lanes(lanes), value=integer(int(left.number > 0), 1, lanes))
            count = integer(left.number, int(scalar[1:]))
        else:
            with w.hoisting(left):
                clamped = w.intrinsic("smax", w.intrinsic("smin", left, integer(lanes)), integer(0))
                count = w.convert("trunc", clamped, scalar)
        return Item(BOOL.with_lanes(lanes), value=w.compare("ult", w.iota(lanes, scalar), w.splat(count, lanes)))

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
            return self._dot2(expr)
        dtype = expr.args[0].dtype
        values = [self.value(a) for a in expr.args]
        result = intrinsics.emit(self.w, expr.name, values, dtype)
        if expr.dtype.is_bool or expr.dtype.scalar is not dtype.scalar:
            return Item(expr.dtype, value=result)
        return self.rounded(result, dtype)

    def _dot2(self, expr: Call) -> Item:
        with self.across_lanes():
            acc, a, b = [self.code(arg) for arg in expr.args]
        return Item(
            expr.dtype,
            value=intrinsics.dot2(self.w, self.compute(acc), self.stored(a, BFLOAT16), self.stored(b, BFLOAT16)),
        )

    # --- vectors ----------------------------------------------------------------------------------

    def _ramp(self, expr: Ramp) -> Item:
        base, stride = self.code(expr.base), self.code(expr.stride)
        lanes, w = expr.dtype.lanes, self.w
        if "typed" not in (base.kind, stride.kind):
            assert stride.linear is not None
            step = stride.linear.number
            steps = (
                w.iota(lanes, "i64", step)
                if step is not None
                else w.binary("mul", w.iota(lanes), w.splat(self.wide(stride), lanes))
            )
            start = w.splat(self.wide(base), lanes)
            return Item(expr.dtype, "index", steps if start.number == 0 else w.binary("add", start, steps))
        first, step_value = self.compute(base), self.compute(stride)
        steps = w.bin("mul", w.iota(lanes, first.type), w.splat(step_value, lanes))
        return self.rounded(w.bin("add", w.splat(first, lanes), steps), expr.dtype)

    def _broadcast(self, expr: Broadcast) -> Item:
        item, lanes, w = self.code(expr.value), expr.dtype.lanes, self.w
        if item.kind != "typed":
            return Item(expr.dtype, "index", w.splat(self.wide(item), lanes))
        if item.value is None and item.stored is not None:
            return Item(expr.dtype, stored=w.splat(item.stored, lanes))
        return Item(expr.dtype, value=w.splat(self.compute(item), lanes))

    def _shuffle(self, expr: Shuffle) -> Item:
        with self.across_lanes():
            first, second = self.code(expr.first), self.code(expr.second)
        if first.stored is not None and second.stored is not None and first.kind == second.kind == "typed":
            return Item(expr.dtype, stored=self._pick(first.stored, second.stored, expr.lanes))
        return Item(expr.dtype, value=self._pick(self.compute(first), self.compute(second), expr.lanes))

    def _pick(self, a: Value, b: Value, lanes: tuple[int, ...]) -> Value:
        w = self.w
        split, size = a.lanes, max(a.lanes, b.lanes)
        a, b = self._widened(a, size), self._widened(b, size)
        if size == 1:
            chosen = [a if lane == 0 else b for lane in lanes]
            if len(chosen) == 1:
                return chosen[0]
            result = Value("poison", vector_type(a.type, len(lanes)), len(lanes))
            for lane, item in enumerate(chosen):
                result = w.insert(result, item, lane)
            return result
        places = tuple([lane if lane < split else lane - split + size for lane in lanes])
        return w.shuffle(a, None if max(places) < size else b, places)

    def _widened(self, value: Value, lanes: int) -> Value:
        if value.lanes == lanes:
            return value
        w = self.w
        if value.lanes == 1:
            return w.insert(Value("poison", vector_type(value.type, lanes), lanes), value, 0)
        return w.shuffle(value, None, tuple([min(i, value.lanes - 1) for i in range(lanes)]))

    def _vector_reduce(self, expr: VectorReduce) -> Item:
        dtype = expr.value.dtype
        with self.across_lanes():
            vector = self.value(expr.value)
        return self.rounded(intrinsics.reduce(self.w, expr.op, vector, dtype), expr.dtype)


def _index_linear(op: str, a: Linear, b: Linear, bits: int) -> Linear | None:
    """Sums and products of sums, as long as they stay small; literals of any operation."""
    if op in ("add", "sub"):
        return a.plus(b, 1 if op == "add" else -1)
    if op == "mul" and (a.number is not None or b.number is not None or len(a.terms) * len(b.terms) <= _LARGEST_SUM):
        return a.times(b)
    shift = b.number
    if op == "shl" and shift is not None and 0 <= shift < bits:
        return a.scaled(1 << shift)
    return None


_LARGEST_SUM = 6
"""Terms of a product of sums that is still multiplied out."""

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
    Ramp: Emitter._ramp,
    Broadcast: Emitter._broadcast,
    Shuffle: Emitter._shuffle,
    VectorReduce: Emitter._vector_reduce,
}
