"""Arguments of a call checked against a function's parameters, and laid out as the slots that kernels take.

All checks are done here, before anything runs.  Slots: one for each parameter (address or bits), then one
for each of `PrimFunc.sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from tilewright.analysis.effects import Effects, effects
from tilewright.errors import (
    ArgumentCountError,
    ArgumentShapeError,
    ArgumentStrideError,
)
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime import arrays, sizes
from tilewright.runtime.overlap import OverlapCheck
from tilewright.runtime.params import ArrayParam, Dim, Param, PointerParam, ScalarParam, row_major_strides
from tilewright.runtime.plan import Plan
from tilewright.source import caller_location

_NDARRAY = np.ndarray

Made = tuple[Union[arrays.ArrayKind, None], Any, DType]
"""A result: the library that it was allocated for (None: the caller's own array), the array, its dtype."""


@dataclass(slots=True)
class Bound:
    """The arguments of one call.

    slots: what the kernel takes.  arguments: the object for each parameter, results included, in order.
    made: the results.  owners: what keeps the memory alive beside the arguments, the capsules of their exports.
    """

    slots: list[int]
    arguments: list[Any]
    made: list[Made]
    owners: list[object]

    def results(self) -> Any:
        """What the call returns, to be asked for once the kernel has run: nothing, one array, or a tuple."""
        if not self.made:
            return None
        found = [array if kind is None else arrays.result(kind, array, element) for kind, array, element in self.made]
        return found[0] if len(found) == 1 else tuple(found)


@dataclass(frozen=True, slots=True)
class Output:
    """A buffer that the call allocates."""

    slot: int
    param: ArrayParam
    shape: tuple[Dim, ...]


class Binder:
    """Binds calls of one function.

    Raises ShapeError when it is made for a function with a size that no argument determines.
    """

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.name = func.name
        found = effects(func.body)
        every = [_make_param(func, i, found) for i in range(len(func.params))]
        self._every = every
        self.params = [p for p in every if p.slot not in func.outputs]
        self.width = len(func.params) + len(func.sizes)
        plan = Plan(func, self.params)
        self.solved = plan.solved
        self._variables = plan.variables
        self.outputs = [
            Output(i, p, tuple(plan.dims(p.buffer.shape, "size")))
            for i, p in ((i, every[i]) for i in func.outputs)
            if isinstance(p, ArrayParam)
        ]
        self._checked_later = [(p, i) for i, p in enumerate(self.params) if isinstance(p, ArrayParam) and _later(p)]
        self._overlap = OverlapCheck(self.params)
        self._positions = {p.name: i for i, p in enumerate(self.params)}
        self._output_positions = {o.param.name: i for i, o in enumerate(self.outputs)}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Bound:
        """The bound call.  Raises a LaunchError of the kind that fits; nothing has run then."""
        given: dict[int, Any] = {}
        if kwargs:
            args, given = self._merge(args, kwargs)
        if len(args) != len(self.params):
            raise self._count_error(len(args))
        slots = [0] * self.width
        owners: list[object] = []
        shapes = [param.bind(value, slots, owners) for param, value in zip(self.params, args, strict=True)]
        for unknown, dim, array_param, position in self.solved:
            self._solve(unknown, dim, array_param, shapes[position], slots)
        for array_param, position in self._checked_later:
            self._check_later(array_param, args[position], shapes[position], slots)
        if self._overlap.needed:
            self._overlap(args, shapes, slots)
        if not self.outputs:
            return Bound(slots, list(args), [], owners)
        arguments: list[Any] = [None] * len(self.func.params)
        for param, value in zip(self.params, args, strict=True):
            arguments[param.slot] = value
        made = self._allocate(args, given, slots, arguments, owners)
        return Bound(slots, arguments, made, owners)

    def every_param(self) -> tuple[Param, ...]:
        """All parameters of the function, results included."""
        return tuple(self._every)

    # --- counting ------------------------------------------------------------------------------

    def _merge(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[int, Any]]:
        """Positional arguments with the keywords in their places, and results given by keyword."""
        missing = object()
        merged = list(args) + [missing] * (len(self.params) - len(args))
        given: dict[int, Any] = {}
        for name, value in kwargs.items():
            if name in self._output_positions:
                given[self._output_positions[name]] = value
                continue
            position = self._positions.get(name)
            if position is None:
                raise ArgumentCountError(
                    f"kernel {self.name!r} has no parameter {name!r}",
                    location=caller_location(),
                    hint=f"its parameters: {self._signature()}",
                )
            if position < len(merged) and merged[position] is not missing:
                raise ArgumentCountError(
                    f"kernel {self.name!r}: argument {name!r} is given twice", location=caller_location()
                )
            merged[position] = value
        absent = [p.name for p, value in zip(self.params, merged, strict=False) if value is missing]
        if absent:
            raise ArgumentCountError(
                f"kernel {self.name!r} misses the argument{'s' if len(absent) > 1 else ''} {', '.join(absent)}",
                location=caller_location(),
                hint=f"its parameters: {self._signature()}",
            )
        return tuple(merged), given

    def _count_error(self, count: int) -> ArgumentCountError:
        hint = f"its parameters: {self._signature()}"
        if self.outputs:
            names = ", ".join(o.param.name for o in self.outputs)
            hint += f"; the call allocates and returns {names}"
        plural = "" if len(self.params) == 1 else "s"
        return ArgumentCountError(
            f"kernel {self.name!r} takes {len(self.params)} argument{plural}, {count} {'was' if count == 1 else 'were'} given",
            location=caller_location(),
            hint=hint,
        )

    def _signature(self) -> str:
        return ", ".join(f"{p.name}: {p.expected}" for p in self.params) or "none"

    # --- sizes ---------------------------------------------------------------------------------

    def _values(self, slots: list[int]) -> dict[int, int]:
        return {key: slots[slot] for key, slot in self._variables.items()}

    def _solve(self, unknown: Var, dim: Dim, param: ArrayParam, shape: tuple[int, ...], slots: list[int]) -> None:
        assert dim.expr is not None
        actual = shape[dim.axis]
        found = sizes.solve(dim.expr, unknown, actual, self._values(slots))
        if found is None:
            raise param.error(
                ArgumentShapeError,
                f"its size {actual} in dimension {dim.axis} is not {sizes.text(dim.expr)} for any {unknown.name}",
            )
        slots[self._variables[id(unknown)]] = found

    def _check_later(self, param: ArrayParam, value: Any, shape: tuple[int, ...], slots: list[int]) -> None:
        """The sizes and strides that other arguments determine."""
        for dim in param.later:
            wanted = self._dim(dim, slots)
            if shape[dim.axis] != wanted:
                raise param.error(
                    ArgumentShapeError,
                    f"its size in dimension {dim.axis} is {shape[dim.axis]}, but {dim.what} is {wanted} by the other arguments",
                )
        if not param.stride_later:
            return
        actual = arrays.view(value).strides or row_major_strides(shape)
        for dim in param.stride_later:
            wanted = self._dim(dim, slots)
            if shape[dim.axis] > 1 and 0 not in shape and actual[dim.axis] != wanted:
                raise param.error(
                    ArgumentStrideError,
                    f"its stride in dimension {dim.axis} is {actual[dim.axis]} elements, but {dim.what} is {wanted}",
                )

    def _dim(self, dim: Dim, slots: list[int]) -> int:
        if dim.literal is not None:
            return dim.literal
        if dim.expr is None:
            return slots[dim.slot]
        return sizes.evaluate(dim.expr, self._values(slots))

    # --- memory --------------------------------------------------------------------------------

    def _allocate(
        self,
        args: tuple[Any, ...],
        given: dict[int, Any],
        slots: list[int],
        arguments: list[Any],
        owners: list[object],
    ) -> list[Made]:
        kind = self._result_kind(args)
        made: list[Made] = []
        for index, output in enumerate(self.outputs):
            shape = tuple([self._dim(dim, slots) for dim in output.shape])
            if index in given:
                array = given[index]
                self._bind_given(output, array, shape, slots, owners)
            else:
                if min(shape, default=0) < 0:
                    raise output.param.error(ArgumentShapeError, f"the result would have the shape {shape}")
                self._check_result_strides(output, shape, slots)
                array, address = kind.empty(shape, output.param.element)
                slots[output.slot] = 0 if 0 in shape else address
            arguments[output.slot] = array
            made.append((None if index in given else kind, array, output.param.element))
        return made

    def _bind_given(
        self, output: Output, array: Any, shape: tuple[int, ...], slots: list[int], owners: list[object]
    ) -> None:
        actual = output.param.bind(array, slots, owners)
        if actual != shape:
            raise output.param.error(ArgumentShapeError, f"the result has the shape {shape}, got {actual}")

    def _check_result_strides(self, output: Output, shape: tuple[int, ...], slots: list[int]) -> None:
        declared = output.param.buffer.strides
        if declared is None:
            return
        values = self._values(slots)
        wanted = tuple(sizes.evaluate(stride, values) for stride in declared)
        if any(w != r for w, r, n in zip(wanted, row_major_strides(shape), shape, strict=True) if n > 1):
            raise output.param.error(
                ArgumentStrideError,
                f"a result with strides {wanted} cannot be allocated, only a row-major one",
                "pass the array yourself instead of by out_idx",
            )

    def _result_kind(self, args: Iterable[Any]) -> arrays.ArrayKind:
        """The library of the first argument that is not NumPy's."""
        for param, value in zip(self.params, args, strict=True):
            if isinstance(param, ArrayParam) and type(value) is not _NDARRAY:
                kind = arrays.kind_of(value)
                if kind is not None and kind is not arrays.NUMPY:
                    return kind
        return arrays.NUMPY


def _later(param: ArrayParam) -> bool:
    return bool(param.later or param.stride_later)


def _make_param(func: PrimFunc, index: int, found: Effects) -> Param:
    param = func.params[index]
    if isinstance(param, Buffer):
        return ArrayParam(func.name, param, index, written=found.is_written(param))
    if param.dtype.kind == "handle":
        return PointerParam(func.name, param, index)
    return ScalarParam(func.name, param, index)
