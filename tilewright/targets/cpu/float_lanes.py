"""Arithmetic on the float lanes of a vector, as polynomials and range reductions are written."""

from __future__ import annotations

import math

from tilewright.targets.cpu.values import Value, integer, real, to_float32, vector_type
from tilewright.targets.cpu.writer import Writer


def float32_error(number: float) -> float:
    """What rounding to float32 takes away."""
    return number - to_float32(number)


def any_lane(w: Writer, mask: Value) -> Value:
    """Whether a mask holds in any lane."""
    if mask.lanes == 1:
        return mask
    name = f"llvm.vector.reduce.or.v{mask.lanes}i1"
    w.module.declare(name, "i1", (mask.type,))
    return w.call(name, "i1", 1, mask)


class Lanes:
    """Shorthand for float code on all lanes of `x`."""

    def __init__(self, w: Writer, x: Value) -> None:
        self.w = w
        self.lanes = x.lanes

    def real(self, number: float) -> Value:
        return real(number, "float", self.lanes)

    def int(self, number: int) -> Value:
        return integer(number, 32, self.lanes)

    def add(self, a: Value, b: Value) -> Value:
        return self.w.bin("fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.w.bin("fsub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.w.bin("fmul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        return self.w.bin("fdiv", a, b)

    def mad(self, a: Value, b: Value, c: Value) -> Value:
        """a * b + c, fused where that is one instruction."""
        return self.w.intrinsic("fmuladd", a, b, c)

    def poly(self, x: Value, coefficients: tuple[float, ...]) -> Value:
        """A polynomial, lowest coefficient first."""
        result = self.real(coefficients[-1])
        for coefficient in coefficients[-2::-1]:
            result = self.mad(result, x, self.real(coefficient))
        return result

    def floats(self, bits: Value) -> Value:
        return self.w.bitcast(bits, vector_type("float", self.lanes), self.lanes)

    def magnitude(self, x: Value) -> Value:
        return self.w.intrinsic("fabs", x)

    def clamp(self, x: Value, low: float, high: float) -> Value:
        """x held in [low, high]; NaN stays."""
        w = self.w
        x = w.select(w.fcmp("ogt", x, self.real(high)), self.real(high), x)
        return w.select(w.fcmp("olt", x, self.real(low)), self.real(low), x)

    def pick(self, condition: Value, a: Value, b: Value) -> Value:
        return self.w.select(condition, a, b)

    def test(self, predicate: str, x: Value, number: float) -> Value:
        return self.w.fcmp(predicate, x, self.real(number))

    def nearest(self, x: Value, factor: float) -> tuple[Value, Value]:
        """x * factor rounded to a whole number n below 2^22 in magnitude: the integer n + ROUNDING_BITS, and n as a float."""
        shifted = self.mad(x, self.real(factor), self.real(_ROUNDING))
        return self.w.as_bits(shifted), self.sub(shifted, self.real(_ROUNDING))


_ROUNDING = 1.5 * 2.0**23
"""Added to a float below 2^22 it leaves a whole number in the mantissa."""
ROUNDING_BITS = 0x4B400000
"""Its bits; the lowest nine are 0."""

LOG2_E = math.log2(math.e)
# ln 2 in two parts, the first of 9 bits so that its product with an exponent is exact (Cody and Waite).
LN2_HIGH, LN2_LOW = 355 / 512, math.log(2) - 355 / 512
LN2 = math.log(2)
# log10 2 likewise.
LG2_HIGH, LG2_LOW = 77 / 256, math.log10(2) - 77 / 256
