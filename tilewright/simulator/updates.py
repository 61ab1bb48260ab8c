"""Concurrent updates in a vectorised `Parallel`: reducers and atomics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Binary, Buffer, Cast, Expr, Load, Var
from tilewright.ir.node import Node
from tilewright.ir.stmt import Atomic, Store
from tilewright.simulator.expressions import GRID, MASK, Env, both
from tilewright.simulator.memory import Array, chosen_places, in_range
from tilewright.simulator.numerics import compute_numpy, to_compute, to_storage
from tilewright.simulator.statements import Execute, StatementCompiler
from tilewright.simulator.tile_ops import narrow, update_function, widen

# reducer -> the operator of an update `r[i] = r[i] op x`, its ufunc on floats and on integers
_REDUCERS: dict[str, tuple[str, Any, Any]] = {
    "sum": ("add", np.add, np.add),
    "max": ("max", np.fmax, np.maximum),
    "min": ("min", np.fmin, np.minimum),
}

_ATOMIC_UFUNCS: dict[str, tuple[Any, Any]] = {
    "add": (np.add, np.add),
    "max": (np.fmax, np.maximum),
    "min": (np.fmin, np.minimum),
    "or": (None, np.bitwise_or),
    "and": (None, np.bitwise_and),
    "xor": (None, np.bitwise_xor),
}


def same(a: Any, b: Any) -> bool:
    """Whether two expressions (or fields of them) are written the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, Node) and not isinstance(a, Var):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a) if f.name != "loc")
    return not isinstance(a, (Buffer, Var)) and bool(a == b)


def _uncast(expr: Expr) -> Expr:
    while isinstance(expr, Cast):
        expr = expr.value
    return expr


def update_operand(stmt: Store) -> Expr | None:
    """x of a store `r[i] = r[i] op x` to a reducer, None when it is something else."""
    if stmt.buffer.reducer is None:
        return None
    value = _uncast(stmt.value)
    if not isinstance(value, Binary) or value.op != _REDUCERS[stmt.buffer.reducer][0]:
        return None
    for old, operand in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
        old = _uncast(old)
        if isinstance(old, Load) and old.buffer is stmt.buffer and same(old.indices, stmt.indices):
            return operand
    return None


def places_of(env: Env, array: Array, where: tuple[Any, ...]) -> tuple[tuple[Array, ...], Array] | None:
    """Index arrays of the elements that the running iterations name, in their order, and which iterations these are."""
    chosen = in_range(where, array.shape)
    if env[MASK] is not None:
        chosen = both(chosen, env[MASK])
    return None if chosen is False else chosen_places(where, env[GRID], chosen)


def reducer_update(compiler: StatementCompiler, stmt: Store) -> Execute | None:
    """A store that combines into a reducer; None when it is an ordinary store."""
    operand = update_operand(stmt)
    if operand is None or id(stmt.buffer) in compiler.private:
        return None
    buffer, dtype = stmt.buffer, stmt.buffer.dtype
    _, on_floats, on_integers = _REDUCERS[buffer.reducer or ""]
    ufunc = on_floats if dtype.is_float else on_integers
    slot, indices, value = compiler.slot(buffer), compiler.indices(stmt), compiler.stored_as(operand, buffer)
    exact = compiler.typed(operand) if dtype.is_float and operand.dtype.is_float else None

    def execute(env: Env) -> int:
        array = env[slot]
        found = places_of(env, array, indices(env))
        if found is None:
            return 0
        places, where = found
        if not places:
            array, places = array.reshape(1), (np.zeros(int(where.sum()), np.int64),)
        new = exact(env).astype(np.float64) if exact is not None else value(env)
        values = np.broadcast_to(new, where.shape)[where]
        combine(ufunc, array, places, values, dtype)
        return 0

    return execute


def combine(ufunc: Any, array: Array, places: tuple[Array, ...], values: Array, dtype: DType) -> None:
    """`array[places] = ufunc(array[places], values)` for one value after the other; floats in float64, rounded once."""
    if dtype.is_float:
        total = widen(array, dtype, dtype).copy()
        ufunc.at(total, places, values if values.dtype == np.float64 else widen(values, dtype, dtype))
        array[places] = narrow(total[places], dtype)
        return
    into, store = to_compute(dtype), to_storage(dtype)
    if into is None or store is None:
        ufunc.at(array, places, values)
        return
    small = into(array)
    ufunc.at(small, places, into(values))
    array[places] = store(small[places])


def vector_atomic(compiler: StatementCompiler, stmt: Atomic) -> Execute:
    """An atomic on one element by every iteration, in the order of iterations."""
    buffer, target = stmt.dst.buffer, stmt.dst.buffer.dtype
    if stmt.value is None and stmt.op != "load":
        raise VerificationError(f"atomic {stmt.op!r} needs a value")
    value = None if stmt.value is None or stmt.op == "load" else compiler.stored_as(stmt.value, buffer)
    runs = [compiler.index(start) for start in stmt.dst.starts]
    slot, safe = compiler.slot(buffer), compiler.safe(buffer)
    result = None if stmt.result is None else compiler.declare(stmt.result, "typed")
    native = to_compute(target) is None and not target.is_bool
    ufunc = _ATOMIC_UFUNCS.get(stmt.op, (None, None))[0 if target.is_float else 1] if native else None
    one_by_one = _sequential(stmt, target)
    into, compute = to_compute(target), compute_numpy(target)

    def execute(env: Env) -> int:
        array = env[slot]
        found = places_of(env, array, tuple([run(env) for run in runs]))
        olds: Any = safe(env) if into is None else into(safe(env))
        if found is not None:
            places, where = found
            values = None if value is None else np.broadcast_to(value(env), where.shape)[where]
            if result is None and ufunc is not None and places:
                ufunc.at(array, places, values)
            else:
                olds = np.full(where.shape, olds, compute)
                olds[where] = one_by_one(array, places, values, int(where.sum()))
        if result is not None:
            env[result] = olds
        return 0

    return execute


def _sequential(stmt: Atomic, target: DType) -> Callable[[Array, tuple[Array, ...], Array | None, int], Array]:
    """One update after the other; gives the old values in compute form."""
    update = None if stmt.op == "load" else update_function(stmt.op, target)
    into, store, compute = to_compute(target), to_storage(target), compute_numpy(target)

    def run(array: Array, places: tuple[Array, ...], values: Array | None, count: int) -> Array:
        olds = np.empty(count, compute)
        for number in range(count):
            place = tuple([int(axis[number]) for axis in places])
            old = array[place] if into is None else into(array[place])
            olds[number] = old
            if values is None:
                continue
            new = values[number]
            if update is not None:
                new = update(old, new if into is None else into(new))
                new = new if store is None else store(new)
            array[place] = new
        return olds

    return run
