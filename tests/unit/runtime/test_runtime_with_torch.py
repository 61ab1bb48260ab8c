"""torch tensors in and out."""

import gc

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilewright
import tilewright.language as T
from tilewright.errors import ArgumentDeviceError, ArgumentDTypeError, ArgumentStrideError, ArgumentTypeError
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


@pytest.fixture(scope="module")
def double():
    m = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((m, 4), "float32"), Y: T.Tensor((m, 4), "float32")):
        with T.Kernel(m, threads=32) as b:
            for i in T.Parallel(4):
                Y[b, i] = X[b, i] * 2

    return tilewright.compile(main, target="cpu")


def test_calls_with_tensors(double):
    x, y = torch.ones(3, 4), torch.zeros(3, 4)
    double(x, y)
    assert (y == 2).all()
    double(x.requires_grad_(), y)  # read as it is; nothing is recorded
    assert not y.requires_grad
    mixed = np.zeros((3, 4), np.float32)
    double(x, mixed)
    assert (mixed == 2).all()
    with torch.inference_mode():
        double(torch.ones(3, 4), y)


@pytest.mark.filterwarnings("ignore")
def test_tensors_without_plain_memory_are_refused(double):
    def fake():
        with FakeTensorMode():
            return torch.ones(3, 4)

    cases = [
        (lambda: torch.ones(4, 3).t(), ArgumentStrideError, "not contiguous"),
        (lambda: torch.ones(1, 4).expand(3, 4), ArgumentStrideError, "not contiguous"),
        (lambda: torch.ones(3, 4).double(), ArgumentDTypeError, "got float64"),
        (lambda: torch.ones(3, 4, device="meta"), ArgumentDeviceError, "lives on meta"),
        (lambda: torch.ones(3, 4).to_sparse(), ArgumentTypeError, "layout torch.sparse_coo"),
        (lambda: torch._neg_view(torch.ones(3, 4)), ArgumentTypeError, "without plain memory"),
        (fake, ArgumentTypeError, "FakeTensor without memory"),
    ]
    for make, kind, match in cases:
        with pytest.raises(kind, match=match):
            double(make(), torch.zeros(3, 4))
        with pytest.raises(kind, match=match):
            double(torch.zeros(3, 4), make())
    with pytest.raises(ArgumentTypeError, match="without plain memory"):
        torch.vmap(lambda t: double(t, torch.zeros(3, 4)))(torch.ones(2, 3, 4))


def test_results_are_tensors_that_outlive_the_kernel():
    @tilewright.jit(target="cpu")
    def add(X):
        M = T.dynamic("M")
        X: T.Tensor((M, 4), "bfloat16")
        Y = T.empty((M, 4), "bfloat16")
        with T.Kernel(M, threads=32) as b:
            for i in T.Parallel(4):
                Y[b, i] = X[b, i] + 1
        return Y

    results = [add(torch.full((rows, 4), 2, dtype=torch.bfloat16)) for rows in (0, 1, 70)]
    assert add.cache.misses == 1
    del add
    gc.collect()
    assert [tuple(r.shape) for r in results] == [(0, 4), (1, 4), (70, 4)]
    assert all(isinstance(r, torch.Tensor) and (r == 3).all() for r in results)
