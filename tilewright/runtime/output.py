"""The standard output, which the blocks of all running kernels print to.

A text is written whole, and those of one call in the order in which they come.  A block does not wait while another
thread writes: it leaves its text to that thread.  So a stream that itself runs kernels, which print, cannot deadlock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from typing import Protocol

from tilewright.runtime.locks import new_lock


class Call(Protocol):
    """A call of a kernel that prints."""

    def failed(self, error: BaseException) -> None:
        """Take note of what writing one of its texts raised."""


class Output:
    """Texts on their way to `sys.stdout`."""

    def __init__(self) -> None:
        self._pending: deque[tuple[Call, str]] = deque()
        self._guard = new_lock()  # of `_pending`; never held while something is written
        self._lock = new_lock()  # of the stream
        self._writer: int | None = None

    def write(self, call: Call, text: str) -> None:
        """Write `text`, or leave it to the thread that is writing."""
        if self._writer == threading.get_ident():  # a kernel that the stream itself runs
            _write(call, text)
            return
        with self._guard:
            self._pending.append((call, text))
        while self._pending and self._lock.acquire(blocking=False):
            self._drain()

    def flush(self, call: Call) -> None:
        """Return when all texts of `call` are written."""
        if self._writer == threading.get_ident():  # its own only: others would nest without end
            for text in self._take(call):
                _write(call, text)
            return
        self._lock.acquire()
        self._drain()

    def forget(self) -> None:
        """Drop what is on its way, which in a forked child is the parent's to write."""
        self._pending.clear()
        self._writer = None

    def _take(self, call: Call) -> list[str]:
        with self._guard:
            found = [text for other, text in self._pending if other is call]
            self._pending = deque(entry for entry in self._pending if entry[0] is not call)
        return found

    def _next(self) -> tuple[Call, str] | None:
        with self._guard:
            return self._pending.popleft() if self._pending else None

    def _drain(self) -> None:
        """Write all texts, and give the lock back."""
        self._writer = threading.get_ident()
        try:
            while (entry := self._next()) is not None:
                _write(*entry)
        finally:
            self._writer = None
            self._lock.release()


def _write(call: Call, text: str) -> None:
    try:
        sys.stdout.write(text)
    except BaseException as error:
        call.failed(error)


OUTPUT = Output()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OUTPUT.forget)
