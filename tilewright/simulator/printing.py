"""The text that a `Print` statement writes, the same on every target."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def format_print(message: str, values: Sequence[tuple[str, np.ndarray[Any, Any]]]) -> str:
    """The lines of one execution of a `Print`, each ended by a newline.

    values: (name, array in the storage form of its dtype) pairs: scalars have shape () and no name, buffers
    have one.  A line is `message: name = value`; the message and the name are left out with their
    punctuation when empty.  Without values there is one line, the message.
    A buffer's elements stand in nested brackets, row-major.  Floats are written with the digits that
    tell them from every other value of their dtype.
    """
    if not values:
        return f"{message}\n"
    prefix = f"{message}: " if message else ""
    lines = [
        f"{prefix}{name} = {format_value(value)}" if name else prefix + format_value(value) for name, value in values
    ]
    return "\n".join(lines) + "\n"


def format_value(value: Any) -> str:
    """A scalar, or an array in nested brackets."""
    array = np.asarray(value)
    if array.ndim == 0:
        return str(array[()])
    return "[" + ", ".join([format_value(item) for item in array]) + "]"
