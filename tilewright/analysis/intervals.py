"""Bounds of integers: an inclusive lower and an upper bound, None where there is none."""

from __future__ import annotations

from collections.abc import Callable

Bounds = tuple["int | None", "int | None"]
UNBOUNDED: Bounds = (None, None)


def plus(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a sum."""
    return (
        a[0] + b[0] if a[0] is not None and b[0] is not None else None,
        a[1] + b[1] if a[1] is not None and b[1] is not None else None,
    )


def times(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a product."""
    if a[0] is not None and a[1] is not None and b[0] is not None and b[1] is not None:
        products = [x * y for x in (a[0], a[1]) for y in (b[0], b[1])]
        return (min(products), max(products))
    for fixed, other in ((a, b), (b, a)):
        if fixed[0] is not None and fixed[0] == fixed[1]:
            low = other[0] * fixed[0] if other[0] is not None else None
            high = other[1] * fixed[0] if other[1] is not None else None
            return (low, high) if fixed[0] >= 0 else (high, low)
    if a[0] is not None and b[0] is not None and a[0] >= 0 and b[0] >= 0:
        return (a[0] * b[0], None)
    return UNBOUNDED


def union(a: Bounds, b: Bounds) -> Bounds:
    """Bounds of a value that is either."""
    return (
        min(a[0], b[0]) if a[0] is not None and b[0] is not None else None,
        max(a[1], b[1]) if a[1] is not None and b[1] is not None else None,
    )


def _quotient_bounds(a: Bounds, b: Bounds) -> Bounds:
    if b[0] is None or b[0] <= 0:
        return UNBOUNDED
    low = None if a[0] is None else (a[0] // b[0] if a[0] < 0 else (a[0] // b[1] if b[1] is not None else 0))
    high = None if a[1] is None else (a[1] // b[0] if a[1] >= 0 else (a[1] // b[1] if b[1] is not None else -1))
    return (low, high)


def _remainder_bounds(a: Bounds, b: Bounds) -> Bounds:
    if b[0] is None or b[0] <= 0:
        return UNBOUNDED
    top = b[1] - 1 if b[1] is not None else None
    if a[0] is not None and a[0] >= 0 and a[1] is not None:
        top = a[1] if top is None else min(top, a[1])
    return (0, top)


def _min_bounds(a: Bounds, b: Bounds) -> Bounds:
    low = min(a[0], b[0]) if a[0] is not None and b[0] is not None else None
    highs = [x for x in (a[1], b[1]) if x is not None]
    return (low, min(highs) if highs else None)


def _max_bounds(a: Bounds, b: Bounds) -> Bounds:
    lows = [x for x in (a[0], b[0]) if x is not None]
    high = max(a[1], b[1]) if a[1] is not None and b[1] is not None else None
    return (max(lows) if lows else None, high)


def _and_bounds(a: Bounds, b: Bounds) -> Bounds:
    highs = [x[1] for x in (a, b) if x[0] is not None and x[0] >= 0 and x[1] is not None]
    non_negative = any(x[0] is not None and x[0] >= 0 for x in (a, b))
    return (0 if non_negative else None, min(highs) if highs else None)


def _shift_right_bounds(a: Bounds, b: Bounds) -> Bounds:
    if a[0] is None or a[0] < 0 or b[0] is None or b[0] < 0:
        return UNBOUNDED
    return (0, None if a[1] is None else a[1] >> b[0])


# Operator -> bounds of its result from those of its operands.
OPERATORS: dict[str, Callable[[Bounds, Bounds], Bounds]] = {
    "mul": times,
    "floordiv": _quotient_bounds,
    "floormod": _remainder_bounds,
    "min": _min_bounds,
    "max": _max_bounds,
    "bitand": _and_bounds,
    "shr": _shift_right_bounds,
}
