"""What an eager kernel is specialised on: the description of an array argument."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import DType


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """An array's shape, dtype, and strides in elements (None: row-major).  Hashable, so it can key a cache."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None
