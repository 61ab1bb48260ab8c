"""Statements compiled to closures: structure, control flow and scalar code, one iteration at a time.

A closure returns 0, or `BREAK` or `CONTINUE` for the innermost loop.  `Parallel` is in `parallel`, the
tile operations are in `tile_ops`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Union

import numpy as np

from tilewright.errors import DeviceAssertError, VerificationError
from tilewright.ir.expr import Buffer, Expr
from tilewright.ir.stmt import (
    Alias,
    Alloc,
    Assert,
    Break,
    Continue,
    For,
    If,
    Launch,
    Let,
    Prefetch,
    Print,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.simulator.expressions import STDOUT, Env, ExpressionCompiler, Run, as_typed, out_of_range
from tilewright.simulator.memory import (
    Array,
    allocate,
    in_range,
    read_region,
    reinterpret_storage,
    scatter,
    write_region,
)
from tilewright.simulator.numerics import cast_function, to_storage
from tilewright.simulator.printing import format_print

Order = Union[str, int]
Execute = Callable[[Env], int]

BREAK = 1
CONTINUE = 2


class StatementCompiler(ExpressionCompiler):
    """Compiles statements.

    name: of the function, for messages.  order: of a launch's blocks.  methods: how to compile each class of statement.
    """

    def __init__(self, name: str, order: Order, *, strict_range: bool = False) -> None:
        super().__init__(strict_range=strict_range)
        self.name = name
        self.order = order
        self.methods = STATEMENTS

    def statement(self, stmt: Stmt) -> Execute:
        """`stmt` compiled."""
        method = self.methods.get(type(stmt))
        if method is None:
            raise VerificationError(f"{type(stmt).__name__} has no place here", location=stmt.loc)
        try:
            return method(self, stmt)
        except VerificationError as error:
            raise error.at(stmt.loc) from None

    # --- structure ----------------------------------------------------------------------------

    def _seq(self, seq: Seq) -> Execute:
        steps = [self.statement(s) for s in seq.stmts]
        if len(steps) == 1:
            return steps[0]

        def execute(env: Env) -> int:
            for step in steps:
                jump = step(env)
                if jump:
                    return jump
            return 0

        return execute

    def _let(self, stmt: Let) -> Execute:
        code = self.code(stmt.value)
        slot, run = self.declare(stmt.var, code.kind), code.run

        def execute(env: Env) -> int:
            env[slot] = run(env)
            return 0

        return execute

    def shape(self, sizes: tuple[Expr, ...]) -> Callable[[Env], tuple[int, ...]]:
        """Sizes as a tuple of integers."""
        runs = [self.integer(s) for s in sizes]
        return lambda env: tuple([run(env) for run in runs])

    def initial(self, stmt: Alloc) -> Run | None:
        """The first value of a variable, in storage form."""
        return None if stmt.init is None else self.stored_as(stmt.init, stmt.buffer)

    def _alloc(self, stmt: Alloc) -> Execute:
        buffer, init = stmt.buffer, self.initial(stmt)
        shape = self.shape(buffer.shape)
        strides = None if buffer.strides is None else self.shape(buffer.strides)
        slot = self.declare_buffer(buffer)

        def execute(env: Env) -> int:
            steps = None if strides is None else strides(env)
            env[slot], env[slot + 1] = allocate(shape(env), steps, buffer.dtype)
            if init is not None:
                env[slot][...] = init(env)
            return 0

        return execute

    def _alias(self, stmt: Alias) -> Execute:
        buffer, base = stmt.buffer, stmt.buffer.view_of
        if base is None:
            raise VerificationError(f"{buffer.name} is not a view of another buffer")
        if buffer.dtype.bits != base.dtype.bits and 4 in (buffer.dtype.bits, base.dtype.bits):
            raise VerificationError(f"{buffer.name}: {base.dtype} cannot be viewed as {buffer.dtype}")
        shape, slot, source = self.shape(buffer.shape), self.declare_buffer(buffer), self.slot(base)

        def execute(env: Env) -> int:
            flat = env[source + 1]
            if flat is None:
                flat = _flat_storage(env[source], base, stmt)
            view = reinterpret_storage(flat, shape(env), buffer.dtype)
            if view is None:
                raise VerificationError(
                    f"{buffer.name} is larger than {base.name}, whose storage it names", location=stmt.loc
                )
            env[slot], env[slot + 1] = view, flat
            return 0

        return execute

    # --- control flow -------------------------------------------------------------------------

    def _for(self, stmt: For) -> Execute:
        start, stop, step = self.integer(stmt.start), self.integer(stmt.stop), self.integer(stmt.step)
        slot = self.declare(stmt.var, "index")
        body = self.statement(stmt.body)

        def execute(env: Env) -> int:
            for value in range(start(env), stop(env), nonzero(step(env), stmt)):
                env[slot] = value
                if body(env) == BREAK:
                    break
            return 0

        return execute

    def _while(self, stmt: While) -> Execute:
        condition, body = self.typed(stmt.condition), self.statement(stmt.body)

        def execute(env: Env) -> int:
            while condition(env):
                if body(env) == BREAK:
                    break
            return 0

        return execute

    def _if(self, stmt: If) -> Execute:
        condition, then = self.typed(stmt.condition), self.statement(stmt.then_body)
        otherwise = None if stmt.else_body is None else self.statement(stmt.else_body)

        def execute(env: Env) -> int:
            if condition(env):
                return then(env)
            return otherwise(env) if otherwise is not None else 0

        return execute

    def _break(self, stmt: Break) -> Execute:
        return lambda env: BREAK

    def _prefetch(self, stmt: Prefetch) -> Execute:
        return lambda env: 0

    def _continue(self, stmt: Continue) -> Execute:
        return lambda env: CONTINUE

    # --- scalar code --------------------------------------------------------------------------

    def stored_as(self, value: Expr, buffer: Buffer) -> Run:
        """`value` in the storage form of `buffer`'s dtype."""
        if value.dtype.scalar is buffer.dtype.scalar:
            return self.stored(value)
        run, scalar = as_typed(self.code(value), value), buffer.dtype.scalar
        convert, store = cast_function(value.dtype.scalar, scalar), to_storage(scalar)
        if store is None:
            return lambda env: convert(np.asarray(run(env))[()])
        return lambda env: store(convert(np.asarray(run(env))[()]))

    def _store(self, stmt: Store) -> Execute:
        buffer = stmt.buffer
        if len(stmt.indices) != buffer.ndim:
            raise VerificationError(f"{buffer.name} has {buffer.ndim} dimensions, but {len(stmt.indices)} indices")
        slot, indices, value = self.slot(buffer), self.indices(stmt), self.stored_as(stmt.value, buffer)
        mask = None if stmt.mask is None else self.typed(stmt.mask)
        strict, lanes = self.strict_range, buffer.dtype.lanes

        def execute(env: Env) -> int:
            new, array, where = value(env), env[slot], indices(env)
            inside = in_range(where, array.shape)
            wanted: Any = True if mask is None else mask(env)
            if strict and np.any(np.logical_and(wanted, np.logical_not(inside))):
                raise out_of_range("store to", stmt, where, array)
            if inside is True and wanted is True:
                array[where] = new
            elif lanes > 1 and np.ndim(wanted):
                array[where] = np.where(wanted, new, array[where])
            else:
                scatter(array, where, new, np.logical_and(wanted, inside))
            return 0

        return execute

    def _assert(self, stmt: Assert) -> Execute:
        condition = self.typed(stmt.condition)

        def execute(env: Env) -> int:
            if not np.all(condition(env)):
                raise self.failed(stmt)
            return 0

        return execute

    def failed(self, stmt: Assert) -> DeviceAssertError:
        """The error of an assert that does not hold."""
        message = stmt.message or "the condition is false"
        return DeviceAssertError(f"device_assert failed in kernel {self.name!r}: {message}", location=stmt.loc)

    def _print(self, stmt: Print) -> Execute:
        values = [self.stored(v) for v in stmt.values]
        regions = [self.read(r) for r in stmt.regions]
        names = stmt.names

        def execute(env: Env) -> int:
            shown = [np.asarray(run(env)) for run in values] + [np.asarray(read(env)) for read in regions]
            (env[STDOUT] or sys.stdout).write(format_print(stmt.message, list(zip(names, shown, strict=True))))
            return 0

        return execute

    # --- regions ------------------------------------------------------------------------------

    def box(self, region: Region) -> Callable[[Env], tuple[tuple[int, ...], tuple[int, ...]]]:
        """A region's starts and extents."""
        if not len(region.starts) == len(region.extents) == region.buffer.ndim:
            raise VerificationError(
                f"the region of {region.buffer.name} does not have its {region.buffer.ndim} dimensions"
            )
        starts, extents = self.shape(region.starts), self.shape(region.extents)
        return lambda env: (starts(env), extents(env))

    def read(self, region: Region) -> Callable[[Env], Array]:
        """A region's elements in storage form; possibly a view."""
        box, slot, safe = self.box(region), self.slot(region.buffer), self.safe(region.buffer)
        return lambda env: read_region(env[slot], *box(env), safe(env))

    def write(self, region: Region) -> Callable[[Env, Array], None]:
        """Stores elements in storage form, in an array with the region's extents but for ones."""
        box, slot, buffer = self.box(region), self.slot(region.buffer), region.buffer

        def write(env: Env, values: Array) -> None:
            starts, extents = box(env)
            write_region(env[slot], starts, extents, fitted(values, extents, buffer, region))

        return write

    # --- launches -----------------------------------------------------------------------------

    def _launch(self, stmt: Launch) -> Execute:
        if len(stmt.grid) != len(stmt.block_vars):
            raise VerificationError("a launch needs one variable for each dimension of its grid")
        grid = self.shape(stmt.grid)
        slots = [self.declare(var, "index") for var in stmt.block_vars]
        body, name = self.statement(stmt.body), self.name

        def execute(env: Env) -> int:
            extents = grid(env)
            for number in block_order(extents, self.order):
                rest = number
                for slot, extent in zip(slots, extents, strict=True):
                    env[slot] = rest % extent
                    rest //= extent
                try:
                    body(env)
                except DeviceAssertError as error:
                    message = error.message.replace(f"kernel {name!r}:", f"kernel {name!r}, block {number}:", 1)
                    raise DeviceAssertError(message, location=error.location) from None
            return 0

        return execute


def block_order(extents: tuple[int, ...], order: Order) -> Any:
    """The numbers of all blocks (the first dimension fastest) in the order in which they run."""
    total = 1
    for extent in extents:
        total *= max(extent, 0)
    if order == "forward":
        return range(total)
    if order == "reverse":
        return range(total - 1, -1, -1)
    return [int(n) for n in np.random.default_rng(int(order)).permutation(total)]


def nonzero(step: int, stmt: For) -> int:
    """A loop's step.  Raises VerificationError when it is 0."""
    if step == 0:
        raise VerificationError(f"the step of loop {stmt.var.name} is 0", location=stmt.loc)
    return step


def fitted(values: Array, extents: tuple[int, ...], buffer: Buffer, region: Region) -> Array:
    """`values` with the shape `extents`, where they are the same but for ones.  Raises VerificationError else."""
    shape = tuple([max(n, 0) for n in extents])
    if values.shape == shape:
        return values
    if [n for n in values.shape if n != 1] != [n for n in shape if n != 1]:
        raise VerificationError(
            f"operands have different extents: {list(values.shape)} and {list(shape)} of {buffer.name}",
            location=region.loc,
        )
    return values.reshape(shape)


def _flat_storage(array: Array, buffer: Buffer, stmt: Alias) -> Array:
    if not array.flags.c_contiguous:
        raise VerificationError(f"{buffer.name} is not contiguous, so it has no views", location=stmt.loc)
    return array.reshape(-1)


STATEMENTS: dict[type[Stmt], Callable[[Any, Any], Execute]] = {
    Seq: StatementCompiler._seq,
    Let: StatementCompiler._let,
    Alloc: StatementCompiler._alloc,
    Alias: StatementCompiler._alias,
    Store: StatementCompiler._store,
    For: StatementCompiler._for,
    While: StatementCompiler._while,
    If: StatementCompiler._if,
    Break: StatementCompiler._break,
    Continue: StatementCompiler._continue,
    Prefetch: StatementCompiler._prefetch,
    Print: StatementCompiler._print,
    Assert: StatementCompiler._assert,
    Launch: StatementCompiler._launch,
}
