"""Speed of memory-bound kernels on the CPU target as a share of a copy's bandwidth.

    python benchmarks/cpu_memory.py [--megabytes 256] [--dtype float32] [--rounds 9] [--quick]

The yardstick is the faster of np.copyto on one thread and on two (halves of the arrays), bytes read and written
counted, measured alternately with the kernels.  Above 1 a kernel moves its bytes faster than the copy, which is
possible because np.copyto reads what it is going to overwrite.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any, NamedTuple

from cpu_gemm import restart_in_clean_environment


class Subject(NamedTuple):
    """A kernel call, the bytes that it must move, and how far its result is from NumPy's in float64."""

    name: str
    call: Callable[[], Any]
    nbytes: float
    error: Callable[[], float]


def softmax(m: int, n: int, dtype: str) -> Any:
    """exp(x - max) / sum of each row."""
    import tilewright.language as T

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as row:
            x = T.alloc_fragment((1, n), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(1, n):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, n):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[row, 0])

    return main


def rms_norm(m: int, n: int, dtype: str) -> Any:
    """x / sqrt(mean(x²) + ε) · w of each row."""
    import tilewright.language as T

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), W: T.Tensor((n,), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as row:
            x = T.alloc_fragment((1, n), "float32")
            square = T.alloc_fragment((1, n), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0], x)
            for i, j in T.Parallel(1, n):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, total, dim=1)
            for i, j in T.Parallel(1, n):
                Y[row, j] = x[i, j] * T.rsqrt(total[i] / n + 1e-5) * W[j]

    return main


def scale_and_shift(m: int, n: int, dtype: str) -> Any:
    """max(2x + 1, 0), element by element."""
    import tilewright.language as T

    @T.prim_func
    def main(X: T.Tensor((m, n), dtype), Y: T.Tensor((m, n), dtype)):
        with T.Kernel(m, threads=128) as row:
            for j in T.Parallel(n):
                Y[row, j] = T.max(X[row, j] * 2.0 + 1.0, 0.0)

    return main


def subjects(m: int, n: int, dtype: str) -> list[Subject]:
    """The kernels with their arrays."""
    import numpy as np

    import tilewright
    from tilewright.ir.dtype import dtype as as_dtype

    kind = as_dtype(dtype).numpy
    rng = np.random.default_rng(0)
    x = rng.standard_normal((m, n), dtype=np.float32).astype(kind)
    w = rng.standard_normal(n, dtype=np.float32).astype(kind)
    y = np.zeros((m, n), kind)
    few = slice(0, min(m, 64))  # rows that are compared
    wide = x[few].astype(np.float64)

    def difference(expected: Any) -> float:
        return float(np.abs(y[few].astype(np.float64) - expected).max())

    exponentials = np.exp(wide - wide.max(axis=1, keepdims=True))
    expected = {
        "softmax": exponentials / exponentials.sum(axis=1, keepdims=True),
        "RMSNorm": wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-5) * w.astype(np.float64),
        "relu(2x + 1)": np.maximum(2 * wide + 1, 0),
    }
    made = {"softmax": softmax, "RMSNorm": rms_norm, "relu(2x + 1)": scale_and_shift}
    result = []
    for name, make in made.items():
        kernel = tilewright.compile(make(m, n, dtype), target="cpu")
        arrays = (x, w, y) if name == "RMSNorm" else (x, y)

        def call(kernel: Any = kernel, arrays: Any = arrays) -> None:
            kernel(*arrays)

        def error(name: str = name, call: Callable[[], None] = call) -> float:
            call()
            return difference(expected[name])

        result.append(Subject(name, call, 2.0 * x.nbytes, error))
    return result


def copies(nbytes: int, pool: ThreadPoolExecutor) -> list[Subject]:
    """np.copyto on one and on two threads."""
    import numpy as np

    source = np.ones(nbytes // 4, np.float32)
    target = np.zeros(nbytes // 4, np.float32)
    middle = len(source) // 2

    def two() -> None:
        parts = (slice(0, middle), slice(middle, None))
        for done in [pool.submit(np.copyto, target[part], source[part]) for part in parts]:
            done.result()

    def error() -> float:
        return float(np.abs(target - source).max())

    return [
        Subject("np.copyto, 1 thread", lambda: np.copyto(target, source), 2.0 * nbytes, error),
        Subject("np.copyto, 2 threads", two, 2.0 * nbytes, error),
    ]


def main() -> None:
    restart_in_clean_environment()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256, help="size of each array")
    parser.add_argument("--columns", type=int, default=4096)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="64 MB arrays, 5 rounds")
    options = parser.parse_args()
    if options.quick:
        options.megabytes, options.rounds = 64, 5
    from rich.console import Console
    from rich.table import Table

    from tilewright.ir.dtype import dtype as as_dtype

    nbytes = options.megabytes << 20
    rows = nbytes // (options.columns * as_dtype(options.dtype).bits // 8)
    with ThreadPoolExecutor(2) as pool:
        yardsticks = copies(nbytes, pool)
        everything = [*yardsticks, *subjects(rows, options.columns, options.dtype)]
        times: dict[str, list[float]] = {s.name: [] for s in everything}
        for subject in everything:
            subject.call()
        for _ in range(options.rounds):
            for subject in everything:
                start = time.perf_counter()
                subject.call()
                times[subject.name].append(time.perf_counter() - start)
        speeds = {s.name: [s.nbytes / t / 1e9 for t in times[s.name]] for s in everything}
        best = max((median(speeds[s.name]) for s in yardsticks), default=0.0)
        table = Table(title=f"{options.dtype}, {rows} x {options.columns}, GB/s (read and written)")
        for heading in ("kernel", "median", "spread", "share of a copy", "max error"):
            table.add_column(heading, justify="left" if heading == "kernel" else "right")
        for subject in everything:
            found = sorted(speeds[subject.name])
            middle = median(found)
            spread = f"{found[0]:.1f} to {found[-1]:.1f}"
            table.add_row(subject.name, f"{middle:.1f}", spread, f"{middle / best:.2f}", f"{subject.error():.1e}")
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
