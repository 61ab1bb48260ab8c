"""The reference target: Tile IR as it is, for the NumPy evaluator in `tilewright.simulator`."""

from __future__ import annotations

from tilewright.errors import ArgumentValueError, TargetError
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.printer import print_func
from tilewright.options import CompileOptions
from tilewright.target import Target
from tilewright.targets.registry import Artifact


class ReferenceBackend:
    """Nothing is lowered and nothing is compiled; the artifact's source is the printed Tile IR."""

    def resolve(self, arch: str) -> Target:
        """The one reference target.  Raises TargetError when an architecture is named."""
        if arch:
            raise TargetError(f"the reference target has no architecture {arch!r}", hint='write target="reference"')
        return Target("reference")

    def lower(self, func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
        """`func` itself."""
        return func

    def build(self, lowered: PrimFunc, target: Target, options: CompileOptions) -> Artifact:
        """An artifact without code."""
        return Artifact(target, print_func(lowered), b"", {})

    def listing(self, artifact: Artifact, name: str) -> str:
        """There is none.  Raises ArgumentValueError."""
        raise ArgumentValueError(
            f"the reference target has no listing {name!r}", hint="get_kernel_source() gives the Tile IR"
        )


BACKEND = ReferenceBackend()
