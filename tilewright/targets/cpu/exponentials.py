"""exp, exp2, exp10 and expm1 of float lanes: 2^n times a polynomial in what is left."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.targets.cpu.float_lanes import (
    LG2_HIGH,
    LG2_LOW,
    LN2,
    LN2_HIGH,
    LN2_LOW,
    LOG2_E,
    ROUNDING_BITS,
    Lanes,
    any_lane,
    float32_error,
)
from tilewright.targets.cpu.values import Value, integer, suffix
from tilewright.targets.cpu.writer import Writer

# (exp r - 1 - r) / r^2 on |r| <= ln 2 / 2; relative error of exp 3e-9.
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166826233267784, 0.00836867094039917, 0.0013821041211485863)


def _exp_minus_1(f: Lanes, r: Value) -> Value:
    """exp r - 1 for |r| <= ln 2 / 2."""
    return f.mad(f.mul(r, r), f.poly(r, _EXP), r)


def _scaled(w: Writer, p: Value, whole: Value, exponent: Value) -> Value:
    """p * 2^exponent, rounded once also where the result is subnormal; `whole` is the exponent as a float."""
    if w.facts.avx512 and p.lanes in (4, 8, 16):
        return _scale_instruction(w, p, whole)
    f = Lanes(w, p)
    biased = w.bin("add", exponent, f.int(2 * 127))  # the biases of both factors; never negative
    half = w.bin("lshr", biased, f.int(1))
    for part in (half, w.bin("sub", biased, half)):
        p = f.mul(p, f.floats(w.bin("shl", part, f.int(23))))
    return p


def _scale_instruction(w: Writer, p: Value, whole: Value) -> Value:
    bits = 32 * p.lanes
    mask = "i16" if p.lanes == 16 else "i8"
    name = f"llvm.x86.avx512.mask.scalef.ps.{bits}"
    extra = [integer(-1, int(mask[1:]))] + ([integer(4, 32)] if p.lanes == 16 else [])  # all lanes, default rounding
    arguments = [p, whole, p, *extra]
    w.module.declare(name, p.type, tuple([a.type for a in arguments]))
    return w.call(name, p.type, p.lanes, *arguments)


def exp(w: Writer, x: Value) -> Value:
    """e to the power x."""
    return _guarded(w, "exp", x, 86.5, (-104.5, 89.0), _exp)


def exp2(w: Writer, x: Value) -> Value:
    """2 to the power x."""
    return _guarded(w, "exp2", x, 125.0, (-151.0, 129.0), _exp2)


def exp10(w: Writer, x: Value) -> Value:
    """10 to the power x."""
    return _guarded(w, "exp10", x, 37.5, (-45.5, 39.0), _exp10)


Parts = tuple[Value, Value, Value]
"""x as p * 2^n: p, n as a float, n as an integer above 0x4B400000."""


def _exp(f: Lanes, x: Value) -> Parts:
    shifted, whole = f.nearest(x, LOG2_E)
    r = f.mad(whole, f.real(-LN2_HIGH), x)
    r = f.mad(whole, f.real(-LN2_LOW), r)
    return f.add(_exp_minus_1(f, r), f.real(1.0)), whole, shifted


def _exp2(f: Lanes, x: Value) -> Parts:
    shifted, whole = f.nearest(x, 1.0)
    r = f.mul(f.sub(x, whole), f.real(LN2))
    return f.add(_exp_minus_1(f, r), f.real(1.0)), whole, shifted


def _exp10(f: Lanes, x: Value) -> Parts:
    shifted, whole = f.nearest(x, math.log2(10))
    r = f.mad(whole, f.real(-LG2_HIGH), x)
    r = f.mad(whole, f.real(-LG2_LOW), r)
    high = math.log(10) - float32_error(math.log(10))
    r = f.mad(r, f.real(high), f.mul(r, f.real(math.log(10) - high)))
    return f.add(_exp_minus_1(f, r), f.real(1.0)), whole, shifted


def _guarded(
    w: Writer,
    name: str,
    x: Value,
    near: float,
    ends: tuple[float, float],
    parts: Callable[[Lanes, Value], Parts],
) -> Value:
    """The fast form where every lane is within +-`near`, so that no result leaves the normal range, else the full one.

    ends: beyond them are 0 and infinity.  A function of its own keeps the branch out of the caller, and is inlined.
    """
    if w.facts.avx512 and x.lanes in (4, 8, 16):
        return _everywhere(w, x, ends, parts)
    full = f"tw.{name}.{suffix(x.type)}"
    module = w.module
    if full not in module.internal:
        module.internal[full] = None
        argument = Value("%x", x.type, x.lanes)
        fast = Writer(module, f"define internal {x.type} @{full}({x.type} %x) alwaysinline nounwind memory(none)")
        f = Lanes(fast, argument)
        p, _, shifted = parts(f, argument)
        result = f.floats(fast.bin("add", fast.as_bits(p), fast.bin("shl", shifted, f.int(23))))
        far = any_lane(fast, f.test("ugt", f.magnitude(argument), near))
        fast.emit(f"br i1 {far.text}, label %far, label %near, !prof {module.unlikely()}")
        fast.place("near")
        fast.emit(f"ret {result.operand}")
        fast.place("far")
        fast.emit(f"ret {_everywhere(fast, argument, ends, parts).operand}")
        fast.finish()
    return w.call(full, x.type, x.lanes, x)


def _everywhere(w: Writer, x: Value, ends: tuple[float, float], parts: Callable[[Lanes, Value], Parts]) -> Value:
    f = Lanes(w, x)
    p, whole, shifted = parts(f, f.clamp(x, *ends))
    return _scaled(w, p, whole, w.bin("sub", shifted, f.int(ROUNDING_BITS)))


def expm1(w: Writer, x: Value) -> Value:
    """exp(x) - 1."""
    f = Lanes(w, x)
    given = x
    x = f.clamp(x, -30.0, 89.0)
    shifted, whole = f.nearest(x, LOG2_E)
    r = f.mad(whole, f.real(-LN2_HIGH), x)
    r = f.mad(whole, f.real(-LN2_LOW), r)
    # 2^n (exp r - 1) + (2^n - 1), at half its size so that the largest exponent does not overflow.
    power = f.floats(w.bin("shl", w.bin("add", shifted, f.int(126)), f.int(23)))
    result = f.mad(_exp_minus_1(f, r), power, f.sub(power, f.real(0.5)))
    return f.pick(f.test("oeq", given, 0.0), given, f.add(result, result))
