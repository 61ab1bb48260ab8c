"""Expressions compiled to Python closures over an environment.

An environment is a list; `Slots` gives every variable and buffer a place in it.  The same closures run
on scalars and on whole grids of iterations: inside a vectorised `Parallel` a value is an array that
broadcasts to the grid; a value of a vector dtype is an array of its lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tilewright.errors import VerificationError
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
from tilewright.simulator import operations
from tilewright.simulator.memory import Array, as_index, element_shape, gather, in_range, joint_shape
from tilewright.simulator.numerics import cast_function, compute_numpy, constant, to_compute, to_storage

Env = list[Any]
Run = Callable[[Env], Any]

# The first places of an environment belong to the evaluator itself.
MASK = 0  # which iterations of a vectorised Parallel run: None for all, or a bool array
JUMP = 1  # the innermost loop's `Jumps` while a vectorised Parallel runs
MESH = 2  # one index array for each axis of a vectorised Parallel
GRID = 3  # its extents
STDOUT = 4
FIRST_SLOT = 5


class Code(NamedTuple):
    """A compiled expression.

    kind: "typed" (values in the compute form of the dtype), or "index" (exact: Python integers or int64
    arrays), or "literal" (a signed integer constant, which fits in with either).
    """

    run: Run
    kind: str = "typed"


class ExpressionCompiler:
    """Compiles expressions.

    strict_range: an access out of range is an error (lowered IR), not a 0.
    private: buffers (by id) of which each iteration of the Parallel being vectorised has its own copy.
    """

    def __init__(self, *, strict_range: bool = False) -> None:
        self.strict_range = strict_range
        self.private: frozenset[int] = frozenset()
        self.size = FIRST_SLOT
        self._slots: dict[int, int] = {}
        self._kinds: dict[int, str] = {}
        self._owners: list[Any] = []

    # --- names --------------------------------------------------------------------------------

    def slot(self, owner: Var | Buffer) -> int:
        """The place of a variable, or of a buffer's array; a buffer's storage has the place after it."""
        found = self._slots.get(id(owner))
        if found is None:
            what = "variable" if isinstance(owner, Var) else "buffer"
            raise VerificationError(f"{what} {owner.name} is used outside of its scope")
        return found

    def declare(self, var: Var, kind: str) -> int:
        """A place for a variable that holds values of `kind` ("typed", "index" or "literal")."""
        self._kinds[id(var)] = kind
        return self._place(var, 1)

    def declare_buffer(self, buffer: Buffer) -> int:
        """A place for a buffer."""
        return self._place(buffer, 2)

    def _place(self, owner: Var | Buffer, count: int) -> int:
        found = self._slots.get(id(owner))
        if found is None:
            found = self._slots[id(owner)] = self.size
            self._owners.append(owner)
            self.size += count
        return found

    # --- entry points -------------------------------------------------------------------------

    def code(self, expr: Expr) -> Code:
        """`expr` compiled."""
        method = _METHODS.get(type(expr))
        if method is None:
            raise VerificationError(f"{type(expr).__name__} is not an expression", location=expr.loc)
        try:
            return method(self, expr)
        except VerificationError as error:
            raise error.at(expr.loc) from None

    def typed(self, expr: Expr) -> Run:
        """`expr` with values in the compute form of its dtype; index values wrap."""
        return as_typed(self.code(expr), expr)

    def index(self, expr: Expr) -> Run:
        """An integer expression as a Python integer or an int64 array."""
        code = self.code(expr)
        if code.kind != "typed":
            return code.run
        run = code.run
        return lambda env: as_index(run(env))

    def integer(self, expr: Expr) -> Callable[[Env], int]:
        """An integer expression that is the same for all iterations, as a Python integer."""
        run = self.index(expr)
        return lambda env: int(run(env))

    def stored(self, expr: Expr) -> Run:
        """`expr` with values in the storage form of its dtype; bits that need no arithmetic are kept as they are."""
        if isinstance(expr, Load):
            return self._load(expr, raw=True)
        if isinstance(expr, Reinterpret):
            return self._reinterpret(expr)
        run, convert = self.typed(expr), to_storage(expr.dtype.scalar)
        return run if convert is None else lambda env: convert(run(env))

    # --- leaves -------------------------------------------------------------------------------

    def _const(self, expr: Const) -> Code:
        lanes = expr.dtype.lanes
        value: Any = int(expr.value) if expr.dtype.kind == "int" else constant(expr.value, expr.dtype.scalar)
        if lanes > 1:
            value = np.full(lanes, value, np.int64 if expr.dtype.kind == "int" else None)
        return Code(lambda env: value, "literal" if expr.dtype.kind == "int" else "typed")

    def _var(self, expr: Var) -> Code:
        slot = self.slot(expr)
        return Code(lambda env: env[slot], self._kinds[id(expr)])

    def _load_code(self, expr: Load) -> Code:
        return Code(self._load(expr, raw=False))

    def _load(self, expr: Load, *, raw: bool) -> Run:
        buffer = expr.buffer
        if len(expr.indices) != buffer.ndim:
            raise VerificationError(f"{buffer.name} has {buffer.ndim} dimensions, but {len(expr.indices)} indices")
        convert = None if raw else to_compute(buffer.dtype.scalar)
        fetch = self._fetch(expr)
        return fetch if convert is None else lambda env: convert(fetch(env))

    def safe(self, buffer: Buffer) -> Run:
        """What an out-of-range read of `buffer` gives, in storage form."""
        if buffer.safe_value is not None and not self.strict_range:
            run, scalar = self.typed(buffer.safe_value), buffer.dtype.scalar
            convert, store = cast_function(buffer.safe_value.dtype.scalar, scalar), to_storage(scalar)
            return lambda env: convert(run(env)) if store is None else store(convert(run(env)))
        zero = np.zeros((), buffer.dtype.numpy)[()]
        return lambda env: zero

    def indices(self, expr: Any) -> Callable[[Env], tuple[Any, ...]]:
        """The indices of a Load or Store."""
        runs = [self.index(i) for i in expr.indices]
        if len(runs) == 1:
            (first,) = runs
            return lambda env: (first(env),)
        if len(runs) == 2:
            first, second = runs
            return lambda env: (first(env), second(env))
        return lambda env: tuple([run(env) for run in runs])

    def _fetch(self, expr: Load) -> Run:
        """The element or elements in storage form."""
        buffer, slot, indices, safe = expr.buffer, self.slot(expr.buffer), self.indices(expr), self.safe(expr.buffer)
        private = id(buffer) in self.private
        mask = None if expr.mask is None else self.typed(expr.mask)
        strict, views = self.strict_range, private or buffer.dtype.lanes > 1

        def fetch(env: Env) -> Any:
            array = env[slot]
            where = indices(env)
            inside = in_range(where, array.shape)
            if mask is not None:
                wanted = mask(env)
                if strict and np.any(np.logical_and(wanted, np.logical_not(inside))):
                    raise out_of_range("load from", expr, where, array)
                inside = both(inside, wanted)
            elif strict and inside is not True:
                raise out_of_range("load from", expr, where, array)
            if inside is False or array.size == 0:
                shape = joint_shape(*where) + element_shape(buffer.dtype)
                return np.full(shape, safe(env)) if shape else safe(env)
            if inside is True and views and all(isinstance(i, int) for i in where):
                return array[where].copy()
            if private:
                where = where + env[MESH]
            return gather(array, where, inside, None if inside is True else safe(env))

        if views or mask is not None:
            return fetch
        return self._plain_fetch(slot, indices, fetch)

    @staticmethod
    def _plain_fetch(slot: int, indices: Callable[[Env], tuple[Any, ...]], slow: Run) -> Run:
        """The common case first: scalar indices in range."""

        def fetch(env: Env) -> Any:
            array = env[slot]
            where = indices(env)
            for index, size in zip(where, array.shape, strict=False):
                if not isinstance(index, int) or not 0 <= index < size:
                    return slow(env)
            return array[where]

        return fetch

    # --- operators ----------------------------------------------------------------------------

    def _unary(self, expr: Unary) -> Code:
        operand = self.code(expr.operand)
        if operand.kind == "index" and expr.op in ("neg", "bitnot"):
            run = operand.run
            return Code((lambda env: -run(env)) if expr.op == "neg" else (lambda env: ~run(env)), "index")
        function, typed = operations.unary_function(expr.op, expr.operand.dtype.scalar), self.typed(expr.operand)
        return Code(lambda env: function(typed(env)))

    def _binary(self, expr: Binary) -> Code:
        if expr.op in ("and", "or"):
            return self._logic(expr)
        lhs, rhs = self.code(expr.lhs), self.code(expr.rhs)
        dtype = expr.lhs.dtype.scalar
        kinds = {lhs.kind, rhs.kind}
        if "index" in kinds and "typed" not in kinds:
            function = operations.index_function(expr.op, dtype)
            kind = "typed" if BINARY_OPS[expr.op][1] == "compare" else "index"
            return Code(_apply(function, lhs, rhs), kind)
        function = operations.binary_function(expr.op, dtype)
        first, second = as_typed(lhs, expr.lhs), as_typed(rhs, expr.rhs)
        return Code(lambda env: function(first(env), second(env)))

    def _logic(self, expr: Binary) -> Code:
        """`and`, `or`: the right side counts only where the left one does not decide."""
        function = operations.binary_function(expr.op, expr.lhs.dtype.scalar)
        first, second = self.typed(expr.lhs), self._guarded(expr.rhs)
        decides = expr.op == "or"

        def run(env: Env) -> Any:
            left = first(env)
            if not np.ndim(left) and bool(left) == decides:
                return left
            return function(left, second(env))

        return Code(run)

    def _guarded(self, expr: Expr) -> Run:
        """`expr` where part of its lanes may not count: accesses out of range are no error there."""
        strict, self.strict_range = self.strict_range, self.strict_range and expr.dtype.lanes == 1
        try:
            return self.typed(expr)
        finally:
            self.strict_range = strict

    def _select(self, expr: Select) -> Code:
        condition = self.typed(expr.condition)
        first, second = self.code(expr.on_true), self.code(expr.on_false)
        kinds = {first.kind, second.kind}
        if "index" in kinds and "typed" not in kinds:
            on_true, on_false, kind = first.run, second.run, "index"
        else:
            on_true, on_false, kind = self._guarded(expr.on_true), self._guarded(expr.on_false), "typed"

        def run(env: Env) -> Any:
            chosen = condition(env)
            if not np.ndim(chosen):
                return on_true(env) if chosen else on_false(env)
            return np.where(chosen, on_true(env), on_false(env))

        return Code(run, kind)

    def _cast(self, expr: Cast) -> Code:
        code, source, target = self.code(expr.value), expr.value.dtype.scalar, expr.dtype.scalar
        if code.kind != "typed":
            if target.kind == "int" and target.bits >= source.bits:
                return code
            wide, run = cast_function(make_dtype("int64"), target, expr.rounding, expr.saturate), code.run
            return Code(lambda env: wide(np.asarray(run(env), np.int64)[()]))
        convert, typed = cast_function(source, target, expr.rounding, expr.saturate), code.run
        if source.is_bool:  # a comparison of Python integers gives a Python bool
            return Code(lambda env: convert(np.asarray(typed(env))[()]))
        return Code(lambda env: convert(typed(env)))

    def _reinterpret_code(self, expr: Reinterpret) -> Code:
        run, convert = self._reinterpret(expr), to_compute(expr.dtype.scalar)
        return Code(run if convert is None else lambda env: convert(run(env)))

    def _reinterpret(self, expr: Reinterpret) -> Run:
        """In storage form."""
        source, target = expr.value.dtype, expr.dtype
        if source.bits * source.lanes != target.bits * target.lanes:
            raise VerificationError(f"cannot read the bits of {source} as {target}: the widths differ")
        run, into = self.stored(expr.value), target.numpy
        if target.lanes == source.lanes:
            if target.bits == 4:
                return lambda env: _nibbles(np.asarray(run(env)).view(np.uint8), target)
            return lambda env: np.asarray(run(env)).view(into)[()]

        def lanes(env: Env) -> Any:
            viewed = np.ascontiguousarray(run(env)).reshape(-1).view(into)
            return viewed[0] if target.lanes == 1 else viewed

        return lanes

    def _call(self, expr: Call) -> Code:
        args = [self.typed(a) for a in expr.args]
        if expr.name == "dot2_bf16":
            acc, first, second = args
            return Code(lambda env: operations.dot2(acc(env), first(env), second(env)))
        function = operations.intrinsic_function(expr.name, expr.args[0].dtype.scalar)
        if len(args) == 1:
            (only,) = args
            return Code(lambda env: function(only(env)))
        return Code(lambda env: function(*[a(env) for a in args]))

    # --- vectors ------------------------------------------------------------------------------

    def _ramp(self, expr: Ramp) -> Code:
        base, stride = self.code(expr.base), self.code(expr.stride)
        lanes = np.arange(expr.dtype.lanes, dtype=np.int64)
        if "typed" not in (base.kind, stride.kind):
            return Code(lambda env: base.run(env) + lanes * stride.run(env), "index")
        first, step = as_typed(base, expr.base), as_typed(stride, expr.stride)
        typed_lanes = lanes.astype(compute_numpy(expr.dtype.scalar))
        return Code(lambda env: first(env) + typed_lanes * step(env))

    def _broadcast(self, expr: Broadcast) -> Code:
        code, lanes = self.code(expr.value), expr.dtype.lanes
        kind = "index" if code.kind == "literal" else code.kind
        of = np.int64 if kind == "index" else None
        return Code(lambda env: np.full(lanes, code.run(env), of), kind)

    def _shuffle(self, expr: Shuffle) -> Code:
        first, second, lanes = self.typed(expr.first), self.typed(expr.second), np.array(expr.lanes, np.int64)
        return Code(lambda env: np.concatenate((np.atleast_1d(first(env)), np.atleast_1d(second(env))))[lanes])

    def _vector_reduce(self, expr: VectorReduce) -> Code:
        function, run = operations.lane_reduction(expr.op, expr.dtype.scalar), self.typed(expr.value)
        return Code(lambda env: function(run(env)))


def as_typed(code: Code, expr: Expr) -> Run:
    """The values of `code` in the compute form of `expr.dtype`; index values wrap."""
    if code.kind == "typed":
        return code.run
    convert = cast_function(make_dtype("int64"), expr.dtype.scalar)
    if isinstance(expr, Const):
        value = convert(np.asarray(code.run([]), np.int64)[()])
        return lambda env: value
    run = code.run
    return lambda env: convert(np.asarray(run(env), np.int64)[()])


def _apply(function: Callable[[Any, Any], Any], lhs: Code, rhs: Code) -> Run:
    """`function` on two values."""
    first, second = lhs.run, rhs.run
    return lambda env: function(first(env), second(env))


def both(inside: Any, wanted: Any) -> Any:
    """The conjunction of two range masks, each True, False or an array."""
    if inside is False or inside is True:
        if np.ndim(wanted):
            return wanted if inside else False
        return inside and bool(wanted)
    return inside & wanted


def _nibbles(octets: Any, target: DType) -> Any:
    """4-bit patterns as values of `target` in storage form."""
    low = octets & np.uint8(15)
    if not target.is_int:
        return low.view(target.numpy)[()]
    return cast_function(make_dtype("uint8"), target)(low).astype(target.numpy)[()]


def out_of_range(what: str, access: Any, where: tuple[Any, ...], array: Array) -> VerificationError:
    """The error for lowered IR that leaves a buffer."""
    place = ", ".join(str(i) for i in where)
    shape = ", ".join(str(n) for n in array.shape)
    return VerificationError(
        f"{what} {access.buffer.name}[{place}] is out of range: its shape is ({shape})", location=access.loc
    )


_METHODS: dict[type[Expr], Callable[[ExpressionCompiler, Any], Code]] = {
    Const: ExpressionCompiler._const,
    Var: ExpressionCompiler._var,
    Unary: ExpressionCompiler._unary,
    Binary: ExpressionCompiler._binary,
    Cast: ExpressionCompiler._cast,
    Reinterpret: ExpressionCompiler._reinterpret_code,
    Select: ExpressionCompiler._select,
    Load: ExpressionCompiler._load_code,
    Call: ExpressionCompiler._call,
    Ramp: ExpressionCompiler._ramp,
    Broadcast: ExpressionCompiler._broadcast,
    Shuffle: ExpressionCompiler._shuffle,
    VectorReduce: ExpressionCompiler._vector_reduce,
}
