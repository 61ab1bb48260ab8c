"""Running a kernel function on one target, and comparing its results with NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilewright
from tilewright.ir.dtype import dtype
from tilewright.simulator.tolerance import tolerance

TARGETS = ("reference", "cpu")
both_targets = pytest.mark.parametrize("target", TARGETS)
RNG = np.random.default_rng(7)
BF16 = ml_dtypes.bfloat16


def random(shape: Any, of: str = "float32") -> np.ndarray:
    """Values around 0, of any dtype; integers from -9 to 9 (from 0 where unsigned)."""
    kind = dtype(of)
    if kind.is_float:
        return RNG.standard_normal(shape).astype(kind.numpy)
    low = 0 if kind.kind in ("uint", "bool") else -9
    return RNG.integers(low, 2 if kind.is_bool else 10, shape).astype(kind.numpy)


def run(func: Any, *arrays: Any, target: str, out_idx: Any = None) -> Any:
    """Compile `func` (a prim_func) for `target` and call it; its results."""
    return tilewright.compile(func, out_idx=out_idx, target=target)(*arrays)


def near(actual: np.ndarray, expected: Any, of: str | None = None, k: int = 1) -> None:
    """`actual` equals `expected` but for the rounding of `k` sums in its dtype (or `of`)."""
    rtol, atol = tolerance(of or str(actual.dtype), k)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(actual.astype(np.float64), np.asarray(expected, np.float64), rtol=rtol, atol=atol)


def same(actual: np.ndarray, expected: Any) -> None:
    """Equal in every element, NaN with NaN."""
    np.testing.assert_array_equal(actual.astype(np.float64), np.asarray(expected, np.float64))
