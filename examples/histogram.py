"""A histogram: counts in shared memory, joined by atomics in global memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, run_example

import tilewright
import tilewright.language as T


def histogram(N, bins, block=65536):
    """counts[v] += 1 for every v in values; a value outside 0..bins-1 is not counted."""

    @T.prim_func
    def main(values: T.Tensor((N,), "int32"), counts: T.Tensor((bins,), "int32")):
        with T.Kernel(T.ceildiv(N, block), threads=128) as bx:
            local_counts = T.alloc_shared((bins,), "int32")
            T.clear(local_counts)
            for i in T.Parallel(block):
                position = bx * block + i
                if position < N:
                    T.atomic_add(local_counts[values[position]], 1)
            for b in T.Parallel(bins):
                T.atomic_add(counts[b], local_counts[b])

    return main


def case(target: str, n: int, bins: int) -> Case:
    """Random values, a few of them out of range."""
    kernel = tilewright.compile(histogram(n, bins), target=target)
    values = np.random.default_rng(1).integers(-2, bins + 2, n).astype(np.int32)
    inside = values[(values >= 0) & (values < bins)]
    expected = np.bincount(inside, minlength=bins)

    def call() -> np.ndarray:
        counts = np.zeros(bins, np.int32)
        kernel(values, counts)
        return counts

    return Case("histogram", f"{n} in {bins}", "int32", call, expected, float(values.nbytes), "GB/s", 1, "int32")


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes."""
    yield case(target, 100_003, 77)
    yield case(target, 1_000_000 if quick else 16_000_000, 256)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"histogram": tilewright.compile(histogram(16_000_000, 256), target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("histogram with atomics", cases, kernels))
