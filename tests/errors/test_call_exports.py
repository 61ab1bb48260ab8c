"""Arrays that come by DLPack: broken exports are refused, memory lives as long as the call, nothing leaks."""

import gc
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright import errors
from tilewright.ir.dtype import dtype
from tilewright.runtime import dlpack

F32 = dtype("float32")


@pytest.fixture(scope="module")
def double():
    m = T.dynamic("m")

    @T.prim_func
    def main(X: T.Tensor((m, 4), "float32"), Y: T.Tensor((m, 4), "float32")):
        with T.Kernel(m, threads=32) as b:
            for i in T.Parallel(4):
                Y[b, i] = X[b, i] * 2

    return main


@pytest.fixture(scope="module")
def kernel(double):
    return tilewright.compile(double)


def arrays():
    return np.ones((3, 4), np.float32), np.zeros((3, 4), np.float32)


class Exported:
    """An array of a library of its own."""

    def __init__(self, export, device=lambda: (1, 0)):
        self.export = export
        self.device = device

    def __dlpack_device__(self):
        return self.device()

    def __dlpack__(self, **keywords):
        return self.export(**keywords)


def fails(error):
    def call(**_):
        raise error

    return call


def edited(**fields):
    """An export whose structure has some fields changed."""

    def export(**_):
        capsule = dlpack.Exporter(np.ones((3, 4), np.float32), F32).__dlpack__(max_version=(1, 0))
        if dlpack._is_valid(capsule, b"dltensor_versioned"):
            managed = dlpack.DLManagedTensorVersioned.from_address(dlpack._get_pointer(capsule, b"dltensor_versioned"))
        else:
            managed = dlpack.DLManagedTensor.from_address(dlpack._get_pointer(capsule, b"dltensor"))
        for name, value in fields.items():
            setattr(managed if name in ("major", "flags") else managed.tensor, name, value)
        return capsule

    return export


# NumPy makes the capsules, and those with a version and flags since 2.1.
needs_versions = pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.1.0", reason="this NumPy makes no versioned capsules"
)
NULL = type(dlpack.DLTensor().shape)()


@pytest.mark.parametrize(
    ("value", "kind", "match"),
    [
        (Exported(fails(ValueError("first\nsecond"))), errors.ArgumentTypeError, "__dlpack__ failed: first$"),
        (Exported(fails(BufferError())), errors.ArgumentTypeError, "__dlpack__ failed: BufferError"),
        (Exported(fails(TypeError("inside"))), errors.ArgumentTypeError, "__dlpack__ failed: inside"),
        (Exported(lambda **_: None), errors.ArgumentTypeError, "other than a fresh DLPack capsule"),
        (Exported(lambda **_: 5), errors.ArgumentTypeError, "other than a fresh DLPack capsule"),
        (Exported(None, fails(RuntimeError("lost"))), errors.ArgumentTypeError, "__dlpack_device__ failed: lost"),
        (Exported(None, lambda: None), errors.ArgumentTypeError, "__dlpack_device__ failed"),
        (Exported(None, lambda: ("cuda", 0)), errors.ArgumentTypeError, "__dlpack_device__ failed"),
        (Exported(None, lambda: (2, 1)), errors.ArgumentDeviceError, "it lives on cuda:1"),
        (Exported(None, lambda: (10, 0)), errors.ArgumentDeviceError, "it lives on rocm:0"),
        (Exported(edited(device=dlpack.DLDevice(2, 3))), errors.ArgumentDeviceError, "it lives on cuda:3"),
        pytest.param(Exported(edited(major=2)), errors.ArgumentTypeError, "DLPack version 2", marks=needs_versions),
        (Exported(edited(ndim=-1)), errors.ArgumentTypeError, "damaged: it has -1 dimensions"),
        (Exported(edited(ndim=1000)), errors.ArgumentTypeError, "damaged: it has 1000 dimensions"),
        (Exported(edited(shape=NULL)), errors.ArgumentTypeError, "damaged"),
        (Exported(edited(data=None)), errors.ArgumentTypeError, "damaged: shape"),
        (Exported(edited(byte_offset=2)), errors.ArgumentStrideError, "not aligned"),
        (Exported(edited(dtype=dlpack.DLDataType(2, 32, 4))), errors.ArgumentDTypeError, "4 lanes"),
        (Exported(edited(dtype=dlpack.DLDataType(5, 64, 1))), errors.ArgumentDTypeError, "code 5, 64 bits"),
        (Exported(edited(dtype=dlpack.DLDataType(0, 4, 1))), errors.ArgumentDTypeError, "packed"),
        (Exported(edited(dtype=dlpack.DLDataType(0, 32, 1))), errors.ArgumentDTypeError, "got int32"),
    ],
)
def test_broken_exports_are_refused(kernel, value, kind, match):
    _, y = arrays()
    with pytest.raises(kind, match="(?m)kernel 'main', argument 'X': .*" + match) as caught:
        kernel(value, y)
    assert caught.value.location.file == __file__
    assert not y.any()


@needs_versions
@pytest.mark.parametrize("flags", [dlpack.FLAG_READ_ONLY, dlpack.FLAG_IS_COPIED])
def test_what_cannot_be_written_is_refused_as_an_output_only(kernel, flags):
    value = Exported(edited(flags=flags))
    _, y = arrays()
    kernel(value, y)
    assert (y == 2).all()
    with pytest.raises(errors.ReadOnlyArgumentError, match=r"'Y': .* read-only or exported as a copy"):
        kernel(y, value)


def test_an_export_that_is_a_copy_lives_until_the_kernel_has_run(kernel):
    freed = []

    def export(max_version=None, **_):
        copy = np.full((2000, 4), 3, np.float32)
        weakref.finalize(copy, freed.append, True)
        return dlpack.Exporter(copy, F32).__dlpack__(max_version=max_version)

    bound = kernel.bind(Exported(export), np.zeros((2000, 4), np.float32))
    gc.collect()
    assert not freed
    del bound
    gc.collect()
    assert freed
    y = np.zeros((2000, 4), np.float32)
    kernel(Exported(export), y)
    assert (y == 6).all()


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_ten_thousand_calls_leak_nothing(kernel, version):
    x, y = arrays()
    value = Exported(lambda max_version=None, **_: dlpack.Exporter(x, F32).__dlpack__(max_version=version))
    kernel(value, y)
    references = sys.getrefcount(x)
    for _ in range(10_000 if version else 1000):
        kernel(value, y)
    gc.collect()
    assert sys.getrefcount(x) == references


def test_refused_calls_leak_nothing(kernel):
    x, y = arrays()
    value = Exported(lambda **_: dlpack.Exporter(x, F32).__dlpack__())
    references = sys.getrefcount(x)
    for _ in range(100):
        with pytest.raises(errors.ArgumentShapeError):
            kernel(value, y[:2])
    gc.collect()
    assert sys.getrefcount(x) == references


def test_results_outlive_the_kernel(double):
    kernel = tilewright.compile(double, out_idx=-1)
    results = [kernel(np.full((100, 4), i, np.float32)) for i in range(20)]
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None
    for i, result in enumerate(results):
        assert (result == 2 * i).all() and result.flags.writeable and result.ctypes.data % 64 == 0


def test_arguments_are_let_go_after_the_call(kernel):
    x, y = arrays()
    before = sys.getrefcount(x), sys.getrefcount(y)
    for _ in range(10):
        kernel(x, y)
    assert (sys.getrefcount(x), sys.getrefcount(y)) == before


@pytest.mark.parametrize(
    ("array", "match", "hint"),
    [
        (np.zeros((3, 4), ">f4"), "dtype >f4", "order of other machines"),
        (np.zeros((3, 4), [("x", "f4")]), "no counterpart", ""),
        (np.zeros((3, 4), object), "dtype object", ""),
        (np.zeros((3, 4), "U3"), "dtype <U3", ""),
        (np.zeros((3, 4), "M8[s]"), "datetime64", ""),
        (np.zeros((3, 4)), "got float64", "convert it"),
        (np.zeros((3, 4), ml_dtypes.bfloat16), "got bfloat16", "convert it"),
    ],
)
def test_dtypes_that_do_not_fit(kernel, array, match, hint):
    with pytest.raises(errors.ArgumentDTypeError, match=match) as caught:
        kernel(array, arrays()[1])
    assert hint in caught.value.hint and "declared as float32[m, 4]" in caught.value.hint


@pytest.mark.parametrize(
    ("value", "match", "hint"),
    [
        ([[1.0] * 4], "it is a list, not an array", "NumPy, torch, JAX"),
        (b"1234", "it is a bytes", "NumPy"),
        (np.float32(1), "it is a float32", "NumPy"),
        (1.0, "it is a float", "NumPy"),
        (np.ndarray, "it is a type", "NumPy"),
        (None, "it is a NoneType", "only a T.ptr parameter takes None"),
        (np.ma.masked_array(np.zeros((3, 4), np.float32)), "mask would be lost", ".filled"),
    ],
)
def test_what_is_no_array(kernel, value, match, hint):
    with pytest.raises(errors.ArgumentTypeError, match=match) as caught:
        kernel(value, arrays()[1])
    assert hint in caught.value.hint


def test_views_subclasses_and_memory_maps_are_arrays(kernel, tmp_path):
    class Mine(np.ndarray):
        pass

    x, y = arrays()
    for value in (x.view(Mine), np.memmap(tmp_path / "x", np.float32, "w+", shape=(3, 4)), np.ones((9, 4), "f4")[3:6]):
        kernel(value, y)
        np.testing.assert_array_equal(y, 2 * np.asarray(value))


def test_strange_strides_are_refused(kernel):
    base = np.zeros(4, np.float32)
    for value in (
        np.lib.stride_tricks.as_strided(base, (3, 4), (2**62, 4)),
        np.zeros((3, 4), np.float32)[::-1],
        np.zeros((3, 4), np.float32)[:, ::-1],
        np.zeros((4, 3), np.float32).T,
        np.broadcast_to(base, (3, 4)),
    ):
        with pytest.raises(errors.ArgumentStrideError, match="not contiguous"):
            kernel(value, arrays()[1])
        with pytest.raises(errors.ArgumentStrideError, match="not contiguous"):
            kernel(arrays()[0], value)


def test_empty_arrays_need_no_strides(kernel):
    kernel(np.zeros((0, 8), np.float32)[:, ::2], np.zeros((0, 4), np.float32))


# --- overlap ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def strided():
    m, s, t = T.dynamic("m, s, t")

    @T.prim_func
    def main(X: T.StridedTensor((m, 4), (s, 1), "float32"), Y: T.StridedTensor((m, 4), (t, 1), "float32")):
        with T.Kernel(m, threads=32) as b:
            for i in T.Parallel(4):
                Y[b, i] = X[b, i] * 2

    return tilewright.compile(main)


def test_overlapping_strided_arrays(strided):
    memory = np.ones((6, 16), np.float32)
    strided(memory[:, :4], memory[:, 4:8])  # interleaved, and disjoint
    assert (memory[:, 4:8] == 2).all() and (memory[:, 8:] == 1).all()
    strided(memory[:, :4], memory[:, :4])  # the very same
    assert (memory[:, :4] == 2).all()
    for x, y in (
        (memory[:, :4], memory[:, 3:7]),
        (memory[:3, :4], memory[1:4, :4]),
        (memory[::2, :4], memory[1:4, :4]),
    ):
        with pytest.raises(errors.ArgumentOverlapError, match=r"'Y'.*shares part of its memory with argument 'X'"):
            strided(x, y)
    strided(memory[::2, :4], memory[1::2, :4])
    backwards = memory[::-1, :4]
    strided(backwards, memory[:, 4:8])
    with pytest.raises(errors.ArgumentOverlapError):
        strided(backwards, memory[:, :4])


def test_overlapping_rows(kernel):
    memory = np.ones((9, 4), np.float32)
    kernel(memory[:3], memory[3:6])
    kernel(memory[:3], memory[:3])
    for x, y in ((memory[:3], memory[2:5]), (memory[2:5], memory[:3]), (memory[:0], memory[:0])):
        if len(x):
            with pytest.raises(errors.ArgumentOverlapError):
                kernel(x, y)
        else:
            kernel(x, y)


def test_calls_from_many_threads_of_one_and_of_several_kernels(double):
    kernels = [tilewright.compile(double), tilewright.compile(double, out_idx=-1)]
    wrong = []

    def work(number):
        x, y = np.full((40, 4), number, np.float32), np.zeros((40, 4), np.float32)
        for _ in range(100):
            y[...] = 0
            kernels[0](x, y)
            if not (y == 2 * number).all() or not (kernels[1](x) == 2 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
