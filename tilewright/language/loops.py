"""Loops of a kernel: what stands after `in` of a `for` statement.

The front-end opens a loop once, runs the statement's body once to collect it, and closes the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.errors import ArgumentValueError, KernelStructureError, UnsupportedSyntaxError
from tilewright.ir.builder import Builder, Frame
from tilewright.ir.expr import INT32, INT64, Expr, Var, as_bool, as_expr, binary, cast, const, const_int
from tilewright.ir.stmt import For, If, Let, Seq
from tilewright.ir.stmt import Parallel as ParallelNode
from tilewright.source import Location, caller_location


class Loop:
    """A loop over integers.  count: its variables; `kind` and `breaks` say what may stand inside."""

    kind = "serial"
    allows_break = True
    allows_continue = True

    def __init__(self, what: str, count: int, loc: Location | None) -> None:
        self.what = what
        self.count = count
        self.loc = loc

    def open(self, builder: Builder, names: Sequence[str]) -> Any:
        """Open the loop's scope and return its variable, or a tuple of them."""
        builder.require_launch(self.what, self.loc)
        return self._open(builder, [names[d] if d < len(names) else "ijkl"[d % 4] for d in range(self.count)])

    def _open(self, builder: Builder, names: list[str]) -> Any:
        raise AssertionError(self.what)

    def close(self, builder: Builder) -> None:
        """Close the scope and emit the loop."""
        raise AssertionError(self.what)

    def __iter__(self) -> Any:
        raise UnsupportedSyntaxError(
            f"{self.what} is a loop of the kernel, and this Python function is not part of one",
            location=caller_location(),
            hint="decorate the function with @T.macro, or loop over Python values",
        )


def _bound(value: Any, what: str, loc: Location | None) -> Expr:
    result = as_expr(value, loc=loc)
    if not result.dtype.is_int or result.dtype.lanes != 1:
        raise ArgumentValueError(f"{what} needs integer bounds, got {result.dtype}", location=loc)
    return result


def _push(builder: Builder, kind: str, loc: Location | None) -> Frame:
    frame = Frame(kind, loc)
    builder.frames.append(frame)
    return frame


def _pop(builder: Builder) -> Seq:
    return builder.frames.pop().seq()


class ForLoop(Loop):
    """One counted loop."""

    def __init__(self, kind: str, what: str, bounds: tuple[Any, ...], loc: Location | None, **options: Any) -> None:
        super().__init__(what, 1, loc)
        if not 1 <= len(bounds) <= 3:
            raise ArgumentValueError(f"{what} takes (stop), (start, stop) or (start, stop, step)", location=loc)
        start, stop = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        step = bounds[2] if len(bounds) == 3 else 1
        values = [_bound(v, what, loc) for v in (start, stop, step)]
        if const_int(values[2]) == 0:
            raise ArgumentValueError(f"{what}: the step is 0", location=loc)
        wide = any(v.dtype.bits > 32 or (v.dtype.kind == "uint" and v.dtype.bits == 32) for v in values)
        self.dtype = INT64 if wide else INT32
        self.start, self.stop, self.step = (cast(v, self.dtype, loc=loc) for v in values)
        self.kind = kind
        self.allows_break = self.allows_continue = kind != "vectorized"
        self.options = options

    def _open(self, builder: Builder, names: list[str]) -> Var:
        self.var = builder.fresh_var(names[0], self.dtype, self.loc)
        _push(builder, self.kind, self.loc)
        return self.var

    def close(self, builder: Builder) -> None:
        body = _pop(builder)
        builder.emit(For(self.var, self.start, self.stop, self.step, body, self.kind, loc=self.loc, **self.options))


class GridLoop(Loop):
    """Serial loops, one inside the other."""

    def __init__(self, extents: tuple[Any, ...], loc: Location | None) -> None:
        super().__init__("T.grid", len(extents), loc)
        if not extents:
            raise ArgumentValueError("T.grid needs at least one extent", location=loc)
        self.loops = [ForLoop("serial", "T.grid", (extent,), loc) for extent in extents]
        self.allows_break = len(extents) == 1

    def _open(self, builder: Builder, names: list[str]) -> Any:
        variables = tuple(loop.open(builder, [name]) for loop, name in zip(self.loops, names, strict=True))
        return variables if len(variables) > 1 else variables[0]

    def close(self, builder: Builder) -> None:
        for loop in reversed(self.loops):
            loop.close(builder)


class ParallelLoop(Loop):
    """Independent iterations over a box."""

    kind = "parallel"
    allows_break = allows_continue = False

    def __init__(self, extents: tuple[Any, ...], loc: Location | None) -> None:
        super().__init__("T.Parallel", len(extents), loc)
        if not extents:
            raise ArgumentValueError("T.Parallel needs at least one extent", location=loc)
        self.extents = tuple(_bound(e, "T.Parallel", loc) for e in extents)

    def _open(self, builder: Builder, names: list[str]) -> Any:
        self.vars = tuple(
            builder.fresh_var(name, INT64 if extent.dtype.bits > 32 else INT32, self.loc)
            for name, extent in zip(names, self.extents, strict=True)
        )
        _push(builder, "parallel", self.loc)
        return self.vars if len(self.vars) > 1 else self.vars[0]

    def close(self, builder: Builder) -> None:
        body = _pop(builder)
        builder.emit(ParallelNode(self.vars, self.extents, body, loc=self.loc))


class PersistentLoop(Loop):
    """A block's share of the tiles of `domain`: every wave_size-th one, from number `index` on.

    Tiles are numbered so that `group_size` neighbours of the last dimension come together, then the other
    dimensions, last one fastest, then the next group.
    """

    def __init__(self, domain: Any, wave_size: Any, index: Any, group_size: int, loc: Location | None) -> None:
        sizes = tuple(domain) if isinstance(domain, (tuple, list)) else (domain,)
        super().__init__("T.Persistent", len(sizes), loc)
        if not sizes:
            raise ArgumentValueError("T.Persistent needs a domain of at least one dimension", location=loc)
        if not isinstance(group_size, int) or group_size < 1:
            raise ArgumentValueError(f"group_size must be a positive integer, got {group_size!r}", location=loc)
        self.domain = [_bound(s, "T.Persistent", loc) for s in sizes]
        self.wave_size = _bound(wave_size, "T.Persistent", loc)
        self.index = _bound(index, "T.Persistent", loc)
        last = const_int(self.domain[-1])
        self.group = min(group_size, last) if last else group_size

    def _open(self, builder: Builder, names: list[str]) -> Any:
        loc = self.loc
        last, group = self.domain[-1], const(self.group)
        groups = binary("floordiv", last + (self.group - 1), group, loc=loc)
        radix = [groups, *self.domain[:-1], group]
        total = radix[0]
        for size in radix[1:]:
            total = binary("mul", total, size, loc=loc)
        self.loop = ForLoop("serial", self.what, (self.index, total, self.wave_size), loc)
        rest: Expr = self.loop.open(builder, ["tile"])
        digits: list[Expr] = []
        for size in reversed(radix[1:]):
            digits.insert(0, binary("floormod", rest, size, loc=loc))
            rest = binary("floordiv", rest, size, loc=loc)
        coordinates = [*digits[:-1], binary("add", binary("mul", rest, group, loc=loc), digits[-1], loc=loc)]
        variables = []
        for name, value in zip(names, coordinates, strict=True):
            var = builder.fresh_var(name, value.dtype, loc)
            builder.emit(Let(var, value, loc=loc))
            variables.append(var)
        known = const_int(last)
        self.guard: Expr | None = None
        if known is None or known % self.group:
            self.guard = as_bool(variables[-1] < last, loc=loc)
            _push(builder, "if", loc)
        return tuple(variables) if len(variables) > 1 else variables[0]

    def close(self, builder: Builder) -> None:
        if self.guard is not None:
            body = _pop(builder)
            builder.emit(If(self.guard, body, loc=self.loc))
        self.loop.close(builder)


def serial(start: Any, stop: Any = None, step: Any = None, *, annotations: dict[str, Any] | None = None) -> ForLoop:
    """`for i in T.serial(stop | start, stop[, step])`: iterations one after the other; i is int32 (int64 for such bounds)."""
    return ForLoop("serial", "T.serial", _bounds(start, stop, step), caller_location())


def unroll(
    start: Any,
    stop: Any = None,
    step: Any = None,
    *,
    explicit: bool = False,
    unroll_factor: int | None = None,
    annotations: dict[str, Any] | None = None,
) -> ForLoop:
    """A serial loop whose body is repeated in the code; bounds must be known while compiling (else ArgumentValueError).

    explicit, unroll_factor: hints.
    """
    loc = caller_location()
    loop = ForLoop("unroll", "T.unroll", _bounds(start, stop, step), loc)
    if any(const_int(v) is None for v in (loop.start, loop.stop, loop.step)):
        raise ArgumentValueError(
            "T.unroll needs bounds that are known while compiling", location=loc, hint="use T.serial"
        )
    return loop


def vectorized(start: Any, stop: Any = None, step: Any = None, *, annotations: dict[str, Any] | None = None) -> ForLoop:
    """A loop whose iterations are done together by vector instructions; they must not depend on one another."""
    return ForLoop("vectorized", "T.vectorized", _bounds(start, stop, step), caller_location())


def Pipelined(
    start: Any,
    stop: Any = None,
    num_stages: int = 0,
    order: Sequence[int] | None = None,
    stage: Sequence[int] | None = None,
    sync: Any = None,
    group: Any = None,
    *,
    annotations: dict[str, Any] | None = None,
) -> ForLoop:
    """A serial loop whose copies run up to `num_stages` iterations ahead of the computation.

    order, stage: the user's placement of the body's statements, one number for each.  The meaning is that
    of the serial loop.
    """
    loc = caller_location()
    if not isinstance(num_stages, int) or isinstance(num_stages, bool) or num_stages < 0:
        raise ArgumentValueError(f"num_stages must be 0 or a positive integer, got {num_stages!r}", location=loc)
    placed = _places("order", order, loc), _places("stage", stage, loc)
    if placed[0] and placed[1] and len(placed[0]) != len(placed[1]):
        raise ArgumentValueError(
            f"order has {len(placed[0])} entries and stage {len(placed[1])}: one of each for a statement", location=loc
        )
    bounds = _bounds(start, stop, None)
    return ForLoop("pipelined", "T.Pipelined", bounds, loc, num_stages=num_stages, order=placed[0], stage=placed[1])


def _bounds(start: Any, stop: Any, step: Any) -> tuple[Any, ...]:
    """The arguments of a loop as those of `range`."""
    if stop is None:
        return (start,) if step is None else (0, start, step)
    return (start, stop) if step is None else (start, stop, step)


def _places(what: str, given: Any, loc: Location | None) -> tuple[int, ...]:
    if given is None:
        return ()
    if not isinstance(given, (list, tuple)) or not all(isinstance(v, int) for v in given):
        raise ArgumentValueError(f"{what} of T.Pipelined is a list of integers, got {given!r}", location=loc)
    return tuple(given)


def Parallel(
    *extents: Any,
    coalesced_width: int | None = None,
    loop_layout: Any = None,
    prefer_async: bool | None = None,
    annotations: dict[str, Any] | None = None,
) -> ParallelLoop:
    """`for i, j in T.Parallel(m, n)`: every point of the box, in any order; iterations must be independent.

    coalesced_width, loop_layout, prefer_async, annotations: hints for how a GPU's threads share the box.
    """
    return ParallelLoop(extents, caller_location())


def grid(*extents: Any) -> GridLoop:
    """`for i, j in T.grid(m, n)`: nested serial loops."""
    return GridLoop(extents, caller_location())


def Persistent(
    domain: Any,
    wave_size: Any,
    index: Any,
    group_size: int | None = 8,
    num_stages: int = 0,
    *,
    annotations: dict[str, Any] | None = None,
) -> PersistentLoop:
    """`for bx, by in T.Persistent([m, n], wave_size, index)`: the tiles of a box, shared out among `wave_size` blocks.

    index: this block's number, below wave_size.  group_size: how many neighbours of the last dimension come together
    (None: 1).  num_stages: a hint.
    """
    return PersistentLoop(domain, wave_size, index, 1 if group_size is None else group_size, caller_location())


Serial = serial
Unroll = unroll
Vectorized = vectorized


def loop_break(loop: Loop, word: str, loc: Location | None) -> None:
    """Raise KernelStructureError when `break` or `continue` (`word`) has no meaning in `loop`."""
    if loop.allows_break if word == "break" else loop.allows_continue:
        return
    raise KernelStructureError(
        f"`{word}` inside {loop.what}",
        location=loc,
        hint="iterations are independent: use `if`"
        if loop.kind in ("parallel", "vectorized")
        else "nest T.serial loops instead",
    )


__all__ = [
    "Parallel",
    "Persistent",
    "Pipelined",
    "Serial",
    "Unroll",
    "Vectorized",
    "grid",
    "serial",
    "unroll",
    "vectorized",
]
