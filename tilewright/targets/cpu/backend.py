"""The CPU target: lowered IR to machine code of the host, or of another CPU."""

from __future__ import annotations

import base64
import zlib

from tilewright.errors import ArgumentValueError
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.printer import print_func
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.target import Target
from tilewright.targets.cpu import arch, codegen
from tilewright.targets.cpu.emit import emit_module
from tilewright.targets.registry import Artifact


class CpuBackend:
    """Blocks are sequential programs with vector instructions."""

    def resolve(self, arch_name: str) -> Target:
        """The target table for an architecture, see `arch.resolve`.  Raises TargetError when it is unknown."""
        return arch.resolve(arch_name)

    def lower(self, func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
        """Tile IR to lowered IR."""
        return lower_cpu(func, target, options)

    def build(self, lowered: PrimFunc, target: Target, options: CompileOptions) -> Artifact:
        """Lowered IR to object code.  Raises CompileError, UnsupportedOnTargetError, VerificationError."""
        text, metadata = emit_module(lowered, target)
        binary = codegen.object_code(text, target, options.opt_level)
        metadata["opt_level"] = options.opt_level
        metadata["llvm"] = base64.b64encode(zlib.compress(text.encode())).decode()
        return Artifact(target, print_func(lowered), binary, metadata)

    def listing(self, artifact: Artifact, name: str) -> str:
        """ "llvm": the emitted LLVM IR; "asm": assembly.  Raises ArgumentValueError on another name."""
        text = zlib.decompress(base64.b64decode(artifact.metadata["llvm"])).decode()
        if name == "llvm":
            return text
        if name == "asm":
            return codegen.assembly(text, artifact.target, artifact.metadata["opt_level"])
        raise ArgumentValueError(f"the CPU target has no listing {name!r}", hint="it has llvm and asm")


BACKEND = CpuBackend()
