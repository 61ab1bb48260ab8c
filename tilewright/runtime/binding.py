"""Arguments of a call checked against a function's parameters, and laid out as the slots that kernels take.

All checks are done here, before anything runs.  Slots: one for each parameter (address or bits), then one
for each of `PrimFunc.sizes`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.analysis.effects import Effects, effects
from tilewright.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentOverlapError,
    ArgumentShapeError,
    ArgumentStrideError,
    ArgumentTypeError,
    DTypeError,
    LaunchError,
    ReadOnlyArgumentError,
    ShapeError,
)
from tilewright.ir.expr import Buffer, Const, Expr, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime import arrays, scalars, sizes
from tilewright.runtime.dlpack import Tensor
from tilewright.source import caller_location

_NDARRAY = np.ndarray


@dataclass(slots=True)
class Bound:
    """The arguments of one call.

    slots: what the kernel takes.  arguments: the object for each parameter, results included, in order;
    they keep the memory alive.  results: what the call returns.
    """

    slots: list[int]
    arguments: list[Any]
    results: Any


@dataclass(frozen=True, slots=True)
class Dim:
    """A size or stride of a parameter: a literal, the slot of a variable, or an expression.  `what`: for messages."""

    axis: int
    what: str
    literal: int | None = None
    slot: int = -1
    expr: Expr | None = None


class Param:
    """A parameter of the call.  `slot`: its position in the function."""

    def __init__(self, kernel: str, name: str, slot: int, expected: str) -> None:
        self.kernel = kernel
        self.name = name
        self.slot = slot
        self.expected = expected

    def bind(self, value: Any, slots: list[int]) -> None:
        """Check `value` as far as it can be on its own and fill the slots that it determines."""
        raise self.error(ArgumentTypeError, f"no argument can be bound to {self.expected}")

    def error(self, kind: type[LaunchError], what: str, hint: str = "") -> LaunchError:
        """An error about this parameter, at the caller's line."""
        return kind(
            f"kernel {self.kernel!r}, argument {self.name!r}: {what}",
            location=caller_location(),
            hint=hint or f"{self.name} is declared as {self.expected}",
        )


class ScalarParam(Param):
    """A number."""

    def __init__(self, kernel: str, var: Var, slot: int) -> None:
        super().__init__(kernel, var.name, slot, str(var.dtype))
        self.element = var.dtype
        # Python integers in this range are their own slot; all else goes through `scalars`.
        self.low, self.high = (0, -1)
        if var.dtype.is_int:
            low, high = var.dtype.int_range()
            self.low, self.high = low, min(high, (1 << 63) - 1)

    def bind(self, value: Any, slots: list[int]) -> None:
        if type(value) is int and self.low <= value <= self.high:
            slots[self.slot] = value
            return
        try:
            slots[self.slot] = scalars.encode(value, self.element)
        except LaunchError as error:
            raise self.error(type(error), error.message) from None


class PointerParam(Param):
    """An address: an array of any dtype, an integer, or None for a null pointer."""

    def __init__(self, kernel: str, var: Var, slot: int) -> None:
        super().__init__(kernel, var.name, slot, "a pointer")

    def bind(self, value: Any, slots: list[int]) -> None:
        if value is None:
            slots[self.slot] = 0
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            slots[self.slot] = int(value)
        else:
            try:
                slots[self.slot] = arrays.view(value).pointer
            except LaunchError as error:
                raise self.error(type(error), error.message) from None


class ArrayParam(Param):
    """An array."""

    def __init__(self, kernel: str, buffer: Buffer, slot: int, *, written: bool) -> None:
        shape = ", ".join(sizes.text(s) for s in buffer.shape)
        strides = "" if buffer.strides is None else f" with strides ({', '.join(map(sizes.text, buffer.strides))})"
        super().__init__(kernel, buffer.name, slot, f"{buffer.dtype}[{shape}]{strides}")
        if buffer.dtype.lanes != 1:
            raise DTypeError(
                f"parameter {buffer.name} has the vector dtype {buffer.dtype}",
                location=buffer.loc,
                hint=f"declare it with dtype {buffer.dtype.scalar} and one more dimension of {buffer.dtype.lanes}",
            )
        self.buffer = buffer
        self.element = arrays.dtype_of_numpy(buffer.dtype.numpy) or buffer.dtype
        self.numpy = buffer.dtype.numpy
        self.itemsize = self.numpy.itemsize
        self.rank = buffer.ndim
        self.written = written
        self.strided = buffer.strides is not None
        # Filled by the plan.
        self.literal: list[tuple[int, int]] = []
        self.takes: list[tuple[int, int]] = []
        self.stride_takes: list[tuple[int, int]] = []
        self.later: list[Dim] = []
        self.stride_later: list[Dim] = []

    def bind(self, value: Any, slots: list[int]) -> None:
        if type(value) is _NDARRAY and value.dtype == self.numpy and value.flags.c_contiguous and not self.strided:
            shape: tuple[int, ...] = value.shape
            pointer = value.ctypes.data
            read_only = self.written and not value.flags.writeable
        else:
            tensor = self._view(value)
            shape, pointer, read_only = tensor.shape, tensor.pointer, tensor.read_only
            if tensor.dtype is not self.element:
                raise self._mismatch(ArgumentDTypeError, tensor, "has the wrong dtype")
            if len(shape) == self.rank:
                self._strides(tensor, slots)
        if len(shape) != self.rank:
            raise self._mismatch(ArgumentShapeError, self._view(value), "has the wrong rank")
        for axis, size in self.literal:
            if shape[axis] != size:
                raise self._mismatch(ArgumentShapeError, self._view(value), f"has the wrong size in dimension {axis}")
        for axis, slot in self.takes:
            slots[slot] = shape[axis]
        if 0 in shape:
            pointer = 0
        elif pointer % self.itemsize:
            raise self.error(
                ArgumentStrideError,
                f"its address {pointer:#x} is not aligned to its element size of {self.itemsize} bytes",
                f"copy it into a fresh array: {_fresh_copy(value, self.name)}",
            )
        if read_only and self.written:
            raise self.error(
                ReadOnlyArgumentError,
                "the kernel writes it, but it is read-only",
                f"pass a writable array, for example {_fresh_copy(value, self.name)}",
            )
        slots[self.slot] = pointer

    def _view(self, value: Any) -> Tensor:
        try:
            return arrays.view(value)
        except LaunchError as error:
            hint = ""
            if value is None:
                hint = f"{self.name} is declared as {self.expected}; only a T.ptr parameter takes None"
            elif "lives on" in error.message:
                hint = "the kernel runs on the CPU: move the array there first, with .cpu() or the like"
            raise self.error(type(error), error.message, hint) from None

    def _mismatch(self, kind: type[LaunchError], tensor: Tensor, what: str) -> LaunchError:
        shape = ", ".join(map(str, tensor.shape))
        return self.error(kind, f"{what}: expected {self.expected}, got {tensor.dtype}[{shape}]")

    def _strides(self, tensor: Tensor, slots: list[int]) -> None:
        """Check (row-major) or take (declared) the strides."""
        shape, row_major = tensor.shape, row_major_strides(tensor.shape)
        actual = row_major if tensor.strides is None else tensor.strides
        if not self.strided:
            if 0 not in shape and any(a != r for a, r, n in zip(actual, row_major, shape, strict=True) if n > 1):
                raise self.error(
                    ArgumentStrideError,
                    f"it is not contiguous: shape {shape}, strides {actual} in elements",
                    f"pass a contiguous copy (np.ascontiguousarray, .contiguous()), or declare the strides: T.StridedTensor({self.name}'s shape, strides, dtype)",
                )
            return
        if self.written and any(stride == 0 and n > 1 for stride, n in zip(actual, shape, strict=True)):
            raise self.error(
                ArgumentStrideError, f"the kernel writes it, but elements share memory (strides {actual} in elements)"
            )
        for axis, slot in self.stride_takes:
            slots[slot] = actual[axis]


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a row-major array."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _fresh_copy(value: Any, name: str) -> str:
    kind = arrays.kind_of(value)
    return f"{name}.clone()" if kind is arrays.TORCH else f"np.array({name})"


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
        plan = _Plan(func, self.params)
        self.solved = plan.solved
        self._variables = plan.variables
        self.outputs = [
            Output(i, p, tuple(plan.dims(p.buffer.shape, "size")))
            for i, p in ((i, every[i]) for i in func.outputs)
            if isinstance(p, ArrayParam)
        ]
        inputs = [p for p in self.params if isinstance(p, ArrayParam)]
        self._checked_later = [(p, i) for i, p in enumerate(self.params) if isinstance(p, ArrayParam) and _later(p)]
        self._overlapping = len(inputs) > 1 and any(p.written for p in inputs)
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
        for param, value in zip(self.params, args, strict=True):
            param.bind(value, slots)
        for unknown, dim, param, position in self.solved:
            self._solve(unknown, dim, param, args[position], slots)
        for array_param, position in self._checked_later:
            self._check_later(array_param, args[position], slots)
        if self._overlapping:
            self._check_overlap(args, slots)
        arguments: list[Any] = [None] * len(self.func.params)
        for param, value in zip(self.params, args, strict=True):
            arguments[param.slot] = value
        if not self.outputs:
            return Bound(slots, arguments, None)
        return Bound(slots, arguments, self._allocate(args, given, slots, arguments))

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

    def _solve(self, unknown: Var, dim: Dim, param: ArrayParam, value: Any, slots: list[int]) -> None:
        tensor = arrays.view(value)
        assert dim.expr is not None
        actual = tensor.shape[dim.axis]
        found = sizes.solve(dim.expr, unknown, actual, self._values(slots))
        if found is None:
            raise param.error(
                ArgumentShapeError,
                f"its size {actual} in dimension {dim.axis} is not {sizes.text(dim.expr)} for any {unknown.name}",
            )
        slots[self._variables[id(unknown)]] = found

    def _check_later(self, param: ArrayParam, value: Any, slots: list[int]) -> None:
        """The sizes and strides that other arguments determine."""
        shape = value.shape if type(value) is _NDARRAY else arrays.view(value).shape
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

    def _check_overlap(self, args: tuple[Any, ...], slots: list[int]) -> None:
        """Refuse a written array that shares part of its memory with another; the very same array twice is fine."""
        spans: list[tuple[ArrayParam, int, int]] = []
        for param, value in zip(self.params, args, strict=True):
            start = slots[param.slot]
            if isinstance(param, ArrayParam) and start and not param.strided:
                size = value.nbytes if type(value) is _NDARRAY else _nbytes(arrays.view(value).shape, param.itemsize)
                spans.append((param, start, start + size))
        for param, start, end in spans:
            if not param.written:
                continue
            for other, other_start, other_end in spans:
                if other is param or start >= other_end or other_start >= end:
                    continue
                if (start, end) != (other_start, other_end):
                    raise param.error(
                        ArgumentOverlapError,
                        f"the kernel writes it, but it shares part of its memory with argument {other.name!r}",
                        "pass arrays that do not overlap, or exactly the same array for both",
                    )

    def _allocate(self, args: tuple[Any, ...], given: dict[int, Any], slots: list[int], arguments: list[Any]) -> Any:
        kind = self._result_kind(args)
        results = []
        for index, output in enumerate(self.outputs):
            shape = tuple([self._dim(dim, slots) for dim in output.shape])
            if index in given:
                array = given[index]
                self._bind_given(output, array, shape, slots)
                made = array
            else:
                if min(shape, default=0) < 0:
                    raise output.param.error(ArgumentShapeError, f"the result would have the shape {shape}")
                self._check_result_strides(output, shape, slots)
                array, address = kind.empty(shape, output.param.element)
                slots[output.slot] = 0 if 0 in shape else address
                made = arrays.result(kind, array, output.param.element)
            arguments[output.slot] = array
            results.append(made)
        return results[0] if len(results) == 1 else tuple(results)

    def _bind_given(self, output: Output, array: Any, shape: tuple[int, ...], slots: list[int]) -> None:
        output.param.bind(array, slots)
        actual = arrays.view(array).shape
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


def _nbytes(shape: Sequence[int], itemsize: int) -> int:
    count = itemsize
    for size in shape:
        count *= size
    return count


def _later(param: ArrayParam) -> bool:
    return bool(param.later or param.stride_later)


def _make_param(func: PrimFunc, index: int, found: Effects) -> Param:
    param = func.params[index]
    if isinstance(param, Buffer):
        return ArrayParam(func.name, param, index, written=found.is_written(param))
    if param.dtype.kind == "handle":
        return PointerParam(func.name, param, index)
    return ScalarParam(func.name, param, index)


class _Plan:
    """Decides which argument determines each size variable, and what is checked after that."""

    def __init__(self, func: PrimFunc, params: list[Param]) -> None:
        self.variables: dict[int, int] = {}
        known: set[int] = set()
        for index, param in enumerate(func.params):
            if isinstance(param, Var):
                self.variables[id(param)] = index
                known.add(id(param))
        for index, size in enumerate(func.sizes):
            self.variables[id(size)] = len(func.params) + index
        arrays_in = [(p, i) for i, p in enumerate(params) if isinstance(p, ArrayParam)]
        for array_param, _ in arrays_in:
            self._sizes(array_param, known)
        for array_param, _ in arrays_in:
            self._strides(array_param, known)
        self.solved = self._solve(func, arrays_in, known)

    def dims(self, shape: Sequence[Expr], what: str) -> Iterable[Dim]:
        """A Dim for each entry of a shape or of strides."""
        for axis, expr in enumerate(shape):
            name = f"the {what} {sizes.text(expr)}"
            if isinstance(expr, Const):
                yield Dim(axis, name, literal=int(expr.value))
            elif isinstance(expr, Var) and id(expr) in self.variables:
                yield Dim(axis, name, slot=self.variables[id(expr)])
            else:
                yield Dim(axis, name, expr=expr)

    def _sizes(self, param: ArrayParam, known: set[int]) -> None:
        for dim, expr in zip(self.dims(param.buffer.shape, "size"), param.buffer.shape, strict=True):
            if dim.literal is not None:
                param.literal.append((dim.axis, dim.literal))
            elif dim.slot >= 0 and id(expr) not in known:
                known.add(id(expr))
                param.takes.append((dim.axis, dim.slot))
            else:
                param.later.append(dim)

    def _strides(self, param: ArrayParam, known: set[int]) -> None:
        strides = param.buffer.strides or ()
        for dim, expr in zip(self.dims(strides, "stride"), strides, strict=True):
            if dim.slot >= 0 and id(expr) not in known:
                known.add(id(expr))
                param.stride_takes.append((dim.axis, dim.slot))
            else:
                param.stride_later.append(dim)

    def _solve(
        self, func: PrimFunc, arrays_in: list[tuple[ArrayParam, int]], known: set[int]
    ) -> list[tuple[Var, Dim, ArrayParam, int]]:
        """Steps (unknown, dim, parameter, its position) for sizes that stand only inside expressions."""
        steps: list[tuple[Var, Dim, ArrayParam, int]] = []
        progress = True
        while progress:
            progress = False
            for param, position in arrays_in:
                for dim in param.later:
                    if dim.expr is None:
                        continue
                    unknown = [v for v in sizes.variables(dim.expr) if id(v) not in known]
                    if len(unknown) == 1 and id(unknown[0]) in self.variables and sizes.solvable(dim.expr, unknown[0]):
                        known.add(id(unknown[0]))
                        steps.append((unknown[0], dim, param, position))
                        progress = True
        for size in func.sizes:
            if id(size) not in known:
                raise ShapeError(
                    f"kernel {func.name!r}: no argument determines the size {size.name}",
                    location=size.loc,
                    hint=f"use {size.name} alone in the shape of a parameter, or make it a scalar parameter",
                )
        return steps
