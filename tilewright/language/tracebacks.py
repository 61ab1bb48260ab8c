"""Errors as the user sees them: the place in his source, and no frame of this package."""

from __future__ import annotations

from types import TracebackType

from tilewright.errors import TilewrightError
from tilewright.source import Location, is_user_frame


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
