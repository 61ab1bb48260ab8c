"""Timing, made-up inputs, comparison."""

import sys

import numpy as np
import pytest

from tilewright.errors import ArgumentTypeError, ArgumentValueError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, Var, cast, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Launch, Parallel, Seq, Store
from tilewright.options import CompileOptions
from tilewright.profiler import MismatchError, Profiler, TensorSupplyType, do_bench
from tilewright.runtime.kernel import Kernel, Loaded
from tilewright.target import Target
from tilewright.targets.registry import Artifact

I32 = dtype("int32")


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    """Inputs are NumPy arrays, also where another test has loaded torch."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


def double(element="float32", outputs=(1,), size=40):
    i = Var(I32, "i")
    x, y = (Buffer(name, (const(size) if isinstance(size, int) else size,), dtype(element)) for name in "xy")
    value = cast(Load(x.dtype, x, (i,)), "float32") * 2.0
    body = Parallel((i,), x.shape, Seq((Store(y, (i,), cast(value, x.dtype)),)))
    sizes = () if isinstance(size, int) else (size,)
    func = PrimFunc("double", (x, y), Seq((Launch((const(1),), (Var(I32, "b"),), Seq((body,))),)), sizes, outputs)
    return Kernel(func, Loaded(Artifact(Target("reference"), "", b"", {}), "compiled"), CompileOptions())


def test_do_bench_statistics():
    durations = iter([0.0] * 2 + [0.004, 0.001, 0.002, 0.003, 0.010])

    def fn():
        import time

        time.sleep(next(durations))

    assert 3 <= do_bench(fn, n_warmup=0, warmup=0, n_repeat=5) < 4


def test_do_bench_counts_and_quantiles():
    calls = []
    result = do_bench(lambda: calls.append(1), n_warmup=3, n_repeat=7, quantiles=[0.0, 0.5, 1.0])
    assert len(calls) == 2 + 3 + 7
    assert result == sorted(result) and len(result) == 3
    assert do_bench(lambda: None, n_repeat=3, return_mode="min") >= 0
    with pytest.raises(ArgumentValueError, match="return_mode"):
        do_bench(lambda: None, return_mode="mode")
    with pytest.raises(ArgumentValueError, match="between 0 and 1"):
        do_bench(lambda: None, quantiles=[50])


@pytest.mark.parametrize("supply", list(TensorSupplyType))
@pytest.mark.parametrize("element", ["float32", "bfloat16", "float8_e5m2", "int8", "uint8", "bool"])
def test_inputs(supply, element):
    (x,) = Profiler(double(element), supply).inputs()
    assert x.shape == (40,) and x.dtype == dtype(element).numpy
    values = x.astype(np.float64)
    assert np.isfinite(values).all()
    assert (len(set(values)) > 1) == (supply not in (TensorSupplyType.Zero, TensorSupplyType.One))


def test_sizes_known_at_the_call_only_need_inputs():
    profiler = Profiler(double(size=Var(I32, "n")))
    with pytest.raises(ArgumentValueError, match="no input can be made up for x") as caught:
        profiler.run_once()
    assert "input_tensors" in caught.value.hint
    assert profiler.run_once(input_tensors=[np.ones(3, np.float32)]).sum() == 6


def test_agreement_and_disagreement():
    profiler = double().get_profiler()
    profiler.assert_allclose(lambda x: x * 2)
    profiler.assert_consistent(repeat=3)
    with pytest.raises(MismatchError, match=r"result 0: .* elements differ .* the first at") as caught:
        profiler.assert_allclose(lambda x: x * 3)
    assert isinstance(caught.value, AssertionError)

    def nearly(x):
        y = x * 2
        y[0] += 1
        return y

    profiler.assert_allclose(nearly, max_mismatched_ratio=1 / 40)
    with pytest.raises(MismatchError, match="1 of 40"):
        profiler.assert_allclose(nearly, max_mismatched_ratio=0)
    with pytest.raises(MismatchError, match="shape"):
        profiler.assert_allclose(lambda x: (x * 2)[:3])
    with pytest.raises(ArgumentValueError, match="1 results, the reference 2"):
        profiler.assert_allclose(lambda x: (x, x))


def test_kernels_that_write_their_arguments():
    profiler = Profiler(double(outputs=()), TensorSupplyType.Integer)

    def reference(x, y):
        y[...] = x * 2

    profiler.assert_allclose(reference)
    profiler.assert_consistent(repeat=2)
    with pytest.raises(MismatchError):
        profiler.assert_allclose(lambda x, y: None)


def test_time_of_a_kernel_and_of_something_else():
    profiler = Profiler(double())
    assert profiler.do_bench(n_warmup=1, n_repeat=3) > 0
    assert profiler.do_bench(lambda x: x * 2, n_warmup=1, n_repeat=3) > 0


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"warmup": -1}, "warmup is a time in milliseconds, at least 0, got -1"),
        ({"rep": float("nan")}, "rep is a time"),
        ({"rep": "5"}, "rep is a time.*'5'"),
        ({"n_repeat": -4}, "n_repeat is a number of runs"),
        ({"n_warmup": 1.5}, "n_warmup is a number of runs"),
        ({"return_mode": "mode"}, "return_mode must be one of"),
        ({"quantiles": [0.5, 2]}, "quantiles lie between 0 and 1"),
    ],
)
def test_bad_amounts_are_refused(arguments, match):
    with pytest.raises(ArgumentValueError, match=match) as caught:
        do_bench(lambda: None, **arguments)
    assert caught.value.location.file == __file__


def test_what_cannot_be_measured_or_compared_is_refused():
    profiler = double().get_profiler()
    with pytest.raises(ArgumentTypeError, match="a function without arguments, not int"):
        do_bench(5)
    with pytest.raises(ArgumentTypeError, match="the reference is a function of the inputs, not int"):
        profiler.assert_allclose(5)
    with pytest.raises(ArgumentTypeError, match="a result to compare is a str"):
        profiler.assert_allclose(lambda _: "x")
    with pytest.raises(ArgumentValueError, match="1 results, the reference 0"):
        profiler.assert_allclose(lambda _: None)
    for name in ("atol", "rtol", "max_mismatched_ratio"):
        for value in (-1, float("nan"), "0.1"):
            with pytest.raises(ArgumentValueError, match=f"{name} is a number, at least 0"):
                profiler.assert_allclose(lambda x: 2 * x, **{name: value})


def test_kinds_of_inputs_have_names():
    kernel = double()
    assert kernel.get_profiler("zero").supply is TensorSupplyType.Zero
    assert kernel.get_profiler("Uniform").supply is TensorSupplyType.Uniform
    for value in ("bogus", 5):
        with pytest.raises(ArgumentValueError, match="unknown kind of inputs") as caught:
            kernel.get_profiler(value)
        assert "Normal" in caught.value.hint and caught.value.location.file == __file__


def test_errors_of_the_reference_come_without_our_frames():
    profiler = double().get_profiler()
    with pytest.raises(ZeroDivisionError) as caught:
        profiler.assert_allclose(lambda _: 1 / 0)
    files = [entry.path for entry in caught.traceback]
    assert len([path for path in files if str(path) != __file__]) <= (0 if sys.version_info >= (3, 11) else 1)
