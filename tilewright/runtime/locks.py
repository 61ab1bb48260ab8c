"""Locks that a forked child finds free, even when another thread of the parent held them."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from typing import Any, TypeVar

Lock = TypeVar("Lock")

_LOCKS: weakref.WeakSet[object] = weakref.WeakSet()


def new_lock() -> threading.Lock:
    """A `threading.Lock`."""
    return _register(threading.Lock())


def new_rlock() -> threading.RLock:
    """A `threading.RLock`."""
    return _register(threading.RLock())


def _register(lock: Lock) -> Lock:
    _LOCKS.add(lock)
    return lock


# --- forks ------------------------------------------------------------------------------------------

_held: list[Any] = []


def _before_fork() -> None:
    """Wait until no thread is inside LLVM: its binding has a lock of its own, which a child would never get."""
    binding = sys.modules.get("llvmlite.binding.ffi")
    lock = getattr(getattr(binding, "lib", None), "_lock", None)
    if lock is not None:
        lock.__enter__()
        _held.append(lock)


def _after_fork() -> None:
    while _held:
        _held.pop().__exit__(None, None, None)


def _in_child() -> None:
    _after_fork()
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # what the standard library's own modules do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
