"""Values of the emitter: LLVM types, literals, and sums of products of index variables."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field

from tilewright.ir.dtype import DType


@dataclass(slots=True, eq=False)
class Value:
    """An LLVM value.

    text: as an operand; type: its LLVM type; number: of an integer literal, signed (of each lane of a splat);
    depth: the nesting of the region that defines it, 0 for constants and the function's entry.
    """

    text: str
    type: str
    lanes: int = 1
    number: int | None = None
    depth: int = 0

    @property
    def scalar_type(self) -> str:
        """The type of one lane."""
        return self.type.rpartition(" ")[2][:-1] if self.lanes > 1 else self.type

    @property
    def operand(self) -> str:
        """Type and text."""
        return f"{self.type} {self.text}"


def vector_type(scalar: str, lanes: int) -> str:
    """`lanes` of an LLVM scalar type."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def suffix(type_text: str) -> str:
    """A type as it stands in the name of an overloaded intrinsic: v16f32."""
    if type_text.startswith("<"):
        count, _, scalar = type_text[1:-1].partition(" x ")
        return f"v{count}{suffix(scalar)}"
    return {"float": "f32", "double": "f64", "half": "f16", "bfloat": "bf16", "ptr": "p0"}.get(type_text, type_text)


def width(scalar_type: str) -> int:
    """Bits of an LLVM scalar type."""
    return {"float": 32, "double": 64, "half": 16, "bfloat": 16, "ptr": 64}.get(scalar_type) or int(scalar_type[1:])


def integer(number: int, bits: int = 64, lanes: int = 1) -> Value:
    """An integer literal; `number` wraps at `bits`."""
    number &= (1 << bits) - 1
    if bits == 1:
        text = "true" if number else "false"
    else:
        number -= (number >> (bits - 1)) << bits
        text = str(number)
    if lanes > 1:
        text = f"splat (i{bits} {text})"
    return Value(text, vector_type(f"i{bits}", lanes), lanes, number)


def real(number: float, scalar_type: str = "float", lanes: int = 1) -> Value:
    """A float or double literal; for float, `number` must be a float32 value or is rounded to one."""
    if scalar_type == "float" and math.isfinite(number):
        number = to_float32(number)
    pattern = struct.unpack("<Q", struct.pack("<d", number))[0]
    text = f"0x{pattern:016X}"
    if lanes > 1:
        text = f"splat ({scalar_type} {text})"
    return Value(text, vector_type(scalar_type, lanes), lanes)


def to_float32(number: float) -> float:
    """The float32 nearest to `number`."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return math.copysign(math.inf, number)
    return rounded


def compute_scalar(dtype: DType) -> str:
    """The LLVM type that one lane of `dtype` has in registers."""
    if dtype.is_float:
        return "double" if dtype.bits == 64 else "float"
    return "i1" if dtype.is_bool else f"i{max(dtype.bits, 8)}"


def storage_scalar(dtype: DType) -> str:
    """The LLVM type that one lane of `dtype` has in memory."""
    if dtype.is_float and dtype.bits >= 32:
        return "double" if dtype.bits == 64 else "float"
    return f"i{max(dtype.bits, 8)}"


def storage_bytes(dtype: DType) -> int:
    """Bytes of one element of `dtype` in memory; lanes below 8 bits take a byte each."""
    return max(dtype.bits, 8) // 8 * dtype.lanes


Key = tuple[str, ...]


@dataclass(slots=True, eq=False)
class Linear:
    """An exact 64-bit integer: a sum of coefficients times products of atoms.

    terms: product (the texts of its atoms, sorted; () is the constant) -> coefficient.
    """

    terms: dict[Key, int]
    atoms: dict[str, Value] = field(default_factory=dict)

    @staticmethod
    def constant(number: int) -> Linear:
        """A literal."""
        return Linear({(): number} if number else {})

    @staticmethod
    def atom(value: Value) -> Linear:
        """One i64 value."""
        if value.number is not None:
            return Linear.constant(value.number)
        return Linear({(value.text,): 1}, {value.text: value})

    @property
    def number(self) -> int | None:
        """The value where it is a literal."""
        if not self.terms:
            return 0
        return self.terms[()] if len(self.terms) == 1 and () in self.terms else None

    @property
    def offset(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor * other."""
        terms = dict(self.terms)
        for key, coefficient in other.terms.items():
            total = terms.get(key, 0) + factor * coefficient
            if total:
                terms[key] = total
            else:
                terms.pop(key, None)
        return Linear(terms, {**self.atoms, **other.atoms} if other.atoms else self.atoms)

    def scaled(self, factor: int) -> Linear:
        """factor * self."""
        if factor == 1:
            return self
        return Linear({k: c * factor for k, c in self.terms.items()} if factor else {}, self.atoms)

    def times(self, other: Linear) -> Linear:
        """self * other, multiplied out."""
        if other.number is not None:
            return self.scaled(other.number)
        if self.number is not None:
            return other.scaled(self.number)
        result = Linear({}, {**self.atoms, **other.atoms})
        for mine, a in self.terms.items():
            for theirs, b in other.terms.items():
                key = tuple(sorted(mine + theirs))
                result.terms[key] = result.terms.get(key, 0) + a * b
        return result


@dataclass(slots=True, eq=False)
class Item:
    """kind: "typed", "index" or "literal".  Scalars of the latter two have `linear`, vectors `value` (i64 lanes)."""

    dtype: DType
    kind: str = "typed"
    value: Value | None = None
    stored: Value | None = None
    linear: Linear | None = None
