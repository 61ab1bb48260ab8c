"""Storage of buffers, and reading and writing of single elements, gathers and regions.

Out-of-range elements read as the buffer's safe value and are not written.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.ir.dtype import DType
from tilewright.simulator.numerics import poison

Array = np.ndarray[Any, Any]


def element_shape(dtype: DType) -> tuple[int, ...]:
    """Axes that the lanes of an element add to a buffer's array."""
    return () if dtype.lanes == 1 else (dtype.lanes,)


def allocate(shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: DType) -> tuple[Array, Array]:
    """A poisoned array of `shape`, and its storage as one dimension; `strides` count elements."""
    shape = tuple(max(n, 0) for n in shape)
    lanes = element_shape(dtype)
    if strides is None or 0 in shape:
        flat = np.full(int(np.prod(shape + lanes, dtype=np.int64)), poison(dtype.scalar), dtype.numpy)
        return flat.reshape(shape + lanes), flat
    elements = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    flat = np.full(elements * dtype.lanes, poison(dtype.scalar), dtype.numpy)
    step = flat.itemsize * dtype.lanes
    steps = tuple(s * step for s in strides) + ((flat.itemsize,) if lanes else ())
    return as_strided(flat, shape + lanes, steps), flat


def reinterpret_storage(flat: Array, shape: tuple[int, ...], dtype: DType) -> Array | None:
    """The start of one-dimensional storage `flat` as an array of `shape` and `dtype`; None when it is too small."""
    octets = flat.view(np.uint8)
    size = int(np.prod(shape + element_shape(dtype), dtype=np.int64)) * dtype.numpy.itemsize
    if size > octets.size:
        return None
    return octets[:size].view(dtype.numpy).reshape(shape + element_shape(dtype))


def as_index(value: Any) -> Any:
    """An index as a Python integer, or an int64 array."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value if value.dtype == np.int64 else value.astype(np.int64)
    return int(value)


def in_range(indices: tuple[Any, ...], shape: tuple[int, ...]) -> Any:
    """Whether every index is in range: True, False, or an array of that where it differs between elements."""
    inside: Any = True
    for index, size in zip(indices, shape, strict=False):
        if isinstance(index, int):
            if not 0 <= index < size:
                return False
        elif index.size and (index.min() < 0 or index.max() >= size):
            good = (index >= 0) & (index < size)
            if not good.any():
                return False
            inside = good if inside is True else inside & good
    return inside


def joint_shape(*values: Any) -> tuple[int, ...]:
    """The shape to which the arrays among `values` broadcast."""
    return np.broadcast_shapes(*[v.shape for v in values if isinstance(v, np.ndarray)])


def gather(array: Array, indices: tuple[Any, ...], inside: Any, safe: Any) -> Any:
    """`array[indices]`, `safe` where `inside` is false."""
    if inside is True:
        return array[indices]
    clipped = tuple(
        np.clip(i, 0, n - 1) if isinstance(i, np.ndarray) else i for i, n in zip(indices, array.shape, strict=False)
    )
    return np.where(inside, array[clipped], safe)


def scatter(array: Array, indices: tuple[Any, ...], value: Any, chosen: Any) -> None:
    """`array[indices] = value` where `chosen` (True for everywhere); of several writes to an element the last stays."""
    shape = joint_shape(*indices)
    if chosen is True and np.broadcast_shapes(shape, np.shape(value)) == shape:
        array[indices] = value
        return
    places, where = chosen_places(indices, np.broadcast_shapes(shape, np.shape(value)), chosen)
    values = np.broadcast_to(value, where.shape)[where]
    if indices:
        array[places] = values
    elif values.size:
        array[()] = values[-1]


def chosen_places(indices: tuple[Any, ...], shape: tuple[int, ...], chosen: Any) -> tuple[tuple[Array, ...], Array]:
    """One-dimensional index arrays of the elements that are `chosen`, and where these are in the joint shape."""
    shape = np.broadcast_shapes(shape, np.shape(chosen))
    where = np.broadcast_to(chosen, shape)
    return tuple([np.broadcast_to(i, shape)[where] for i in indices]), where


def _clip_box(
    array: Array, starts: tuple[int, ...], extents: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...], bool]:
    """Slices of the part of a box that is in range, in the array and in the box; and whether it is the whole box."""
    inner, outer, whole = [], [], True
    for start, extent, size in zip(starts, extents, array.shape, strict=False):
        low = min(max(start, 0), size)
        high = max(min(start + extent, size), low)
        whole = whole and low == start and high == start + extent
        inner.append(slice(low, high))
        outer.append(slice(low - start, high - start) if high > low else slice(0, 0))
    return tuple(inner), tuple(outer), whole


def read_region(array: Array, starts: tuple[int, ...], extents: tuple[int, ...], safe: Any) -> Array:
    """The box of `array`; a view where it is all in range."""
    inner, outer, whole = _clip_box(array, starts, extents)
    if whole:
        return array[inner]
    result = np.full(tuple(max(n, 0) for n in extents) + array.shape[len(extents) :], safe, array.dtype)
    result[outer] = array[inner]
    return result


def write_region(array: Array, starts: tuple[int, ...], extents: tuple[int, ...], values: Array) -> None:
    """Write `values` (of the box's shape) into the box of `array`."""
    inner, outer, whole = _clip_box(array, starts, extents)
    array[inner] = values if whole else values[outer]
