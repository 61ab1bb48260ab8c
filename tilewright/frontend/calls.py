"""Calls of the language with arguments that do not fit its signatures, told as errors of the program."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tilewright.language as language
from tilewright.errors import ArgumentValueError, UnsupportedSyntaxError
from tilewright.ir.expr import Expr
from tilewright.language.tracebacks import place
from tilewright.source import is_user_frame

# How Python says that a call does not fit: "copy() missing 1 required positional argument: 'dst'".
_MISFIT = re.compile(r"(?:(\w+)\.)?(\w+)\(\) (missing|got|takes) ")


@contextmanager
def explained_calls() -> Iterator[None]:
    """Turn the TypeError of a call `T.copy(A)` into an ArgumentValueError with its place and the signature.

    Raises UnsupportedSyntaxError for a run-time value as the key of a dictionary.
    """
    try:
        yield
    except KeyError as error:
        if not error.args or not isinstance(error.args[0], Expr):
            raise
        raise UnsupportedSyntaxError(
            "a run-time value cannot be the key of a dictionary",
            location=place(error),
            hint="use a loop that Python runs, such as `for x in [0, 1, 2]`",
        ) from None
    except TypeError as error:
        function = _called(error)
        if function is None:
            raise
        name, made = function
        text = re.sub(r"^[\w.]+\(\)", f"T.{name}()", str(error))
        raise ArgumentValueError(
            text, location=place(error), hint=f"its signature is T.{name}{_signature(made)}"
        ) from None


def _called(error: TypeError) -> tuple[str, Callable[..., Any]] | None:
    """Name and function of the language that `error`, raised in the user's own frame, is about."""
    found = _MISFIT.match(str(error))
    entry = error.__traceback__
    while entry is not None and entry.tb_next is not None:
        entry = entry.tb_next
    if found is None or entry is None or not is_user_frame(entry.tb_frame):
        return None
    name: str = found[1] if found[2] == "__init__" else found[2]
    function: Any = vars(language).get(name)
    # A function of the user's with the same name is his own affair.
    own = {**entry.tb_frame.f_globals, **entry.tb_frame.f_locals}.get(name, function)
    return (name, function) if callable(function) and own is function else None


def _signature(function: Callable[..., Any]) -> str:
    """The parameters without their types."""
    signature = inspect.signature(function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=inspect.Signature.empty))
