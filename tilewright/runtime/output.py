"""The standard output, which the blocks of all running kernels print to.

A text is written whole, in the order in which texts come.  A block does not wait while another thread writes: it
leaves its text to that thread.  So a stream that itself runs kernels, which print, cannot deadlock.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable

from tilewright.runtime.locks import new_lock

Failed = Callable[[BaseException], None]


class Output:
    """Texts on their way to `sys.stdout`."""

    def __init__(self) -> None:
        self._pending: deque[tuple[str, Failed]] = deque()
        self._lock = new_lock()
        self._writer: int | None = None

    def write(self, text: str, failed: Failed) -> None:
        """Write `text`, or leave it to the thread that is writing.  failed: is told what writing it raised."""
        self._pending.append((text, failed))
        if self._writer == threading.get_ident():  # a kernel that the stream itself runs
            self._write_pending()
            return
        while self._pending and self._lock.acquire(blocking=False):
            self._drain()

    def flush(self) -> None:
        """Return when all that was given before is written."""
        if self._writer == threading.get_ident():
            self._write_pending()
            return
        self._lock.acquire()
        self._drain()

    def forget(self) -> None:
        """Drop what is on its way, which in a forked child is the parent's to write."""
        self._pending.clear()
        self._writer = None

    def _drain(self) -> None:
        """Write all texts, and give the lock back."""
        self._writer = threading.get_ident()
        try:
            self._write_pending()
        finally:
            self._writer = None
            self._lock.release()

    def _write_pending(self) -> None:
        while self._pending:
            text, failed = self._pending.popleft()
            try:
                sys.stdout.write(text)
            except BaseException as error:
                failed(error)


OUTPUT = Output()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OUTPUT.forget)
