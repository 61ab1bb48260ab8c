"""The syntax tree of a kernel function, with the line and column numbers of the user's file."""

from __future__ import annotations

import ast
import linecache
from types import CodeType, FunctionType
from typing import Any

from tilewright.errors import LanguageError, SourceUnavailableError, UnsupportedSyntaxError
from tilewright.source import Location, caller_location


class FunctionSource:
    """A function's syntax tree.  `location(node)` is where a node stands in the user's file."""

    __slots__ = ("file", "name", "tree")

    def __init__(self, tree: ast.FunctionDef, file: str, name: str) -> None:
        self.tree = tree
        self.file = file
        self.name = name

    def location(self, node: ast.AST) -> Location:
        """The span of `node`, columns counted in characters from 1."""
        line, column = getattr(node, "lineno", self.tree.lineno), getattr(node, "col_offset", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_column = getattr(node, "end_col_offset", None)
        return Location(
            self.file,
            line,
            _character(self.file, line, column),
            end_line,
            0 if end_column is None else _character(self.file, end_line, end_column),
            self.name,
        )


def _character(file: str, line: int, offset: int) -> int:
    """1-based character column of a UTF-8 byte offset."""
    text = linecache.getline(file, line).encode()
    return len(text[:offset].decode(errors="replace")) + 1 if text else offset + 1


# One entry for each piece of source: functions made in a loop or by a factory share their code.
_PARSED: dict[int, tuple[CodeType, FunctionSource]] = {}


def plain_function(func: Any, decorator: str) -> FunctionType:
    """`func` when it is a Python function; raises LanguageError naming `decorator` otherwise."""
    if isinstance(func, FunctionType) and func.__name__ != "<lambda>":
        return func
    raise LanguageError(
        f"{decorator} decorates a function written with `def`, not {type(func).__name__}", location=caller_location()
    )


def parse(func: FunctionType) -> FunctionSource:
    """The syntax tree of `func`.  Raises SourceUnavailableError when its text cannot be found."""
    code = func.__code__
    entry = _PARSED.get(id(code))
    if entry is None:
        entry = _PARSED[id(code)] = (code, _parse(code, func.__globals__))
    return entry[1]


def _parse(code: CodeType, namespace: dict[str, Any]) -> FunctionSource:
    file, first = code.co_filename, code.co_firstlineno
    lines = linecache.getlines(file, namespace)
    place = Location(file, first, function=code.co_name)
    if not lines or first > len(lines):
        raise SourceUnavailableError(
            f"the source of function {code.co_name!r} is not available",
            location=place,
            hint="kernels are read from their source text: define them in a file or a notebook cell, not in a string",
        )
    tree = _find(lines, first, code)
    if isinstance(tree, ast.AsyncFunctionDef):
        raise UnsupportedSyntaxError("a kernel function cannot be `async`", location=place)
    if not isinstance(tree, ast.FunctionDef):
        raise SourceUnavailableError(
            f"the text at this place is not function {code.co_name!r}",
            location=place,
            hint="the file has changed since it was imported",
        )
    return FunctionSource(tree, file, code.co_name)


def _find(lines: list[str], first: int, code: CodeType) -> ast.stmt | None:
    """The definition that starts in line `first`, its positions those of the file; None when there is none."""
    indent = _indent(lines[first - 1])
    head = "if 1:\n" if indent else ""
    end = first
    while end < len(lines):
        end += 1
        while end < len(lines) and not _may_end(lines[end], indent):
            end += 1
        try:
            body = ast.parse(head + "".join(lines[first - 1 : end])).body
        except SyntaxError:
            continue
        found = body[0].body[0] if head and isinstance(body[0], ast.If) else body[0] if body else None
        if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)) and _same(found, code):
            ast.increment_lineno(found, first - (2 if head else 1))
            return found
        return None
    return None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _may_end(line: str, indent: int) -> bool:
    """Whether a block of that indentation may be over before `line`."""
    text = line.lstrip()
    return bool(text) and not text.startswith(("#", ")", "]", "}")) and _indent(line) <= indent


def _same(tree: ast.FunctionDef | ast.AsyncFunctionDef, code: CodeType) -> bool:
    arguments = tree.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return tree.name == code.co_name and names == list(code.co_varnames[: len(names)])
