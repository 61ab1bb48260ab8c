"""Speed of the CPU target's matrix product against NumPy's, measured alternately in one process.

    python benchmarks/cpu_gemm.py [--sizes 1024 2048 4096] [--blocks 128x128x32 ...] [--dtype float32] [--quick]

Both use all cores.  The ratio is NumPy's time divided by ours, pair by pair: above 1 ours is faster.  For dtypes
that NumPy has no BLAS for, NumPy multiplies float32 arrays of the same size.

NumPy's OpenBLAS keeps its worker threads spinning for about 0.1 s after a call, and they would take cores from the
next measurement; OPENBLAS_THREAD_TIMEOUT=16 puts them to sleep at once without any effect on NumPy's own speed.
OpenBLAS also has settings that make it slower (OPENBLAS_CORETYPE, OPENBLAS_L2_SIZE); they are removed.  Both are read
when NumPy is imported, so the script starts itself again where the environment differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

ENVIRONMENT: dict[str, str | None] = {
    "OPENBLAS_THREAD_TIMEOUT": "16",
    "OPENBLAS_CORETYPE": None,
    "OPENBLAS_L2_SIZE": None,
}
PAUSE = 0.02  # seconds between two measurements, for threads to go to sleep
BLOCKS = ("128x128x32", "128x128x64", "64x64x32", "256x256x32")


def restart_in_clean_environment() -> None:
    """Run this script again with the environment that a fair measurement needs."""
    if all(os.environ.get(name) == value for name, value in ENVIRONMENT.items()):
        return
    for name, value in ENVIRONMENT.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    os.execv(sys.executable, [sys.executable, *sys.argv])


class Row(NamedTuple):
    """One line of the table; times in seconds, the ratio's median and quartiles."""

    kernel: str
    size: int
    ours: float
    numpy: float
    ratio: float
    low: float
    high: float
    error: float


def explicit_matmul(size: int, block: tuple[int, int, int], dtype: str, accumulator: str) -> Any:
    """The matrix product of the language's quick start: staged tiles, a pipelined K loop, a result in registers."""
    import tilewright.language as T

    block_m, block_n, block_k = block

    @T.prim_func
    def matmul(
        A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype), C: T.Tensor((size, size), accumulator)
    ):
        with T.Kernel(T.ceildiv(size, block_n), T.ceildiv(size, block_m), threads=128) as (bx, by):
            A_shared = T.alloc_shared((block_m, block_k), dtype)
            B_shared = T.alloc_shared((block_k, block_n), dtype)
            C_local = T.alloc_fragment((block_m, block_n), accumulator)
            T.clear(C_local)
            for k in T.Pipelined(T.ceildiv(size, block_k), num_stages=3):
                T.copy(A[by * block_m, k * block_k], A_shared)
                T.copy(B[k * block_k, bx * block_n], B_shared)
                T.gemm(A_shared, B_shared, C_local)
            T.copy(C_local, C[by * block_m, bx * block_n])

    return matmul


def seconds(call: Callable[[], Any]) -> float:
    """Time of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def alternate(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> tuple[list[float], list[float]]:
    """Times of both, one after the other, after a warm-up of each; which one goes first changes every round."""
    ours(), theirs()
    first: list[float] = []
    second: list[float] = []
    for number in range(rounds):
        pair = [(ours, first), (theirs, second)]
        for call, times in pair if number % 2 else reversed(pair):
            time.sleep(PAUSE)
            times.append(seconds(call))
    return first, second


def measure(name: str, kernel: Any, size: int, dtype: str, accumulator: str, rounds: int) -> Row:
    """`kernel` against np.matmul on square matrices."""
    import numpy as np

    from tilewright.ir.dtype import dtype as as_dtype

    rng = np.random.default_rng(0)
    wide = np.float64 if dtype == "float64" else np.float32
    if as_dtype(dtype).is_float:
        inputs = [rng.standard_normal((size, size)).astype(as_dtype(dtype).numpy) for _ in range(2)]
    else:
        inputs = [rng.integers(-100, 100, (size, size)).astype(as_dtype(dtype).numpy) for _ in range(2)]
    a, b = inputs
    c = np.zeros((size, size), as_dtype(accumulator).numpy)
    a_wide, b_wide = a.astype(wide), b.astype(wide)
    c_wide = np.zeros((size, size), wide)
    ours, numpy = alternate(lambda: kernel(a, b, c), lambda: np.matmul(a_wide, b_wide, out=c_wide), rounds)
    ratios = sorted(n / o for o, n in zip(ours, numpy, strict=True))
    error = float(np.abs(c.astype(np.float64) - c_wide).max())
    quarter = len(ratios) // 4
    return Row(name, size, median(ours), median(numpy), median(ratios), ratios[quarter], ratios[-1 - quarter], error)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--blocks", nargs="+", default=list(BLOCKS), help="MxNxK of the explicit kernel's tiles")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--accumulator", default="", help="default: float32 for narrower floats, int32 for integers")
    parser.add_argument("--rounds", type=int, default=0, help="measurements of each; default: by size")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--quick", action="store_true", help="1024 and 2048 only, one tile size, few rounds")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.blocks, options.rounds = [1024, 2048], ["128x128x32"], 5
    return options


def main() -> None:
    restart_in_clean_environment()
    options = parse()
    from rich.console import Console
    from rich.table import Table

    import tilewright
    from tilewright.ir.dtype import dtype as as_dtype

    kind = as_dtype(options.dtype)
    default = "float64" if kind.bits == 64 else "float32" if kind.is_float else "int32"
    accumulator = options.accumulator or default
    table = Table(title=f"{options.dtype} matrix product against NumPy ({'float32' if kind.bits < 64 else 'float64'})")
    for heading in ("kernel", "size", "ours GFLOP/s", "NumPy GFLOP/s", "ratio", "quartiles", "max |difference|"):
        table.add_column(heading, justify="left" if heading == "kernel" else "right")
    for size in options.sizes:
        rounds = options.rounds or max(5, min(31, round(31 * (1024 / size) ** 2)))
        for text in options.blocks:
            block = tuple(int(part) for part in text.split("x"))
            kernel = tilewright.compile(
                explicit_matmul(size, (block[0], block[1], block[2]), options.dtype, accumulator), target=options.target
            )
            row = measure(text, kernel, size, options.dtype, accumulator, rounds)
            flops = 2 * size**3 / 1e9
            table.add_row(
                row.kernel,
                str(size),
                f"{flops / row.ours:.0f}",
                f"{flops / row.numpy:.0f}",
                f"{row.ratio:.3f}",
                f"{row.low:.3f} to {row.high:.3f}",
                f"{row.error:.1e}",
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
