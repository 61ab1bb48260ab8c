"""LLVM IR text to object code and assembly."""

from __future__ import annotations

from functools import cache
from typing import Any

from tilewright.errors import CompileError
from tilewright.target import Target

_RELOCATION = "pic"
_CODE_MODEL = "small"

# Register buffers and variables become SSA values; the emitter has already shared and hoisted what can be.
# LLVM's pipelines take ten times as long for the same code, and "instruction_combine" moves single-use values to
# the block of their use: accumulators then no longer fit into the registers.
_PASSES = ("always_inliner", "sroa", "simplify_cfg")


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def _machine(target: Target, level: int) -> Any:
    llvm = _llvm()
    try:
        return llvm.Target.from_triple(target.triple).create_target_machine(
            cpu=target.cpu, features=target.features, opt=level, reloc=_RELOCATION, codemodel=_CODE_MODEL
        )
    except RuntimeError as error:
        raise CompileError(f"LLVM has no code generator for {target.triple}: {error}") from None


def _optimised(text: str, machine: Any, level: int) -> Any:
    """The parsed module, after the passes that the emitted code needs.  Raises CompileError when it is not valid."""
    llvm = _llvm()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(f"the emitted LLVM IR is not valid: {error}", hint="this is a bug of the compiler") from None
    if level == 0:
        return module
    passes = llvm.create_new_module_pass_manager()
    for name in _PASSES:
        getattr(passes, f"add_{name}_pass")()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=level)))
    return module


def object_code(text: str, target: Target, level: int) -> bytes:
    """A relocatable object file.  Raises CompileError."""
    machine = _machine(target, level)
    code: bytes = machine.emit_object(_optimised(text, machine, level))
    return code


def assembly(text: str, target: Target, level: int) -> str:
    """The assembly of the same code.  Raises CompileError."""
    machine = _machine(target, level)
    listing: str = machine.emit_assembly(_optimised(text, machine, level))
    return listing
