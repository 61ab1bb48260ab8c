"""Arrays of any library, seen as memory, and results in the caller's kind.

An *array kind* is a library whose arrays come in and whose arrays go out: NumPy, torch, JAX, or any
library with DLPack.  Nothing here imports one of them, except NumPy.
Elements below 8 bits take one byte each, as ml_dtypes stores them.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tilewright.errors import ArgumentDTypeError, ArgumentTypeError, DTypeError
from tilewright.ir.dtype import FORMATS, DType, dtype
from tilewright.runtime import dlpack
from tilewright.runtime.dlpack import Tensor

ALIGNMENT = 64
"""Bytes that memory allocated here is aligned to: a cache line, and the widest vector register."""

_NAMES = {form.numpy: name for name, form in FORMATS.items() if name not in ("handle", "tfloat32")}
"""NumPy's names of the dtypes."""
_DTYPE_OF_NUMPY: dict[np.dtype[Any], DType | None] = {}


def dtype_of_numpy(found: np.dtype[Any]) -> DType | None:
    """The dtype of a NumPy dtype, None when it has no counterpart (also: foreign byte order).

    Goes by the name first: ml_dtypes, whose import may take a second, is not loaded for arrays without it.
    """
    if found not in _DTYPE_OF_NUMPY:
        name = _NAMES.get(found.name)
        _DTYPE_OF_NUMPY[found] = dtype(name) if name is not None and dtype(name).numpy == found else None
    return _DTYPE_OF_NUMPY[found]


_pointer_at = ctypes.c_void_p.from_address
_DATA_OFFSET: int = object.__basicsize__
"""Where an array object holds the address of its elements: NumPy's C interface fixes it behind the object header."""


def _fast_address(array: np.ndarray[Any, Any]) -> int:
    return _pointer_at(id(array) + _DATA_OFFSET).value or 0


def _plain_address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def _choose_address() -> Callable[[np.ndarray[Any, Any]], int]:
    """The fast way, which saves a microsecond or more an array, where it is seen to agree with NumPy's own."""
    if sys.implementation.name != "cpython":
        return _plain_address
    samples = (np.zeros(3), np.zeros((2, 5), np.uint8)[1:, 2:], np.zeros(4, np.int16)[::-1])
    return _fast_address if all(_fast_address(a) == _plain_address(a) for a in samples) else _plain_address


address: Callable[[np.ndarray[Any, Any]], int] = _choose_address()
"""The address of the first element of a NumPy array."""


class ArrayKind(Protocol):
    """What the runtime needs from an array library."""

    @property
    def name(self) -> str:
        """The library's name."""

    def view(self, array: Any) -> Tensor:
        """The memory of `array`.  Raises an ArgumentError of the kind that fits, its message starting with "it"."""

    def empty(self, shape: tuple[int, ...], element: DType) -> tuple[Any, int]:
        """An uninitialised row-major array and its address."""


@dataclass(frozen=True, slots=True)
class NumpyKind:
    """numpy.ndarray."""

    name: str = "numpy"

    def view(self, array: np.ndarray[Any, Any]) -> Tensor:
        element = dtype_of_numpy(array.dtype)
        if element is None:
            swapped = dtype_of_numpy(array.dtype.newbyteorder()) is not None
            raise ArgumentDTypeError(
                f"it has the NumPy dtype {array.dtype}, which has no counterpart here",
                hint="its bytes are in the order of other machines: convert it, with .astype()" if swapped else "",
            )
        return Tensor(
            address(array),
            array.shape,
            element_strides(array.shape, array.strides, array.itemsize, contiguous=array.flags.c_contiguous),
            element,
            not array.flags.writeable,
            array,
        )

    def empty(self, shape: tuple[int, ...], element: DType) -> tuple[np.ndarray[Any, Any], int]:
        found = element.numpy
        count = 1
        for size in shape:
            count *= size
        memory = np.empty(count * found.itemsize + ALIGNMENT, np.uint8)
        base = address(memory)
        start = -base % ALIGNMENT
        array: np.ndarray[Any, Any] = np.ndarray(shape, found, memory, start)
        return array, base + start


def element_strides(
    shape: tuple[int, ...], byte_strides: tuple[int, ...], itemsize: int, *, contiguous: bool
) -> tuple[int, ...] | None:
    """Strides in elements, None for row-major.  Raises ArgumentTypeError where a stride is not whole elements."""
    if contiguous:
        return None
    if any(stride % itemsize for size, stride in zip(shape, byte_strides, strict=True) if size > 1):
        raise ArgumentTypeError(f"its strides {byte_strides} (bytes) are no multiples of its element size {itemsize}")
    return tuple(stride // itemsize for stride in byte_strides)


@dataclass(frozen=True, slots=True)
class TorchKind:
    """torch.Tensor on the CPU; read through its own accessors, so that `requires_grad` needs no detach."""

    name: str = "torch"

    def view(self, array: Any) -> Tensor:
        if array.device.type != "cpu":
            raise dlpack.wrong_device(str(array.device))
        torch = sys.modules["torch"]
        if array.layout is not torch.strided or array.is_neg() or array.is_conj():
            raise ArgumentTypeError(
                f"it is a torch tensor without plain memory (layout {array.layout})",
                hint="pass .to_dense(), .resolve_neg() or .resolve_conj() of it",
            )
        try:
            element = dtype(str(array.dtype))
        except DTypeError:
            raise ArgumentDTypeError(f"it has the torch dtype {array.dtype}, which has no counterpart here") from None
        try:
            shape, pointer = tuple(array.shape), array.data_ptr()
            strides = None if array.is_contiguous() else tuple(array.stride())
        except RuntimeError as error:  # of a transformation or a trace: vmap, grad, nested tensors
            reason = str(error).partition("\n")[0]
            raise ArgumentTypeError(f"it is a {type(array).__name__} without plain memory: {reason}") from None
        if not pointer and 0 not in shape:
            raise ArgumentTypeError(f"it is a {type(array).__name__} without memory, as in a trace")
        return Tensor(pointer, shape, strides, element, False, array)

    def empty(self, shape: tuple[int, ...], element: DType) -> tuple[Any, int]:
        torch = sys.modules["torch"]
        found = getattr(torch, element.format.numpy, None)
        if found is None or element.bits < 8:
            raise ArgumentDTypeError(f"torch has no {element} tensors for the result")
        array = torch.empty(shape, dtype=found)
        return array, array.data_ptr()


@dataclass(frozen=True, slots=True)
class DLPackKind:
    """Any array with `__dlpack__`.  Results go back through the library's own `from_dlpack`, else as NumPy."""

    name: str

    def view(self, array: Any) -> Tensor:
        found = dlpack.read(array)
        if self.name == "jax":  # immutable, whatever the capsule says
            found.read_only = True
        return found

    def empty(self, shape: tuple[int, ...], element: DType) -> tuple[np.ndarray[Any, Any], int]:
        return NUMPY.empty(shape, element)


NUMPY: ArrayKind = NumpyKind()
TORCH: ArrayKind = TorchKind()
_LIBRARY_ALIASES = {"jaxlib": "jax"}
_KINDS: dict[type, ArrayKind | None] = {np.ndarray: NUMPY}
_FROM_DLPACK = {"jax": "jax.dlpack", "tensorflow": "tensorflow.experimental.dlpack"}
"""Library -> module that holds its `from_dlpack`, where that is not the library itself."""


def kind_of(value: Any) -> ArrayKind | None:
    """The array kind of `value`, None when it is no array."""
    found = type(value)
    try:
        return _KINDS[found]
    except KeyError:
        kind = _KINDS[found] = _find_kind(found, value)
        return kind


def _find_kind(found: type, value: Any) -> ArrayKind | None:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, getattr(torch, "Tensor", ())):
        return TORCH
    if issubclass(found, np.ma.MaskedArray):
        return None  # its mask would be lost
    if issubclass(found, np.ndarray):
        return NUMPY
    if hasattr(found, "__dlpack__") and not issubclass(found, np.generic):
        library = found.__module__.partition(".")[0]
        return DLPackKind(_LIBRARY_ALIASES.get(library, library))
    return None


def view(value: Any) -> Tensor:
    """The memory of an array of any kind.  Raises ArgumentTypeError when it is no array."""
    kind = kind_of(value)
    if kind is None:
        if isinstance(value, np.ma.MaskedArray):
            raise ArgumentTypeError(
                "it is a masked array, whose mask would be lost", hint="pass its .filled(value) or its .data"
            )
        raise ArgumentTypeError(
            f"it is a {type(value).__name__}, not an array",
            hint="pass an array of NumPy, torch, JAX or another library with DLPack",
        )
    return kind.view(value)


def result(kind: ArrayKind, array: Any, element: DType) -> Any:
    """`array`, made by `kind.empty`, as an array of the caller's library, without a copy where that library allows."""
    if not isinstance(kind, DLPackKind):
        return array
    module = sys.modules.get(_FROM_DLPACK.get(kind.name, kind.name))
    if module is None and kind.name in _FROM_DLPACK:
        module = sys.modules.get(kind.name)
    from_dlpack = getattr(module, "from_dlpack", None)
    if from_dlpack is None:
        return array
    return from_dlpack(dlpack.Exporter(array, element))
