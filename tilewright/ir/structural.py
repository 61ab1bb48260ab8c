"""Structural keys of expressions: equal keys mean expressions that are built alike from the same variables."""

from __future__ import annotations

from collections.abc import Hashable

from tilewright.ir.expr import Buffer, Const, Expr, Load, Var
from tilewright.ir.node import Node


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
