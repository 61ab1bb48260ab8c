"""The tile operations: copy, transpose, fill, gemm, reduce, scan, atomics.

Float sums and products are formed in float64 and rounded once, so that a result is the true value of the
operation, which a target may miss by its own rounding (see `tolerance`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.stmt import Atomic, Copy, Fill, Gemm, Reduce, Region, Scan, Transpose
from tilewright.simulator import operations
from tilewright.simulator.expressions import Env
from tilewright.simulator.memory import Array
from tilewright.simulator.numerics import (
    cast_function,
    cast_storage,
    compute_numpy,
    has_infinity,
    largest,
    to_compute,
    to_storage,
)
from tilewright.simulator.statements import STATEMENTS, Execute, StatementCompiler, fitted

_FLOAT64 = dtype("float64")
_INT64 = dtype("int64")
_EXACT_PRODUCTS = float(1 << 53)  # integers below it are exact in float64


def wide(target: DType) -> DType:
    """The dtype in which an operation that ends in `target` is computed."""
    return _FLOAT64 if target.is_float else _INT64


def widen(values: Array, source: DType, target: DType) -> Array:
    """Elements in storage form as `wide(target)`; floats that end in an integer are cast to it first."""
    into = to_compute(source)
    values = values if into is None else into(values)
    if target.is_float:
        return cast_function(source, _FLOAT64)(values) if source.is_float else values.astype(np.float64)
    if source.is_float:
        values = cast_function(source, target)(values)
    if values.dtype == np.uint64:
        values = values.view(np.int64)  # modulo 2**64, as everything that follows
    return values.astype(np.int64)


def narrow(values: Any, target: DType) -> Any:
    """`wide(target)` values in the storage form of `target`, rounded once or wrapped."""
    result = cast_function(wide(target), target)(np.asarray(values)[()])
    store = to_storage(target)
    return result if store is None else store(result)


# --- movement ----------------------------------------------------------------------------------------


def _copy(compiler: StatementCompiler, stmt: Copy) -> Execute:
    read, write = compiler.read(stmt.src), compiler.write(stmt.dst)
    source, target = stmt.src.buffer.dtype.scalar, stmt.dst.buffer.dtype.scalar

    def execute(env: Env) -> int:
        write(env, cast_storage(read(env), source, target))
        return 0

    return execute


def _transpose(compiler: StatementCompiler, stmt: Transpose) -> Execute:
    read, write = compiler.read(stmt.src), compiler.write(stmt.dst)
    source, target = stmt.src.buffer.dtype.scalar, stmt.dst.buffer.dtype.scalar

    def execute(env: Env) -> int:
        write(env, cast_storage(matrix(read(env), stmt.src).T, source, target))
        return 0

    return execute


def _fill(compiler: StatementCompiler, stmt: Fill) -> Execute:
    value, write, box = (
        compiler.stored_as(stmt.value, stmt.dst.buffer),
        compiler.write(stmt.dst),
        compiler.box(stmt.dst),
    )

    def execute(env: Env) -> int:
        extents = tuple([max(n, 0) for n in box(env)[1]])
        write(env, np.full(extents, value(env)))
        return 0

    return execute


def matrix(values: Array, region: Region) -> Array:
    """`values` in two dimensions: leading extents of 1 go.  Raises VerificationError when that does not do."""
    while values.ndim > 2 and 1 in values.shape:
        values = values.reshape(_without(values.shape, values.shape.index(1)))
    if values.ndim != 2:
        raise VerificationError(f"a region of two dimensions is needed, {region.buffer.name} has {values.ndim}")
    return values


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


# --- gemm ----------------------------------------------------------------------------------------------


def _gemm(compiler: StatementCompiler, stmt: Gemm) -> Execute:
    read_a, read_b, read_c = compiler.read(stmt.a), compiler.read(stmt.b), compiler.read(stmt.c)
    write = compiler.write(stmt.c)
    type_a, type_b, type_c = (r.buffer.dtype.scalar for r in (stmt.a, stmt.b, stmt.c))
    multiply = np.matmul if type_c.is_float else multiply_integers

    def execute(env: Env) -> int:
        a, b = (widen(matrix(r(env), g), t, type_c) for r, g, t in ((read_a, stmt.a, type_a), (read_b, stmt.b, type_b)))
        old = read_c(env)
        product = multiply(a.T if stmt.transpose_a else a, b.T if stmt.transpose_b else b)
        if not stmt.clear_accum:
            product = widen(matrix(old, stmt.c), type_c, type_c) + product
        write(env, narrow(product, type_c))
        return 0

    return execute


def multiply_integers(a: Array, b: Array) -> Array:
    """The product of int64 matrices modulo 2**64; in float64 (which has BLAS) where that is exact."""
    bound = _magnitude(a) * _magnitude(b) * max(a.shape[1], 1)
    if bound < _EXACT_PRODUCTS:
        a, b = a.astype(np.float64), b.astype(np.float64)
    result: Array = np.matmul(a, b).astype(np.int64)
    return result


def _magnitude(values: Array) -> float:
    return max(abs(float(values.min())), abs(float(values.max()))) if values.size else 0.0


# --- reductions ------------------------------------------------------------------------------------------


def neutral(op: str, target: DType) -> Any:
    """The value of `op` over nothing, as `wide(target)`."""
    if op in ("max", "min"):
        if target.is_float:
            limit = np.inf if has_infinity(target) else largest(target)
            low_end = 2.0**-127 if target.format.suffix == "u" else -limit
            return low_end if op == "max" else limit
        low, high = target.int_range()
        value = low if op == "max" else high
        return value - (1 << 64) if value >= 1 << 63 else value
    if op == "bitand":
        return -1
    return 1 if op == "all" else 0


_REDUCERS: dict[str, Callable[..., Any]] = {
    "sum": np.add,
    "abssum": np.add,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "any": np.bitwise_or,
    "all": np.bitwise_and,
}


def _extreme(op: str, target: DType, *, propagate: bool) -> Callable[..., Any]:
    """The ufunc of max, min or absmax; integers in int64, so uint64 goes by its own order."""
    largest_wins = op != "min"
    if target.is_float and not propagate:
        return np.fmax if largest_wins else np.fmin
    return np.maximum if largest_wins else np.minimum


def _reduce(compiler: StatementCompiler, stmt: Reduce) -> Execute:
    read, read_old, write = compiler.read(stmt.src), compiler.read(stmt.dst), compiler.write(stmt.dst)
    box = compiler.box(stmt.dst)
    source, target = stmt.src.buffer.dtype.scalar, stmt.dst.buffer.dtype.scalar
    op, axis = stmt.op, stmt.dim % max(len(stmt.src.extents), 1)
    combine: Any = _REDUCERS.get(op) or _extreme(op, target, propagate=stmt.nan_propagate)
    unsigned = target.kind == "uint" and target.bits == 64 and op in ("max", "min", "absmax")
    start = neutral(op, target)

    def prepare(values: Array, origin: DType) -> Array:
        if op in ("any", "all"):
            into = to_compute(origin)
            truth: Array = (values if into is None else into(values)) != 0
            return truth.astype(np.int64)
        values = widen(values, origin, target)
        if not target.is_float:
            values = narrow_int(values, target)
        if op in ("abssum", "absmax") and target.kind != "uint":
            values = np.abs(values)
            values = values if target.is_float else narrow_int(values, target)
        return values.view(np.uint64) if unsigned else values

    def execute(env: Env) -> int:
        values = prepare(read(env), source)
        result = combine.reduce(values, axis=axis) if values.shape[axis] else _filled(values, axis, start)
        extents = box(env)[1]
        result = fitted(np.asarray(result), extents, stmt.dst.buffer, stmt.dst)
        if not stmt.clear:
            old = read_old(env)
            result = combine(prepare(old, target) if op in ("any", "all") else widen_old(old, target, unsigned), result)
        if unsigned:
            result = result.view(np.int64)
        write(env, narrow_logic(result, target) if op in ("any", "all") else narrow(result, target))
        return 0

    return execute


def widen_old(values: Array, target: DType, unsigned: bool) -> Array:
    """The accumulator's old contents."""
    result = widen(values, target, target)
    return result.view(np.uint64) if unsigned else result


def narrow_int(values: Array, target: DType) -> Array:
    """int64 values wrapped to `target`, as int64."""
    result: Array = cast_function(_INT64, target)(values).astype(np.int64)
    return result


def narrow_logic(values: Array, target: DType) -> Any:
    """0 and 1 in the storage form of `target`."""
    return cast_storage(np.asarray(values).astype(np.int64), _INT64, target)


def _filled(values: Array, axis: int, value: Any) -> Array:
    """`value` where `values` has nothing to reduce."""
    kind = np.int64 if isinstance(value, int) else np.float64
    return np.full(_without(values.shape, axis), value, kind).astype(values.dtype)


def _scan(compiler: StatementCompiler, stmt: Scan) -> Execute:
    read, write = compiler.read(stmt.src), compiler.write(stmt.dst)
    source, target = stmt.src.buffer.dtype.scalar, stmt.dst.buffer.dtype.scalar
    if stmt.op not in ("sum", "max"):
        raise VerificationError(f"scan {stmt.op!r} is not defined")
    combine: Any = np.add if stmt.op == "sum" else _extreme("max", target, propagate=False)
    unsigned = target.kind == "uint" and target.bits == 64
    axis = stmt.dim % max(len(stmt.src.extents), 1)

    def execute(env: Env) -> int:
        values = widen(read(env), source, target)
        values = values.view(np.uint64) if unsigned else values
        values = np.flip(values, axis) if stmt.reverse else values
        result = combine.accumulate(values, axis=axis)
        result = np.flip(result, axis) if stmt.reverse else result
        write(env, narrow(result.view(np.int64) if unsigned else result, target))
        return 0

    return execute


# --- atomics -----------------------------------------------------------------------------------------------


def update_function(op: str, target: DType) -> Callable[[Any, Any], Any] | None:
    """old, value -> new in the compute form of `target`; None for a plain store."""
    if op in ("store", "exchange"):
        return None
    name = {"or": "bitor", "and": "bitand", "xor": "bitxor"}.get(op, op)
    if target.is_bool and name in ("max", "min"):
        name = "bitor" if name == "max" else "bitand"
    return operations.binary_function(name, target)


def _atomic(compiler: StatementCompiler, stmt: Atomic) -> Execute:
    target = stmt.dst.buffer.dtype.scalar
    read, write, box = compiler.read(stmt.dst), compiler.write(stmt.dst), compiler.box(stmt.dst)
    operand = _operand(compiler, stmt)
    slot = None if stmt.result is None else compiler.declare(stmt.result, "typed")
    update = None if stmt.op == "load" else update_function(stmt.op, target)
    into, store = to_compute(target), to_storage(target)
    compute = compute_numpy(target)

    def execute(env: Env) -> int:
        old = np.array(read(env))
        current = old if into is None else into(old)
        if operand is not None:
            new = operand(env)
            if update is not None:
                value = fitted(new, old.shape, stmt.dst.buffer, stmt.dst) if np.ndim(new) else new
                result = update(current, value if into is None else into(value))
                new = np.asarray(result, compute) if store is None else store(np.asarray(result, compute))
            write(env, np.broadcast_to(new, box(env)[1]) if not np.ndim(new) else new)
        if slot is not None:
            env[slot] = current.reshape(-1)[0]
        return 0

    return execute


def _operand(compiler: StatementCompiler, stmt: Atomic) -> Callable[[Env], Any] | None:
    """What is combined with the destination, in its storage form; None for a load."""
    if stmt.op == "load":
        return None
    if stmt.value is not None:
        return compiler.stored_as(stmt.value, stmt.dst.buffer)
    if stmt.source is None:
        raise VerificationError(f"atomic {stmt.op!r} needs a value or a source")
    read, source, target = compiler.read(stmt.source), stmt.source.buffer.dtype.scalar, stmt.dst.buffer.dtype.scalar
    return lambda env: cast_storage(read(env), source, target)


STATEMENTS.update(
    {Copy: _copy, Transpose: _transpose, Fill: _fill, Gemm: _gemm, Reduce: _reduce, Scan: _scan, Atomic: _atomic}
)
