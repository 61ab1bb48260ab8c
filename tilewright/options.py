"""Options of a compilation, and the environment variables that this package reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tilewright.errors import OptionError

# Every environment variable that has a meaning here.
ENVIRONMENT: dict[str, str] = {
    "TILEWRIGHT_NUM_THREADS": "threads of the CPU target's pool; default: all cores this process may use",
    "TILEWRIGHT_CACHE_DIR": "directory of the on-disk kernel cache; default: the user's cache directory",
    "TILEWRIGHT_CACHE": "0 turns the on-disk cache off",
    "TILEWRIGHT_VERIFY": "1 verifies the IR after every pass",
    "TILEWRIGHT_DUMP": "a directory that the IR is written to after every pass",
    "TILEWRIGHT_TARGET": "the default target; default: cpu",
    "TILEWRIGHT_CPU_FEATURES": "vector extension of the CPU target, to override detection: sse2, avx2, avx512, avx512bf16, neon",
}


# The pass settings that have a meaning here, with their defaults.  Those of other compilers' dialects, with other
# prefixes ("tl."), are taken and have none.
PASS_CONFIGS: dict[str, bool] = {
    "cpu.bf16_dot": False,  # bfloat16 gemms may use an instruction that takes subnormal numbers for 0
}
PASS_PREFIXES = tuple(sorted({name.partition(".")[0] + "." for name in PASS_CONFIGS}))

MAX_THREADS = 4096
"""More threads than any machine has cores; a larger number is a slip."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What a user may ask of one compilation.  All of it is part of the cache key.

    verify: check the IR after every pass.  dump: directory for the IR after every pass ("" for none).
    opt_level: optimisation level of the machine-code back-end, 0 to 3.
    pass_configs: settings of single passes by name, as (name, value) pairs in order of name.
    """

    verify: bool = False
    dump: str = ""
    opt_level: int = 3
    pass_configs: tuple[tuple[str, Any], ...] = field(default=())

    @classmethod
    def make(cls, pass_configs: Mapping[str, Any] | None = None, **values: Any) -> CompileOptions:
        """Options from keyword values and the environment.  Raises OptionError on an unknown or bad one."""
        known = {f.name for f in fields(cls)}
        for name in values:
            if name not in known:
                raise OptionError(f"unknown compile option {name!r}", hint=f"known: {', '.join(sorted(known))}")
        values.setdefault("verify", env_flag("TILEWRIGHT_VERIFY", default=False))
        values.setdefault("dump", os.environ.get("TILEWRIGHT_DUMP", ""))
        level = values.get("opt_level", 3)
        if not isinstance(level, int) or not 0 <= level <= 3:
            raise OptionError(f"opt_level must be 0, 1, 2 or 3, got {level!r}")
        configs = tuple(sorted((str(k), v) for k, v in (pass_configs or {}).items()))
        for name, value in configs:
            _check_config(name, value)
        return cls(pass_configs=configs, **values)

    def config(self, name: str) -> bool:
        """The pass setting `name` of `PASS_CONFIGS`."""
        return bool(dict(self.pass_configs).get(name, PASS_CONFIGS[name]))


def _check_config(name: str, value: Any) -> None:
    """Raise OptionError on a pass setting that looks like one of ours and is not, or whose value has another type."""
    if name in PASS_CONFIGS:
        if not isinstance(value, bool):
            raise OptionError(f"the pass setting {name!r} must be True or False, got {value!r}")
    elif name.startswith(PASS_PREFIXES):
        raise OptionError(f"unknown pass setting {name!r}", hint=f"known: {', '.join(sorted(PASS_CONFIGS))}")


def env_flag(name: str, *, default: bool) -> bool:
    """The boolean environment variable `name`.  Raises OptionError unless it is 0 or 1."""
    text = os.environ.get(name, "")
    if text == "":
        return default
    if text not in ("0", "1"):
        raise OptionError(f"{name} must be 0 or 1, got {text!r}")
    return text == "1"


def env_threads() -> int:
    """Threads for the CPU pool: TILEWRIGHT_NUM_THREADS, else the cores this process may run on."""
    text = os.environ.get("TILEWRIGHT_NUM_THREADS", "")
    if not text:
        affinity = getattr(os, "sched_getaffinity", None)
        return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= MAX_THREADS):
        raise OptionError(
            f"TILEWRIGHT_NUM_THREADS must be a number from 1 to {MAX_THREADS}, got {text!r}",
            hint="leave it unset for all cores that this process may use",
        )
    return int(text)
