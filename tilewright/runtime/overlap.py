"""Arrays of one call that share memory while the kernel writes one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import ArgumentOverlapError
from tilewright.runtime import arrays, dlpack
from tilewright.runtime.params import ArrayParam, Param

MAX_WORK: Any = 100_000
"""Effort that deciding whether two strided arrays share an element may take; beyond it they count as sharing."""

Shapes = Sequence[tuple[int, ...]]


class OverlapCheck:
    """Refuses a written array that shares part of its memory with another; the very same array twice is fine."""

    def __init__(self, params: Sequence[Param]) -> None:
        found = [(i, p) for i, p in enumerate(params) if isinstance(p, ArrayParam)]
        self.needed = len(found) > 1 and any(p.written for _, p in found)
        self._arrays = found
        # position, slot, element size, bytes of the whole where its shape is known
        self._dense = [
            (i, p.slot, p.itemsize, -1 if p.fixed is None else math.prod(p.fixed) * p.itemsize)
            for i, p in found
            if not p.strided
        ]
        self._strided = [(i, p) for i, p in found if p.strided]

    def __call__(self, args: Sequence[Any], shapes: Shapes, slots: list[int]) -> None:
        """Raises ArgumentOverlapError."""
        spans = []
        for position, slot, itemsize, nbytes in self._dense:
            start = slots[slot]
            if start:
                spans.append(
                    (start, start + (nbytes if nbytes >= 0 else math.prod(shapes[position]) * itemsize), position)
                )
        for position, param in self._strided:
            if slots[param.slot]:
                spans.append((*_extent(args[position], param.itemsize), position))
        spans.sort()
        reached = 0
        for start, end, _ in spans:
            if start < reached:
                self._explain(args, spans)
                return
            reached = max(reached, end)

    def _explain(self, args: Sequence[Any], spans: list[tuple[int, int, int]]) -> None:
        params = dict(self._arrays)
        for start, end, position in spans:
            param = params[position]
            for other_start, other_end, other_position in spans:
                other = params[other_position]
                if not param.written or other is param or start >= other_end or other_start >= end:
                    continue
                if _share(param, args[position], other, args[other_position]):
                    raise param.error(
                        ArgumentOverlapError,
                        f"the kernel writes it, but it shares part of its memory with argument {other.name!r}",
                        "pass arrays that do not overlap, or exactly the same array for both",
                    )


def _extent(value: Any, itemsize: int) -> tuple[int, int]:
    """First and last byte (one past it) that the elements of an array take."""
    tensor = arrays.view(value)
    strides = tensor.strides
    if strides is None:
        return tensor.pointer, tensor.pointer + math.prod(tensor.shape) * itemsize
    steps = [(size - 1) * stride for size, stride in zip(tensor.shape, strides, strict=True)]
    low = sum(step for step in steps if step < 0)
    high = sum(step for step in steps if step > 0)
    return tensor.pointer + low * itemsize, tensor.pointer + (high + 1) * itemsize


def _share(param: ArrayParam, value: Any, other: ArrayParam, other_value: Any) -> bool:
    """Whether two arrays whose extents meet share elements without being the same array."""
    ours, theirs = arrays.view(value), arrays.view(other_value)
    if ours.pointer == theirs.pointer and param.itemsize == other.itemsize:
        one, two = dlpack.as_numpy(ours), dlpack.as_numpy(theirs)
        if one.size == two.size and ((one.flags.c_contiguous and two.flags.c_contiguous) or _alike(one, two)):
            return False
    if ours.strides is None and theirs.strides is None:
        return True
    try:
        return np.shares_memory(dlpack.as_numpy(ours), dlpack.as_numpy(theirs), max_work=MAX_WORK)
    except np.exceptions.TooHardError:
        return True


def _alike(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    return one.shape == two.shape and one.strides == two.strides
