"""How far the functions of the CPU back-end are from the true values, in units in the last place."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import RUNNABLE, Loaded, buf, kernel, load, loop, ramp, resolve, store, var

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Call
from tilewright.ir.intrinsics import INTRINSICS
from tilewright.simulator.operations import intrinsic_function
from tilewright.simulator.tolerance import tolerance

# Largest error measured (over 2 million arguments, on each instruction set), rounded up; 0.5 is correct rounding.
LIMITS = {
    "exp": 1.1, "exp2": 1.1, "exp10": 1.3, "expm1": 1.6, "sigmoid": 2.3, "tanh": 1.4, "erf": 1.4, "log": 1.0,
    "log2": 1.9, "log10": 2.0, "log1p": 1.7, "sin": 1.7, "cos": 1.7, "hypot": 0.51, "rsqrt": 1.6,
}  # fmt: skip
# The C library's: errors differ between versions; glibc has 2.0 at most.
LIMITS.update(dict.fromkeys(("tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "atan2"), 3.0))
SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-40, -1e-40, 1.1754944e-38, 3.4028235e38]
SPECIAL += [-3.4028235e38, 88.72, 88.73, -103.9, -103.98, -87.3, 127.99, 128.0, -149.0, -150.0, 38.53, -45.2, 0.625]
SPECIAL += [-0.99999994, 0.99999994, 1048575.9, 1048576.0, 1e8, 3e38, math.pi, math.pi / 2, 1.3333334, 0.6666667, 4.0]
LANES = (16, 8, 4, 3, 1)


def arguments(count, seed=0):
    """All bit patterns, and sizes that the functions do something with."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, count // 4, dtype=np.uint64).astype(np.uint32).view(np.float32)
    spread = np.ldexp(rng.standard_normal(count // 4), rng.integers(-30, 8, count // 4)).astype(np.float32)
    middle = rng.uniform(-110, 110, count // 4).astype(np.float32)
    near = np.float32(1) + np.ldexp(rng.standard_normal(count), rng.integers(-24, 0, count)).astype(np.float32)
    values = np.concatenate([np.array(SPECIAL, np.float32), bits, spread, middle, near])
    return values[:count]


def compute(name, args, level, of="float32"):
    """The function on equal parts of the arguments in vectors of each lane count."""
    count = len(args[0])
    params = [buf(f"x{k}", (count,), of) for k in range(len(args))]
    out, part, body = buf("out", (count,), of), count // len(LANES) // 48 * 48, []
    for k, lanes in enumerate(LANES):
        i = var("i")
        index = ramp(i, lanes) if lanes > 1 else i
        loaded = [load(p, index) for p in params]
        kind = loaded[0].dtype
        expr = Binary(kind, "pow", *loaded) if name == "pow" else Call(kind, name, tuple(loaded))
        body.append(loop(i, part * (k + 1), store(out, (index,), expr), start=part * k, step=lanes))
    result = np.zeros(count, dtype(of).numpy)
    Loaded(kernel([*params, out], *body), resolve(level))(*args, result)
    done = part * len(LANES)
    return result[:done], [a[:done] for a in args]


def errors(name, mine, args):
    """Distance from the true value in units of float32's last place there; NaN and infinities must be the same."""
    with np.errstate(all="ignore"):
        true = intrinsic_function(name, dtype("float64"))(*[a.astype(np.float64) for a in args])
        rounded = true.astype(np.float32)
        finite = np.isfinite(true) & (np.abs(true) < 3.4028235e38)
        same = (np.isnan(mine) & np.isnan(true)) | (mine == rounded)
        unit = np.ldexp(1.0, np.maximum(np.frexp(true)[1] - 24, -149))
        distance = np.where(finite, np.abs(mine.astype(np.float64) - true) / unit, np.where(same, 0.0, np.inf))
        near_top = np.isfinite(true) & ~finite & (np.abs(mine) > 3.40282e38)
    return np.where(near_top, 0.0, distance)


def worst(name, level, count):
    args = [arguments(count, k) for k in range(INTRINSICS[name].arity)]
    mine, args = compute(name, args, level)
    distance = errors(name, mine, args)
    at = int(np.argmax(distance))
    return float(distance[at]), [float(a[at]) for a in args], float(mine[at])


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", list(LIMITS))
def test_error_in_units_in_the_last_place(name, level):
    error, where, got = worst(name, level, 20000)
    assert error <= LIMITS[name], f"{name}{tuple(where)} = {got!r} is {error:.2f} units off"


@pytest.mark.parametrize("of", ["float16", "bfloat16", "float8_e4m3fn", "float64"])
def test_other_dtypes_within_their_tolerance(of):
    with np.errstate(all="ignore"):
        x = arguments(1000).astype(dtype(of).numpy)
    rtol, atol = tolerance(of)
    for name in ("exp", "exp10", "log", "tanh", "sigmoid", "sin", "erf", "log1p"):
        mine, (given,) = compute(name, [x], "host", of)
        with np.errstate(all="ignore"):
            true = intrinsic_function(name, dtype("float64"))(given.astype(np.float64))
            limit = float(np.finfo(np.float64).max) if of == "float64" else float(dtype_max(of))
            fits = np.isfinite(true) & (np.abs(true) <= limit)
            close = np.abs(mine.astype(np.float64) - true) <= 2 * (atol + rtol * np.abs(true))
        assert close[fits].all(), f"{name} of {given[fits & ~close][:3]}: {mine[fits & ~close][:3]}"
        assert np.isnan(mine.astype(np.float64))[np.isnan(true)].all()


def dtype_max(of):
    import ml_dtypes

    return ml_dtypes.finfo(dtype(of).numpy).max


@pytest.mark.parametrize("of", ["float32", "float64"])
def test_powers(of):
    rng = np.random.default_rng(5)
    base = np.abs(rng.standard_normal(2000)).astype(of)
    exponent = rng.uniform(-20, 20, 2000).astype(of)
    base[:6], exponent[:6] = [0, -2, -2, np.inf, 1, np.nan], [0, 3, 0.5, -1, np.nan, 0]
    mine, (x, y) = compute("pow", [base, exponent], "host", of)
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.float64), y.astype(np.float64)).astype(of)
    np.testing.assert_allclose(mine, true, rtol=float(4 * np.finfo(of).eps))


@pytest.mark.parametrize("level", RUNNABLE)
def test_lanes_do_not_change_the_value(level):
    x = np.repeat(arguments(200), len(LANES))
    part = 48
    for name in ("exp", "tanh", "log1p", "erf", "sin"):
        for values in (x[:part], x[part : 2 * part]):
            result, _ = compute(name, [np.tile(values, len(LANES))], level)
            rows = result.reshape(len(LANES), part)
            assert all(np.array_equal(row, rows[0], equal_nan=True) for row in rows), name


if __name__ == "__main__":  # the measurement behind LIMITS
    for function in LIMITS:
        print(function, *[f"{level}: {worst(function, level, 2_000_000)}" for level in RUNNABLE], sep="\n   ")
