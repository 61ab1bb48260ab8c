"""Expressions: operators, promotion, folding, and locations."""

import pytest

from tilewright.errors import DTypeError, UnsupportedSyntaxError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Const, Load, Var, binary, cast, promote

I32 = dtype("int32")


def test_operators_build_nodes_with_the_callers_location():
    x = Var(I32, "x")
    y = x * 4 + 2
    assert isinstance(y, Binary) and y.op == "add" and y.dtype is I32
    assert y.loc is not None and y.loc.file == __file__
    assert "x * 4 + 2" in y.loc.source_line()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("float16", "bfloat16", "float32"),
        ("float16", "int32", "float16"),
        ("int8", "int32", "int32"),
        ("uint32", "int32", "int32"),
        ("float32", "float64", "float64"),
        ("bool", "int8", "int8"),
    ],
)
def test_promotion(a, b, expected):
    assert promote(dtype(a), dtype(b)) is dtype(expected)
    assert promote(dtype(b), dtype(a)) is dtype(expected)


@pytest.mark.parametrize(
    ("op", "a", "b", "value"),
    [("floordiv", -7, 2, -4), ("floormod", -7, 2, 1), ("truncdiv", -7, 2, -3), ("floordiv", 1, 0, 0)],
)
def test_integer_folding(op, a, b, value):
    folded = binary(op, a, b)
    assert isinstance(folded, Const) and folded.value == value


def test_python_cannot_branch_on_a_run_time_value():
    with pytest.raises(UnsupportedSyntaxError) as caught:
        bool(Var(I32, "x") < 3)
    assert caught.value.location.line == caught.value.location.line and "^" in str(caught.value)


def test_bits_of_floats_are_refused():
    with pytest.raises(DTypeError, match="needs integers"):
        binary("bitand", Var(dtype("float32"), "x"), 1)


def test_map_children_keeps_identity():
    x = Var(I32, "x")
    tree = cast(x + 1, "float32")
    assert tree.map_children(lambda child: child) is tree
    assert Load.child_fields == (("indices", True), ("mask", False))
