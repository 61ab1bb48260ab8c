"""`Parallel`: all iterations at once as NumPy arrays, or one after the other where the body does not allow that.

Vectorised, a statement is done for all iterations before the next one is.  Loop variables are open index
grids; under an `If` a mask says which iterations run; `For` and `While` go on until no iteration does.
Local and var buffers that the body writes get further axes, one for each loop variable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.ir.expr import Buffer, Expr, Load, Ramp
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import (
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    For,
    If,
    Let,
    Parallel,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.simulator.access import named, storage, written
from tilewright.simulator.expressions import GRID, JUMP, MASK, MESH, Env, both
from tilewright.simulator.memory import Array, allocate, in_range, scatter
from tilewright.simulator.numerics import poison
from tilewright.simulator.statements import STATEMENTS, Execute, StatementCompiler, nonzero
from tilewright.simulator.updates import reducer_update, vector_atomic


class Jumps:
    """Which iterations of a vectorised Parallel have left the innermost loop, or its present round; None for none."""

    __slots__ = ("broken", "skipped")

    def __init__(self) -> None:
        self.broken: Array | None = None
        self.skipped: Array | None = None

    def leave(self, which: Array, *, loop: bool) -> None:
        """`which` iterations leave the round, or the whole loop."""
        self.skipped = which if self.skipped is None else self.skipped | which
        if loop:
            self.broken = which if self.broken is None else self.broken | which


_SIMPLE = (Seq, Let, Store, If, For, While, Break, Continue, Assert, Region)


def can_vectorise(body: Seq, private: dict[int, Buffer]) -> bool:
    """Whether all iterations of `body` can run at once."""
    for item in walk(body):
        if isinstance(item, Expr):
            if item.dtype.lanes > 1 or isinstance(item, Ramp) or (isinstance(item, Load) and item.mask is not None):
                return False
        elif isinstance(item, Atomic):
            if item.source is not None or item.dst.const_extents != (1,) * item.dst.buffer.ndim:
                return False
            if id(storage(item.dst.buffer)) in private:
                return False
        elif isinstance(item, Alloc):
            if item.buffer.const_shape() is None:
                return False
        elif not isinstance(item, _SIMPLE) or (isinstance(item, Store) and item.mask is not None):
            return False
    return all(b.dtype.lanes == 1 and (b.view_of is None or id(storage(b)) not in private) for b in named(body))


def outer_private(body: Seq) -> dict[int, Buffer]:
    """The local and var buffers from outside of `body` that each of its iterations has a copy of."""
    inner = {id(item.buffer) for item in walk(body) if isinstance(item, Alloc)}
    return {id(b): b for b in written(body) if b.scope in ("local", "var") and b.reducer is None and id(b) not in inner}


def _parallel(compiler: StatementCompiler, stmt: Parallel) -> Execute:
    extents = compiler.shape(stmt.extents)
    slots = [compiler.declare(var, "index") for var in stmt.vars]
    outer = outer_private(stmt.body)
    inner = {id(item.buffer): item.buffer for item in walk(stmt.body) if isinstance(item, Alloc)}
    places = [compiler.slot(buffer) for buffer in outer.values()]
    if not can_vectorise(stmt.body, {**outer, **inner}):
        return _one_by_one(extents, slots, places, list(outer.values()), compiler.statement(stmt.body))
    compiler.private, before = frozenset({**outer, **inner}), compiler.private
    compiler.methods = VECTOR_STATEMENTS
    try:
        body = compiler.statement(stmt.body)
    finally:
        compiler.methods, compiler.private = STATEMENTS, before
    buffers = list(outer.values())

    def execute(env: Env) -> int:
        grid = extents(env)
        if min(grid) <= 0:
            return 0
        mesh = open_mesh(grid)
        for slot, axis in zip(slots, mesh, strict=True):
            env[slot] = axis
        env[MASK], env[JUMP], env[MESH], env[GRID] = None, None, mesh, grid
        saved = [env[place] for place in places]
        for place, array in zip(places, saved, strict=True):
            env[place] = np.broadcast_to(array.reshape(array.shape + (1,) * len(grid)), array.shape + grid).copy()
        body(env)
        _restore(env, places, saved, buffers)
        return 0

    return execute


def _one_by_one(
    extents: Callable[[Env], tuple[int, ...]], slots: list[int], places: list[int], buffers: list[Buffer], body: Execute
) -> Execute:
    def execute(env: Env) -> int:
        saved = [env[place] for place in places]
        contents = [array.copy() for array in saved]
        for point in np.ndindex(*[max(n, 0) for n in extents(env)]):
            for array, content in zip(saved, contents, strict=True):
                array[...] = content
            for slot, value in zip(slots, point, strict=True):
                env[slot] = value
            body(env)
        _restore(env, places, saved, buffers)
        return 0

    return execute


def _restore(env: Env, places: list[int], saved: list[Array], buffers: list[Buffer]) -> None:
    """After a Parallel nothing is known of a buffer that its iterations had copies of."""
    for place, array, buffer in zip(places, saved, buffers, strict=True):
        array[...] = poison(buffer.dtype.scalar)
        env[place] = array


@lru_cache(maxsize=256)
def open_mesh(grid: tuple[int, ...]) -> tuple[Array, ...]:
    """An index array for each axis of `grid`, of extent 1 along the others."""
    rank = len(grid)
    return tuple(
        [np.arange(n, dtype=np.int64).reshape((1,) * d + (n,) + (1,) * (rank - d - 1)) for d, n in enumerate(grid)]
    )


# --- statements on all iterations at once --------------------------------------------------------------


def jumps(stmt: Stmt) -> bool:
    """Whether a Break or Continue in `stmt` leaves a loop around it."""
    if isinstance(stmt, (Break, Continue)):
        return True
    if isinstance(stmt, (For, While)):
        return False
    return any(jumps(child) for child in stmt.children() if isinstance(child, Stmt))


def _seq(compiler: StatementCompiler, seq: Seq) -> Execute:
    steps = [(compiler.statement(s), jumps(s)) for s in seq.stmts]

    def execute(env: Env) -> int:
        entry = env[MASK]
        for step, may_jump in steps:
            step(env)
            if may_jump and env[JUMP].skipped is not None:
                left = without(entry, env[JUMP].skipped)
                if not left.any():
                    break
                env[MASK] = left
        env[MASK] = entry
        return 0

    return execute


def without(mask: Array | None, gone: Array) -> Array:
    """The iterations of `mask` that are not in `gone`."""
    return ~gone if mask is None else mask & ~gone


def narrowed(mask: Array | None, condition: Any) -> Array | None:
    """The iterations of `mask` for which `condition` holds."""
    result: Array | None = condition if mask is None else mask & condition
    return result


def _alloc(compiler: StatementCompiler, stmt: Alloc) -> Execute:
    buffer, init, slot = stmt.buffer, compiler.initial(stmt), compiler.declare_buffer(stmt.buffer)
    shape = buffer.const_shape() or ()

    def execute(env: Env) -> int:
        env[slot], env[slot + 1] = allocate(shape + env[GRID], None, buffer.dtype)
        if init is not None:
            env[slot][...] = init(env)
        return 0

    return execute


def _if(compiler: StatementCompiler, stmt: If) -> Execute:
    condition, then = compiler.typed(stmt.condition), compiler.statement(stmt.then_body)
    otherwise = None if stmt.else_body is None else compiler.statement(stmt.else_body)

    def execute(env: Env) -> int:
        holds, outer = condition(env), env[MASK]
        if not np.ndim(holds):
            if holds:
                then(env)
            elif otherwise is not None:
                otherwise(env)
            return 0
        env[MASK] = narrowed(outer, holds)
        if env[MASK].any():
            then(env)
        if otherwise is not None:
            env[MASK] = narrowed(outer, ~holds)
            if env[MASK].any():
                otherwise(env)
        env[MASK] = outer
        return 0

    return execute


def _for(compiler: StatementCompiler, stmt: For) -> Execute:
    start, stop, step = compiler.index(stmt.start), compiler.index(stmt.stop), compiler.index(stmt.step)
    slot = compiler.declare(stmt.var, "index")
    body = compiler.statement(stmt.body)

    def rounds(env: Env) -> Iterator[tuple[Any, Any]]:
        """The loop variable, and which iterations of the Parallel take the round (None for all)."""
        first, last, stride = start(env), stop(env), step(env)
        if isinstance(stride, int) and isinstance(first, int) and isinstance(last, int):
            for value in range(first, last, nonzero(stride, stmt)):
                yield value, None
            return
        nonzero(int(np.all(stride)), stmt)
        counts = -((first - last) // stride)
        for number in range(int(np.max(counts, initial=0))):
            yield first + number * stride, counts > number

    def execute(env: Env) -> int:
        outer, around, here = env[MASK], env[JUMP], Jumps()
        for value, takes in rounds(env):
            mask = outer if takes is None else narrowed(outer, takes)
            if here.broken is not None:
                mask = without(mask, here.broken)
            if mask is not None and not mask.any():
                break
            here.skipped = None
            env[slot], env[MASK], env[JUMP] = value, mask, here
            body(env)
        env[MASK], env[JUMP] = outer, around
        return 0

    return execute


def _while(compiler: StatementCompiler, stmt: While) -> Execute:
    condition, body = compiler.typed(stmt.condition), compiler.statement(stmt.body)

    def execute(env: Env) -> int:
        outer, around, here = env[MASK], env[JUMP], Jumps()
        live = outer
        while True:
            env[MASK], env[JUMP] = live, here
            holds = condition(env)
            if np.ndim(holds):
                live = narrowed(live, holds)
            elif not holds:
                break
            if live is not None and not live.any():
                break
            here.skipped = None
            env[MASK] = live
            body(env)
            if here.broken is not None:
                live = without(live, here.broken)
        env[MASK], env[JUMP] = outer, around
        return 0

    return execute


def _leave(*, loop: bool) -> Callable[[StatementCompiler, Any], Execute]:
    def execute(env: Env) -> int:
        mask = env[MASK]
        env[JUMP].leave(np.broadcast_to(True if mask is None else mask, env[GRID]), loop=loop)
        return 0

    return lambda compiler, stmt: execute


def _store(compiler: StatementCompiler, stmt: Store) -> Execute:
    buffer = stmt.buffer
    update = reducer_update(compiler, stmt)
    if update is not None:
        return update
    slot, indices, value = compiler.slot(buffer), compiler.indices(stmt), compiler.stored_as(stmt.value, buffer)
    private = id(buffer) in compiler.private

    def execute(env: Env) -> int:
        new, array, where = value(env), env[slot], indices(env)
        inside = in_range(where, array.shape)
        chosen = inside if env[MASK] is None else both(inside, env[MASK])
        if chosen is False:
            return 0
        if not private:
            scatter(array, where, new, chosen)
        elif all(isinstance(i, int) for i in where):
            np.copyto(array[where], new, where=chosen)
        else:
            scatter(array, where + env[MESH], new, chosen)
        return 0

    return execute


def _assert(compiler: StatementCompiler, stmt: Assert) -> Execute:
    condition = compiler.typed(stmt.condition)

    def execute(env: Env) -> int:
        fails = np.logical_not(condition(env))
        if np.any(fails if env[MASK] is None else env[MASK] & fails):
            raise compiler.failed(stmt)
        return 0

    return execute


VECTOR_STATEMENTS: dict[type[Stmt], Callable[[Any, Any], Execute]] = {
    Seq: _seq,
    Let: StatementCompiler._let,
    Alloc: _alloc,
    If: _if,
    For: _for,
    While: _while,
    Break: _leave(loop=True),
    Continue: _leave(loop=False),
    Store: _store,
    Assert: _assert,
    Atomic: vector_atomic,
}
STATEMENTS[Parallel] = _parallel
