"""What a kernel is compiled for: a name, and a table of facts that passes read instead of the name."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.errors import TargetError

# Kinds that a user may name; which of them have a back-end is the registry's business.
KINDS = ("cpu", "reference", "hip", "cuda")
DEFAULT_ARCH = {"cpu": "host", "reference": "", "hip": "gfx942", "cuda": "sm_90a"}


@dataclass(frozen=True, slots=True)
class Target:
    """A chip as the passes see it.

    kind, arch: the two halves of the name `kind:arch`.  cpu, features: what the code generator is told.
    vector_bits: widest vector register.  vector_registers: how many of them.  cache_bytes: level 1, 2 and
    last-level data cache of one core.  dot_bf16: has a bf16 pair dot product.  triple: LLVM target triple.
    """

    kind: str
    arch: str = ""
    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_bits: int = 128
    vector_registers: int = 16
    cache_bytes: tuple[int, int, int] = (32 << 10, 512 << 10, 8 << 20)
    dot_bf16: bool = False
    extras: tuple[tuple[str, object], ...] = field(default=())

    @property
    def name(self) -> str:
        """The name as a user writes it."""
        return f"{self.kind}:{self.arch}" if self.arch else self.kind

    def lanes(self, bits: int) -> int:
        """How many `bits`-wide elements a vector register holds."""
        return max(1, self.vector_bits // bits)


def split_target(spec: str) -> tuple[str, str]:
    """`kind:arch` split, the default architecture filled in.  Raises TargetError on an unknown kind."""
    kind, _, arch = spec.strip().partition(":")
    if kind in ("c", "llvm", "auto"):
        kind = "cpu"
    if kind not in KINDS:
        raise TargetError(
            f"unknown target {spec!r}", hint=f"targets: {', '.join(KINDS)}, with an architecture as in hip:gfx942"
        )
    return kind, arch or DEFAULT_ARCH[kind]
