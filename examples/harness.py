"""What the examples share: command line, timing, the error against NumPy in float64, and the table."""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

# Machine epsilon: the distance from 1 to the next number of the format.
EPSILON = {
    "float64": 2.0**-52,
    "float32": 2.0**-23,
    "float16": 2.0**-10,
    "bfloat16": 2.0**-7,
    "float8_e4m3fn": 2.0**-3,
    "float8_e4m3fnuz": 2.0**-3,
    "float8_e5m2": 2.0**-2,
    "float8_e5m2fnuz": 2.0**-2,
}


@dataclass
class Case:
    """One measured run of an example.

    call: runs the kernel and returns its result.  expected: the same in float64.
    depth: how many terms are summed for one element.  work: floating-point operations (unit "GFLOP/s") or
    bytes moved (unit "GB/s") of one run.  dtype: of the operands; accumulate: of the sums; result: of the
    result, where it differs from dtype.
    """

    name: str
    size: str
    dtype: str
    call: Callable[[], np.ndarray]
    expected: np.ndarray
    work: float
    unit: str
    depth: int = 1
    accumulate: str = "float32"
    result: str = ""

    def bound(self) -> float:
        """Allowed error relative to the largest expected value.

        One rounding of the result, and a sum of `depth` terms whose roundings add up like a random walk
        (factor 4 for the largest of many elements).
        """
        accumulated = 0.0 if self.accumulate == "int32" else EPSILON[self.accumulate]
        return EPSILON.get(self.result or self.dtype, 0.0) + 4 * accumulated * (2 + self.depth) ** 0.5


@dataclass
class Row:
    """A finished case."""

    case: Case
    error: float
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the error is within the bound."""
        return self.error <= self.case.bound()


def random(shape: tuple[int, ...], dtype: str, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Normal random values of `dtype` (small integers for integer dtypes)."""
    generator = np.random.default_rng(seed)
    if dtype.startswith(("int", "uint")):
        return generator.integers(0 if dtype.startswith("u") else -8, 8, shape).astype(dtype)
    return (scale * generator.standard_normal(shape)).astype(numpy_dtype(dtype))


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype called `name`, from ml_dtypes where NumPy has none."""
    return np.dtype(getattr(ml_dtypes, name, None) or name)


def measure(case: Case, repeats: int) -> Row:
    """Run, compare, and time (median of `repeats`, after one warm run)."""
    result = np.asarray(case.call()).astype(np.float64)
    expected = np.asarray(case.expected, dtype=np.float64)
    largest = float(np.max(np.abs(expected))) if expected.size else 1.0
    error = float(np.max(np.abs(result - expected))) / (largest or 1.0) if expected.size else 0.0
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        case.call()
        times.append(time.perf_counter() - start)
    return Row(case, error if result.shape == expected.shape else float("inf"), statistics.median(times))


def show(rows: Iterable[Row], title: str) -> bool:
    """Print the table; whether every row is within its bound."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title)
    for column in ("kernel", "size", "dtype", "error", "bound", "time", "speed", ""):
        table.add_column(column, justify="left" if column in ("kernel", "size", "dtype") else "right")
    good = True
    for row in rows:
        good &= row.ok
        speed = row.case.work / row.seconds / 1e9
        table.add_row(
            row.case.name,
            row.case.size,
            row.case.dtype,
            f"{row.error:.1e}",
            f"{row.case.bound():.1e}",
            f"{row.seconds * 1e3:.3f} ms",
            f"{speed:.1f} {row.case.unit}",
            "ok" if row.ok else "WRONG",
        )
    width = None if sys.stdout.isatty() else 132
    Console(width=width).print(table)
    return good


def run_example(
    title: str,
    cases: Callable[[str, bool], Iterator[Case]],
    kernels: Callable[[str], dict[str, Any]] | None = None,
) -> int:
    """The `main` of an example: parse the command line, run its cases, print the table; the exit status."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--target", default="cpu", help="cpu (default) or reference")
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--show", choices=("source", "llvm", "asm"), help="print the generated code instead of running")
    arguments = parser.parse_args()
    if arguments.show:
        return _show_code(arguments.show, kernels(arguments.target) if kernels else {})
    repeats = 3 if arguments.quick else 5
    rows = [measure(case, repeats) for case in cases(arguments.target, arguments.quick)]
    return 0 if show(rows, title) else 1


def _show_code(what: str, kernels: dict[str, Any]) -> int:
    getters = {"source": "get_kernel_source", "llvm": "get_llvm", "asm": "get_asm"}
    for name, kernel in kernels.items():
        print(f"# {name}\n{getattr(kernel, getters[what])()}")
    return 0
