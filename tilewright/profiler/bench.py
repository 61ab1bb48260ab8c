"""Time of a function: repeated runs, and a statistic of them."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.errors import ArgumentTypeError, ArgumentValueError
from tilewright.language.tracebacks import shows_the_user

STATISTICS: dict[str, Callable[[list[float]], float]] = {
    "median": statistics.median,
    "mean": statistics.fmean,
    "min": min,
    "max": max,
}
MIN_REPEATS = 3
"""Runs that are timed however long one takes, so that a median means something."""


@shows_the_user
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
    Raises ArgumentTypeError when `fn` cannot be called, ArgumentValueError on an unknown return_mode, a quantile
    outside of 0 to 1, or a time or number that is negative or no number.
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"do_bench takes a function without arguments, not {type(fn).__name__}",
            hint="write do_bench(lambda: kernel(a, b))",
        )
    for name, value in (("warmup", warmup), ("rep", rep), ("n_warmup", n_warmup), ("n_repeat", n_repeat)):
        _check_amount(name, value, whole=name.startswith("n_"))
    if return_mode not in STATISTICS:
        raise ArgumentValueError(f"return_mode must be one of {', '.join(STATISTICS)}, got {return_mode!r}")
    if quantiles is not None and not all(0 <= q <= 1 for q in quantiles):
        raise ArgumentValueError(f"quantiles lie between 0 and 1, got {list(quantiles)}")
    first = _time(fn)
    estimate = max(min(first, _time(fn)), 1e-6)
    for _ in range(int(n_warmup) or int(warmup / estimate)):
        fn()
    repeats = int(n_repeat) or max(MIN_REPEATS, int(rep / estimate))
    times = sorted(_time(fn) for _ in range(repeats))
    if quantiles is not None:
        return [_quantile(times, q) for q in quantiles]
    return STATISTICS[return_mode](times)


def _check_amount(name: str, value: Any, *, whole: bool) -> None:
    fits = isinstance(value, (int, float)) and math.isfinite(value) and value >= 0
    if not fits or (whole and value != int(value)):
        what = "a number of runs" if whole else "a time in milliseconds"
        raise ArgumentValueError(f"{name} is {what}, at least 0, got {value!r}")


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
