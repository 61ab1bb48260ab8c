"""Names beside the language that scripts in the TileLang dialect take from the package itself.

A script runs when its `tilelang` is this package: `sys.modules["tilelang"] = tilewright` before it is imported.
"""

from __future__ import annotations

import logging
import os
from typing import Any

from tilewright.errors import ArgumentValueError, UnsupportedOnTargetError
from tilewright.ir.expr import Expr
from tilewright.language.math import ceildiv
from tilewright.source import caller_location


def cdiv(a: Any, b: Any) -> Any:
    """a / b rounded up, of numbers, arrays or run-time values."""
    return ceildiv(a, b) if isinstance(a, Expr) or isinstance(b, Expr) else -(-a // b)


def next_power_of_2(n: int) -> int:
    """The smallest power of two that is not below `n`.  Raises ArgumentValueError unless n is an integer above 0."""
    if not isinstance(n, int) or n < 1:
        raise ArgumentValueError(f"next_power_of_2 takes a positive integer, got {n!r}", location=caller_location())
    return 1 << (n - 1).bit_length()


def disable_cache() -> None:
    """Neither read nor write the on-disk cache of kernels from now on."""
    os.environ["TILEWRIGHT_CACHE"] = "0"


def enable_cache() -> None:
    """Use the on-disk cache of kernels again."""
    os.environ["TILEWRIGHT_CACHE"] = "1"


def is_cache_enabled() -> bool:
    """Whether the on-disk cache of kernels is used."""
    return os.environ.get("TILEWRIGHT_CACHE", "1") != "0"


def set_log_level(level: int | str) -> None:
    """The level of this package's logger, a number or a name such as "WARNING"."""
    logging.getLogger("tilewright").setLevel(level.upper() if isinstance(level, str) else level)


class _Keys(type):
    """`PassConfigKey.TL_DISABLE_TMA_LOWER` is "tl.disable_tma_lower", and so on for every such name."""

    def __getattr__(cls, name: str) -> str:
        family, _, rest = name.partition("_")
        if family not in ("TL", "TIR", "CUDA") or not rest:
            raise AttributeError(f"PassConfigKey has no {name!r}")
        return f"{family.lower()}.{rest.lower()}"


class PassConfigKey(metaclass=_Keys):
    """Names of pass settings.  Those of GPU passes are kept with a kernel, and change nothing on a CPU."""


class _NotYet:
    """A name of the package that this version lacks; using it raises UnsupportedOnTargetError."""

    def __init__(self, name: str, instead: str) -> None:
        self.name = name
        self.instead = instead

    def _refuse(self) -> Any:
        raise UnsupportedOnTargetError(f"{self.name} is not there yet", location=caller_location(), hint=self.instead)

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._refuse()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()

    def __repr__(self) -> str:
        return self.name


_BY_HAND = "call the jit function with each configuration, and measure with kernel.get_profiler().do_bench()"
autotune = _NotYet("autotune", _BY_HAND)
AutoTuner = _NotYet("AutoTuner", _BY_HAND)
