"""Arithmetic of evenly growing vectors: what stays a Ramp, or the same in all lanes, is kept so.

    ramp(k * 32 + j, 1, 8) // 64  ->  (k * 32 + j) // 64                    where j is a multiple of 8:
    ramp(k * 32 + j, 1, 8) % 64   ->  ramp((k * 32 + j) % 64, 1, 8)         no lane carries into the next 64
All rules are exact for integers that wrap: only powers of two are used as common factors, which wrapping keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilewright.ir.dtype import DType
from tilewright.ir.expr import Binary, Cast, Const, Expr, Ramp, Unary, Var, binary, const, const_int
from tilewright.source import Location

_LARGEST_FACTOR = 1 << 31


def ramp_binary(op: str, left: Expr, right: Expr, multiples: Mapping[int, int], loc: Location | None) -> Expr | None:
    """`left op right` as a Ramp or a scalar, None where it is neither.

    One operand is a Ramp, the other a Ramp or a scalar of the same dtype.  multiples: id of a variable -> a power
    of two that divides it.
    """
    rule = _RULES.get(op)
    return None if rule is None else rule(op, left, right, multiples, loc)


def power_of_two_factor(item: Expr, multiples: Mapping[int, int]) -> int:
    """A power of two, at most 2**31, that divides `item` whether its arithmetic wraps or not."""
    if isinstance(item, Const):
        value = int(item.value)
        return min(value & -value, _LARGEST_FACTOR) if value else _LARGEST_FACTOR
    if isinstance(item, Var):
        return multiples.get(id(item), 1)
    if isinstance(item, Unary) and item.op == "neg":
        return power_of_two_factor(item.operand, multiples)
    if isinstance(item, Cast) and item.dtype.is_int and item.value.dtype.is_int:
        factor = power_of_two_factor(item.value, multiples)
        return min(factor, 1 << (min(item.dtype.bits, item.value.dtype.bits) - 1))
    if isinstance(item, Binary) and item.op in ("add", "sub", "mul"):
        a, b = power_of_two_factor(item.lhs, multiples), power_of_two_factor(item.rhs, multiples)
        return min(a * b, _LARGEST_FACTOR) if item.op == "mul" else min(a, b)
    return 1


def _ramp(base: Expr, stride: int, dtype: DType, loc: Location | None) -> Expr | None:
    """base, base + stride, ...; the base alone where the stride is 0; None for a stride beyond the dtype."""
    if stride == 0:
        return base
    low, high = dtype.int_range()
    if not low <= stride <= high:
        return None
    return Ramp(dtype, base, const(stride, dtype.scalar), loc=loc)


def _stride(item: Expr) -> tuple[Expr, int] | None:
    """Base and stride of an operand; a scalar has the stride 0."""
    if not isinstance(item, Ramp):
        return (item, 0) if item.dtype.lanes == 1 else None
    stride = const_int(item.stride)
    return None if stride is None else (item.base, stride)


def _sum(op: str, left: Expr, right: Expr, multiples: Mapping[int, int], loc: Location | None) -> Expr | None:
    a, b = _stride(left), _stride(right)
    if a is None or b is None:
        return None
    dtype = left.dtype if left.dtype.lanes > 1 else right.dtype
    stride = a[1] + b[1] if op == "add" else a[1] - b[1]
    return _ramp(binary(op, a[0], b[0], loc=loc), stride, dtype, loc)


def _product(op: str, left: Expr, right: Expr, multiples: Mapping[int, int], loc: Location | None) -> Expr | None:
    if not isinstance(left, Ramp):
        left, right = right, left
    factor, parts = const_int(right), _stride(left)
    if factor is None or parts is None or right.dtype.lanes > 1:
        return None
    return _ramp(binary("mul", parts[0], right, loc=loc), parts[1] * factor, left.dtype, loc)


def _division(op: str, left: Expr, right: Expr, multiples: Mapping[int, int], loc: Location | None) -> Expr | None:
    """By a literal: no lane carries when the first is a multiple of a factor of the divisor that all lanes stay below."""
    divisor, parts = const_int(right), _stride(left)
    if divisor is None or divisor <= 0 or parts is None or not isinstance(left, Ramp):
        return None
    base, stride = parts
    factor = min(power_of_two_factor(base, multiples), divisor & -divisor)
    if not 0 <= stride * (left.dtype.lanes - 1) < factor:
        return None
    first = binary(op, base, right, loc=loc)
    return first if op == "floordiv" else _ramp(first, stride, left.dtype, loc)


_Rule = Callable[[str, Expr, Expr, Mapping[int, int], "Location | None"], "Expr | None"]
_RULES: dict[str, _Rule] = {
    "add": _sum,
    "sub": _sum,
    "mul": _product,
    "floordiv": _division,
    "floormod": _division,
}
