"""What a declarative kernel's names must satisfy, so that reading it cannot differ from executing it.

Python's names live in one function-wide namespace and loops leave their index behind; here a loop's index
ends with the loop, and a name is a size, a tensor, a scalar parameter, an index or a local for the whole kernel.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from tilewright.errors import LanguageError, NameRebindingError, UnsupportedSyntaxError
from tilewright.frontend.declarative.flow import flow_of, target_names
from tilewright.frontend.declarative.program import Program, read_loops


def check_statements(program: Program, statements: Sequence[ast.stmt]) -> None:
    """Raises UnsupportedSyntaxError, with the place, on a statement that has no meaning here."""
    one_each = "one name or element for each assignment"
    for statement in statements:
        loc = program.location(statement)
        if isinstance(statement, (ast.For, ast.If)):
            if isinstance(statement, ast.For):
                read_loops(program, statement)
            check_statements(program, [*statement.body, *statement.orelse])
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if len(targets) != 1:
                raise UnsupportedSyntaxError("assign to one name at a time", location=loc, hint=one_each)
            target = targets[0]
            if isinstance(target, ast.Subscript) and not isinstance(target.value, ast.Name):
                raise UnsupportedSyntaxError(
                    "only tensors can be indexed", location=program.location(target), hint="write A[i, j], not A[i][j]"
                )
            if not isinstance(target, (ast.Name, ast.Subscript)):
                raise UnsupportedSyntaxError(
                    "assign to a name or to a tensor's element", location=program.location(target), hint=one_each
                )
        elif isinstance(statement, ast.Expr) and not isinstance(statement.value, ast.Constant):
            raise UnsupportedSyntaxError(
                "an expression alone does nothing here", location=loc, hint="assign it to a name or to an element"
            )
        elif not isinstance(statement, (ast.Expr, ast.Pass)):
            raise UnsupportedSyntaxError(
                f"{type(statement).__name__} is not part of the declarative form",
                location=loc,
                hint="loops over range or grid, if, assignments and stores are",
            )


def check_names(program: Program) -> None:
    """Raises NameRebindingError or LanguageError, with the place, where a name has two meanings or none."""
    sizes = program.size_names
    for parameter in program.parameters:
        if parameter.dims is None and parameter.name in sizes:
            raise NameRebindingError(
                f"{parameter.name!r} is a scalar parameter and the name of a size",
                location=parameter.loc,
                hint="rename one; a size needs no parameter, it follows from the tensors' shapes",
            )
    kinds = dict.fromkeys(sizes, "a size")
    for parameter in program.parameters:
        kinds[parameter.name] = "a scalar parameter" if parameter.dims is None else "a tensor"
    kinds |= dict.fromkeys(program.staged, "a staged tensor")
    indices = {n for s in program.body for f in ast.walk(s) if isinstance(f, ast.For) for n in target_names(f)}
    _check_assigned(program, program.body, kinds, indices, frozenset())
    _check_values(program, kinds, indices)


def _check_assigned(
    program: Program,
    statements: Sequence[ast.stmt],
    kinds: dict[str, str],
    indices: set[str],
    around: frozenset[str],
) -> None:
    for statement in statements:
        if isinstance(statement, ast.For):
            own = target_names(statement)
            for target in (n for n in ast.walk(statement.target) if isinstance(n, ast.Name)):
                meaning = "the index of a loop around this one" if target.id in around else kinds.get(target.id)
                if meaning is not None:
                    _refuse_rebinding(program, target, meaning)
            _check_assigned(program, statement.body, kinds, indices, around | own)
        elif isinstance(statement, ast.If):
            _check_assigned(program, [*statement.body, *statement.orelse], kinds, indices, around)
        elif isinstance(statement, (ast.Assign, ast.AugAssign)):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for name in (t for t in targets if isinstance(t, ast.Name)):
                meaning = kinds.get(name.id) or ("the index of a loop" if name.id in indices else None)
                if meaning is not None:
                    _refuse_rebinding(program, name, meaning)


def _refuse_rebinding(program: Program, node: ast.Name, meaning: str) -> None:
    raise NameRebindingError(
        f"{node.id!r} is {meaning} and cannot get another value",
        location=program.location(node),
        hint="choose another name",
    )


def _check_values(program: Program, kinds: dict[str, str], indices: set[str]) -> None:
    """Every local has a value where it is read, and no index is read after its loop."""
    locals_ = {
        n.id
        for s in program.body
        for n in ast.walk(s)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and n.id not in indices
    }
    for name, place in flow_of(program.body).exposed.items():
        if name in indices:
            raise LanguageError(
                f"{name!r} is read outside of its loop",
                location=program.location(place),
                hint=f"an index ends with its loop here; keep the value in a local inside the loop, `last = {name}`",
            )
        if name in locals_:
            raise LanguageError(
                f"{name!r} may have no value here",
                location=program.location(place),
                hint=f"assign it before, outside of the loop or branch, `{name} = 0.0`",
            )
        if kinds.get(name, "").endswith("tensor") and name not in program.size_names:
            raise LanguageError(
                f"{name!r} is {kinds[name]}, and stands here without indices",
                location=program.location(place),
                hint=f"read an element, `{name}[...]`; whole tensors have no operators here",
            )
