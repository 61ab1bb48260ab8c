"""Time of a function: repeated runs, and a statistic of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import ArgumentValueError

STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
}
MIN_REPEATS = 3
"""Runs that are timed however long one takes, so that a median means something."""


def do_bench(
    fn: Callable[[], Any],
    warmup: float = 25,
    rep: float = 100,
    n_warmup: int = 0,
    n_repeat: int = 0,
    quantiles: Sequence[float] | None = None,
    return_mode: str = "median",
) -> float | list[float]:
    """Time of one call of `fn` in milliseconds.

    warmup, rep: milliseconds to run before and while measuring; n_warmup, n_repeat: numbers of runs instead.
    quantiles: give these quantiles, as a list; else the statistic `return_mode`: median, mean, min or max.
    Raises ArgumentValueError on an unknown return_mode or a quantile outside of 0 to 1.
    """
    if return_mode not in STATISTICS:
        raise ArgumentValueError(f"return_mode must be one of {', '.join(STATISTICS)}, got {return_mode!r}")
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise ArgumentValueError(f"quantiles lie between 0 and 1, got {list(quantiles)}")
    first = _time(fn)
    estimate = max(min(first, _time(fn)), 1e-6)
    for _ in range(n_warmup or int(warmup / estimate)):
        fn()
    repeats = n_repeat or max(MIN_REPEATS, int(rep / estimate))
    times = sorted(_time(fn) for _ in range(repeats))
    if quantiles is not None:
        return [_quantile(times, q) for q in quantiles]
    return STATISTICS[return_mode](times)


def _time(fn: Callable[[], Any]) -> float:
    start = time.perf_counter_ns()
    fn()
    return (time.perf_counter_ns() - start) / 1e6


def _quantile(times: list[float], q: float) -> float:
    """Quantile of sorted values, interpolated linearly."""
    position = q * (len(times) - 1)
    low = int(position)
    high = min(low + 1, len(times) - 1)
    return times[low] + (times[high] - times[low]) * (position - low)
