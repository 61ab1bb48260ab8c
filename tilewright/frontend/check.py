"""Refuses Python constructs that have no meaning in a kernel, before anything is run."""

from __future__ import annotations

import ast

from tilewright.errors import UnsupportedSyntaxError
from tilewright.frontend.source import FunctionSource

_STATE = "keep run-time state in T.alloc_var, Python-time values in ordinary names"

# Syntax -> (how the message calls it, what to do).
_REFUSED: dict[str, tuple[str, str]] = {
    "Try": ("`try`", "handle errors outside of the kernel; T.device_assert checks at run time"),
    "TryStar": ("`try`", "handle errors outside of the kernel; T.device_assert checks at run time"),
    "Yield": ("`yield`", "use a loop, or a macro"),
    "YieldFrom": ("`yield from`", "use a loop, or a macro"),
    "Await": ("`await`", "kernels are not asynchronous"),
    "AsyncFor": ("`async for`", "kernels are not asynchronous"),
    "AsyncWith": ("`async with`", "kernels are not asynchronous"),
    "AsyncFunctionDef": ("`async def`", "kernels are not asynchronous"),
    "Delete": ("`del`", "a name ends with its block"),
    "Global": ("`global`", _STATE),
    "Nonlocal": ("`nonlocal`", _STATE),
    "ClassDef": ("a class definition", "define the class outside of the kernel"),
    "Import": ("`import`", "import at the top of the file"),
    "ImportFrom": ("`import`", "import at the top of the file"),
    "NamedExpr": ("`:=`", "assign in a statement of its own"),
    "TypeAlias": ("`type`", "define the alias outside of the kernel"),
}

# Plain Python helpers may be nested in a kernel; of their syntax only what reaches into the kernel's names matters.
_REFUSED_IN_HELPERS = ("Nonlocal",)


def check(source: FunctionSource) -> None:
    """Raise UnsupportedSyntaxError, with its place, on the first construct outside the defined subset."""
    for stmt in source.tree.body:
        _check(stmt, source, in_helper=False)


def _check(node: ast.AST, source: FunctionSource, in_helper: bool) -> None:
    kind = type(node).__name__
    if kind in _REFUSED and (not in_helper or kind in _REFUSED_IN_HELPERS):
        construct, hint = _REFUSED[kind]
        raise UnsupportedSyntaxError(
            f"{construct} is not supported in a kernel", location=source.location(node), hint=hint
        )
    if isinstance(node, (ast.For, ast.While)) and node.orelse and not in_helper:
        word = "for" if isinstance(node, ast.For) else "while"
        raise UnsupportedSyntaxError(
            f"`else` of a `{word}` loop is not supported in a kernel",
            location=source.location(node.orelse[0]),
            hint="put the statements after the loop, under an `if` on a T.alloc_var",
        )
    nested = in_helper or isinstance(node, (ast.FunctionDef, ast.Lambda))
    for child in ast.iter_child_nodes(node):
        _check(child, source, nested)
