"""The table of formats: names, widths, NumPy types and ranges."""

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from tilewright.errors import DTypeError
from tilewright.ir.dtype import ALIASES, FORMATS, dtype

FLOATS = [name for name, f in FORMATS.items() if f.kind == "float"]
INTEGERS = [name for name, f in FORMATS.items() if f.kind in ("int", "uint")]


@pytest.mark.parametrize("name", FORMATS)
def test_a_dtype_is_one_object(name):
    one = dtype(name)
    assert dtype(name) is one and dtype(one) is one and str(one) == repr(one) == one.name == name
    assert copy.deepcopy(one) is one and pickle.loads(pickle.dumps(one)) is one
    assert one.lanes == 1 and one.scalar is one and one.with_lanes(1) is one


@pytest.mark.parametrize("name", FORMATS)
def test_vectors(name):
    vector = dtype(name).with_lanes(8)
    assert vector.name == f"{name}x8" and vector is dtype(f"{name}x8") and vector.scalar is dtype(name)
    assert vector.lanes == 8 and vector.bits == dtype(name).bits and vector.nbytes == dtype(name).bits
    assert vector.with_lanes(1) is dtype(name) and vector.with_lanes(4).lanes == 4


def test_a_vector_of_one_is_a_scalar():
    assert dtype("float32x1") is dtype("float32")


@pytest.mark.parametrize(("alias", "name"), ALIASES.items())
def test_aliases(alias, name):
    assert dtype(alias) is dtype(name)
    assert dtype(f"{alias}x4") is dtype(f"{name}x4")


@pytest.mark.parametrize("name", FORMATS)
def test_numpy_types_have_the_storage_width(name):
    if name not in ("tfloat32", "handle"):
        assert dtype(dtype(name).numpy) is dtype(name)
    of = dtype(name)
    assert of.numpy.itemsize == max(1, of.bits // 8)


@pytest.mark.parametrize("name", [n for n in FLOATS if n != "tfloat32"])
def test_floats_have_the_fields_that_the_table_says(name):
    of, info = dtype(name), ml_dtypes.finfo(dtype(name).numpy)
    assert info.nmant == of.format.mantissa
    if name != "float8_e8m0fnu":  # ml_dtypes counts its exponent bits with a sign
        assert info.nexp == of.format.exponent
    one = np.ones((), of.numpy)
    assert float(one + info.eps) == 1 + 2.0**-of.format.mantissa or of.format.mantissa == 0


@pytest.mark.parametrize("name", INTEGERS)
def test_ranges(name):
    low, high = dtype(name).int_range()
    info = ml_dtypes.iinfo(dtype(name).numpy)
    assert (low, high) == (int(info.min), int(info.max))
    assert high - low + 1 == 1 << dtype(name).bits


def test_kinds():
    kinds = {name: (dtype(name).is_float, dtype(name).is_int, dtype(name).is_bool) for name in FORMATS}
    assert all(sum(flags) == (0 if name == "handle" else 1) for name, flags in kinds.items())
    assert dtype("bool").int_range() == (0, 1)
    narrow = {name for name in FORMATS if dtype(name).is_narrow_float}
    assert narrow == {name for name in FLOATS if FORMATS[name].bits < 32}


def test_sub_byte_lanes_are_packed():
    assert [dtype(f"int4x{lanes}").nbytes for lanes in (2, 3, 8)] == [1, 2, 4] and dtype("int4").nbytes == 1


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        (int, "int32"),
        (float, "float32"),
        (bool, "bool"),
        (np.float16, "float16"),
        (np.dtype("uint8"), "uint8"),
        (ml_dtypes.bfloat16, "bfloat16"),
        ("torch.float16", "float16"),
    ],
)
def test_other_ways_to_name_one(spec, name):
    assert dtype(spec) is dtype(name)


@pytest.mark.parametrize(
    "spec", ["float33", "float32x", "float32xx4", "", "x4", "complex64", "int32x-1", "int32x0", "int32x²"]
)
def test_unknown_names_are_refused(spec):
    with pytest.raises(DTypeError, match="unknown dtype") as caught:
        dtype(spec)
    assert "bfloat16" in caught.value.hint
