"""Measuring and checking kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.errors import ArgumentTypeError, ArgumentValueError, TilewrightError
from tilewright.language.tracebacks import shows_the_user
from tilewright.profiler.bench import do_bench
from tilewright.profiler.supply import TensorSupplyType, as_supply, make_inputs
from tilewright.runtime import arrays, dlpack
from tilewright.runtime.kernel import Kernel

__all__ = ["MismatchError", "Profiler", "TensorSupplyType", "do_bench"]


class MismatchError(TilewrightError, AssertionError):
    """A kernel's result differs from the reference's by more than what is allowed."""


class Profiler:
    """Runs one kernel on inputs that are made up from its parameters, or given.

    supply: how inputs are filled, a TensorSupplyType or its name.  Results are those of `out_idx` or `T.empty`; where a kernel has none, the
    arguments that it writes.
    """

    def __init__(self, kernel: Kernel, supply: TensorSupplyType | str = TensorSupplyType.Auto) -> None:
        self.kernel = kernel
        self.supply = as_supply(supply)

    @shows_the_user
    def inputs(self) -> list[Any]:
        """Fresh inputs, the same values every time.  Raises ArgumentValueError where sizes are not known."""
        return make_inputs(self.kernel.prim_func, self.supply)

    @shows_the_user
    def run_once(self, func: Callable[..., Any] | None = None, input_tensors: Sequence[Any] | None = None) -> Any:
        """What the kernel (or `func`) returns on the inputs."""
        return (func or self.kernel)(*(self.inputs() if input_tensors is None else input_tensors))

    @shows_the_user
    def do_bench(
        self,
        func: Callable[..., Any] | None = None,
        warmup: float = 25,
        rep: float = 100,
        n_warmup: int = 0,
        n_repeat: int = 0,
        input_tensors: Sequence[Any] | None = None,
        quantiles: Sequence[float] | None = None,
        return_mode: str = "median",
    ) -> float | list[float]:
        """Milliseconds of one call of the kernel (or `func`) on the inputs; arguments as those of `do_bench`."""
        call = func or self.kernel
        values = self.inputs() if input_tensors is None else list(input_tensors)
        return do_bench(lambda: call(*values), warmup, rep, n_warmup, n_repeat, quantiles, return_mode)

    @shows_the_user
    def assert_allclose(
        self,
        reference: Callable[..., Any],
        input_tensors: Sequence[Any] | None = None,
        atol: float = 1e-2,
        rtol: float = 1e-2,
        max_mismatched_ratio: float = 0.01,
    ) -> None:
        """Compare the kernel with `reference` on the same inputs.

        reference: takes the inputs and returns the result, or a tuple of results; where the kernel has no results of
        its own, it may instead write its arguments as the kernel does.
        Raises MismatchError when more than `max_mismatched_ratio` of the elements differ by more than
        `atol + rtol * |reference|`, or shapes differ; ArgumentTypeError for a reference that is no function or gives
        no arrays, ArgumentValueError for another number of results or a bad tolerance.
        """
        _check_tolerances(atol=atol, rtol=rtol, max_mismatched_ratio=max_mismatched_ratio)
        if not callable(reference):
            raise ArgumentTypeError(f"the reference is a function of the inputs, not {type(reference).__name__}")
        values = self.inputs() if input_tensors is None else list(input_tensors)
        for_kernel, for_reference = _copies(values), _copies(values)
        expected = _as_list(reference(*for_reference))
        actual = _as_list(self.kernel(*for_kernel))
        if not actual:
            written = self.kernel.written_positions()
            actual = [for_kernel[i] for i in written]
            expected = expected or [for_reference[i] for i in written]
        if len(actual) != len(expected):
            raise ArgumentValueError(f"the kernel has {len(actual)} results, the reference {len(expected)}")
        for index, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
            _compare(index, _as_float(ours), _as_float(theirs), atol, rtol, max_mismatched_ratio)

    @shows_the_user
    def assert_consistent(self, repeat: int = 10, input_tensors: Sequence[Any] | None = None) -> None:
        """Run the kernel again and again on the same inputs.  Raises MismatchError when a result differs in a bit."""
        values = self.inputs() if input_tensors is None else list(input_tensors)
        first: list[bytes] | None = None
        for _ in range(repeat):
            arguments = _copies(values)
            results = _as_list(self.kernel(*arguments)) or [arguments[i] for i in self.kernel.written_positions()]
            found = [dlpack.as_numpy(arrays.view(r)).tobytes() for r in results]
            if first is not None and found != first:
                raise MismatchError(f"kernel {self.kernel.name!r} gave different results on the same inputs")
            first = found


def _check_tolerances(**tolerances: Any) -> None:
    for name, value in tolerances.items():
        if not isinstance(value, (int, float)) or not value >= 0:
            raise ArgumentValueError(f"{name} is a number, at least 0, got {value!r}")


def _copies(values: Sequence[Any]) -> list[Any]:
    """The values with every array copied within its library, so that in-place writes do not leak."""
    copied = []
    for value in values:
        kind = arrays.kind_of(value)
        if kind is None:
            copied.append(value)
        elif kind is arrays.TORCH:
            copied.append(value.detach().clone())
        else:
            copied.append(value.copy() if hasattr(value, "copy") else value)
    return copied


def _as_list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (tuple, list)) else [value]


def _as_float(array: Any) -> np.ndarray[Any, Any]:
    """An array of any library in float64, for comparison."""
    if arrays.kind_of(array) is None:
        try:
            return np.asarray(array, np.float64)
        except (TypeError, ValueError):
            raise ArgumentTypeError(f"a result to compare is a {type(array).__name__}, not an array") from None
    return dlpack.as_numpy(arrays.view(array)).astype(np.float64)


def _compare(
    index: int,
    actual: np.ndarray[Any, Any],
    expected: np.ndarray[Any, Any],
    atol: float,
    rtol: float,
    allowed_ratio: float,
) -> None:
    if actual.shape != expected.shape:
        raise MismatchError(f"result {index} has the shape {actual.shape}, the reference {expected.shape}")
    wrong = ~np.isclose(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    count = int(wrong.sum())
    if count <= allowed_ratio * actual.size:
        return
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(wrong)), actual.shape))
    raise MismatchError(
        f"result {index}: {count} of {actual.size} elements differ by more than atol={atol} + rtol={rtol}·|reference|; "
        f"the first at {place}: {actual[place]:.8g} instead of {expected[place]:.8g}"
    )
