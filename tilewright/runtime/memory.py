"""Memory that kernels work in: scratch arenas, one a thread and kernel in progress, and workspaces."""

from __future__ import annotations

import ctypes
import mmap
import threading

import numpy as np

from tilewright.runtime.arrays import ALIGNMENT

HUGE_PAGE = 2 << 20
"""Bytes of a huge page on x86-64 and most arm64 systems; arenas this big ask for them."""


class Arena:
    """`size` bytes at `address`, aligned to a page."""

    __slots__ = ("_memory", "address", "size")

    def __init__(self, size: int) -> None:
        big = size >= HUGE_PAGE
        self.size = -(-size // HUGE_PAGE) * HUGE_PAGE if big else -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        # One huge page more, so that a whole number of them fits at an aligned start.
        self._memory = mmap.mmap(-1, self.size + (HUGE_PAGE if big else 0))
        if big and hasattr(self._memory, "madvise") and hasattr(mmap, "MADV_HUGEPAGE"):
            self._memory.madvise(mmap.MADV_HUGEPAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = start + (-start % HUGE_PAGE if big else 0)


class _Arenas(threading.local):
    """The arenas of a thread that are not in use.

    A stack: a kernel that is called while another runs on this thread (from a print that is
    redirected, say) finds the first one's arena gone from here and takes its own.
    """

    def __init__(self) -> None:
        self.free: list[Arena] = []


_arenas = _Arenas()


def take_arena(size: int) -> Arena:
    """An arena of at least `size` bytes for the calling thread."""
    free = _arenas.free
    if free and free[-1].size >= size:
        return free.pop()
    if free:
        free.pop()  # too small: a bigger one takes its place
    return Arena(size)


def give_arena(arena: Arena) -> None:
    """Return an arena to the thread that took it."""
    _arenas.free.append(arena)


def workspace(size: int) -> tuple[object, int]:
    """`size` uninitialised bytes: their owner and aligned address, 0 for none."""
    if size <= 0:
        return None, 0
    memory = np.empty(size + ALIGNMENT, np.uint8)
    address = memory.ctypes.data
    return memory, address + -address % ALIGNMENT
