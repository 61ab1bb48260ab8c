"""The reference target: no code, the Tile IR as source."""

import pytest

from tilewright.compiler import compile_func
from tilewright.errors import ArgumentValueError, TargetError
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Seq
from tilewright.options import CompileOptions
from tilewright.targets.registry import backend, resolve_target


def test_the_artifact_is_the_printed_function():
    func = PrimFunc("empty_kernel", (), Seq(()))
    target = resolve_target("reference")
    artifact = compile_func(func, target, CompileOptions())
    assert "empty_kernel" in artifact.source
    assert (artifact.target.name, artifact.binary, artifact.metadata) == ("reference", b"", {})
    assert backend("reference").lower(func, target, CompileOptions()) is func


def test_it_has_neither_architectures_nor_listings():
    with pytest.raises(TargetError, match="no architecture 'gfx942'"):
        resolve_target("reference:gfx942")
    artifact = compile_func(PrimFunc("f", (), Seq(())), resolve_target("reference"), CompileOptions())
    with pytest.raises(ArgumentValueError, match="no listing 'asm'"):
        backend("reference").listing(artifact, "asm")
