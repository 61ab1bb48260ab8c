"""DLPack capsules, read and written with ctypes.

NumPy's own reader refuses bfloat16 and the 8-bit floats; this one knows them.  Layout of the
structures: dlpack.h 1.1 (https://github.com/dmlc/dlpack).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import ArgumentDeviceError, ArgumentDTypeError, ArgumentTypeError
from tilewright.ir.dtype import DType, dtype

MAX_VERSION = (1, 1)
CPU_DEVICES = (1, 3, 11, 13)
"""kDLCPU, and host memory of CUDA (pinned), ROCm (pinned) and CUDA managed memory."""
DEVICE_NAMES = {
    1: "cpu",
    2: "cuda",
    3: "cuda_host",
    4: "opencl",
    7: "vulkan",
    8: "metal",
    9: "vpi",
    10: "rocm",
    11: "rocm_host",
    13: "cuda_managed",
    14: "oneapi",
    15: "webgpu",
    16: "hexagon",
}
FLAG_READ_ONLY = 1
FLAG_IS_COPIED = 2
_NOT_WRITABLE = FLAG_READ_ONLY | FLAG_IS_COPIED
FLAG_SUBBYTE_PADDED = 4
MAX_RANK = 64
"""More dimensions than any library has; what claims more is no tensor."""


class DLDevice(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("id", ctypes.c_int32))


class DLDataType(ctypes.Structure):
    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", DLDevice),
        ("ndim", ctypes.c_int32),
        ("dtype", DLDataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class DLManagedTensor(ctypes.Structure):
    _fields_ = (("tensor", DLTensor), ("manager", ctypes.c_void_p), ("deleter", Deleter))


class DLManagedTensorVersioned(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", Deleter),
        ("flags", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


# (code, bits) -> dtype name.  Codes of dlpack.h: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool, 7 to 14 8-bit floats, 17 e2m1.
DTYPE_OF_CODE: dict[tuple[int, int], str] = {
    **{(0, bits): f"int{bits}" for bits in (4, 8, 16, 32, 64)},
    **{(1, bits): f"uint{bits}" for bits in (4, 8, 16, 32, 64)},
    **{(2, bits): f"float{bits}" for bits in (16, 32, 64)},
    (4, 16): "bfloat16",
    (6, 8): "bool",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
    (17, 4): "float4_e2m1fn",
}
CODE_OF_DTYPE: dict[str, tuple[int, int]] = {name: code for code, name in DTYPE_OF_CODE.items()}

_api = ctypes.pythonapi
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", _api))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", _api))


@dataclass(slots=True)
class Tensor:
    """A tensor behind a capsule.

    strides in elements, None for row-major.  read_only: also of a copy that an export made, for what is written
    there would not reach the array.  owner: keeps the memory alive.
    """

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: DType
    read_only: bool
    owner: object


def device_name(device: tuple[int, int]) -> str:
    """A DLPack device as text, `cuda:0`."""
    name = DEVICE_NAMES.get(int(device[0]), f"device type {int(device[0])}")
    return name if name == "cpu" else f"{name}:{int(device[1])}"


def wrong_device(name: str) -> ArgumentDeviceError:
    """The error about an array on the device `name`."""
    return ArgumentDeviceError(
        f"it lives on {name}", hint="the kernel runs on the CPU: move the array there first, with .cpu() or the like"
    )


def read(array: Any) -> Tensor:
    """The tensor that `array` exports, without a copy.

    The capsule is not consumed: it is kept as the owner, and its destructor, which by the protocol
    calls the deleter of a capsule that nobody took, runs when the last user lets go.
    Raises ArgumentDeviceError for memory that the CPU cannot read, ArgumentTypeError when the export
    fails, ArgumentDTypeError for a format without a name here.
    """
    place = _device(array)
    if place is not None and place[0] not in CPU_DEVICES:
        raise wrong_device(device_name(place))
    capsule = _export(array)
    if _is_valid(capsule, b"dltensor_versioned"):
        versioned = DLManagedTensorVersioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        if versioned.major != MAX_VERSION[0]:
            raise ArgumentTypeError(f"it exports DLPack version {versioned.major}, version 1 is understood")
        return _tensor(versioned.tensor, capsule, versioned.flags)
    if _is_valid(capsule, b"dltensor"):
        return _tensor(DLManagedTensor.from_address(_get_pointer(capsule, b"dltensor")).tensor, capsule, 0)
    raise ArgumentTypeError("its __dlpack__ gave something other than a fresh DLPack capsule")


def _device(array: Any) -> tuple[int, int] | None:
    """Where `array` says that it lives, None when it does not say."""
    device = getattr(array, "__dlpack_device__", None)
    if device is None:
        return None
    try:
        kind, number = device()
        return int(kind), int(number)
    except Exception as error:
        raise ArgumentTypeError(f"its __dlpack_device__ failed: {_first_line(error)}") from None


def _export(array: Any) -> Any:
    try:
        try:
            return array.__dlpack__(max_version=MAX_VERSION)
        except TypeError:  # the protocol before version 1.0
            return array.__dlpack__()
    except Exception as error:
        raise ArgumentTypeError(f"its __dlpack__ failed: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__


def _tensor(tensor: DLTensor, capsule: Any, flags: int) -> Tensor:
    if tensor.device.type not in CPU_DEVICES:
        raise wrong_device(device_name((tensor.device.type, tensor.device.id)))
    name = DTYPE_OF_CODE.get((tensor.dtype.code, tensor.dtype.bits))
    if name is None or tensor.dtype.lanes != 1:
        raise ArgumentDTypeError(
            f"its DLPack dtype (code {tensor.dtype.code}, {tensor.dtype.bits} bits, {tensor.dtype.lanes} lanes) "
            "has no counterpart here"
        )
    if tensor.dtype.bits < 8 and not flags & FLAG_SUBBYTE_PADDED:
        raise ArgumentDTypeError(f"its {name} elements are packed, one element a byte is needed")
    rank = tensor.ndim
    if not 0 <= rank <= MAX_RANK or (rank and not tensor.shape):
        raise ArgumentTypeError(f"its DLPack capsule is damaged: it has {rank} dimensions")
    shape = tuple(tensor.shape[:rank]) if rank else ()
    if min(shape, default=0) < 0 or (not tensor.data and 0 not in shape):
        raise ArgumentTypeError(f"its DLPack capsule is damaged: shape {shape} at address {tensor.data or 0:#x}")
    strides = tuple(tensor.strides[:rank]) if rank and tensor.strides else None
    return Tensor(
        (tensor.data or 0) + tensor.byte_offset, shape, strides, dtype(name), bool(flags & _NOT_WRITABLE), capsule
    )


class _Memory:
    """An address range as NumPy sees it; keeps the owner of the memory alive."""

    def __init__(self, tensor: Tensor) -> None:
        size = tensor.dtype.numpy.itemsize
        strides = tensor.strides
        self.owner = tensor.owner
        self.__array_interface__ = {
            "version": 3,
            "data": (tensor.pointer, tensor.read_only),
            "shape": tensor.shape,
            "typestr": f"|V{size}",
            "strides": None if strides is None else tuple(s * size for s in strides),
        }


def as_numpy(tensor: Tensor) -> np.ndarray[Any, Any]:
    """A NumPy array on the memory of `tensor`."""
    if 0 in tensor.shape:
        empty = np.empty(tensor.shape, tensor.dtype.numpy)
        empty.flags.writeable = not tensor.read_only
        return empty
    return np.asarray(_Memory(tensor)).view(tensor.dtype.numpy)


class Exporter:
    """A NumPy array with a DLPack export that knows bfloat16 and the 8-bit floats."""

    def __init__(self, array: np.ndarray[Any, Any], element: DType) -> None:
        self.array = array
        self.element = element

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, *, stream: object = None, max_version: tuple[int, int] | None = None, **_: object) -> Any:
        """An unversioned capsule for consumers before DLPack 1.0, else a versioned one."""
        versioned = max_version is not None and max_version[0] >= 1
        return _capsule(self.array, self.element, versioned=versioned)


# NumPy makes the capsule, of integers as wide as the elements, because its destructor and deleter are C: one in Python
# could run while an exception is on its way, and would lose it.  Only the dtype is ours.
def _capsule(array: np.ndarray[Any, Any], element: DType, *, versioned: bool) -> Any:
    code, bits = CODE_OF_DTYPE[element.name]
    carrier: Any = array.view(f"u{array.itemsize}")
    try:
        capsule = carrier.__dlpack__(max_version=MAX_VERSION) if versioned else carrier.__dlpack__()
    except TypeError:  # NumPy before 2.1
        capsule = carrier.__dlpack__()
    managed: DLManagedTensor | DLManagedTensorVersioned
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = DLManagedTensorVersioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
        managed.flags |= FLAG_SUBBYTE_PADDED if bits < 8 else 0
    elif bits < 8:
        raise BufferError(f"before version 1.0, DLPack cannot say that each {element} element takes a byte")
    else:
        managed = DLManagedTensor.from_address(_get_pointer(capsule, b"dltensor"))
    managed.tensor.dtype = DLDataType(code, bits, 1)
    return capsule
