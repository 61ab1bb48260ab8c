"""The decorators of kernel functions.  The front-end, a layer above, installs what they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.language.tracebacks import shows_the_user

_HOOKS: dict[str, Callable[[Any], Any]] = {}


def install(name: str, function: Callable[[Any], Any]) -> None:
    """Let the decorator `name` do `function`."""
    _HOOKS[name] = function


@shows_the_user
def prim_func(func: Any = None) -> Any:
    """Turn a Python function into a tile program (a PrimFunc), `@T.prim_func` or `@T.prim_func()`.

    Parameters are annotated with T.Tensor(shape, dtype), T.StridedTensor, T.ptr or a scalar dtype.
    Raises a LanguageError, with the place, on a function that is no valid program.
    """
    if func is None:
        return prim_func
    return _HOOKS["prim_func"](func)


@shows_the_user
def macro(func: Any = None) -> Any:
    """Make a function whose body is inlined where a kernel calls it, `@T.macro` or `@T.macro()`.

    Arguments are passed by value, those annotated `T.Ref` by reference.
    """
    if func is None:
        return macro
    return _HOOKS["macro"](func)


__all__ = ["macro", "prim_func"]
