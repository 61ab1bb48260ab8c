"""Every conversion between dtypes, bit for bit as the evaluator, on scalars and vectors and for every instruction set."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import RUNNABLE, buf, kernel, load, loop, ramp, resolve, run_both, same_bits, store, var

from tilewright.ir.dtype import FORMATS, dtype
from tilewright.ir.expr import Cast, Reinterpret, const

DTYPES = [name for name in FORMATS if name != "handle"]
INTEGERS = [name for name in DTYPES if not dtype(name).is_float]
FLOATS = [name for name in DTYPES if dtype(name).is_float]
COUNT = 512


def values(name, seed=0):
    """Numbers of every size, with the special ones and halfway points of narrower formats."""
    spec, rng = dtype(name), np.random.default_rng(seed)
    if spec.is_bool:
        return rng.integers(0, 2, COUNT).astype(bool)
    if spec.is_int:
        low, high = spec.int_range()
        edges = [low, low + 1, 0, 1, high - 1, high, low // 2, high // 3]
        sizes = rng.integers(0, spec.bits + 1, COUNT)
        drawn = [int(rng.integers(0, 1 << 62)) & ((1 << int(s)) - 1) for s in sizes]
        signed = [-v if spec.kind == "int" and rng.random() < 0.5 else v for v in drawn]
        halves = [
            (1 << s) + (1 << max(s - d, 0)) + e for s in range(4, 62, 5) for d in (3, 8, 11, 24) for e in (-1, 0, 1)
        ]
        wanted = [v for v in (edges + halves + signed) if low <= v <= high]
        wanted = (wanted * (COUNT // len(wanted) + 1))[:COUNT]
        return np.array(wanted, np.int64 if spec.kind == "int" else np.uint64).astype(spec.numpy)
    if spec.bits == 4:
        return np.arange(COUNT, dtype=np.uint64).astype(np.uint8).__and__(15).view(spec.numpy)
    if spec.bits <= 16:
        raw = np.arange(COUNT) if spec.bits == 8 else rng.integers(0, 1 << 16, COUNT)
        return raw.astype(f"u{spec.bits // 8}").view(spec.numpy)
    wide = np.concatenate([
        np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, np.inf, -np.inf, np.nan, 1.5, 2.5, 3.4028235e38, -1e-45, 448, 464, 480, 57344, 61440, 240, 248, 65504, 65520]),
        np.ldexp(1 + rng.integers(0, 64, COUNT) / 32 + rng.integers(-1, 2, COUNT) * 2.0**-22, rng.integers(-160, 130, COUNT)),
    ])  # fmt: skip
    with np.errstate(all="ignore"):
        wide = np.where(rng.random(wide.size) < 0.5, wide, -wide)[:COUNT].astype(spec.numpy)
    if spec.bits == 64:
        wide[40::7] *= 1 + 2.0**-40  # more bits than float32 has, just beyond halfway points
        wide[41::7] *= 1 - 2.0**-40
    return wide


def cast_all(source, targets, level, rounding="rn", saturate=False):
    """One kernel: vectors of 16 lanes for the first half, of 4 for the next quarter, then scalars."""
    given = buf("given", (COUNT,), source)
    outs = [buf(f"out_{t}", (COUNT,), t) for t in targets]
    i = var("i")

    def body(index):
        return [
            store(out, (index,), Cast(dtype(t).with_lanes(index.dtype.lanes), load(given, index), rounding, saturate))
            for t, out in zip(targets, outs, strict=True)
        ]

    func = kernel(
        [given, *outs],
        loop(i, 256, *body(ramp(i, 16)), step=16),
        loop(i, 384, *body(ramp(i, 4)), start=256, step=4),
        loop(i, COUNT, *body(i), start=384),
    )
    arrays = [np.zeros(COUNT, dtype(t).numpy) for t in targets]
    mine, theirs = run_both(func, values(source), *arrays, target=resolve(level))
    for name, a, b in zip(targets, mine[1:], theirs[1:], strict=True):
        if name == "float4_e2m1fn" and dtype(source).is_float:  # of NaN it makes a zero, of either sign
            nan = np.isnan(mine[0].astype(np.float64))
            assert (a[nan].view(np.uint8) & 7 == 0).all()
            a, b = a[~nan], b[~nan]
        same_bits(a, b, f"{source} -> {name} ({level}, {rounding}):")


@pytest.mark.parametrize("source", DTYPES)
def test_casts_round_once(source):
    cast_all(source, DTYPES, "host")


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("source", ["float32", "float64", "int64", "uint64", "float16", "float8_e5m2fnuz"])
def test_casts_on_every_instruction_set(source, level):
    cast_all(source, DTYPES, level)


@pytest.mark.parametrize("source", ["float32", "float64", "int32", "int64", "uint64", "bfloat16"])
def test_casts_towards_zero(source):
    cast_all(source, FLOATS, "host", rounding="rz")


@pytest.mark.parametrize("source", ["float32", "float64", "uint64", "float16"])
def test_saturating_casts(source):
    cast_all(source, FLOATS, "host", saturate=True)


def test_copies_keep_every_bit():
    names = [n for n in DTYPES if dtype(n).bits >= 8 and n != "bool"]
    pairs = [(buf(f"a_{n}", (256,), n), buf(f"b_{n}", (256,), n)) for n in names]
    i = var("i")
    func = kernel(
        [b for pair in pairs for b in pair],
        loop(i, 256, *[store(b, (ramp(i, 8),), load(a, ramp(i, 8))) for a, b in pairs], step=8),
    )
    arrays = []
    for name in names:
        size = dtype(name).bits // 8
        raw = np.random.default_rng(size).integers(0, 256, 256 * size).astype(np.uint8)
        arrays += [raw.view(dtype(name).numpy), np.zeros(256, dtype(name).numpy)]
    mine, _ = run_both(func, *arrays)
    for given, copied in zip(mine[::2], mine[1::2], strict=True):
        assert given.tobytes() == copied.tobytes()


def test_reinterpret_reads_bits():
    pairs = [
        ("float32", "int32"),
        ("int16", "bfloat16"),
        ("float16", "uint16"),
        ("int8", "float8_e4m3fn"),
        ("uint64", "float64"),
        ("int4", "uint4"),
        ("bool", "uint8"),
    ]
    arrays, params, body, i = [], [], [], var("i")
    for source, target in pairs:
        a, b = buf(f"a_{source}", (COUNT,), source), buf(f"b_{target}", (COUNT,), target)
        params += [a, b]
        arrays += [values(source), np.zeros(COUNT, dtype(target).numpy)]
        body.append(store(b, (ramp(i, 8),), Reinterpret(dtype(target).with_lanes(8), load(a, ramp(i, 8)))))
    wide, narrow = buf("wide", (COUNT,), "int32"), buf("narrow", (2 * COUNT,), "bfloat16")
    halves = Reinterpret(dtype("bfloat16x16"), load(wide, ramp(i, 8)))
    body.append(store(narrow, (ramp(i + i, 16),), halves))
    arrays += [values("int32"), np.zeros(2 * COUNT, dtype("bfloat16").numpy)]
    mine, theirs = run_both(kernel([*params, wide, narrow], loop(i, COUNT, *body, step=8)), *arrays)
    for a, b in zip(mine, theirs, strict=True):
        same_bits(a, b)


@pytest.mark.parametrize("name", FLOATS)
def test_literals_are_rounded_once(name):
    with np.errstate(all="ignore"):
        wanted = [float(v) for v in values("float64")[:120]]
    out = buf("out", (len(wanted),), name)
    func = kernel([out], *[store(out, (i,), const(v, dtype(name))) for i, v in enumerate(wanted)])
    mine, theirs = run_both(func, np.zeros(len(wanted), dtype(name).numpy))
    number = ~np.isnan(wanted)
    same_bits(mine[0][number], theirs[0][number], name)
    if name != "float4_e2m1fn":
        same_bits(mine[0], theirs[0], name)
