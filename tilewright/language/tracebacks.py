"""Errors as the user sees them: the place in his source, and no frame of this package."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

from tilewright.errors import TilewrightError, VerificationError
from tilewright.source import Location, caller_location, is_user_frame

P = ParamSpec("P")
R = TypeVar("R")


def strip(error: BaseException) -> None:
    """Drop the frames of this package from the traceback of `error`, and give it its place if it has none.

    Call it in the outermost function of this package, and re-raise with a bare `raise`, which adds no frame.
    """
    entries = _user_entries(error)
    if entries and isinstance(error, TilewrightError):
        error.at(Location.from_traceback(entries[-1]))
    chain: TracebackType | None = None
    for entry in reversed(entries):
        chain = TracebackType(chain, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    error.__traceback__ = chain


def place(error: BaseException) -> Location | None:
    """The innermost expression of the user that `error` came through so far, None when there is none."""
    entries = _user_entries(error)
    return Location.from_traceback(entries[-1]) if entries else None


def _user_entries(error: BaseException) -> list[TracebackType]:
    entries: list[TracebackType] = []
    entry = error.__traceback__
    while entry is not None:
        if is_user_frame(entry.tb_frame):
            entries.append(entry)
        entry = entry.tb_next
    return entries


def hide_frames(error: BaseException) -> None:
    """Take the frames of this package out of the traceback of an error that is the user's, and give it its place.

    The user's are our typed errors, and whatever his own code raised while we ran it.  A failed verification,
    and any other exception that began in our code, is ours to debug and keeps its frames.
    """
    if isinstance(error, VerificationError):
        return
    if isinstance(error, TilewrightError):
        strip(error)
        error.at(caller_location())
    elif _began_outside(error):
        strip(error)


def _began_outside(error: BaseException) -> bool:
    entry = error.__traceback__
    if entry is None:
        return False
    while entry.tb_next is not None:
        entry = entry.tb_next
    return is_user_frame(entry.tb_frame)


def shows_the_user(function: Callable[P, R]) -> Callable[P, R]:
    """`function` with the frames of this package taken out of the tracebacks of the user's errors."""

    @functools.wraps(function)
    def outermost(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            if sys.version_info < (3, 11):  # where a bare raise brings the frames back
                raise error
            raise

    return outermost
