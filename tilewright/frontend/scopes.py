"""Blocks of a function while it is run, and names whose block is over."""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.errors import NameRebindingError
from tilewright.source import Location, caller_location


class Scope:
    """A block of the IR.  conditional: run-time control flow decides whether, or how often, it is executed."""

    __slots__ = ("conditional", "open", "parent", "what")

    def __init__(self, what: str, parent: Scope | None, *, conditional: bool) -> None:
        self.what = what
        self.parent = parent
        self.conditional = conditional
        self.open = True

    def control(self) -> Scope:
        """The innermost conditional block around, itself included; the outermost block when there is none."""
        scope = self
        while not scope.conditional and scope.parent is not None:
            scope = scope.parent
        return scope


class Binding:
    """What a name is bound to, and in which block."""

    __slots__ = ("loc", "scope", "value")

    def __init__(self, value: Any, scope: Scope, loc: Location | None) -> None:
        self.value = value
        self.scope = scope
        self.loc = loc


class Dead:
    """The value of a name after the block that introduced it; any use raises NameRebindingError."""

    def __init__(self, name: str, what: str, loc: Location | None, hint: str) -> None:
        object.__setattr__(self, "_dead", (name, what, loc, hint))

    def __getattribute__(self, name: str) -> Any:
        if name in ("__class__", "_dead"):
            return object.__getattribute__(self, name)
        return refuse_dead(self)


def refuse_dead(dead: Dead) -> NoReturn:
    """Raise the error of using `dead`."""
    name, what, loc, hint = dead._dead
    raise NameRebindingError(
        f"{name!r} was assigned inside {what}{f' (line {loc.line})' if loc else ''}, so it has no value here",
        location=caller_location(),
        hint=hint,
    )


def _refusing(self: Any, *args: Any) -> Any:
    refuse_dead(self)


for _operator in [
    "add",
    "radd",
    "sub",
    "rsub",
    "mul",
    "rmul",
    "truediv",
    "rtruediv",
    "floordiv",
    "rfloordiv",
    "mod",
    "rmod",
    "pow",
    "rpow",
    "and",
    "rand",
    "or",
    "ror",
    "xor",
    "rxor",
    "lshift",
    "rlshift",
    "rshift",
    "rrshift",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "neg",
    "pos",
    "invert",
    "abs",
    "bool",
    "index",
    "int",
    "float",
    "iter",
    "len",
    "contains",
    "getitem",
    "setitem",
    "call",
    "str",
    "repr",
    "format",
    "hash",
    "enter",
    "exit",
]:
    setattr(Dead, f"__{_operator}__", _refusing)
