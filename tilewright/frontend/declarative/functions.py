"""Functions of declarative kernels that are not intrinsics of the IR."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.frontend.declarative.literals import balance, combine
from tilewright.ir.expr import Expr, const, select
from tilewright.source import Location


def _extreme(operation: str) -> Callable[..., Expr]:
    def build(*values: Expr, loc: Location) -> Expr:
        result = values[0]
        for value in values[1:]:
            result = combine(operation, result, value, loc)
        return result

    return build


def _relu(value: Expr, *, loc: Location) -> Expr:
    return combine("max", value, const(0), loc)


def _pow(base: Expr, exponent: Expr, *, loc: Location) -> Expr:
    return combine("pow", base, exponent, loc)


def _choose(test: Expr, on_true: Expr, on_false: Expr, *, loc: Location) -> Expr:
    first, second = balance(on_true, on_false)
    return select(test, first, second, loc=loc)


FUNCTIONS: dict[str, tuple[int | None, Callable[..., Expr]]] = {
    "max": (None, _extreme("max")),
    "maximum": (2, _extreme("max")),
    "min": (None, _extreme("min")),
    "minimum": (2, _extreme("min")),
    "relu": (1, _relu),
    "pow": (2, _pow),
    "where": (3, _choose),
    "if_then_else": (3, _choose),
}
ALIASES = {"fabs": "abs", "rint": "round", "nearbyint": "round"}
