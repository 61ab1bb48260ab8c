"""Transcendental functions on float and double lanes."""

from __future__ import annotations

from tilewright.targets.cpu.values import Value
from tilewright.targets.cpu.writer import Writer

_NAMES = (
    "exp exp2 exp10 expm1 log log2 log10 log1p sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid "
    "atan2 hypot"
)
FUNCTIONS = frozenset(_NAMES.split())


def emit(w: Writer, name: str, args: list[Value]) -> Value:
    """The function `name` of `FUNCTIONS`."""
    return w.libm(name if args[0].scalar_type == "double" else f"{name}f", *args)
