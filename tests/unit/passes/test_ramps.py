"""Vector arithmetic that stays a Ramp or a scalar: the same values as lane by lane, with and without overflow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright
import tilewright.language as T
from tilewright.ir.expr import INT32, Broadcast, Expr, Ramp, Var, const
from tilewright.passes.ramps import power_of_two_factor, ramp_binary

STEP = Var(INT32, "step")
PARTS = (1, 2, 3, 8, 24, 64, 100, 1 << 20, (1 << 31) - 1)


def lanes_of(item: Expr, step: int) -> list[int]:
    """The values of a scalar or a Ramp of literals and `step`, wrapped to 32 bits."""

    def scalar(e):
        if isinstance(e, Var):
            return step
        if hasattr(e, "value") and not hasattr(e, "rounding"):
            return int(e.value)
        x, y = scalar(e.lhs), scalar(e.rhs)
        return wrap(
            {
                "add": lambda: x + y,
                "sub": lambda: x - y,
                "mul": lambda: x * y,
                "floordiv": lambda: x // y,
                "floormod": lambda: x % y,
            }[e.op]()
        )

    if isinstance(item, Ramp):
        return [wrap(scalar(item.base) + lane * scalar(item.stride)) for lane in range(8)]
    return [scalar(item)] * 8


def wrap(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


operations = st.tuples(st.sampled_from(["add", "sub", "mul", "floordiv", "floormod"]), st.sampled_from(PARTS))


@settings(max_examples=200, deadline=None)
@given(st.lists(operations, min_size=1, max_size=4), st.sampled_from([0, 8, 40, 1 << 20, 1 << 30]))
def test_lane_by_lane(chain, step):
    vector = Ramp(INT32.with_lanes(8), STEP, const(1))
    expected = lanes_of(vector, step)
    for op, number in chain:
        made = ramp_binary(op, vector, const(number), {id(STEP): 8}, None)
        if made is None:
            return
        expected = [
            wrap(
                {
                    "add": v + number,
                    "sub": v - number,
                    "mul": v * number,
                    "floordiv": v // number,
                    "floormod": v % number,
                }[op]
            )
            for v in expected
        ]
        assert lanes_of(made, step) == expected
        if not isinstance(made, Ramp):
            return
        vector = made


@pytest.mark.parametrize(
    ("op", "base", "number", "form"),
    [
        ("floordiv", STEP * 4, 64, Expr),
        ("floormod", STEP * 4, 64, Ramp),
        ("floordiv", STEP, 12, None),  # 12 has no factor of 8
        ("floordiv", STEP + 4, 64, None),  # lanes 4 to 7 carry
        ("floordiv", STEP, -64, None),
        ("truncdiv", STEP, 64, None),
    ],
)
def test_what_stays_even(op, base, number, form):
    made = ramp_binary(op, Ramp(INT32.with_lanes(8), base, const(1)), const(number), {id(STEP): 8}, None)
    if form is None:
        assert made is None
    else:
        assert isinstance(made, form) and made.dtype.lanes == (8 if form is Ramp else 1)


def test_a_vector_is_no_scalar():
    ramp = Ramp(INT32.with_lanes(8), STEP, const(1))
    assert ramp_binary("add", ramp, Broadcast(ramp.dtype, STEP), {}, None) is None


def test_factors_are_powers_of_two():
    assert power_of_two_factor(STEP * 24 + 16, {id(STEP): 8}) == 16
    assert power_of_two_factor(STEP // 2, {id(STEP): 8}) == 1
    assert power_of_two_factor(const(0), {}) == 1 << 31


@pytest.mark.parametrize("size", [7, 64, 101])
def test_gathered_patches(size):
    """The index of a patch, as of a convolution: groups of 8 columns come from one place."""

    @T.prim_func
    def patches(X: T.Tensor((13, 3, 8), "float32"), Y: T.Tensor((13, 24), "float32"), n: T.int32):
        with T.Kernel(13) as bx:
            for j in T.Parallel(24):
                r = j + (n - n)
                Y[bx, j] = X[bx + r // 8 - 1, r // 8 % 3, r % 8]

    given_, results = np.random.default_rng(size).random((13, 3, 8), np.float32), []
    for target in ("cpu", "reference"):
        out = np.zeros((13, 24), np.float32)
        tilewright.compile(patches, target=target)(given_, out, size)
        results.append(out)
    np.testing.assert_array_equal(*results)
