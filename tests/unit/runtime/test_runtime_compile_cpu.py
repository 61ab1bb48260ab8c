"""`compile` for the CPU: machine code through memory and disk."""

import numpy as np
import pytest
from test_runtime_compile import add, compilations, fresh, run  # noqa: F401

import tilewright
from tilewright.runtime import compile as compile_module


@pytest.fixture(autouse=True)
def default_target(fresh, monkeypatch):  # noqa: F811
    monkeypatch.delenv("TILEWRIGHT_TARGET")


def test_the_default_target_is_the_cpu(monkeypatch):
    kernel = tilewright.compile(add(), out_idx=-2)
    assert kernel.target.kind == "cpu"
    np.testing.assert_array_equal(run(kernel), [1, 2, 3, 4, 5])
    monkeypatch.setenv("TILEWRIGHT_TARGET", "reference")
    assert tilewright.compile(add(), out_idx=1).target.kind == "reference"


def test_machine_code_from_the_disk_runs(compilations, monkeypatch):  # noqa: F811
    first = tilewright.compile(add(), out_idx=1)
    monkeypatch.setattr(compile_module, "MEMORY", compile_module.OnceMap())
    second = tilewright.compile(add(), out_idx=1)
    assert compilations == ["add"] and second.artifact.binary == first.artifact.binary
    np.testing.assert_array_equal(run(second, 1000), np.arange(1000) + 1)
    assert second.artifact.metadata == first.artifact.metadata


def test_listings():
    kernel = tilewright.compile(add(), out_idx=1)
    assert "define" in kernel.get_llvm() and "ret" in kernel.get_asm()
    assert kernel.get_kernel_source()
