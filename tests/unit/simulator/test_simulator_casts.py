"""Casts of the reference evaluator against tables made from the bit fields of each format."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest

from tilewright.ir.dtype import dtype
from tilewright.simulator.numerics import cast_function, cast_storage, constant, to_compute, to_storage

SIGNED_FLOATS = [
    "float16",
    "bfloat16",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
]


ZERO_OF_EITHER_SIGN = 12345.0  # what NaN becomes where there is no NaN


@cache
def positive_values(name):
    """Non-negative finite values by code, with one beyond the largest: what an unbounded format would have next."""
    form = dtype(name).format
    codes = np.arange(1 << (form.bits - 1), dtype=np.int64)
    exponent, mantissa = codes >> form.mantissa, codes & ((1 << form.mantissa) - 1)
    bias = (1 << (form.exponent - 1)) - (0 if form.suffix == "fnuz" else 1)
    lead = np.where(exponent == 0, 0.0, 1.0)
    values = (lead + mantissa / 2.0**form.mantissa) * 2.0 ** (np.maximum(exponent, 1) - bias)
    finite = codes.size
    if form.suffix == "ieee":
        finite = ((1 << form.exponent) - 1) << form.mantissa
    elif name == "float8_e4m3fn":
        finite -= 1
    if finite < codes.size:
        return values[: finite + 1]
    return np.append(values, 2 * values[-1] - values[-2])


def overflowed(name, magnitude):
    suffix = dtype(name).format.suffix
    if name == "float4_e2m1fn":
        return positive_values(name)[-2]
    return magnitude if suffix == "ieee" else np.nan


def expected_nearest(name, value):
    """Round half to even by searching the table."""
    if np.isnan(value):
        return ZERO_OF_EITHER_SIGN if name == "float4_e2m1fn" else np.nan
    table, magnitude = positive_values(name), abs(value)
    if magnitude >= table[-1]:
        rounded = overflowed(name, np.inf)
    else:
        below = int(np.searchsorted(table, magnitude, side="right")) - 1
        low, high = table[below], table[below + 1]
        twice = (magnitude - low) - (high - magnitude)  # exact: both differences are multiples of a tiny power of two
        code = below if twice < 0 or (twice == 0 and below % 2 == 0) else below + 1
        rounded = overflowed(name, np.inf) if code == len(table) - 1 else table[code]
    if dtype(name).format.suffix == "fnuz" and rounded == 0:
        return 0.0
    return np.copysign(rounded, value) if not np.isnan(rounded) else np.nan


def expected_towards_zero(name, value):
    if not np.isfinite(value):
        return expected_nearest(name, value)
    table = positive_values(name)[:-1]
    rounded = table[min(int(np.searchsorted(table, abs(value), side="right")) - 1, len(table) - 1)]
    return 0.0 if dtype(name).format.suffix == "fnuz" and rounded == 0 else np.copysign(rounded, value)


def adversarial(name):
    """float64 values around every boundary of a format (some of them for the large formats), and the specials."""
    table = positive_values(name)
    if len(table) > 600:
        keep = np.r_[0:20, 1020:1030, len(table) // 2 : len(table) // 2 + 20, len(table) - 20 : len(table)]
        table = table[np.unique(keep[keep < len(table)])]
    middles = (table[1:] + table[:-1]) / 2
    points = np.concatenate([table, middles])
    near = [points, points * (1 + 2.0**-40), points * (1 - 2.0**-40), points * (1 + 2.0**-22), points * (1 - 2.0**-22)]
    special = [0.0, 1e-300, 1e-45, 5e-324, 1e9, 1e39, 1e300, 3.4028235677973366e38, np.inf, np.nan]
    values = np.concatenate([*near, special])
    return np.concatenate([values, -values])


def same_bits(actual, expected):
    actual, expected = np.asarray(actual, np.float64), np.asarray(expected, np.float64)
    zero = expected == ZERO_OF_EITHER_SIGN
    assert np.all(actual[zero] == 0)
    actual, expected = actual[~zero], expected[~zero]
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(actual), nan)
    assert np.array_equal(actual[~nan], expected[~nan])
    assert np.array_equal(np.signbit(actual[~nan]), np.signbit(expected[~nan]))


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("name", SIGNED_FLOATS)
@pytest.mark.filterwarnings("ignore")
def test_float_to_narrow_rounds_once_to_nearest_even(name, source):
    values = adversarial(name).astype(source)
    expected = [expected_nearest(name, float(v)) for v in values]
    same_bits(cast_function(dtype(source), dtype(name))(values), expected)
    same_bits([cast_function(dtype(source), dtype(name))(v) for v in values[::7]], expected[::7])


@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("name", SIGNED_FLOATS)
@pytest.mark.filterwarnings("ignore")
def test_float_to_narrow_towards_zero(name, source):
    values = adversarial(name).astype(source)
    expected = [expected_towards_zero(name, float(v)) for v in values]
    same_bits(cast_function(dtype(source), dtype(name), "rz")(values), expected)


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", SIGNED_FLOATS)
@pytest.mark.filterwarnings("ignore")
def test_saturation_clamps_to_the_finite_range(name, rounding):
    largest = positive_values(name)[-2]
    values = np.array([np.inf, -np.inf, 1e38, -1e38, largest * 1.01, 0.25, np.nan], np.float32)
    expected = [largest, -largest, min(largest, 1e38), -min(largest, 1e38), largest, None, None]
    result = cast_function(dtype("float32"), dtype(name), rounding, True)(values)
    for got, want in zip(result[:5], expected[:5], strict=True):
        assert got == want or (name == "bfloat16" and abs(got - want) < 0.01 * abs(want))
    nearest = expected_nearest(name, 0.25) if rounding == "rn" else expected_towards_zero(name, 0.25)
    assert result[5] == nearest
    assert np.isnan(result[6]) or name == "float4_e2m1fn"


def test_float64_does_not_round_twice():
    value = 1 + 2.0**-8 + 2.0**-40  # above the middle of two bfloat16; float32 loses the last part
    assert constant(value, dtype("bfloat16")) == 1 + 2.0**-7
    assert cast_function(dtype("float64"), dtype("bfloat16"))(np.float64(value)) == 1 + 2.0**-7


@pytest.mark.parametrize(
    "value", [(1 << 24) + (1 << 16) + 1, (1 << 62) + (1 << 54) + 1, -(1 << 62) - (1 << 54) - 1, -(1 << 63)]
)
def test_integers_to_bfloat16_round_once(value):
    exact = abs(value)
    unit = 1 << (exact.bit_length() - 8)
    low = exact // unit * unit
    rounded = low + unit if exact - low > unit // 2 else low
    source = "int64" if exact >= 1 << 31 else "int32"
    result = cast_function(dtype(source), dtype("bfloat16"))(dtype(source).numpy.type(value))
    assert result == np.copysign(float(rounded), value)


@pytest.mark.filterwarnings("ignore")
def test_uint64_to_floats():
    top = np.uint64((1 << 64) - 1)
    assert cast_function(dtype("uint64"), dtype("float32"))(top) == 2.0**64
    assert cast_function(dtype("uint64"), dtype("float64"), "rz")(top) == float((1 << 64) - (1 << 11))
    assert cast_function(dtype("uint64"), dtype("float32"), "rz")(top) == float((1 << 64) - (1 << 40))
    assert cast_function(dtype("uint64"), dtype("float16"))(top) == np.inf


def test_tfloat32_keeps_ten_mantissa_bits():
    to = cast_function(dtype("float32"), dtype("tfloat32"))
    ulp = 2.0**-10
    values = np.array(
        [1 + ulp / 2, 1 + 3 * ulp / 2, 1 + ulp * 0.501, -1 - ulp * 0.499, np.inf, np.nan, 1e-42], np.float32
    )
    result = to(values)
    assert result[:5].tolist() == [1.0, 1 + 2 * ulp, 1 + ulp, -1.0, np.inf] and np.isnan(result[5])
    assert np.all(result[[0, 1, 2, 3, 6]].view(np.uint32) & 0x1FFF == 0)
    assert cast_function(dtype("float64"), dtype("tfloat32"))(np.float64(1 + ulp / 2 + 2.0**-40)) == np.float32(1 + ulp)
    assert cast_function(dtype("float32"), dtype("tfloat32"), "rz")(np.float32(1 + ulp * 0.99)) == 1.0
    assert np.isinf(to(np.float32(3.4028235e38)))


@pytest.mark.filterwarnings("ignore")
def test_float64_to_float32_towards_zero():
    to = cast_function(dtype("float64"), dtype("float32"), "rz")
    assert to(np.float64(1 + 0.9 * 2.0**-23)) == 1.0
    assert to(np.float64(-1 - 0.9 * 2.0**-23)) == -1.0
    assert to(np.float64(1e300)) == np.finfo(np.float32).max
    assert to(np.float64(-np.inf)) == -np.inf
    assert to(np.float64(1e-60)) == 0.0


@pytest.mark.parametrize(
    "name", ["int4", "int8", "int16", "int32", "int64", "uint4", "uint8", "uint16", "uint32", "uint64"]
)
@pytest.mark.parametrize("source", ["float32", "float64", "float16", "bfloat16", "float8_e5m2"])
@pytest.mark.filterwarnings("ignore")
def test_float_to_int_truncates_saturates_and_takes_nan_to_zero(name, source):
    low, high = dtype(name).int_range()
    raw = np.array([0.9, -0.9, 1.5, -1.5, 7, -8, 1e3, -1e3, 3e9, -3e9, 1e20, -1e20, np.inf, -np.inf, np.nan])
    values = raw.astype(dtype(source).numpy).astype(np.float64)
    narrow = cast_function(dtype("float64"), dtype(source))(values)
    expected = [0 if np.isnan(v) else min(max(int(np.clip(v, -1e30, 1e30)), low), high) for v in values]
    result = cast_function(dtype(source), dtype(name))(narrow)
    assert [int(r) for r in result] == expected
    assert int(cast_function(dtype(source), dtype(name))(narrow[3])) == expected[3]


@pytest.mark.parametrize("target", ["int4", "uint4", "int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("source", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_wrap(source, target):
    low, high = dtype(source).int_range()
    values = [v for v in (0, 1, -1, 7, 8, 9, 15, 16, -8, -9, 127, 128, 255, 256, low, high) if low <= v <= high]
    result = cast_function(dtype(source), dtype(target))(np.array(values, dtype(source).numpy))
    bits, signed = dtype(target).bits, dtype(target).kind == "int"
    wrapped = [v % (1 << bits) for v in values]
    assert [int(r) for r in result] == [w - (1 << bits) if signed and w >> (bits - 1) else w for w in wrapped]


def test_bools():
    assert cast_function(dtype("float32"), dtype("bool"))(np.float32([0.0, -0.0, np.nan, 0.5])).tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert cast_function(dtype("bool"), dtype("float16"))(np.array([True, False])).tolist() == [1.0, 0.0]
    assert cast_function(dtype("int32"), dtype("bool"))(np.int32([0, -3])).tolist() == [False, True]


def test_e8m0_holds_powers_of_two_only():
    to = cast_function(dtype("float32"), dtype("float8_e8m0fnu"))
    assert to(np.float32([0.5, 1, 1.4, 1.6, 2.0**100])).tolist() == [0.5, 1, 1, 2, 2.0**100]
    assert np.all(np.isnan(to(np.float32([-1, np.nan, np.inf]))))
    assert cast_function(dtype("float32"), dtype("float8_e8m0fnu"), "rz")(np.float32(1.9)) == 1
    small = np.array([1.0, 1.25, 1.49, 1.5, 1.75, 2.99, 3.0], np.float32) * np.float32(2.0**-127)
    assert (to(small) * 2.0**127).tolist() == [1, 1, 1, 2, 2, 2, 4]


@pytest.mark.parametrize("name", [*SIGNED_FLOATS, "float8_e8m0fnu", "int4", "uint4"])
@pytest.mark.filterwarnings("ignore")
def test_storage_and_compute_forms_are_exact_copies(name):
    spec = dtype(name)
    size = 16 if spec.bits == 4 else 1 << spec.bits
    octets = np.arange(size, dtype=np.uint8 if spec.bits <= 8 else np.uint16)
    values = octets.astype(spec.numpy) if spec.is_int else octets.view(spec.numpy)
    there = to_compute(spec)(values)
    back = to_storage(spec)(there)
    known = ~np.isnan(there.astype(np.float64))
    assert np.array_equal(back.view(octets.dtype)[known], values.view(octets.dtype)[known])
    assert np.all(np.isnan(back.astype(np.float64)[~known]))


def test_cast_storage_goes_from_and_to_storage():
    values = np.array([1.1, -2.7], ml_dtypes.bfloat16)
    assert cast_storage(values, dtype("bfloat16"), dtype("bfloat16")) is values
    result = cast_storage(values, dtype("bfloat16"), dtype("int4"))
    assert result.dtype == ml_dtypes.int4 and result.astype(int).tolist() == [1, -2]
