"""Wrong arguments: each refused before anything runs, with the caller's line and a remedy."""

import linecache

import ml_dtypes
import numpy as np
import pytest

from tilewright import errors
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Copy, Region, Seq
from tilewright.runtime.binding import Binder

F32, F16, I32 = dtype("float32"), dtype("float16"), dtype("int32")


def tensor(name, *shape, element=F32, strides=None):
    return Buffer(name, tuple(const(s) if isinstance(s, int) else s for s in shape), element, strides=strides)


def whole(buffer):
    return Region(buffer, tuple(const(0) for _ in buffer.shape), buffer.shape)


def function(*params, writes=(), sizes=(), outputs=()):
    source = tensor("zero", 1)
    body = Seq(tuple(Copy(whole(source), whole(p)) for p in writes))
    return PrimFunc("scale", params, body, sizes, outputs)


M, N = Var(I32, "m"), Var(I32, "n")
A, B = tensor("A", M, 8, element=F16), tensor("B", M, N)
S = Var(F32, "s")
BINDER = Binder(function(A, B, S, writes=(B,), sizes=(M, N)))


def good():
    return [np.zeros((4, 8), np.float16), np.zeros((4, 6), np.float32), 2.0]


def refused(kind, match, **changes):
    values = dict(zip("ABs", good(), strict=True)) | changes
    with pytest.raises(kind, match=match) as caught:
        BINDER((values["A"], values["B"], values["s"]), {})
    error = caught.value
    assert error.location.file == __file__
    assert "BINDER((" in linecache.getline(__file__, error.location.line)
    assert "kernel 'scale'" in error.message and error.hint
    return error


def test_good_arguments_fill_the_slots():
    a, b, s = good()
    bound = BINDER((a, b, s), {})
    assert bound.slots == [a.ctypes.data, b.ctypes.data, 0x40000000, 4, 6]
    assert bound.results() is None and bound.arguments[0] is a


def test_keywords_are_names_of_parameters():
    a, b, s = good()
    assert BINDER((a,), {"s": s, "B": b}).slots == BINDER((a, b, s), {}).slots


@pytest.mark.parametrize(
    ("count", "keywords", "match"),
    [
        (2, {}, "takes 3 arguments, 2 were given"),
        (4, {}, "takes 3 arguments, 4 were given"),
        (2, {"t": 1}, "no parameter 't'"),
        (3, {"s": 1}, "'s' is given twice"),
        (1, {"s": 1}, "misses the argument B"),
    ],
)
def test_count(count, keywords, match):
    values = [*good(), 3.0][:count]
    with pytest.raises(errors.ArgumentCountError, match=match) as caught:
        BINDER(tuple(values), keywords)
    assert isinstance(caught.value, TypeError)
    assert caught.value.location.file == __file__


def test_kind():
    refused(errors.ArgumentTypeError, "it is a list, not an array", A=[1, 2])
    error = refused(errors.ArgumentTypeError, "it is a NoneType", A=None)
    assert "only a T.ptr parameter takes None" in error.hint
    refused(errors.ArgumentTypeError, "float32 takes a number", s="2")
    refused(errors.ArgumentTypeError, "array of shape", s=np.zeros(2))


def test_dtype_rank_and_size():
    error = refused(
        errors.ArgumentDTypeError, r"'A'.*expected float16\[m, 8\], got float32\[4, 8\]", A=np.zeros((4, 8), np.float32)
    )
    assert error.hint == "A is declared as float16[m, 8]; convert it, with .astype() or .to()"
    refused(errors.ArgumentDTypeError, "bfloat16", A=np.zeros((4, 8), ml_dtypes.bfloat16))
    refused(errors.ArgumentDTypeError, "complex64", A=np.zeros((4, 8), np.complex64))
    refused(errors.ArgumentShapeError, r"wrong rank.*got float16\[32\]", A=np.zeros(32, np.float16))
    refused(
        errors.ArgumentShapeError, r"wrong size in dimension 1.*got float16\[4, 9\]", A=np.zeros((4, 9), np.float16)
    )
    refused(errors.ArgumentShapeError, "dimension 0 is 5, but the size m is 4", B=np.zeros((5, 6), np.float32))


@pytest.mark.parametrize(
    "make",
    [
        lambda: np.zeros((4, 16), np.float16)[:, ::2],
        lambda: np.zeros((8, 4), np.float16).T,
        lambda: np.zeros((4, 8), np.float16)[::-1],
        lambda: np.broadcast_to(np.zeros(8, np.float16), (4, 8)),
    ],
)
def test_strides(make):
    error = refused(errors.ArgumentStrideError, "not contiguous", A=make())
    assert "ascontiguousarray" in error.hint


def test_dimensions_of_one_have_no_stride():
    a = np.zeros((4, 1, 8), np.float16)[:1, 0]
    assert BINDER((a, np.zeros((1, 2), np.float32), 1), {}).slots[3:] == [1, 2]


def test_alignment():
    memory = np.zeros(4 * 8 * 2 + 1, np.uint8)
    a = np.ndarray((4, 8), np.float16, memory, 1)
    error = refused(errors.ArgumentStrideError, "not aligned to its element size of 2", A=a)
    assert "np.array(A)" in error.hint


def test_read_only_counts_only_where_the_kernel_writes():
    a, b, s = good()
    a.flags.writeable = False
    BINDER((a, b, s), {})
    b.flags.writeable = False
    refused(errors.ReadOnlyArgumentError, "'B': the kernel writes it", B=b)


class OnDevice:
    shape = (4, 8)

    def __dlpack_device__(self):
        return (2, 0)

    def __dlpack__(self, **_):
        raise AssertionError("must not be asked for")


def test_device():
    error = refused(errors.ArgumentDeviceError, "it lives on cuda:0", A=OnDevice())
    assert ".cpu()" in error.hint


def test_partial_overlap():
    memory = np.zeros(100, np.float32)
    x, y = tensor("X", 8), tensor("Y", 8)
    binder = Binder(function(x, y, writes=(y,)))
    with pytest.raises(errors.ArgumentOverlapError, match=r"'Y'.*shares part of its memory with argument 'X'"):
        binder((memory[:8], memory[4:12]), {})
    binder((memory[:8], memory[8:16]), {})
    binder((memory[:8], memory[:8]), {})
    reader = Binder(function(x, y))
    reader((memory[:8], memory[4:12]), {})


def test_empty_arrays_have_a_null_address():
    bound = BINDER((np.zeros((0, 8), np.float16), np.zeros((0, 3), np.float32), 0), {})
    assert bound.slots == [0, 0, 0, 0, 3]


def test_declared_strides():
    x = tensor("X", M, 4, strides=(N, const(1)))
    binder = Binder(function(x, sizes=(M, N)))
    array = np.zeros((6, 10), np.float32)[:, 2:6]
    assert binder((array,), {}).slots[1:] == [6, 10]
    assert binder((np.zeros((6, 4), np.float32),), {}).slots[1:] == [6, 4]
    with pytest.raises(errors.ArgumentStrideError, match="stride in dimension 1 is 2 elements, but the stride 1 is 1"):
        binder((np.zeros((6, 8), np.float32)[:, ::2],), {})
    writer = Binder(function(x, writes=(x,), sizes=(M, N)))
    with pytest.raises(errors.ArgumentStrideError, match="elements share memory"):
        writer((np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (6, 4), (0, 4)),), {})


def test_strides_that_are_no_whole_elements():
    records = np.zeros(4, np.dtype([("x", np.float32), ("y", np.int8)]))
    binder = Binder(function(tensor("X", M, strides=(N,)), sizes=(M, N)))
    with pytest.raises(errors.ArgumentTypeError, match="no multiples of its element size"):
        binder((records["x"],), {})


def test_expressions_of_sizes():
    x, y = tensor("X", M * 2 + 1), tensor("Y", M, N // 2)
    z = tensor("Z", N)
    binder = Binder(function(x, y, z, sizes=(M, N)))
    f = np.zeros
    assert binder((f(9, "f4"), f((4, 3), "f4"), f(6, "f4")), {}).slots[3:] == [4, 6]
    with pytest.raises(errors.ArgumentShapeError, match=r"its size 8 in dimension 0 is not \(\(m \* 2\) \+ 1\)"):
        Binder(function(x, sizes=(M,)))((f(8, "f4"),), {})
    with pytest.raises(errors.ArgumentShapeError, match=r"'Y'.*is 4, but the size \(n // 2\) is 3"):
        binder((f(9, "f4"), f((4, 4), "f4"), f(6, "f4")), {})


def test_sizes_may_be_scalar_parameters():
    n = Var(I32, "n")
    binder = Binder(function(n, tensor("X", n)))
    assert binder((3, np.zeros(3, np.float32)), {}).slots[0] == 3
    with pytest.raises(errors.ArgumentShapeError, match="the size n is 4"):
        binder((4, np.zeros(3, np.float32)), {})


def test_a_size_that_nothing_determines():
    with pytest.raises(errors.ShapeError, match="no argument determines the size n"):
        Binder(function(tensor("X", M, N // 2), sizes=(M, N)))


def test_pointers_take_null_addresses_and_arrays():
    p = Var(dtype("handle"), "p")
    binder = Binder(function(p))
    array = np.zeros(3)
    assert binder((None,), {}).slots == [0]
    assert binder((4096,), {}).slots == [4096]
    assert binder((array,), {}).slots == [array.ctypes.data]
    with pytest.raises(errors.ArgumentTypeError, match="str"):
        binder(("x",), {})


def test_results_are_allocated_and_can_be_given_by_name():
    c, d = tensor("C", N, M, element=F16), tensor("D", M * 2)
    binder = Binder(function(B, c, d, writes=(c, d), sizes=(M, N), outputs=(1, 2)))
    b = np.zeros((4, 6), np.float32)
    made = binder((b,), {})
    first, second = made.results()
    assert first.shape == (6, 4) and first.dtype == np.float16 and second.shape == (8,)
    assert made.slots[:3] == [b.ctypes.data, first.ctypes.data, second.ctypes.data]
    mine = np.zeros((6, 4), np.float16)
    given = binder((b,), {"C": mine})
    assert given.results()[0] is mine and given.slots[1] == mine.ctypes.data
    with pytest.raises(errors.ArgumentShapeError, match=r"the result has the shape \(6, 4\), got \(4, 6\)"):
        binder((b,), {"C": mine.T.copy()})
    with pytest.raises(errors.ArgumentCountError, match="takes 1 argument, 2 were given") as caught:
        binder((b, mine), {})
    assert "allocates and returns C, D" in caught.value.hint


def test_one_result_comes_alone():
    c = tensor("C", M, N)
    binder = Binder(function(B, c, writes=(c,), sizes=(M, N), outputs=(1,)))
    assert isinstance(binder((np.zeros((0, 5), np.float32),), {}).results(), np.ndarray)


def test_vector_dtypes_are_refused_as_parameters():
    with pytest.raises(errors.DTypeError, match="float16x8"):
        Binder(function(tensor("X", 4, element=dtype("float16x8"))))
