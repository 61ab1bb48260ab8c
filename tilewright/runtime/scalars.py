"""Python and NumPy numbers as the 64-bit slots that kernels take."""

from __future__ import annotations

import operator
import struct
from typing import Any

import numpy as np

from tilewright.errors import ArgumentTypeError
from tilewright.ir.dtype import DType

_SIGN = 1 << 63
_WRAP = 1 << 64


def encode(value: Any, element: DType) -> int:
    """`value` as a slot: integers sign- or zero-extended, floats as their bits, bool as 0 or 1.

    Raises ArgumentTypeError, its message starting with "it", when `value` is no number of that kind or out of range.
    """
    if getattr(value, "shape", ()) != ():
        raise ArgumentTypeError(f"it is an array of shape {tuple(value.shape)}, not a number")
    if element.is_float:
        return _float_bits(_as_float(value, element), element)
    number = _as_integer(value, element)
    low, high = element.int_range()
    if not low <= number <= high:
        raise ArgumentTypeError(f"it is {number}, outside of {element} ({low} to {high})")
    return number - _WRAP if number >= _SIGN else number


def _as_integer(value: Any, element: DType) -> int:
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    try:
        return operator.index(value)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"it is {_describe(value)}, {element} takes an integer") from None


def _as_float(value: Any, element: DType) -> float:
    if hasattr(value, "__float__") or hasattr(value, "__index__"):
        try:
            if not isinstance(value, np.complexfloating):
                return float(value)
        except OverflowError:
            raise ArgumentTypeError(f"it is {_describe(value)}, beyond every float") from None
        except (TypeError, ValueError):
            pass
    raise ArgumentTypeError(f"it is {_describe(value)}, {element} takes a number")


def _float_bits(value: float, element: DType) -> int:
    if element.bits == 64:
        return int(struct.unpack("<q", struct.pack("<d", value))[0])
    if element.bits == 32:
        try:
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
        except OverflowError:  # a finite number beyond float32
            value = float("inf") if value > 0 else float("-inf")
            return int(struct.unpack("<I", struct.pack("<f", value))[0])
    with np.errstate(all="ignore"):
        narrow = np.asarray(value, np.float32).astype(element.numpy)
    return int(narrow.view(np.uint16 if element.bits == 16 else np.uint8))


def decode(slot: int, element: DType) -> Any:
    """The NumPy scalar that a slot holds."""
    if element.kind == "handle":
        return np.uint64(slot % _WRAP)
    if element.is_float:
        width = {64: np.uint64, 32: np.uint32, 16: np.uint16}.get(element.bits, np.uint8)
        return np.asarray(slot % (1 << element.bits), width).view(element.numpy)[()]
    return np.asarray(slot if element.kind == "int" else slot % _WRAP).astype(element.numpy)[()]


def _describe(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}, {str(value)[:40]!r}"
