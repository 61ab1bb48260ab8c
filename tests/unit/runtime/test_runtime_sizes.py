"""Size expressions: values and solutions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import VerificationError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Var, binary, cast, select
from tilewright.runtime import sizes

I32 = dtype("int32")


@given(st.integers(-50, 50), st.integers(-50, 50))
def test_evaluation_is_pythons(a, b):
    x, y = Var(I32, "x"), Var(I32, "y")
    values = {id(x): a, id(y): b}
    for expr, expected in [
        (x * 3 + y - 1, a * 3 + b - 1),
        (x // y, a // b if b else 0),
        (x % y, a % b if b else 0),
        (binary("truncdiv", x, y), int(a / b) if b else 0),
        (binary("truncmod", x, y), a - int(a / b) * b if b else 0),
        (binary("max", x, y), max(a, b)),
        (select(x < y, x, y), min(a, b)),
        (cast(x, "int64") << 2, a * 4),
        (-x, -a),
    ]:
        assert sizes.evaluate(expr, values) == expected


@given(st.integers(0, 1000), st.integers(1, 9), st.integers(-9, 9))
def test_solutions_solve(value, factor, offset):
    x = Var(I32, "x")
    for expr in (x * factor + offset, offset + factor * x, offset - x * factor, cast(x - offset, "int64") * factor):
        result = sizes.evaluate(expr, {id(x): value})
        assert sizes.solve(expr, x, result, {}) == value


def test_no_solution():
    x = Var(I32, "x")
    assert sizes.solve(x * 2, x, 7, {}) is None
    assert sizes.solve(x // 2, x, 7, {}) is None


def test_floats_have_no_place_in_a_size():
    with pytest.raises(VerificationError):
        sizes.evaluate(cast(Var(I32, "x"), "float32"), {})


def test_text():
    x = Var(I32, "n")
    assert sizes.text(x * 2 + 1) == "((n * 2) + 1)"
