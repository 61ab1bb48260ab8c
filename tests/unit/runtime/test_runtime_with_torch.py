"""torch tensors in and out."""

import numpy as np
import pytest
import torch

from tilewright.errors import ArgumentDeviceError, ArgumentDTypeError, ArgumentTypeError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Seq
from tilewright.runtime import arrays, dlpack
from tilewright.runtime.binding import Binder

NAMES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "int8", "bool", "int64"]


@pytest.mark.parametrize("name", NAMES)
def test_both_roads_see_the_same_memory(name):
    tensor = torch.zeros((3, 4), dtype=getattr(torch, name))
    direct = arrays.view(tensor)
    assert direct.pointer == tensor.data_ptr() and direct.dtype is dtype(name) and direct.shape == (3, 4)
    through = dlpack.read(tensor)
    assert (through.pointer, through.shape, through.dtype) == (direct.pointer, direct.shape, direct.dtype)


def test_gradients_and_strides():
    tensor = torch.arange(12.0).reshape(3, 4).requires_grad_()
    assert arrays.view(tensor).pointer == tensor.data_ptr()
    assert arrays.view(tensor.t()).strides == (1, 4)
    assert arrays.kind_of(torch.nn.Parameter(tensor.detach())) is arrays.TORCH


def test_what_is_no_plain_memory_is_refused():
    with pytest.raises(ArgumentDeviceError, match="meta"):
        arrays.view(torch.zeros(3, device="meta"))
    with pytest.raises(ArgumentTypeError, match="sparse"):
        arrays.view(torch.zeros(3, 3).to_sparse())
    with pytest.raises(ArgumentDTypeError, match="complex64"):
        arrays.view(torch.zeros(3, dtype=torch.complex64))


@pytest.mark.parametrize("name", NAMES)
def test_results_are_tensors(name):
    n = Var(dtype("int32"), "n")
    x, y = (Buffer(b, (n,), dtype(name)) for b in "xy")
    binder = Binder(PrimFunc("f", (x, y), Seq(()), (n,), (1,)))
    result = binder((torch.zeros(5, dtype=getattr(torch, name)),), {}).results()
    assert isinstance(result, torch.Tensor) and result.dtype is getattr(torch, name) and result.shape == (5,)


def test_our_capsules_are_torch_tensors():
    array = np.arange(6, dtype=np.float32).astype(dtype("bfloat16").numpy).reshape(2, 3)
    tensor = torch.from_dlpack(dlpack.Exporter(array, dtype("bfloat16")))
    assert tensor.dtype is torch.bfloat16 and tensor.data_ptr() == array.ctypes.data
    del array
    assert tensor.float().tolist() == [[0, 1, 2], [3, 4, 5]]
