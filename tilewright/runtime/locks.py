"""Locks that a forked child finds free, even when another thread of the parent held them."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TypeVar

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


def _after_fork() -> None:
    for lock in list(_LOCKS):
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # what the standard library's own modules do


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
