"""JAX arrays in and out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilewright.errors import ReadOnlyArgumentError
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
