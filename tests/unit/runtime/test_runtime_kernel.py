"""Kernels: results, listings, exports, errors without our frames."""

import json
import sys
import traceback

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import (
    ArgumentShapeError,
    ArgumentValueError,
    DeviceAssertError,
    UnsupportedOnTargetError,
)
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, Var, cast, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Assert, Launch, Parallel, Seq, Store
from tilewright.options import CompileOptions
from tilewright.runtime.kernel import Kernel, Loaded
from tilewright.target import Target
from tilewright.targets.registry import Artifact

I32 = dtype("int32")


def scale(element="float32", outputs=(1,), check=False):
    """y[i] = x[i] * s in one block."""
    n, s, i = Var(I32, "n"), Var(dtype("float32"), "s"), Var(I32, "i")
    x, y = (Buffer(name, (n,), dtype(element)) for name in "xy")
    value = Load(x.dtype, x, (i,))
    stmts = [Store(y, (i,), cast(cast(value, "float32") * s, x.dtype))]
    if check:
        stmts.insert(0, Assert(value > 0.0, "x must be positive"))
    body = Parallel((i,), (n,), Seq(tuple(stmts)))
    block = Launch((const(1),), (Var(I32, "bx"),), Seq((body,)))
    return PrimFunc("scale", (x, y, s), Seq((block,)), (n,), outputs)


def kernel(func, kind="reference", binary=b"", **metadata):
    artifact = Artifact(Target(kind, "gfx942" if kind == "hip" else ""), "the source\n", binary, metadata)
    return Kernel(func, Loaded(artifact, "compiled"), CompileOptions())


def test_one_result():
    np.testing.assert_array_equal(kernel(scale())(np.arange(5, dtype=np.float32), 2), [0, 2, 4, 6, 8])


def test_several_results_come_as_a_tuple():
    func = scale(outputs=(0, 1))
    with pytest.raises(Exception, match="no argument determines the size n"):
        kernel(func)
    x, y = (Buffer(name, (const(3),), dtype("float32")) for name in "xy")
    func = PrimFunc("two", (x, y), Seq(()), (), (1, 0))
    results = kernel(func)()
    assert isinstance(results, tuple) and [r.shape for r in results] == [(3,), (3,)]


def test_results_in_place():
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    assert kernel(scale(outputs=()))(x, y, 3.0) is None
    np.testing.assert_array_equal(y, x * 3)


def test_narrow_dtypes():
    x = np.arange(6).astype(ml_dtypes.float8_e4m3fn)
    result = kernel(scale("float8_e4m3fn"))(x, 0.5)
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.astype(np.float32), [0, 0.5, 1, 1.5, 2, 2.5])


def frames(error):
    return [f.filename for f in traceback.extract_tb(error.__traceback__)]


def test_call_errors_show_the_call_and_not_the_checks():
    with pytest.raises(ArgumentShapeError) as caught:
        kernel(scale())(np.zeros((2, 2), np.float32), 1.0)
    ours = [f for f in frames(caught.value) if f != __file__]
    # Before 3.11 the frame that raises cannot be left out.
    assert ours == [] if sys.version_info >= (3, 11) else [f.endswith("runtime/kernel.py") for f in ours] == [True]


def test_asserts_of_the_kernel_reach_the_caller():
    checked = kernel(scale(check=True))
    checked(np.ones(3, np.float32), 1.0)
    with pytest.raises(DeviceAssertError, match="x must be positive"):
        checked(-np.ones(3, np.float32), 1.0)


def test_a_target_without_a_driver_compiles_but_does_not_run():
    gpu = kernel(scale(), "hip")
    assert gpu.get_kernel_source() == "the source\n"
    with pytest.raises(UnsupportedOnTargetError, match="hip:gfx942 can be compiled but not run") as caught:
        gpu(np.zeros(3, np.float32), 1.0)
    assert "get_kernel_source()" in caught.value.hint


def test_what_it_tells():
    made = kernel(scale())
    assert made.name == "scale" and made.out_idx == [1] and made.target.kind == "reference"
    assert [p.name for p in made.params] == ["x", "y", "s"]
    assert repr(made) == "<tilewright.Kernel scale(x, y, s) for reference>"
    host = made.get_host_source()
    assert "check x: float32[n]" in host and "allocate y" in host and "return y" in host
    for attribute in ("n_regs", "n_spills"):
        with pytest.raises(UnsupportedOnTargetError, match="does not report"):
            getattr(made, attribute)
    assert kernel(scale(), n_regs=12, n_spills=0).n_regs == 12
    with pytest.raises(UnsupportedOnTargetError, match="no listing 'llvm'"):
        made.get_llvm()


def test_exports(tmp_path):
    made = kernel(scale(), binary=b"code", abi=1)
    made.export_sources(tmp_path / "kernel.txt", tmp_path / "host.txt")
    assert (tmp_path / "kernel.txt").read_text() == "the source\n"
    assert (tmp_path / "host.txt").read_text() == made.get_host_source()
    with pytest.raises(ArgumentValueError, match="needs kernel_path"):
        made.export_sources()
    code, interface = made.export_library(tmp_path / "scale.o")
    assert code.read_bytes() == b"code" and interface == tmp_path / "scale.json"
    description = json.loads(interface.read_text())
    assert description["kernel"] == "scale" and description["outputs"] == [1] and description["sizes"] == ["n"]
    assert [p["declared"] for p in description["params"]] == ["float32[n]", "float32[n]", "float32"]
    with pytest.raises(UnsupportedOnTargetError, match="no machine code"):
        kernel(scale()).export_library(tmp_path / "none.o")
