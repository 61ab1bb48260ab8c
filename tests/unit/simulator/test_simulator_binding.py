"""Arguments of the evaluator, error bounds, and the reference target."""

import ml_dtypes
import numpy as np
import pytest
from simulator_ir import I32, buffer, evaluate, kernel, loop, num, region, seq, var

from tilewright.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentStrideError,
    ArgumentTypeError,
    ReadOnlyArgumentError,
)
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, Var, cast, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Copy, Fill, Store
from tilewright.simulator.reference import run
from tilewright.simulator.tolerance import smallest_subnormal, tolerance, unit_roundoff


def sized(shape, sizes, strides=None, more=()):
    """A kernel that stores its sizes."""
    x = Buffer("x", tuple(shape), dtype("float32"), strides=strides)
    out = buffer("out", (len(sizes),), "int64")
    return kernel([x, out, *more], *[Store(out, (num(n),), cast(s, "int64")) for n, s in enumerate(sizes)], sizes=sizes)


def sizes_of(func, array, count):
    out = np.zeros(count, np.int64)
    run(func, [array, out])
    return out.tolist()


def test_sizes_come_from_shapes():
    m, n = var("m"), var("n")
    func = sized((m, n * 2, n + 3, m - 1), (m, n))
    assert sizes_of(func, np.zeros((5, 8, 7, 4), np.float32), 2) == [5, 4]
    with pytest.raises(ArgumentShapeError, match="dimension 3 of x is 3, but must be 4"):
        sizes_of(func, np.zeros((5, 8, 7, 3), np.float32), 2)
    with pytest.raises(ArgumentShapeError, match="dimension"):
        sizes_of(func, np.zeros((5, 9, 7, 4), np.float32), 2)


def test_sizes_through_casts_differences_and_other_sizes():
    m, n = var("m"), Var(dtype("int64"), "n")
    func = sized((cast(m, "int64") * n, num(10) - m), (m, n))
    assert sizes_of(func, np.zeros((12, 6), np.float32), 2) == [4, 3]


def test_sizes_that_nothing_determines():
    m = var("m")
    with pytest.raises(ArgumentShapeError, match="do not say what size m is"):
        sizes_of(sized((m // 2,), (m,)), np.zeros(3, np.float32), 1)


def test_strides():
    s, t = var("s"), var("t")
    func = sized((num(3), num(4)), (s, t), strides=(s, t))
    assert sizes_of(func, np.zeros((6, 8), np.float32)[::2, ::2], 2) == [16, 2]
    fixed = sized((num(3), num(4)), (), strides=(num(8), num(1)))
    sizes_of(fixed, np.zeros((3, 8), np.float32)[:, :4], 0)
    with pytest.raises(ArgumentStrideError, match="stride 0 of x is 4, but must be 8"):
        sizes_of(fixed, np.zeros((3, 4), np.float32), 0)
    one = sized((num(1), num(4)), (s,), strides=(s, num(1)))
    assert sizes_of(one, np.zeros((1, 4), np.float32), 1) == [4]


def test_scalars():
    n, scale, flag, out = var("n"), var("scale", "bfloat16"), var("flag", "bool"), buffer("out", (3,))
    i, result = var("i"), np.zeros(3, np.float32)
    body = loop(i, n, Store(out, (i,), cast(scale, "float32") + cast(flag, "float32")))
    evaluate([n, scale, flag, out], [np.int32(2), 1.00390625, True, result], body)
    assert result.tolist() == [2, 2, 0]
    with pytest.raises(ArgumentTypeError, match="parameter n takes a number"):
        evaluate([n, out], [np.zeros(2), result], Fill(region(out), const(0.0)))


def test_a_scalar_parameter_may_be_a_size():
    n = var("n")
    x = Buffer("x", (n,), dtype("float32"))
    func = PrimFunc("f", (n, x), seq(), (n,))
    run(func, [3, np.zeros(3, np.float32)])
    with pytest.raises(ArgumentShapeError, match="dimension 0 of x is 3, but must be 4"):
        run(func, [4, np.zeros(3, np.float32)])


def test_wrong_arguments():
    x, out = buffer("x", (2,)), buffer("out", (2,), "bfloat16")
    good = [np.zeros(2, np.float32), np.zeros(2, ml_dtypes.bfloat16)]
    body = Copy(region(x), region(out))
    evaluate([x, out], good, body)
    with pytest.raises(ArgumentCountError, match="takes 2 arguments, got 1"):
        evaluate([x, out], good[:1], body)
    with pytest.raises(ArgumentTypeError, match="takes an array, got list"):
        evaluate([x, out], [[0, 0], good[1]], body)
    with pytest.raises(ArgumentDTypeError, match="takes an array of bfloat16, got float16"):
        evaluate([x, out], [good[0], np.zeros(2, np.float16)], body)
    with pytest.raises(ArgumentShapeError, match="of 1 dimensions, got 2"):
        evaluate([x, out], [np.zeros((2, 1), np.float32), good[1]], body)
    for array in good:
        array.flags.writeable = False
    with pytest.raises(ReadOnlyArgumentError, match="writes to out, but the array is read-only"):
        evaluate([x, out], good, body)
    with pytest.raises(ReadOnlyArgumentError, match="writes to out"):
        evaluate([x, out], good, Store(out, (num(0),), Load(x.dtype, x, (num(0),))))


def test_indices_beyond_32_bits_are_exact():
    out, i = buffer("out", (3,), "int64"), Var(I32, "i")
    result = np.zeros(3, np.int64)
    evaluate([out], [result], Store(out, (i,), cast(i * 2000000000 * 3, "int64")), grid=(3,), block_vars=(i,))
    assert result.tolist() == [0, 6000000000, 12000000000]


# --- tolerance ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2fnuz"])
def test_roundoff_and_subnormals_are_those_of_the_format(name):
    of = dtype(name).numpy
    info = ml_dtypes.finfo(of)
    assert 2 * unit_roundoff(dtype(name)) == float(info.eps)
    assert smallest_subnormal(dtype(name)) == float(info.smallest_subnormal)


def test_tolerance_grows_with_the_number_of_terms():
    assert tolerance("int8", 100) == (0.0, 0.0)
    assert tolerance("float32")[0] < tolerance("float32", 100)[0] < 1e-5
    assert tolerance("float64", 1000)[0] < 1e-13
    rtol, atol = tolerance("float32", 1024)
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1000, 1024)).astype(np.float32)
    exact = (a.astype(np.float64) * b).sum(1)
    total = np.zeros(1000, np.float32)
    for k in range(1024):
        total += a[:, k] * b[:, k]
    error = np.abs(total - exact)
    assert np.all(error <= atol + rtol * np.abs(exact))
    assert np.any(error > (atol + rtol * np.abs(exact)) / 50)
