"""Integer expressions over sizes: their value, and the unknown size in one."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping

from tilewright.errors import VerificationError
from tilewright.ir.expr import Binary, Cast, Const, Expr, Select, Unary, Var

Values = Mapping[int, int]
"""id of a variable -> its value.  By id, because `==` on expressions builds a node."""


def _floordiv(a: int, b: int) -> int:
    return a // b if b else 0


def _floormod(a: int, b: int) -> int:
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    return (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)) if b else 0


def _truncmod(a: int, b: int) -> int:
    return a - _truncdiv(a, b) * b if b else 0


BINARY: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": _floordiv,
    "floormod": _floormod,
    "truncdiv": _truncdiv,
    "truncmod": _truncmod,
    "min": min,
    "max": max,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "shl": lambda a, b: a << b,
    "shr": lambda a, b: a >> b,
}
UNARY: dict[str, Callable[[int], int]] = {
    "neg": operator.neg,
    "not": lambda a: not a,
    "bitnot": operator.invert,
}


SOLVABLE = ("add", "sub", "mul")


def evaluate(expr: Expr, values: Values) -> int:
    """The exact value of an integer expression.

    Raises KeyError when a variable has no value, VerificationError for a node that has no place in a size.
    """
    if isinstance(expr, Const):
        return int(expr.value)
    if isinstance(expr, Var):
        return values[id(expr)]
    if isinstance(expr, Binary) and expr.op in BINARY:
        return BINARY[expr.op](evaluate(expr.lhs, values), evaluate(expr.rhs, values))
    if isinstance(expr, Unary):
        return UNARY[expr.op](evaluate(expr.operand, values))
    if isinstance(expr, Cast) and expr.dtype.is_int:
        return evaluate(expr.value, values)
    if isinstance(expr, Select):
        return evaluate(expr.on_true if evaluate(expr.condition, values) else expr.on_false, values)
    raise VerificationError(f"{type(expr).__name__} has no place in a size", location=expr.loc)


def variables(expr: Expr) -> Iterator[Var]:
    """The variables of `expr`, each time that they occur."""
    if isinstance(expr, Var):
        yield expr
    for child in expr.children():
        if isinstance(child, Expr):
            yield from variables(child)


def solvable(expr: Expr, unknown: Var) -> bool:
    """Whether `solve` knows the operations between `expr` and `unknown`, which occurs in it once."""
    while expr is not unknown:
        if isinstance(expr, Cast):
            expr = expr.value
        elif isinstance(expr, Binary) and expr.op in SOLVABLE:
            expr = expr.lhs if any(v is unknown for v in variables(expr.lhs)) else expr.rhs
        else:
            return False
    return True


def solve(expr: Expr, unknown: Var, result: int, values: Values) -> int | None:
    """The value of `unknown`, which occurs once, for which `expr` is `result`; None when there is none or not just one."""
    while expr is not unknown:
        if isinstance(expr, Cast):
            expr = expr.value
        elif isinstance(expr, Binary) and expr.op in SOLVABLE:
            on_left = any(v is unknown for v in variables(expr.lhs))
            known = evaluate(expr.rhs if on_left else expr.lhs, values)
            if expr.op == "mul":
                if known == 0 or result % known:
                    return None
                result //= known
            elif expr.op == "add":
                result -= known
            else:
                result = result + known if on_left else known - result
            expr = expr.lhs if on_left else expr.rhs
        else:
            return None
    return result


def text(expr: Expr) -> str:
    """`expr` as a user would write it in a shape."""
    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Cast):
        return text(expr.value)
    if isinstance(expr, Binary):
        return f"({text(expr.lhs)} {_SYMBOLS.get(expr.op, expr.op)} {text(expr.rhs)})"
    return "..."


_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}
