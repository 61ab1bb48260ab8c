"""How far a target's result may be from the true value."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.dtype import dtype as to_dtype

_GUARD = 4.0
"""Errors are random; a bound this many times their typical size holds for every element of a large array."""


def unit_roundoff(dtype: DType) -> float:
    """u: the largest relative error of rounding a number to nearest in `dtype` (in its normal range)."""
    return 2.0 ** -(dtype.format.mantissa + 1)


def smallest_subnormal(dtype: DType) -> float:
    """The distance of 0 from its neighbour in a float dtype."""
    form = dtype.format
    bias = (1 << (form.exponent - 1)) - (0 if form.suffix == "fnuz" else 1)
    return 2.0 ** (1 - bias - form.mantissa)


def tolerance(dtype: Any, k: int = 1) -> tuple[float, float]:
    """(rtol, atol) for |result - true value| <= atol + rtol * |true value|.

    dtype: of the result.  k: how many terms of size about 1 were added up for one element (1 for
    elementwise code).  The parts, u being the unit roundoff of `dtype` and v that of the accumulator
    (float32; float64 for float64):
    - 2u relative: the result is rounded once, and an operand may have been rounded before;
    - 4v·sqrt(k) relative: sums of terms of one sign, whose k rounding errors of size v·|sum| are random
      (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019), and functions
      such as exp, of which targets have versions that are good to about 2 units in the last place;
    - 4v·(k-1) absolute: sums of terms of random sign, which cancel while their rounding errors do not;
    - one smallest subnormal absolute: rounding near 0.
    Integers and bools are exact: (0, 0).
    """
    spec: DType = to_dtype(dtype).scalar
    if not spec.is_float:
        return (0.0, 0.0)
    u = unit_roundoff(spec)
    v = min(u, 2.0**-24)
    rtol = 2 * u + _GUARD * v * math.sqrt(max(k, 1))
    atol = _GUARD * v * max(k - 1, 0) + smallest_subnormal(spec)
    return (rtol, atol)
