"""Differences of integer expressions, so that the length of `A[i * 32 : (i + 1) * 32]` is the literal 32."""

from __future__ import annotations

from tilewright.ir.expr import Binary, Cast, Expr, Unary, Var, binary, const, const_int
from tilewright.ir.node import Node
from tilewright.source import Location

# A sum of terms: key of the term -> (the term, its factor); the key of the constant part is ().
_Sum = dict[object, tuple[Expr, int]]


def difference(a: Expr, b: Expr, loc: Location | None = None) -> Expr:
    """`a - b`, with terms that occur in both cancelled."""
    known_a, known_b = const_int(a), const_int(b)
    if known_a is not None and known_b is not None:
        return const(known_a - known_b, loc=loc)
    if known_b == 0:
        return a
    total: _Sum = {}
    _collect(a, 1, total)
    _collect(b, -1, total)
    left = [(term, factor) for key, (term, factor) in total.items() if factor and key != ()]
    rest = total[()][1] if () in total else 0
    if not left:
        return const(rest, loc=loc)
    result: Expr | None = None
    for term, factor in sorted(left, key=lambda item: item[1] < 0):
        if result is None:
            result = binary("mul", term, factor, loc=loc)
        elif factor < 0:
            result = binary("sub", result, binary("mul", term, -factor, loc=loc), loc=loc)
        else:
            result = binary("add", result, binary("mul", term, factor, loc=loc), loc=loc)
    assert result is not None
    return binary("sub", result, -rest, loc=loc) if rest < 0 else binary("add", result, rest, loc=loc)


def _add(total: _Sum, key: object, term: Expr, factor: int) -> None:
    old = total.get(key)
    total[key] = (term, factor + (old[1] if old is not None else 0))


def _collect(value: Expr, factor: int, total: _Sum) -> None:
    """Add `factor * value` to `total`."""
    known = const_int(value)
    if known is not None:
        _add(total, (), value, factor * known)
    elif isinstance(value, Binary) and value.op in ("add", "sub"):
        _collect(value.lhs, factor, total)
        _collect(value.rhs, factor if value.op == "add" else -factor, total)
    elif isinstance(value, Binary) and value.op == "mul" and const_int(value.rhs) is not None:
        _collect(value.lhs, factor * (const_int(value.rhs) or 0), total)
    elif isinstance(value, Binary) and value.op == "mul" and const_int(value.lhs) is not None:
        _collect(value.rhs, factor * (const_int(value.lhs) or 0), total)
    elif isinstance(value, Binary) and value.op == "mul":
        _collect_product(value, factor, total)
    elif isinstance(value, Unary) and value.op == "neg":
        _collect(value.operand, -factor, total)
    elif isinstance(value, Cast) and value.dtype.is_int and value.dtype.bits >= value.value.dtype.bits:
        _collect(value.value, factor, total)
    else:
        _add(total, structure(value), value, factor)


def _collect_product(value: Binary, factor: int, total: _Sum) -> None:
    """`(a + b) * c` as `a * c + b * c`, for a sum on either side."""
    for inner, outer in ((value.lhs, value.rhs), (value.rhs, value.lhs)):
        if isinstance(inner, Binary) and inner.op in ("add", "sub"):
            _collect(binary("mul", inner.lhs, outer, loc=value.loc), factor, total)
            _collect(binary("mul", inner.rhs, outer, loc=value.loc), factor if inner.op == "add" else -factor, total)
            return
    _add(total, ("mul", frozenset((structure(value.lhs), structure(value.rhs)))), value, factor)


def structure(value: Node) -> object:
    """A key that is equal for expressions that are built alike from the same variables and loads."""
    if isinstance(value, Var):
        return id(value)
    own = tuple(
        item
        for name in value.__dataclass_fields__
        if name not in ("loc",) and not isinstance(item := getattr(value, name), (Node, tuple))
    )
    return (type(value).__name__, *[_plain_key(item) for item in own], *[structure(c) for c in value.children()])


def _plain_key(item: object) -> object:
    return item if isinstance(item, (str, int, float, bool)) else id(item)
