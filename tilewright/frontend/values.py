"""Questions about values that a kernel function handles while it is run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.expr import Const, Expr, Load
from tilewright.ir.node import Node

if TYPE_CHECKING:
    from typing import TypeGuard


def is_symbolic(value: Any) -> bool:
    """Whether `value` is known only when the kernel runs."""
    return isinstance(value, Expr) and not isinstance(value, Const)


def is_reference(value: Any) -> TypeGuard[Load]:
    """Whether `value`, the value of a name, is a place: a name bound to a load refers to the element itself."""
    return isinstance(value, Load)


def contains_load(value: Any) -> bool:
    """Whether `value` is an expression that reads memory."""
    if not isinstance(value, Expr):
        return False
    pending: list[Node] = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Load):
            return True
        pending.extend(item.children())
    return False


def is_variable(value: Any) -> TypeGuard[Load]:
    """Whether `value` is a mutable scalar (`T.alloc_var`)."""
    return isinstance(value, Load) and value.buffer.scope == "var"
