"""Expressions, regions and declarations as text, and the names in scope; `printer` does the rest."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    BINARY_OPS,
    BOOL,
    FLOAT32,
    INT32,
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Reinterpret,
    Select,
    Shuffle,
    Unary,
    Var,
    VectorReduce,
    const_int,
)
from tilewright.ir.grammar import ATOM, PRECEDENCE, PREFIX, UNCHAINED, VECTOR_REDUCE, call_result, identifier, is_int32
from tilewright.ir.stmt import Region
from tilewright.ir.structural import same

_PREFIX_TEXT = {op: f"{symbol} " if symbol.isalpha() else symbol for symbol, op in PREFIX.items()}


class Names:
    """The names in scope.  No two things have the same name where both are known."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._taken: set[str] = set()
        # What each open scope introduced; it stays alive as long, so that no other object gets its id.
        self._scopes: list[list[Var | Buffer]] = [[]]

    def enter(self) -> None:
        """Open a scope."""
        self._scopes.append([])

    def leave(self) -> None:
        """Close the innermost scope: its names are free again."""
        for item in self._scopes.pop():
            self._taken.discard(self._names.pop(id(item)))

    def declare(self, item: Var | Buffer) -> str:
        """The name of `item` from here to the end of the innermost scope."""
        return self._names.get(id(item)) or self._add(item, self._scopes[-1])

    def find(self, item: Var | Buffer) -> str:
        """The name of `item`; what is declared nowhere has one everywhere."""
        return self._names.get(id(item)) or self._add(item, self._scopes[0])

    def _add(self, item: Var | Buffer, scope: list[Var | Buffer]) -> str:
        base = name = identifier(item.name)
        count = 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        self._names[id(item)] = name
        scope.append(item)
        return name


class ExpressionPrinter:
    """Writes expressions; a dtype is written only where its surroundings do not tell it."""

    def __init__(self) -> None:
        self.names = Names()

    def expr(self, item: Expr) -> str:
        """An expression without outer parentheses."""
        return self._strong(item)[0]

    def typed(self, item: Expr, dtype: DType) -> str:
        """An expression where one of `dtype` is expected, which a literal need not say."""
        return literal(item, dtype) if isinstance(item, Const) else self.expr(item)

    def exprs(self, items: tuple[Expr, ...]) -> str:
        """Expressions with commas between."""
        return ", ".join(map(self.expr, items))

    def indices(self, indices: tuple[Expr, ...]) -> str:
        """Indices with commas between; consecutive elements as `first +: count`."""
        return ", ".join(map(self._index, indices))

    def region(self, item: Region) -> str:
        """A region: `A[start +: extent, ...]`; just `start` where the extent is 1, just `A` for the whole buffer."""
        name = self.names.find(item.buffer)
        parts = list(zip(item.starts, item.extents, strict=True))
        if len(parts) == len(item.buffer.shape) and all(
            is_int32(start, 0) and same(extent, size)
            for (start, extent), size in zip(parts, item.buffer.shape, strict=True)
        ):
            return name
        return f"{name}[{', '.join(self._box_side(start, extent) for start, extent in parts)}]"

    def declaration(self, buffer: Buffer, name: str, implied_scope: str = "") -> str:
        """`name: dtype[shape] scope` and what else there is to say of a buffer."""
        text = f"{name}: {buffer.dtype}[{self.exprs(buffer.shape)}]"
        if buffer.scope != implied_scope:
            text += f" {buffer.scope}"
        if buffer.strides is not None:
            text += f" strides({self.exprs(buffer.strides)})"
        if buffer.reducer is not None:
            text += f" reducer({buffer.reducer})"
        if buffer.safe_value is not None:
            text += f" safe({self.typed(buffer.safe_value, buffer.dtype)})"
        return text

    def counter(self, var: Var) -> str:
        """Declare a loop variable or block index: its name, and its dtype unless that is int32."""
        name = self.names.declare(var)
        return name if var.dtype is INT32 else f"{name}: {var.dtype}"

    def _box_side(self, start: Expr, extent: Expr) -> str:
        return self.expr(start) if is_int32(extent, 1) else f"{self.expr(start)} +: {self.expr(extent)}"

    def _index(self, item: Expr) -> str:
        if isinstance(item, Ramp) and const_int(item.stride) == 1 and item.stride.dtype is item.base.dtype:
            return f"{self.expr(item.base)} +: {item.dtype.lanes}"
        return self.expr(item)

    # --- one method for each kind of expression: the text, and how strongly it binds ------------------

    def _strong(self, item: Expr) -> tuple[str, int]:
        return _EXPRESSIONS[type(item)](self, item)

    def _operand(self, item: Expr, least: int, implied: DType | None = None) -> str:
        text, strength = _bound(literal(item, implied)) if isinstance(item, Const) else self._strong(item)
        return text if strength >= least else f"({text})"

    def _const(self, item: Const) -> tuple[str, int]:
        return _bound(literal(item))

    def _var(self, item: Var) -> tuple[str, int]:
        return self.names.find(item), ATOM

    def _unary(self, item: Unary) -> tuple[str, int]:
        strength = PRECEDENCE[item.op]
        if item.op == "neg" and isinstance(item.operand, Const):  # `-3` is a literal
            return f"-({literal(item.operand)})", strength
        operand = self._operand(item.operand, strength + (item.op != "not"))
        return f"{_PREFIX_TEXT[item.op]}{operand}", strength

    def _binary(self, item: Binary) -> tuple[str, int]:
        symbol = BINARY_OPS[item.op][0]
        strength = PRECEDENCE.get(item.op)
        least = 0 if strength is None else strength
        left = self._operand(item.lhs, least + (item.op in UNCHAINED), _implied(item.lhs, item.rhs))
        right = self._operand(item.rhs, least + 1 if strength else 0, item.lhs.dtype)
        return (f"{symbol}({left}, {right})", ATOM) if strength is None else (f"{left} {symbol} {right}", strength)

    def _cast(self, item: Cast) -> tuple[str, int]:
        extras = f", {item.rounding}" if item.rounding != "rn" else ""
        extras += ", saturate" if item.saturate else ""
        return f"cast<{item.dtype}>({self.expr(item.value)}{extras})", ATOM

    def _reinterpret(self, item: Reinterpret) -> tuple[str, int]:
        return f"reinterpret<{item.dtype}>({self.expr(item.value)})", ATOM

    def _select(self, item: Select) -> tuple[str, int]:
        on_true = self._operand(item.on_true, 0, _implied(item.on_true, item.on_false))
        on_false = self.typed(item.on_false, item.on_true.dtype)
        return f"select({self.expr(item.condition)}, {on_true}, {on_false})", ATOM

    def _load(self, item: Load) -> tuple[str, int]:
        inner = f"{self.names.find(item.buffer)}[{self.indices(item.indices)}]"
        return (inner if item.mask is None else f"({inner} where {self.expr(item.mask)})"), ATOM

    def _call(self, item: Call) -> tuple[str, int]:
        first = item.args[0].dtype if item.args else None
        dtype = "" if call_result(item.name, first) is item.dtype else f"<{item.dtype}>"
        rest = [self.typed(a, item.args[0].dtype) for a in item.args[1:]]
        return f"{item.name}{dtype}({', '.join([*map(self.expr, item.args[:1]), *rest])})", ATOM

    def _ramp(self, item: Ramp) -> tuple[str, int]:
        stride = self.typed(item.stride, item.base.dtype)
        return f"ramp({self.expr(item.base)}, {stride}, {item.dtype.lanes})", ATOM

    def _broadcast(self, item: Broadcast) -> tuple[str, int]:
        return f"broadcast({self.expr(item.value)}, {item.dtype.lanes})", ATOM

    def _shuffle(self, item: Shuffle) -> tuple[str, int]:
        lanes = ", ".join(map(str, item.lanes))
        return f"shuffle({self.expr(item.first)}, {self.expr(item.second)}, [{lanes}])", ATOM

    def _vector_reduce(self, item: VectorReduce) -> tuple[str, int]:
        return f"{VECTOR_REDUCE}{item.op}({self.expr(item.value)})", ATOM


def _bound(text: str) -> tuple[str, int]:
    """A literal, and how strongly it binds."""
    return text, (PRECEDENCE["neg"] if text.startswith("-") else ATOM)


def _implied(lhs: Expr, rhs: Expr) -> DType | None:
    """The dtype that the right operand gives a literal left of it; None where both are literals of one dtype."""
    return None if isinstance(rhs, Const) and rhs.dtype is lhs.dtype else rhs.dtype


def plain_literal(item: Const) -> str:
    """A literal without its dtype."""
    if item.dtype.is_bool:
        return "True" if item.value else "False"
    if item.dtype.is_float:
        number = float(item.value)
        return "nan" if math.isnan(number) else repr(number)
    return str(item.value)


def literal(item: Const, implied: DType | None = None) -> str:
    """A literal where its surroundings imply a dtype, or none: then int32, float32 and bool need not be named."""
    text = plain_literal(item)
    unnamed = item.dtype is implied if implied is not None else item.dtype in (INT32, FLOAT32, BOOL)
    return text if unnamed else f"{item.dtype}({text})"


_EXPRESSIONS: dict[type[Expr], Callable[[ExpressionPrinter, Any], tuple[str, int]]] = {
    Const: ExpressionPrinter._const,
    Var: ExpressionPrinter._var,
    Unary: ExpressionPrinter._unary,
    Binary: ExpressionPrinter._binary,
    Cast: ExpressionPrinter._cast,
    Reinterpret: ExpressionPrinter._reinterpret,
    Select: ExpressionPrinter._select,
    Load: ExpressionPrinter._load,
    Call: ExpressionPrinter._call,
    Ramp: ExpressionPrinter._ramp,
    Broadcast: ExpressionPrinter._broadcast,
    Shuffle: ExpressionPrinter._shuffle,
    VectorReduce: ExpressionPrinter._vector_reduce,
}
