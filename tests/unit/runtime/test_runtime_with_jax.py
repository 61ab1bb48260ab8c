"""JAX arrays in and out."""

import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.errors import ArgumentTypeError, ReadOnlyArgumentError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Fill, Region, Seq
from tilewright.runtime import arrays, dlpack
from tilewright.runtime.binding import Binder

NAMES = ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8", "int32", "bool"]


@pytest.mark.parametrize("name", NAMES)
def test_memory_is_shared_and_read_only(name):
    array = jnp.arange(12).reshape(3, 4).astype(name)
    tensor = arrays.view(array)
    assert tensor.read_only and tensor.dtype is dtype(name)
    assert tensor.pointer == array.unsafe_buffer_pointer()
    np.testing.assert_array_equal(dlpack.as_numpy(tensor).astype(np.float32), np.asarray(array).astype(np.float32))


@pytest.mark.parametrize("name", NAMES)
def test_results_are_jax_arrays(name):
    n = Var(dtype("int32"), "n")
    x, y = (Buffer(b, (n,), dtype(name)) for b in "xy")
    bound = Binder(PrimFunc("f", (x, y), Seq(()), (n,), (1,)))((jnp.zeros(5, name),), {})
    result = bound.results()
    assert isinstance(result, jax.Array) and result.dtype == name
    assert result.unsafe_buffer_pointer() == bound.slots[1]


def test_they_cannot_be_written():
    x = Buffer("x", (const(4),), dtype("float32"))
    func = PrimFunc("f", (x,), Seq((Fill(Region(x, (const(0),), x.shape), const(0.0)),)))
    with pytest.raises(ReadOnlyArgumentError):
        Binder(func)((jnp.zeros(4),), {})


@pytest.fixture(scope="module")
def double():
    m = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((m, 4), "float32"), Y: T.Tensor((m, 4), "float32")):
        with T.Kernel(m, threads=32) as b:
            for i in T.Parallel(4):
                Y[b, i] = X[b, i] * 2

    return main


def test_calls_with_jax_arrays(double):
    kernel = tilewright.compile(double, target="cpu")
    y = np.zeros((3, 4), np.float32)
    kernel(jnp.ones((3, 4)), y)
    assert (y == 2).all()
    with pytest.raises(ReadOnlyArgumentError, match="JAX arrays are immutable") as caught:
        kernel(y, jnp.ones((3, 4)))
    assert "out_idx" in caught.value.hint
    with pytest.raises(ArgumentTypeError, match=r"__dlpack__ failed: .*[Tt]race"):
        jax.jit(lambda x: kernel(x, y))(jnp.ones((3, 4)))


def test_results_outlive_the_kernel_and_do_not_leak(double):
    kernel = tilewright.compile(double, out_idx=-1, target="cpu")
    x = jnp.ones((3, 4))
    kernel(x)
    gc.collect()
    results = [kernel(x) for _ in range(500)]
    del kernel
    gc.collect()
    assert all(isinstance(r, jax.Array) for r in results)
    assert float(sum(r.sum() for r in results)) == 500 * 24
    memory, _ = arrays.NUMPY.empty((3, 4), dtype("float32"))
    memory[...] = 1
    gone = weakref.ref(memory.base)
    result = jax.dlpack.from_dlpack(dlpack.Exporter(memory, dtype("float32")))
    del memory
    gc.collect()
    assert gone() is not None and float(result.sum()) == 12
    del result
    gc.collect()
    assert gone() is None
