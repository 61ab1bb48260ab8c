"""The parameters of a call: what each checks on its own, and the slots that it fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import (
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentStrideError,
    ArgumentTypeError,
    DTypeError,
    LaunchError,
    ReadOnlyArgumentError,
)
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.runtime import arrays, scalars, sizes
from tilewright.runtime.dlpack import Tensor
from tilewright.source import caller_location

_NDARRAY = np.ndarray
# Bits of `ndarray.flags.num`, NPY_ARRAY_C_CONTIGUOUS and NPY_ARRAY_WRITEABLE of NumPy's C interface.
_CONTIGUOUS = 0x1
_WRITEABLE = 0x400


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

    def bind(self, value: Any, slots: list[int], owners: list[object]) -> tuple[int, ...]:
        """Check `value` as far as it can be on its own and fill the slots that it determines; its shape.

        owners: takes what has to live as long as the call, beside `value` itself.
        """
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

    def bind(self, value: Any, slots: list[int], owners: list[object]) -> tuple[int, ...]:
        if type(value) is int and self.low <= value <= self.high:
            slots[self.slot] = value
            return ()
        try:
            slots[self.slot] = scalars.encode(value, self.element)
        except LaunchError as error:
            raise self.error(type(error), error.message, error.hint) from None
        return ()


class PointerParam(Param):
    """An address: an array of any dtype, an integer, or None for a null pointer."""

    def __init__(self, kernel: str, var: Var, slot: int) -> None:
        super().__init__(kernel, var.name, slot, "a pointer")

    def bind(self, value: Any, slots: list[int], owners: list[object]) -> tuple[int, ...]:
        if value is None:
            slots[self.slot] = 0
        elif isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            slots[self.slot] = int(value)
        else:
            try:
                tensor = arrays.view(value)
                slots[self.slot] = tensor.pointer
                owners.append(tensor.owner)
            except LaunchError as error:
                raise self.error(type(error), error.message, error.hint) from None
        return ()


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
        known = buffer.const_shape()
        self.fixed = None if known is None else tuple(known)
        """The shape, where all of it is known; None where a call tells."""
        # Filled by the plan.
        self.literal: list[tuple[int, int]] = []
        self.takes: list[tuple[int, int]] = []
        self.stride_takes: list[tuple[int, int]] = []
        self.later: list[Dim] = []
        self.stride_later: list[Dim] = []

    def bind(self, value: Any, slots: list[int], owners: list[object]) -> tuple[int, ...]:
        flags = value.flags.num if type(value) is _NDARRAY and not self.strided else 0
        if flags & _CONTIGUOUS and ((found := value.dtype) is self.numpy or found == self.numpy):
            shape: tuple[int, ...] = value.shape
            pointer = arrays.address(value)
            read_only = not flags & _WRITEABLE
        else:
            tensor = self._view(value)
            owners.append(tensor.owner)
            shape, pointer, read_only = tensor.shape, tensor.pointer, tensor.read_only
            if tensor.dtype is not self.element:
                raise self._mismatch(
                    ArgumentDTypeError, tensor, "has the wrong dtype", "; convert it, with .astype() or .to()"
                )
            if len(shape) == self.rank:
                self._strides(tensor, slots)
        if shape != self.fixed:
            self._sizes(value, shape, slots)
        if 0 in shape:
            pointer = 0
        elif pointer % self.itemsize:
            raise self.error(
                ArgumentStrideError,
                f"its address {pointer:#x} is not aligned to its element size of {self.itemsize} bytes",
                f"copy it into a fresh array: {_fresh_copy(value, self.name)}",
            )
        if read_only and self.written:
            raise self._read_only(value)
        slots[self.slot] = pointer
        return shape

    def _sizes(self, value: Any, shape: tuple[int, ...], slots: list[int]) -> None:
        """Check the sizes that are literals, take those that this parameter determines."""
        if len(shape) != self.rank:
            raise self._mismatch(ArgumentShapeError, self._view(value), "has the wrong rank")
        for axis, size in self.literal:
            if shape[axis] != size:
                raise self._mismatch(ArgumentShapeError, self._view(value), f"has the wrong size in dimension {axis}")
        for axis, slot in self.takes:
            slots[slot] = shape[axis]

    def _read_only(self, value: Any) -> LaunchError:
        kind = arrays.kind_of(value)
        if isinstance(kind, arrays.DLPackKind) and kind.name == "jax":
            return self.error(
                ReadOnlyArgumentError,
                "the kernel writes it, but JAX arrays are immutable",
                f"let the call allocate it: name {self.name} in out_idx, or return it from an eager kernel (T.empty)",
            )
        copied = " or exported as a copy" if isinstance(kind, arrays.DLPackKind) else ""
        return self.error(
            ReadOnlyArgumentError,
            f"the kernel writes it, but it is read-only{copied}",
            f"pass a writable array, for example {_fresh_copy(value, self.name)}",
        )

    def _view(self, value: Any) -> Tensor:
        try:
            return arrays.view(value)
        except LaunchError as error:
            hint = f"; {error.hint}" if error.hint else ""
            if value is None:
                hint = "; only a T.ptr parameter takes None"
            raise self.error(type(error), error.message, f"{self.name} is declared as {self.expected}{hint}") from None

    def _mismatch(self, kind: type[LaunchError], tensor: Tensor, what: str, remedy: str = "") -> LaunchError:
        shape = ", ".join(map(str, tensor.shape))
        return self.error(
            kind,
            f"{what}: expected {self.expected}, got {tensor.dtype}[{shape}]",
            f"{self.name} is declared as {self.expected}{remedy}",
        )

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
        repeats = any(stride == 0 and n > 1 for stride, n in zip(actual, shape, strict=True))
        if self.written and repeats and 0 not in shape:
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
