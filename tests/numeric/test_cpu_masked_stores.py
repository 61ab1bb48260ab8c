"""A masked store writes its lanes and nothing beside them, whatever constant its mask is.

LLVM 22 gets this wrong for truncating stores with one lane on (see `emit_memory`).
"""

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.simulator.reference import run


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "int8", "int16", "int32", "float32"])
@pytest.mark.parametrize("extra", [1, 2, 3, 8, 9])
def test_the_tail_of_a_row_leaves_the_next_row_alone(dtype, extra):
    N = 32 + extra

    @T.prim_func
    def program(X: T.Tensor((4, N), "float32"), Y: T.Tensor((4, N), dtype)):
        with T.Kernel(1, threads=64) as _:
            tile = T.alloc_shared((4, N), dtype)
            for row in T.serial(4):  # from the last row to the first, so that a tail's neighbour is there already
                for j in T.Parallel(N):
                    tile[3 - row, j] = T.cast(X[3 - row, j], dtype)
            T.copy(tile, Y)

    x = np.random.default_rng(0).integers(1, 7, (4, N)).astype(np.float32)
    expected = np.zeros((4, N), program.params[1].dtype.numpy)
    got = expected.copy()
    run(program, [x, expected])
    tilewright.compile(program, target="cpu")(x, got)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(got.astype(np.float32), x)
