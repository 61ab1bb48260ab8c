"""Numbers as slots and back."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ArgumentTypeError
from tilewright.ir.dtype import dtype
from tilewright.runtime.scalars import decode, encode


@pytest.mark.parametrize(
    ("value", "name", "slot"),
    [
        (5, "int32", 5),
        (-5, "int32", -5),
        (True, "int32", 1),
        (np.int8(-3), "int64", -3),
        (np.array(7), "int16", 7),
        ((1 << 64) - 1, "uint64", -1),
        (255, "uint8", 255),
        (True, "bool", 1),
        (np.bool_(False), "bool", 0),
        (1.0, "float32", 0x3F800000),
        (-2.0, "float64", -(1 << 62)),
        (1, "float16", 0x3C00),
        (ml_dtypes.bfloat16(1.5), "bfloat16", 0x3FC0),
        (np.float32(448), "float8_e4m3fn", 0x7E),
        (1e300, "float32", 0x7F800000),
    ],
)
def test_encoding(value, name, slot):
    assert encode(value, dtype(name)) == slot


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        (1 << 31, "int32", "outside of int32"),
        (-1, "uint8", "outside of uint8"),
        (2, "bool", "outside of bool"),
        (1.0, "int32", "takes an integer"),
        ("3", "int32", "takes an integer"),
        ("3", "float32", "takes a number"),
        (None, "float32", "it is None"),
        (1j, "float32", "takes a number"),
        (np.complex64(1j), "float32", "takes a number"),
        (np.zeros(1), "float32", "array of shape"),
        (np.array(1.5), "int32", "takes an integer"),
    ],
)
def test_what_does_not_fit_is_refused(value, name, message):
    with pytest.raises(ArgumentTypeError, match=message):
        encode(value, dtype(name))


@given(st.integers(-(1 << 63), (1 << 64) - 1), st.sampled_from(["int8", "uint8", "int32", "uint32", "int64", "uint64"]))
def test_integers_round_trip(value, name):
    low, high = dtype(name).int_range()
    if low <= value <= high:
        assert decode(encode(value, dtype(name)), dtype(name)) == value


@given(st.floats(allow_nan=False), st.sampled_from(["float16", "bfloat16", "float32", "float64", "float8_e5m2"]))
def test_floats_round_trip_through_their_dtype(value, name):
    element = dtype(name)
    with np.errstate(all="ignore"):
        expected = np.asarray(value).astype(np.float64 if element.bits == 64 else np.float32).astype(element.numpy)[()]
    found = decode(encode(value, element), element)
    assert found == expected or (np.isnan(float(found)) and np.isnan(float(expected)))
