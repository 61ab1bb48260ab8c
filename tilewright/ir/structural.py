"""Whether IR is built alike: keys of expressions of the same variables, and functions up to their variables."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from tilewright.ir.expr import Buffer, Const, Expr, Load, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node
from tilewright.ir.stmt import Alias, Alloc, Atomic, For, Launch, Let, Parallel


def key(item: Expr) -> Hashable:
    """A hashable key; variables and buffers count by identity, locations not at all."""
    if isinstance(item, Var):
        return ("v", id(item))
    if isinstance(item, Const):
        # repr, because 0.0 == -0.0 and nan != nan
        return ("c", item.dtype.name, repr(item.value))
    return (type(item).__name__, item.dtype.name, *_own(item), *[key(c) for c in item.children()])  # type: ignore[arg-type]


_SKIPPED = {"loc", "dtype"}


def _own(item: Node) -> list[Hashable]:
    values: list[Hashable] = []
    children = {name for name, _ in item.child_fields}
    for name in item.__dataclass_fields__:
        if name in _SKIPPED or name in children:
            continue
        value = getattr(item, name)
        values.append(id(value) if isinstance(value, Buffer) else value)
    if isinstance(item, Load):
        values.append(item.mask is None)
    return values


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are built alike from the same variables and buffers."""
    return a is b or key(a) == key(b)


# --- functions up to the identity of variables and buffers -------------------------------------------

# Node class -> the fields that introduce what they refer to, in the order in which they may use one another.
_DECLARING: dict[type[Node], tuple[str, ...]] = {
    PrimFunc: ("sizes", "params"),
    Let: ("var",),
    Alloc: ("buffer",),
    Alias: ("buffer",),
    For: ("var",),
    Parallel: ("vars",),
    Launch: ("block_vars",),
    Atomic: ("result",),
}
_BUFFER_FIELDS = ("dtype", "scope", "shape", "strides", "reducer", "safe_value", "view_of")


def same_function(a: PrimFunc, b: PrimFunc) -> bool:
    """Whether two functions are built alike, up to which variables and buffers they use, their names, and locations."""
    return difference(a, b) is None


def difference(a: PrimFunc, b: PrimFunc) -> str | None:
    """Where two functions are not built alike, as a path of fields; None where they are (see `same_function`)."""
    return _Comparison().compare(a, b, "func")


class _Comparison:
    """Pairs the variables and buffers of two functions while it compares them."""

    def __init__(self) -> None:
        self._forth: dict[int, int] = {}
        self._back: dict[int, int] = {}

    def compare(self, a: Any, b: Any, path: str) -> str | None:
        """The first difference of two field values."""
        if isinstance(a, (Var, Buffer)):
            return self._used(a, b, path)
        if type(a) is not type(b):
            return f"{path}: {type(a).__name__} and {type(b).__name__}"
        if isinstance(a, Node):
            return self._nodes(a, b, path)
        if isinstance(a, tuple):
            if len(a) != len(b):
                return f"{path}: {len(a)} and {len(b)} items"
            items = (self.compare(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))
            return next((found for found in items if found is not None), None)
        # repr, because 0.0 == -0.0 and nan != nan
        return None if repr(a) == repr(b) else f"{path}: {a!r} and {b!r}"

    def _nodes(self, a: Node, b: Node, path: str) -> str | None:
        declaring = _DECLARING.get(type(a), ())
        for name in declaring:
            found = self._declared(getattr(a, name), getattr(b, name), f"{path}.{name}")
            if found is not None:
                return found
        for name in a.__dataclass_fields__:
            if name != "loc" and name not in declaring:
                found = self.compare(getattr(a, name), getattr(b, name), f"{path}.{name}")
                if found is not None:
                    return found
        return None

    def _declared(self, a: Any, b: Any, path: str) -> str | None:
        """Pair what is introduced on both sides."""
        if isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                return f"{path}: {len(a)} and {len(b)} items"
            items = (self._declared(x, y, f"{path}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True)))
            return next((found for found in items if found is not None), None)
        if type(a) is not type(b):
            return f"{path}: {type(a).__name__} and {type(b).__name__}"
        if a is None:
            return None
        self._forth[id(a)], self._back[id(b)] = id(b), id(a)
        for name in _BUFFER_FIELDS if isinstance(a, Buffer) else ("dtype",):
            found = self.compare(getattr(a, name), getattr(b, name), f"{path}.{name}")
            if found is not None:
                return found
        return None

    def _used(self, a: Var | Buffer, b: Any, path: str) -> str | None:
        there = self._forth.get(id(a))
        if there is None and id(b) not in self._back and isinstance(b, (Var, Buffer)):
            return self._declared(a, b, path)  # declared nowhere
        if there != id(b) or self._back.get(id(b)) != id(a):
            return f"{path}: {a.name} and {getattr(b, 'name', b)} are not the same"
        return None
