"""The decorators of kernel functions.  The front-end, a layer above, installs what they do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilewright.language.tracebacks import strip

_HOOKS: dict[str, Callable[[Any], Any]] = {}


def install(name: str, function: Callable[[Any], Any]) -> None:
    """Let the decorator `name` do `function`."""
    _HOOKS[name] = function


def prim_func(func: Any = None) -> Any:
    """Turn a Python function into a tile program (a PrimFunc), `@T.prim_func` or `@T.prim_func()`.

    Parameters are annotated with T.Tensor(shape, dtype), T.StridedTensor, T.ptr or a scalar dtype.
    Raises a LanguageError, with the place, on a function that is no valid program.
    """
    if func is None:
        return prim_func
    try:
        return _HOOKS["prim_func"](func)
    except Exception as error:
        strip(error)
        if sys.version_info < (3, 11):  # where a bare raise brings the frames back
            raise error
        raise


def macro(func: Any = None) -> Any:
    """Make a function whose body is inlined where a kernel calls it, `@T.macro` or `@T.macro()`.

    Arguments are passed by value, those annotated `T.Ref` by reference.
    """
    if func is None:
        return macro
    try:
        return _HOOKS["macro"](func)
    except Exception as error:
        strip(error)
        if sys.version_info < (3, 11):  # where a bare raise brings the frames back
            raise error
        raise


__all__ = ["macro", "prim_func"]
