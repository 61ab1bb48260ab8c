"""A dictionary whose values are made once, also when several threads ask at the same time."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Generic, TypeVar

from tilewright.runtime.locks import new_lock, new_rlock

Value = TypeVar("Value")


class _Entry(Generic[Value]):
    __slots__ = ("lock", "value")

    def __init__(self) -> None:
        self.lock = new_rlock()
        self.value: Value | None = None


class OnceMap(Generic[Value]):
    """key -> value, made on first use; other keys do not wait meanwhile.  A failed attempt leaves no trace.

    hits, misses: how often a value was there, and how often it was made.
    """

    def __init__(self) -> None:
        self._lock = new_lock()
        self._entries: dict[Hashable, _Entry[Value]] = {}
        self.hits = 0
        self.misses = 0

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made by `make()` when there is none."""
        entry = self._entries.get(key)
        if entry is not None and entry.value is not None:
            self.hits += 1
            return entry.value
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
        with entry.lock:
            if entry.value is None:
                self.misses += 1
                entry.value = make()
            else:
                self.hits += 1
            return entry.value

    def find(self, key: Hashable) -> Value | None:
        """The value of `key` if it is there, counted as `get` does."""
        entry = self._entries.get(key)
        if entry is None or entry.value is None:
            return None
        self.hits += 1
        return entry.value

    def values(self) -> Iterator[Value]:
        """The values that are there."""
        return iter([e.value for e in list(self._entries.values()) if e.value is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self.values())

    def clear(self) -> None:
        """Forget all values and counts."""
        with self._lock:
            self._entries.clear()
            self.hits = self.misses = 0
