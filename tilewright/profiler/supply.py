"""Inputs for a kernel that is measured or checked."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

import numpy as np

from tilewright.errors import ArgumentValueError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer
from tilewright.ir.kernel import Param, PrimFunc


class TensorSupplyType(Enum):
    """How input arrays are filled.

    Auto: Normal for floats, Integer for integers.  Integer: -3 to 3 (0 to 6 unsigned), exact in every dtype.
    """

    Integer = 1
    Uniform = 2
    Normal = 3
    Randn = 4
    Zero = 5
    One = 6
    Auto = 7


def as_supply(value: Any) -> TensorSupplyType:
    """A kind of supply, given itself or by name.  Raises ArgumentValueError for anything else."""
    if isinstance(value, TensorSupplyType):
        return value
    for kind in TensorSupplyType:
        if isinstance(value, str) and kind.name.lower() == value.lower():
            return kind
    raise ArgumentValueError(
        f"unknown kind of inputs {value!r}", hint=f"known: {', '.join(kind.name for kind in TensorSupplyType)}"
    )


def make_inputs(func: PrimFunc, supply: TensorSupplyType, seed: int = 0) -> list[Any]:
    """An argument for each parameter that is no result: torch tensors where torch is loaded, else NumPy arrays.

    Raises ArgumentValueError when a size or scalar is known at the call only.
    """
    random = np.random.default_rng(seed)
    return [_make(p, supply, random) for i, p in enumerate(func.params) if i not in func.outputs]


def _make(param: Param, supply: TensorSupplyType, random: np.random.Generator) -> Any:
    shape = param.const_shape() if isinstance(param, Buffer) else None
    if shape is None:
        what = "has sizes that are known at the call only" if isinstance(param, Buffer) else "is a scalar"
        raise ArgumentValueError(
            f"no input can be made up for {param.name}, which {what}", hint="pass input_tensors=[...]"
        )
    array = _fill(shape, param.dtype, supply, random)
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "empty") or param.dtype.bits < 8:
        return array
    tensor = torch.empty(shape, dtype=getattr(torch, param.dtype.format.numpy))
    tensor.view(torch.uint8).numpy()[...] = array.view(np.uint8)
    return tensor


def _fill(
    shape: tuple[int, ...], element: DType, supply: TensorSupplyType, random: np.random.Generator
) -> np.ndarray[Any, Any]:
    if supply is TensorSupplyType.Auto:
        supply = TensorSupplyType.Normal if element.is_float else TensorSupplyType.Integer
    if supply is TensorSupplyType.Zero:
        return np.zeros(shape, element.numpy)
    if supply is TensorSupplyType.One:
        return np.ones(shape, element.numpy)
    values: np.ndarray[Any, Any]
    if element.is_bool:
        values = random.integers(0, 2, shape)
    elif supply is TensorSupplyType.Integer or not element.is_float:
        values = random.integers(0, 7, shape) - (0 if element.kind == "uint" else 3)
    elif supply is TensorSupplyType.Uniform:
        values = random.uniform(-1.0, 1.0, shape)
    else:
        values = random.standard_normal(shape)
    return values.astype(element.numpy)
