"""Sizes with a name: known at launch only (`dynamic`), or taken from the arguments before compiling (`const`)."""

from __future__ import annotations

import re
from typing import Any

from tilewright.errors import ArgumentValueError, KernelStructureError
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var
from tilewright.language.tracebacks import shows_the_user
from tilewright.source import caller_location

# One variable for each name and dtype, so that T.dynamic("m") means the same size wherever it is written.
_DYNAMIC: dict[tuple[str, str], Var] = {}


def _names(text: Any, what: str) -> list[str]:
    names = re.split(r"[,\s]+", text.strip(" ,")) if isinstance(text, str) else []
    if not names or not all(name.isidentifier() for name in names):
        raise ArgumentValueError(
            f'T.{what} takes names, as in T.{what}("m") or T.{what}("m, n"), got {text!r}', location=caller_location()
        )
    return names


@shows_the_user
def dynamic(name: str, dtype: Any = "int32") -> Any:
    """The size called `name`, known at launch from the shapes (or strides) of the arguments.

    Several names, separated by commas, give a tuple.  Raises ArgumentValueError for what is no name,
    or a dtype that is no integer.
    """
    names = _names(name, "dynamic")
    sizes = tuple(_dynamic(n, dtype) for n in names)
    return sizes[0] if len(sizes) == 1 else sizes


def _dynamic(name: str, of: Any) -> Var:
    kind = dtype(of)
    if not kind.is_int or kind.lanes != 1:
        raise ArgumentValueError(f"a size is an integer, not {kind}", location=caller_location())
    return _DYNAMIC.setdefault((name, kind.name), Var(kind, name))


def is_dynamic(var: Var) -> bool:
    """Whether `var` is a size made by `dynamic`."""
    return _DYNAMIC.get((var.name, var.dtype.name)) is var


symbolic = dynamic


@shows_the_user
def const(name: str, dtype: Any = "int32") -> Any:
    """The size called `name` of an eager kernel, an integer taken from the shapes of the arguments.

    Several names, separated by commas, give a tuple.  Raises KernelStructureError outside of an eager kernel.
    """
    names = _names(name, "const")
    builder = Builder.active()
    if builder is None or builder.const_size is None:
        raise KernelStructureError(
            "T.const belongs in an eager kernel, a function decorated with @tilewright.jit that has no inner prim_func",
            location=caller_location(),
            hint="in a prim_func write the number, or T.dynamic for a size that is known at launch only",
        )
    sizes = tuple(builder.const_size(n) for n in names)
    return sizes[0] if len(sizes) == 1 else sizes


__all__ = ["const", "dynamic", "symbolic"]
