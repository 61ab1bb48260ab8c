"""The values that leave a combining operation unchanged."""

from __future__ import annotations

import math

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Const, const


def neutral_value(op: str, dtype: DType) -> Const:
    """The neutral element of "add"/"sum", "max", "min", "bitand", "bitor" or "bitxor" in a scalar `dtype`."""
    if op in ("add", "sum", "bitor", "bitxor"):
        return const(0, dtype)
    if op == "bitand":
        return const(-1 if dtype.kind == "int" else dtype.int_range()[1], dtype)
    if dtype.is_float:
        return const(-math.inf if op == "max" else math.inf, dtype)
    low, high = dtype.int_range()
    return const(low if op == "max" else high, dtype)
