"""Tile operations of the evaluator on regions, every dtype, and the edge cases of each."""

import ml_dtypes
import numpy as np
import pytest
from simulator_ir import buffer, evaluate, num, region, var

from tilewright.errors import VerificationError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import const
from tilewright.ir.stmt import Alloc, Copy, Fill, Gemm, Reduce, Scan, Transpose

ALL = [
    "bool",
    "int4",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint4",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
    "float4_e2m1fn",
]


def array_of(values, name):
    return np.asarray(values).astype(dtype(name).numpy)


def zeros(shape, name="float32"):
    return np.zeros(shape, dtype(name).numpy)


# --- copy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("source", ["float32", "int32", "bfloat16", "uint4", "bool"])
def test_copy_casts(source, target):
    x, out = buffer("x", (4,), source), buffer("out", (4,), target)
    values, result = array_of([0, 1, 3, 2], source), zeros(4, target)
    evaluate([x, out], [values, result], Copy(region(x), region(out)))
    expected = [float(v) for v in values]
    if target == "bool":
        expected = [float(v != 0) for v in expected]
    assert [float(v) for v in result] == expected


def test_copy_keeps_bits_where_it_does_not_convert():
    x, out = buffer("x", (256,), "float8_e5m2"), buffer("out", (256,), "float8_e5m2")
    values, result = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2), zeros(256, "float8_e5m2")
    evaluate([x, out], [values, result], Copy(region(x), region(out)))
    assert result.view(np.uint8).tolist() == list(range(256))


@pytest.mark.parametrize("start", [(-1, -2), (0, 0), (2, 3), (7, 0), (-9, 0), (0, 99)])
def test_copy_tails_read_the_safe_value_and_drop_writes(start):
    x, out = buffer("x", (4, 5), safe_value=const(7.0)), buffer("out", (3, 4))
    values, result = np.arange(20, dtype=np.float32).reshape(4, 5) + 1, zeros((3, 4))
    evaluate([x, out], [values, result], Copy(region(x, start, (3, 4)), region(out)))
    expected = np.full((3, 4), 7.0)
    for i in range(3):
        for j in range(4):
            if 0 <= i + start[0] < 4 and 0 <= j + start[1] < 5:
                expected[i, j] = values[i + start[0], j + start[1]]
    assert np.array_equal(result, expected)
    target = np.zeros((4, 5), np.float32)
    evaluate([x, out], [target, expected.astype(np.float32)], Copy(region(out), region(x, start, (3, 4))))
    for i in range(4):
        for j in range(5):
            inside = 0 <= i - start[0] < 3 and 0 <= j - start[1] < 4
            assert target[i, j] == (values[i, j] if inside else 0)


def test_copy_between_ranks_drops_extents_of_one():
    x, out = buffer("x", (2, 1, 3)), buffer("out", (3, 1))
    values, result = np.arange(6, dtype=np.float32).reshape(2, 1, 3), zeros((3, 1))
    evaluate([x, out], [values, result], Copy(region(x, (1, 0, 0), (1, 1, 3)), region(out)))
    assert result.ravel().tolist() == [3, 4, 5]
    with pytest.raises(VerificationError, match=r"different extents: \[2, 1, 3\] and \[3, 1\] of out"):
        evaluate([x, out], [values, result], Copy(region(x), region(out)))


def test_copy_of_a_run_time_extent_and_strided_arrays():
    n, x, out = var("n"), buffer("x", (4, 4)), buffer("out", (4, 4))
    values, result = np.arange(32, dtype=np.float32).reshape(4, 8)[:, ::2], np.zeros((8, 4), np.float32)[::2].T
    evaluate([n, x, out], [2, values, result], Copy(region(x, (0, 0), (n, 4)), region(out, (1, 0), (n, 4))))
    assert result.tolist() == [[0] * 4, values[0].tolist(), values[1].tolist(), [0] * 4]


def test_transpose_casts_and_fits():
    x, out = buffer("x", (2, 3)), buffer("out", (1, 3, 2), "float16")
    values, result = np.arange(6, dtype=np.float32).reshape(2, 3) / 3, zeros((1, 3, 2), "float16")
    evaluate([x, out], [values, result], Transpose(region(x), region(out)))
    assert np.array_equal(result[0], values.T.astype(np.float16))
    cube = buffer("cube", (2, 2, 2))
    with pytest.raises(VerificationError, match="two dimensions is needed, cube has 3"):
        evaluate([cube, x], [zeros((2, 2, 2)), values], Transpose(region(cube), region(x)))
    with pytest.raises(VerificationError, match="buffer y is used outside of its scope"):
        evaluate([x], [values], Transpose(region(x), region(buffer("y", (3, 2)))))


# --- gemm ------------------------------------------------------------------------------------------------------


def product(name_a, name_b, name_c, a, b, c, **options):
    params = [buffer("a", a.shape, name_a), buffer("b", b.shape, name_b), buffer("c", c.shape, name_c)]
    evaluate(params, [a, b, c], Gemm(*[region(p) for p in params], **options))
    return c


@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
@pytest.mark.parametrize("clear", [False, True])
def test_gemm_transposes_and_clears(transpose_a, transpose_b, clear):
    rng = np.random.default_rng(0)
    a, b = rng.integers(-8, 8, (3, 5)), rng.integers(-8, 8, (5, 4))
    c = array_of(np.ones((3, 4)), "float32")
    stored_a, stored_b = (a.T if transpose_a else a), (b.T if transpose_b else b)
    product(
        "float16",
        "bfloat16",
        "float32",
        array_of(stored_a, "float16"),
        array_of(stored_b, "bfloat16"),
        c,
        transpose_a=transpose_a,
        transpose_b=transpose_b,
        clear_accum=clear,
    )
    assert np.array_equal(c, a @ b + (0 if clear else 1))


def test_gemm_rounds_the_true_sum_once():
    a, b = np.float16([[2048, 1, 1]]), np.float16([[1], [1], [1]])
    assert product("float16", "float16", "float16", a, b, zeros((1, 1), "float16")).item() == 2050
    a = np.float32([[1e30, 1, -1e30]])
    assert product("float32", "float32", "float32", a, b.astype(np.float32), zeros((1, 1))).item() in (0.0, 1.0)
    wide = np.float64([[1e16, 1.0]])
    assert product("float64", "float64", "float64", wide, wide.T.copy(), zeros((1, 1), "float64")).item() == 1e32


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("int8", "int32"),
        ("uint8", "int32"),
        ("int4", "int8"),
        ("int32", "int32"),
        ("int64", "int64"),
        ("uint32", "uint64"),
    ],
)
def test_integer_gemm_is_exact_and_wraps(name, target):
    rng = np.random.default_rng(1)
    low, high = dtype(name).int_range()
    a = rng.integers(low, high, (3, 7), np.int64, endpoint=True).astype(dtype(name).numpy)
    b = rng.integers(low, high, (7, 2), np.int64, endpoint=True).astype(dtype(name).numpy)
    c = array_of(rng.integers(0, 100, (3, 2)), target)
    exact = np.array(
        [[sum(int(a[i, k]) * int(b[k, j]) for k in range(7)) + int(c[i, j]) for j in range(2)] for i in range(3)],
        object,
    )
    product(name, name, target, a, b, c)
    bits = dtype(target).bits
    wrapped = exact % (1 << bits)
    if dtype(target).kind == "int":
        wrapped = (wrapped + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    assert c.astype(object).tolist() == wrapped.tolist()


def test_gemm_propagates_infinities_and_takes_empty_k():
    a, b = np.float32([[np.inf, 1]]), np.float32([[0, 1], [1, 1]])
    c = product("float32", "float32", "float32", a, b, zeros((1, 2)))
    assert np.isnan(c[0, 0]) and c[0, 1] == np.inf
    c = np.ones((2, 2), np.float32)
    product("float32", "float32", "float32", zeros((2, 0)), zeros((0, 2)), c)
    assert np.all(c == 1)


def test_gemm_on_regions_with_leading_dimensions():
    a, b, c = buffer("a", (2, 4, 4)), buffer("b", (4, 4)), buffer("c", (3, 3))
    values = np.random.default_rng(2).integers(0, 5, (2, 4, 4)).astype(np.float32)
    result = zeros((3, 3))
    evaluate(
        [a, b, c],
        [values, values[0].copy(), result],
        Gemm(region(a, (1, 2, 0), (1, 2, 4)), region(b, (0, 1), (4, 2)), region(c, (1, 1), (2, 2))),
    )
    assert np.array_equal(result[1:, 1:], values[1, 2:] @ values[0][:, 1:3]) and not result[0].any()


# --- reductions ------------------------------------------------------------------------------------------------

MEANING = {
    "sum": lambda v: v.sum(0),
    "max": lambda v: v.max(0),
    "min": lambda v: v.min(0),
    "abssum": lambda v: abs(v).sum(0),
    "absmax": lambda v: abs(v).max(0),
    "bitand": lambda v: np.bitwise_and.reduce(v, 0),
    "bitor": lambda v: np.bitwise_or.reduce(v, 0),
    "bitxor": lambda v: np.bitwise_xor.reduce(v, 0),
    "any": lambda v: (v != 0).any(0).astype(int),
    "all": lambda v: (v != 0).all(0).astype(int),
}
JOIN = {"sum": "sum", "abssum": "sum", "absmax": "max"}


def reduced(op, values, name, target=None, dim=0, old=None, shape=None, **options):
    target = target or name
    x = buffer("x", values.shape, name)
    shape = shape or tuple(np.delete(values.shape, dim))
    out = buffer("out", shape, target)
    result = zeros(shape, target) if old is None else np.full(shape, old).astype(dtype(target).numpy)
    evaluate([x, out], [values, result], Reduce(op, region(x), region(out), dim, clear=old is None, **options))
    return result


@pytest.mark.parametrize(
    "name", ["int4", "int8", "int32", "uint64", "float16", "bfloat16", "float32", "float64", "float8_e4m3fn"]
)
@pytest.mark.parametrize("op", list(MEANING))
def test_reductions(op, name):
    if dtype(name).is_float and op.startswith("bit"):
        return_type = "int32"
    else:
        return_type = name
    low = 0 if dtype(name).kind == "uint" else -2
    values = np.random.default_rng(3).integers(low, 3, (3, 4))
    meaning = MEANING[op](values)
    result = reduced(op, array_of(values, name), name, return_type)
    assert result.astype(int).tolist() == meaning.tolist()
    joined = MEANING[JOIN.get(op, op)](np.stack([np.ones(4, int), meaning]))
    result = reduced(op, array_of(values, name), name, return_type, old=1)
    assert result.astype(int).tolist() == joined.tolist()


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("keep", [False, True])
def test_reduction_dimensions(dim, keep):
    values = np.random.default_rng(4).standard_normal((3, 4, 2)).astype(np.float32)
    exact = values.astype(np.float64).sum(dim, keepdims=keep)
    result = reduced("sum", values, "float32", dim=dim, shape=exact.shape)
    assert np.array_equal(result, exact.astype(np.float32))


def test_max_leaves_nan_out_unless_it_shall_propagate():
    nan = np.nan
    values = np.float32([[nan, nan, 1], [2, nan, -3]])
    for op, expected in (("max", [2, nan, 1]), ("min", [2, nan, -3]), ("absmax", [2, nan, 3])):
        assert np.array_equal(reduced(op, values, "float32"), np.float32(expected), equal_nan=True)
        propagated = reduced(op, values, "float32", nan_propagate=True)
        assert np.isnan(propagated[:2]).all() and propagated[2] == expected[2]
    assert reduced("max", values, "float32", old=nan).tolist()[0] == 2
    assert np.isnan(reduced("max", values, "float32", old=nan, nan_propagate=True)).all()
    assert np.isnan(reduced("sum", values, "float32")[0])


@pytest.mark.parametrize(
    ("op", "name", "neutral"),
    [
        ("sum", "float32", 0),
        ("max", "float32", -np.inf),
        ("min", "bfloat16", np.inf),
        ("max", "float8_e4m3fn", -448),
        ("min", "float8_e5m2fnuz", 57344),
        ("max", "int8", -128),
        ("min", "uint64", (1 << 64) - 1),
        ("max", "uint64", 0),
        ("min", "int4", 7),
        ("absmax", "float32", 0),
        ("bitand", "uint8", 255),
        ("bitor", "int32", 0),
        ("all", "bool", 1),
        ("any", "bool", 0),
    ],
)
def test_reducing_nothing_gives_the_neutral_element(op, name, neutral):
    assert [n.item() if hasattr(n, "item") else n for n in reduced(op, zeros((0, 2), name), name)] == [neutral] * 2


def test_sums_are_wider_than_narrow_floats():
    values = np.full((5000, 1), 0.01, np.float16)
    expected = np.float16(values.astype(np.float64).sum())
    assert reduced("sum", values, "float16")[0] == expected
    assert reduced("sum", np.full((3, 1), 200, np.uint8), "uint8")[0] == 88
    assert reduced("sum", np.full((3, 1), 200, np.uint8), "uint8", "int32")[0] == 600


def test_integer_reductions_of_extremes():
    assert reduced("max", np.uint64([[1 << 63], [5]]), "uint64")[0] == 1 << 63
    assert reduced("absmax", np.int8([[-128], [5]]), "int8", "int32")[0] == 128
    assert reduced("abssum", np.int8([[-128], [5]]), "int8", "int32")[0] == 133
    assert reduced("max", np.int32([[300], [5]]), "int32", "int8")[0] == 44
    assert reduced("sum", np.float32([[2.7], [2.7]]), "float32", "int32")[0] == 4


# --- scans -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["sum", "max"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "uint64"])
def test_scans(op, reverse, dim, name):
    values = np.random.default_rng(5).integers(0, 9, (4, 3))
    x, out = buffer("x", (4, 3), name), buffer("out", (4, 3), name)
    result = zeros((4, 3), name)
    array = array_of(values, name)
    evaluate([x, out], [array, result], Scan(op, region(x), region(out), dim, reverse))
    function = np.cumsum if op == "sum" else np.maximum.accumulate
    expected = np.flip(function(np.flip(values, dim), dim), dim) if reverse else function(values, dim)
    assert result.astype(int).tolist() == expected.tolist()
    evaluate([x], [array], Scan(op, region(x), region(x), dim, reverse))
    assert array.astype(int).tolist() == expected.tolist()


def test_scan_on_a_slice_rounds_each_element_once():
    x = buffer("x", (6,), "bfloat16")
    values = np.array([9, 256, 1, 1, 1, 9], ml_dtypes.bfloat16)
    evaluate([x], [values], Scan("sum", region(x, (1,), (4,)), region(x, (1,), (4,)), 0))
    assert values.astype(int).tolist() == [9, 256, 256, 258, 260, 9]


def test_scan_max_leaves_nan_out():
    x = buffer("x", (4,))
    values = np.float32([np.nan, 2, np.nan, 3])
    evaluate([x], [values], Scan("max", region(x), region(x), 0))
    assert np.isnan(values[0]) and values[1:].tolist() == [2, 2, 3]


def test_fill_of_chip_memory_covers_tails():
    tile, out = buffer("t", (2, 2), scope="fragment"), buffer("out", (3, 3))
    result = zeros((3, 3))
    evaluate(
        [out], [result], Alloc(tile), Fill(region(tile), const(2)), Copy(region(tile), region(out, (2, num(1)), (2, 2)))
    )
    assert result.tolist() == [[0, 0, 0], [0, 0, 0], [0, 2, 2]]
