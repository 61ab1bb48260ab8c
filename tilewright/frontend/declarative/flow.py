"""Which scalars a run of statements reads before it assigns them, and which it always assigns."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field


@dataclass
class Flow:
    """What a run of statements does to scalars.

    exposed: names that may be read before the run assigns them, with the first such place.
    assigned: names that the run assigns on every path.
    """

    exposed: dict[str, ast.AST] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)

    def then(self, other: Flow) -> None:
        """Extend by a run that follows."""
        for name, node in other.exposed.items():
            if name not in self.assigned:
                self.exposed.setdefault(name, node)
        self.assigned |= other.assigned

    def reads(self, node: ast.AST) -> None:
        """Extend by the evaluation of an expression."""
        for name, place in names_read(node):
            if name not in self.assigned:
                self.exposed.setdefault(name, place)


_NO_VALUES = {(ast.Subscript, "value"), (ast.Call, "func"), (ast.Attribute, "value")}
"""Where a name stands for a tensor, a function or a module."""


def names_read(node: ast.AST) -> Iterator[tuple[str, ast.Name]]:
    """The plain names that an expression reads; names of tensors and functions are left out."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id, node
        return
    for name, child in ast.iter_fields(node):
        if (type(node), name) in _NO_VALUES and isinstance(child, ast.Name):
            continue
        for part in child if isinstance(child, list) else [child]:
            if isinstance(part, ast.AST):
                yield from names_read(part)


def flow_of(statements: Sequence[ast.stmt]) -> Flow:
    """The flow of a run of statements.  A loop may run no time, so it assigns nothing for sure."""
    flow = Flow()
    for statement in statements:
        handler = _HANDLERS.get(type(statement))
        if handler is not None:
            handler(flow, statement)
        else:
            flow.reads(statement)
    return flow


def _assign(flow: Flow, statement: ast.Assign) -> None:
    flow.reads(statement.value)
    for target in statement.targets:
        if isinstance(target, ast.Name):
            flow.assigned.add(target.id)
        else:
            flow.reads(target)


def _augmented(flow: Flow, statement: ast.AugAssign) -> None:
    flow.reads(statement.value)
    if isinstance(statement.target, ast.Name):
        if statement.target.id not in flow.assigned:
            flow.exposed.setdefault(statement.target.id, statement.target)
        flow.assigned.add(statement.target.id)
    else:
        flow.reads(statement.target)


def _if(flow: Flow, statement: ast.If) -> None:
    flow.reads(statement.test)
    first, second = flow_of(statement.body), flow_of(statement.orelse)
    always = first.assigned & second.assigned
    for branch in (first, second):
        flow.then(Flow(branch.exposed))
    flow.assigned |= always


def _for(flow: Flow, statement: ast.For) -> None:
    flow.reads(statement.iter)
    body = Flow(assigned=target_names(statement))
    body.then(flow_of(statement.body))
    flow.then(Flow(body.exposed))


def target_names(statement: ast.For) -> set[str]:
    """The indices of a loop."""
    return {n.id for n in ast.walk(statement.target) if isinstance(n, ast.Name)}


_HANDLERS: dict[type[ast.stmt], Callable[..., None]] = {
    ast.Assign: _assign,
    ast.AugAssign: _augmented,
    ast.If: _if,
    ast.For: _for,
}


def live_after(body: Sequence[ast.stmt], position: int) -> set[str]:
    """The names whose values at the end of statement `position` a later statement of `body` may read."""
    return set(flow_of(body[position + 1 :]).exposed)
