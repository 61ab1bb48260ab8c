"""DLPack capsules: every dtype, versions, flags, devices, strides, and who frees what."""

import ctypes
import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import ArgumentDeviceError, ArgumentDTypeError, ArgumentTypeError
from tilewright.ir.dtype import dtype
from tilewright.runtime import arrays, dlpack

NAMES = sorted(dlpack.CODE_OF_DTYPE)


# NumPy makes the capsules, and those with a version since 2.1.
VERSIONED = np.lib.NumpyVersion(np.__version__) >= "2.1.0"


class Foreign:
    """An array of an unknown library: exports as one of the two kinds of capsule."""

    def __init__(self, array, name, versioned=True, device=(1, 0)):
        self.exporter = dlpack.Exporter(array, dtype(name))
        self.versioned = versioned
        self.device = device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **keywords):
        if not self.versioned:
            if keywords:
                raise TypeError("old protocol")
            return self.exporter.__dlpack__()
        return self.exporter.__dlpack__(**keywords)


@pytest.mark.parametrize("versioned", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_every_dtype_round_trips_without_a_copy(name, versioned):
    array = np.arange(12).reshape(3, 4).astype(dtype(name).numpy)
    if dtype(name).bits < 8 and not (versioned and VERSIONED):
        with pytest.raises(ArgumentTypeError, match="cannot say that each"):
            dlpack.read(Foreign(array, name, versioned))
        return
    tensor = dlpack.read(Foreign(array, name, versioned))
    back = dlpack.as_numpy(tensor)
    assert tensor.dtype is dtype(name)
    assert back.dtype == array.dtype and back.ctypes.data == array.ctypes.data
    np.testing.assert_array_equal(back.view(np.uint8), array.view(np.uint8))


def test_strides_and_offset_survive():
    array = np.arange(60, dtype=np.float32).reshape(5, 12)[1:4, ::3]
    tensor = dlpack.read(Foreign(array, "float32"))
    assert tensor.strides == (12, 3) and tensor.shape == (3, 4)
    np.testing.assert_array_equal(dlpack.as_numpy(tensor), array)


@pytest.mark.parametrize("versioned", [True, False])
def test_read_only_flag_needs_a_versioned_capsule(versioned):
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    if not (versioned and VERSIONED):
        with pytest.raises(ArgumentTypeError, match="readonly"):
            dlpack.read(Foreign(array, "float32", versioned))
        return
    tensor = dlpack.read(Foreign(array, "float32", versioned))
    assert tensor.read_only and not dlpack.as_numpy(tensor).flags.writeable


@pytest.mark.parametrize("versioned", [True, False])
def test_memory_lives_as_long_as_the_reader_and_no_longer(versioned):
    array = np.ones(1000, np.float32)
    gone = weakref.ref(array)
    view = dlpack.as_numpy(dlpack.read(Foreign(array, "float32", versioned)))
    del array
    gc.collect()
    assert view.sum() == 1000 and gone() is not None
    del view
    gc.collect()
    assert gone() is None


def test_numpy_consumes_our_capsules_and_frees_them():
    array = np.ones((2, 3), np.float32)
    gone = weakref.ref(array)
    taken = np.from_dlpack(dlpack.Exporter(array, dtype("float32")))
    del array
    gc.collect()
    assert taken.sum() == 6 and gone() is not None
    del taken
    gc.collect()
    assert gone() is None


def test_other_devices_are_refused_by_name():
    array = np.zeros(4, np.float32)
    with pytest.raises(ArgumentDeviceError, match="cuda:3"):
        dlpack.read(Foreign(array, "float32", device=(2, 3)))


def test_pinned_host_memory_is_cpu_memory():
    assert dlpack.read(Foreign(np.zeros(4, np.float32), "float32", device=(3, 0))).shape == (4,)


def test_what_is_no_capsule_is_refused():
    class Liar:
        def __dlpack__(self, **_):
            return "a capsule"

    with pytest.raises(ArgumentTypeError, match="capsule"):
        dlpack.read(Liar())


def test_a_failing_export_is_reported():
    class Broken:
        def __dlpack__(self, **_):
            raise BufferError("cannot export today")

    with pytest.raises(ArgumentTypeError, match="cannot export today"):
        dlpack.read(Broken())


def test_structures_have_the_layout_of_dlpack_h():
    assert ctypes.sizeof(dlpack.DLTensor) == 48
    assert dlpack.DLManagedTensor.deleter.offset == 56
    assert dlpack.DLManagedTensorVersioned.flags.offset == 24
    assert dlpack.DLManagedTensorVersioned.tensor.offset == 32


def test_numpy_views():
    array = np.zeros((4, 6), ml_dtypes.bfloat16)
    assert arrays.view(array).strides is None
    assert arrays.view(array.T).strides == (1, 6)
    assert arrays.view(array[:, ::-1]).strides == (6, -1)
    with pytest.raises(ArgumentDTypeError, match="complex"):
        arrays.view(np.zeros(3, np.complex64))
    with pytest.raises(ArgumentDTypeError, match=">f4"):
        arrays.view(np.zeros(3, ">f4"))
    with pytest.raises(ArgumentTypeError, match="list"):
        arrays.view([1, 2])


def test_results_are_aligned():
    for shape in ((3, 5), (), (0, 4), (1 << 20,)):
        array, address = arrays.NUMPY.empty(shape, dtype("bfloat16"))
        assert array.shape == shape and address % arrays.ALIGNMENT == 0
        assert array.ctypes.data == address or 0 in shape


def test_results_go_back_to_a_library_with_from_dlpack(monkeypatch):
    import sys
    import types

    library = types.ModuleType("somelib")
    library.from_dlpack = lambda exporter: ("somelib", dlpack.as_numpy(dlpack.read(exporter)))
    monkeypatch.setitem(sys.modules, "somelib", library)
    kind = arrays.DLPackKind("somelib")
    array, _ = kind.empty((2, 2), dtype("float8_e5m2"))
    name, back = arrays.result(kind, array, dtype("float8_e5m2"))
    assert name == "somelib" and back.ctypes.data == array.ctypes.data


def test_an_exception_on_its_way_survives_the_end_of_a_capsule():
    def inner():
        capsule = dlpack.Exporter(np.ones(3, np.float32), dtype("float32")).__dlpack__(max_version=(1, 0))
        taken = np.from_dlpack(dlpack.Exporter(np.ones(3, np.float32), dtype("float32")))
        raise LookupError(len([capsule, taken]))

    def outer():
        try:
            inner()
        except LookupError as error:
            raise error.with_traceback(None) from None  # lets go of the frame while the exception is on its way

    with pytest.raises(LookupError, match="2"):
        outer()
