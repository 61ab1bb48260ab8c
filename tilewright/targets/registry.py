"""The back-ends: what each must offer, and how a target's name leads to it."""

from __future__ import annotations

import importlib
from dataclasses import dataclass, field
from typing import Any, Protocol

from tilewright.errors import UnsupportedOnTargetError
from tilewright.ir.kernel import PrimFunc
from tilewright.options import CompileOptions
from tilewright.target import Target, split_target


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled function.

    source: readable text of what was generated.  binary: machine code for the runtime's driver.
    texts: further listings by name ("llvm", "asm"), empty where they are made on demand.
    metadata: what the driver needs to launch; JSON values only, so that the cache can hold it.
    """

    target: Target
    source: str
    binary: bytes
    metadata: dict[str, Any]
    texts: dict[str, str] = field(default_factory=dict)


class Backend(Protocol):
    """One vertical slice: architecture tables, lowering, emission, toolchain."""

    def resolve(self, arch: str) -> Target:
        """The target table for `arch`.  Raises TargetError when it is unknown."""

    def lower(self, func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
        """Tile IR to lowered IR."""

    def build(self, lowered: PrimFunc, target: Target, options: CompileOptions) -> Artifact:
        """Lowered IR to an artifact."""

    def listing(self, artifact: Artifact, name: str) -> str:
        """A listing ("llvm", "asm") of an artifact, made now.  Raises ArgumentValueError on an unknown name."""


# kind -> module with a `BACKEND`; imported when first asked for, so that importing the package stays cheap.
BACKENDS: dict[str, str] = {
    "cpu": "tilewright.targets.cpu.backend",
    "reference": "tilewright.targets.reference",
}


def backend(kind: str) -> Backend:
    """The back-end of a target kind.  Raises UnsupportedOnTargetError when this version has none."""
    module = BACKENDS.get(kind)
    if module is None:
        raise UnsupportedOnTargetError(
            f"target {kind!r} is not supported yet", hint=f"targets with a back-end: {', '.join(sorted(BACKENDS))}"
        )
    found: Backend = importlib.import_module(module).BACKEND
    return found


def resolve_target(spec: str | Target) -> Target:
    """The target that `spec` names."""
    if isinstance(spec, Target):
        return spec
    kind, arch = split_target(spec)
    return backend(kind).resolve(arch)
