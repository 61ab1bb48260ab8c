"""Whether one array may stand for two tensors of a declarative kernel, one of which is written."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.flow import target_names
from tilewright.frontend.declarative.program import Program


def may_share(program: Program, written: str, other: str) -> bool:
    """Whether the program means the same with one array for both tensors.

    That is so when both are only accessed at one and the same element of an iteration, each element once, and
    `other` is not accessed any more once `written` is.
    """
    places: set[str] = set()
    done = False
    for statement, loops in _simple_statements(program.body, frozenset()):
        stores = _accesses(program, statement, written, stored=True)
        for access in [*stores, *_accesses(program, statement, written), *_accesses(program, statement, other)]:
            names = recognise.index_names(access)
            if names is None or (stores and loops != set(names)):
                return False
            places.add(", ".join(names))
        if len(places) > 1 or (done and _accesses(program, statement, other)):
            return False
        if _accesses(program, statement, other, stored=True):
            return False
        done = done or bool(stores)
    return True


def _simple_statements(
    statements: list[ast.stmt], loops: frozenset[str]
) -> Iterator[tuple[ast.stmt | ast.expr, frozenset[str]]]:
    """Every statement without a body in order, every condition and bound, with the indices of the loops around it."""
    for statement in statements:
        if isinstance(statement, ast.For):
            yield statement.iter, loops
            yield from _simple_statements(statement.body, loops | target_names(statement))
        elif isinstance(statement, ast.If):
            yield statement.test, loops
            yield from _simple_statements(statement.body, loops)
            yield from _simple_statements(statement.orelse, loops)
        else:
            yield statement, loops


def _accesses(program: Program, node: ast.AST, tensor: str, *, stored: bool | None = None) -> list[ast.Subscript]:
    found = recognise.subscripts([node], stored=stored)
    return [access for access in found if recognise.tensor_name(program, access) == tensor]
