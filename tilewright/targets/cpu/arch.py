"""CPU architectures: what the host has, and tables for code that is to run elsewhere."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilewright.errors import TargetError
from tilewright.target import Target

ENV_FEATURES = "TILEWRIGHT_CPU_FEATURES"

_CACHES = (32 << 10, 1 << 20, 8 << 20)
_CACHE_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
_SYS_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")

_V2 = "cmov,cx8,cx16,fxsr,mmx,popcnt,sahf,sse,sse2,sse3,sse4.1,sse4.2,ssse3"
_V3 = f"{_V2},avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,xsave"
_V4 = f"{_V3},avx512bw,avx512cd,avx512dq,avx512f,avx512vl"


@dataclass(frozen=True, slots=True)
class Level:
    """A vector extension: LLVM's names for it, and its register file.  machine: as in a target triple."""

    machine: str
    cpu: str
    features: str
    vector_bits: int
    vector_registers: int


# The levels of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI), and Armv8-A.
LEVELS: dict[str, Level] = {
    "sse2": Level("x86_64", "x86-64", "cmov,cx8,fxsr,mmx,sse,sse2", 128, 16),
    "avx2": Level("x86_64", "x86-64-v3", _V3, 256, 16),
    "avx512": Level("x86_64", "x86-64-v4", _V4, 512, 32),
    "avx512bf16": Level("x86_64", "x86-64-v4", f"{_V4},avx512bf16", 512, 32),
    "neon": Level("aarch64", "generic", "fp-armv8,neon", 128, 32),
}
ALIASES = {"x86-64": "sse2", "x86-64-v3": "avx2", "x86-64-v4": "avx512", "native": "host"}

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def host_machine() -> str:
    """The host's machine as triples name it."""
    machine = platform.machine().lower()
    return _MACHINES.get(machine, machine)


def resolve(arch: str) -> Target:
    """The target table for `arch`: "host", or a vector extension (`LEVELS`).

    TILEWRIGHT_CPU_FEATURES overrides what "host" means.  Raises TargetError on an unknown name.
    """
    name = ALIASES.get(arch, arch) or "host"
    if name == "host":
        override = os.environ.get(ENV_FEATURES, "")
        if not override:
            return _host()
        name = ALIASES.get(override, override)
        if name not in LEVELS:
            raise TargetError(f"{ENV_FEATURES}={override!r} is unknown", hint=f"known: {', '.join(LEVELS)}")
    if name not in LEVELS:
        raise TargetError(f"unknown CPU architecture {arch!r}", hint=f"known: host, {', '.join(LEVELS)}")
    return _from_level(name)


@cache
def _from_level(name: str) -> Target:
    level = LEVELS[name]
    triple = _host_triple() if level.machine == host_machine() else f"{level.machine}-unknown-linux-gnu"
    features = level.features.split(",")
    return Target(
        "cpu",
        name,
        triple,
        level.cpu,
        ",".join(f"+{f}" for f in features),
        level.vector_bits,
        level.vector_registers,
        cache_sizes() if level.machine == host_machine() else _CACHES,
        "avx512bf16" in features,
        (("fma", has_fma(level.machine, set(features))),),
    )


@cache
def _host() -> Target:
    import llvmlite.binding as llvm

    features = dict(llvm.get_host_cpu_features())
    machine = host_machine()
    present = {name for name, on in features.items() if on}
    level = LEVELS[_best_level(machine, present)]
    flags = ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(features.items()))
    dot = machine == "x86_64" and {"avx512bf16", "avx512vl"} <= present
    return Target(
        "cpu",
        "host",
        _host_triple(),
        llvm.get_host_cpu_name(),
        flags,
        level.vector_bits,
        level.vector_registers,
        cache_sizes(),
        dot,
        (("fma", has_fma(machine, present)), ("cores", _cores())),
    )


def _best_level(machine: str, present: set[str]) -> str:
    """The widest level that the host's features contain."""
    if machine == "aarch64":
        return "neon"
    if machine != "x86_64":
        raise TargetError(
            f"there is no CPU back-end for {machine} machines",
            hint='x86-64 and arm64 have one; target="reference" runs anywhere',
        )
    for name in ("avx512", "avx2"):
        needed = {f for f in LEVELS[name].features.split(",") if f.startswith(("avx", "fma", "f16c"))}
        if needed <= present:
            return name
    return "sse2"


def _cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)


def has_fma(machine: str, features: set[str]) -> bool:
    """Whether a fused multiply-add is one instruction."""
    return machine == "aarch64" or "fma" in features


def _host_triple() -> str:
    import llvmlite.binding as llvm

    triple: str = llvm.get_process_triple()
    return triple


@cache
def cache_sizes() -> tuple[int, int, int]:
    """Bytes of the level 1 data, level 2 and last-level cache of one core; common values where the system does not say."""
    found: dict[int, int] = {}
    for entry in sorted(_SYS_CACHE.glob("index*")):
        try:
            kind = (entry / "type").read_text().strip()
            level = int((entry / "level").read_text())
            text = (entry / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        match = re.fullmatch(r"(\d+)([KM]?)", text)
        if kind in ("Data", "Unified") and match:
            found[level] = int(match[1]) * _CACHE_UNITS[match[2]]
    first, second = found.get(1, _CACHES[0]), found.get(2, _CACHES[1])
    last = found[max(found)] if len(found) > 2 else max(_CACHES[2], second)
    return (first, second, last)
