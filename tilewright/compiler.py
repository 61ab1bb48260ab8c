"""From a tile program to an artifact; every stage has its name here."""

from __future__ import annotations

from tilewright.ir.kernel import PrimFunc
from tilewright.options import CompileOptions
from tilewright.target import Target
from tilewright.targets.registry import Artifact, backend


def lower(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Tile IR to the lowered IR of `target`."""
    return backend(target.kind).lower(func, target, options)


def build(lowered: PrimFunc, target: Target, options: CompileOptions) -> Artifact:
    """Lowered IR to source text and machine code."""
    return backend(target.kind).build(lowered, target, options)


def compile_func(func: PrimFunc, target: Target, options: CompileOptions) -> Artifact:
    """A tile program compiled for `target`."""
    return build(lower(func, target, options), target, options)
