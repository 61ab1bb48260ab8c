"""Where things stand in the user's Python: source locations and the text around them."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType, TracebackType

# Before 3.11 code objects know lines only, and only the frame knows the current one.
_COLUMNS = sys.version_info >= (3, 11)
_PACKAGE_ROOT = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
# Frames that are nobody's program: ours, the import system's, and those that start a function on a thread.
_NOT_THE_USERS = (
    _PACKAGE_ROOT,
    "<frozen",
    os.path.join(_LIBRARY, "concurrent", "futures", ""),
    os.path.join(_LIBRARY, "threading.py"),
)


class Location:
    """A span in a source file.

    Columns are 1-based; 0 means unknown.  A location taken from a running frame keeps
    the code object and instruction offset and works out line and column only when asked,
    because most locations are never shown.
    """

    __slots__ = ("_code", "_lasti", "_resolved", "file", "function")

    def __init__(
        self,
        file: str,
        line: int,
        column: int = 0,
        end_line: int = 0,
        end_column: int = 0,
        function: str = "",
    ) -> None:
        self.file = file
        self.function = function
        self._code: CodeType | None = None
        self._lasti = -1
        self._resolved: tuple[int, int, int, int] | None = (
            line,
            column,
            end_line or line,
            end_column,
        )

    @classmethod
    def from_frame(cls, frame: FrameType) -> Location:
        """The expression that `frame` is executing now."""
        return cls._at(frame.f_code, frame.f_lasti, 0 if _COLUMNS else frame.f_lineno)

    @classmethod
    def from_traceback(cls, entry: TracebackType) -> Location:
        """The expression that raised, in the frame of one traceback entry."""
        return cls._at(entry.tb_frame.f_code, entry.tb_lasti, entry.tb_lineno)

    @classmethod
    def _at(cls, code: CodeType, lasti: int, line: int) -> Location:
        self = cls.__new__(cls)
        self.file = code.co_filename
        self.function = code.co_name
        self._code = code
        self._lasti = lasti
        self._resolved = None if _COLUMNS else (line, 0, line, 0)
        return self

    def _span(self) -> tuple[int, int, int, int]:
        if self._resolved is None:
            self._resolved = _code_span(self._code, self._lasti)
            self._code = None
        return self._resolved

    @property
    def line(self) -> int:
        """1-based line."""
        return self._span()[0]

    @property
    def column(self) -> int:
        """1-based column, 0 where unknown."""
        return self._span()[1]

    @property
    def end_line(self) -> int:
        """1-based last line of the span."""
        return self._span()[2]

    @property
    def end_column(self) -> int:
        """1-based column one past the span's end, 0 where unknown."""
        return self._span()[3]

    def key(self) -> tuple[str, int, int]:
        """File, line and column, for comparison in tests and messages."""
        return (self.file, self.line, self.column)

    def __str__(self) -> str:
        column = f":{self.column}" if self.column else ""
        return f"{self.file}:{self.line}{column}"

    def __repr__(self) -> str:
        return f"Location({self})"

    def source_line(self) -> str:
        """The text of the first line, without its newline; empty when the file cannot be read."""
        return linecache.getline(self.file, self.line).rstrip("\n")

    def render(self) -> str:
        """The source line with a caret line under the span; empty when there is no text."""
        text = self.source_line()
        if not text.strip():
            return ""
        if not self.column:
            return f"    {text.strip()}"
        stripped = text.lstrip()
        start = self.column - 1 - (len(text) - len(stripped))
        end = len(stripped)
        if self.end_line == self.line and self.end_column > self.column:
            end = start + self.end_column - self.column
        start = max(start, 0)
        width = max(min(end, len(stripped)) - start, 1)
        return f"    {stripped}\n    {' ' * start}{'^' * width}"


def _code_span(code: CodeType | None, lasti: int) -> tuple[int, int, int, int]:
    if code is None:
        return (0, 0, 0, 0)
    for index, (line, end_line, column, end_column) in enumerate(code.co_positions()):  # type: ignore[attr-defined,unused-ignore]
        if index == lasti // 2:
            first = line or code.co_firstlineno
            start, end = _characters(code.co_filename, first, end_line or first, column, end_column)
            return (first, start, end_line or first, end)
    return (code.co_firstlineno, 0, code.co_firstlineno, 0)


def _characters(file: str, line: int, end_line: int, column: int | None, end_column: int | None) -> tuple[int, int]:
    """1-based character columns from the 0-based UTF-8 byte offsets that code objects hold."""
    if column is None or end_column is None:
        return (0, 0)
    start = linecache.getline(file, line).encode()[:column].decode(errors="replace")
    end = linecache.getline(file, end_line).encode()[:end_column].decode(errors="replace")
    if not start and not end:
        return (column + 1, end_column + 1)
    return (len(start) + 1, len(end) + 1)


def is_user_frame(frame: FrameType) -> bool:
    """Whether `frame` runs code from outside this package, and not just a thread that was started for it."""
    return not frame.f_code.co_filename.startswith(_NOT_THE_USERS)


def caller_location() -> Location | None:
    """The location of the innermost frame outside this package, None when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if is_user_frame(frame):
            return Location.from_frame(frame)
        frame = frame.f_back
    return None
