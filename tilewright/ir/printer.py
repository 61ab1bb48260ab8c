"""IR as text: what `get_kernel_source()` shows, and what `ir.parser` reads back.

Both levels have one form.  Names are unique in a function.  Literals carry their dtype unless it is int32,
float32 or bool: `3`, `1.5`, `True`, `int64(3)`, `float16(1.5)`.  A vector index of consecutive elements is
written `i : i + 16`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import (
    BINARY_OPS,
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
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import (
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Prefetch,
    Print,
    Reduce,
    Region,
    Scan,
    Seq,
    Stmt,
    Store,
    Transpose,
    While,
)

INDENT = "    "
PLAIN_LITERALS = {"int32", "float32", "bool"}

# Binding strength of operators; everything else is a call or an atom.
PRECEDENCE: dict[str, int] = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), 4),
    "bitor": 5,
    "bitxor": 6,
    "bitand": 7,
    "shl": 8,
    "shr": 8,
    "add": 9,
    "sub": 9,
    "mul": 10,
    "div": 10,
    "floordiv": 10,
    "floormod": 10,
    "neg": 11,
    "bitnot": 11,
    "pow": 12,
}
ATOM = 20


def print_func(func: PrimFunc, *, locations: bool = False, show_source: bool = False) -> str:
    """A function as text.

    locations: append `@ "file":line:column` to every statement.  show_source: the user's line as a comment
    before each statement that comes from a new line.
    """
    return Printer(locations, show_source).function(func)


def print_stmt(stmt: Stmt) -> str:
    """A statement as text."""
    printer = Printer(False, False)
    printer.statement(stmt, "")
    return "\n".join(printer.lines)


def print_expr(item: Expr) -> str:
    """An expression as text."""
    return Printer(False, False).expr(item)


class Printer:
    """Collects the lines of one text and keeps the names of variables and buffers apart."""

    def __init__(self, locations: bool, show_source: bool) -> None:
        self.locations = locations
        self.show_source = show_source
        self.lines: list[str] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._taken: dict[str, int] = {}
        self._last_source: tuple[str, int] | None = None

    # --- names -------------------------------------------------------------------------------------

    def name(self, item: Var | Buffer) -> str:
        """The name of a variable or buffer, made unique at its first use."""
        found = self._names.get(id(item))
        if found is not None:
            return found
        base = item.name
        count = self._taken.get(base)
        name = base
        while name in self._taken:
            count = (count or 0) + 1
            name = f"{base}_{count}"
        self._taken[base] = count or 0
        self._taken[name] = 0
        self._names[id(item)] = name
        self._kept.append(item)
        return name

    # --- function ----------------------------------------------------------------------------------

    def function(self, func: PrimFunc) -> str:
        """The whole function."""
        for size in func.sizes:
            self.name(size)
        for param in func.params:
            self.name(param)
        params = [self._param(p) for p in func.params]
        self.lines.append(f"func {func.name}(")
        self.lines.extend(f"{INDENT}{p}," for p in params)
        sizes = ", ".join(f"{self.name(s)}: {s.dtype}" for s in func.sizes)
        outputs = ", ".join(str(o) for o in func.outputs)
        tail = f") level({func.level})"
        if sizes:
            tail += f" sizes({sizes})"
        if outputs:
            tail += f" outputs({outputs})"
        self.lines.append(f"{tail}{self._place(func)}:")
        self._block(func.body, INDENT)
        return "\n".join(self.lines) + "\n"

    def _param(self, param: Var | Buffer) -> str:
        if isinstance(param, Var):
            return f"{self.name(param)}: {param.dtype}"
        return self._declaration(param)

    def _declaration(self, buffer: Buffer) -> str:
        text = f"{self.name(buffer)}: {buffer.dtype}[{self._list(buffer.shape)}] {buffer.scope}"
        if buffer.strides is not None:
            text += f" strides({self._list(buffer.strides)})"
        if buffer.reducer is not None:
            text += f" reducer({buffer.reducer})"
        if buffer.safe_value is not None:
            text += f" safe({self.expr(buffer.safe_value)})"
        return text

    # --- statements --------------------------------------------------------------------------------

    def _place(self, item: Any) -> str:
        if not self.locations or item.loc is None:
            return ""
        return f" @ {json.dumps(item.loc.file)}:{item.loc.line}:{item.loc.column}"

    def _line(self, stmt: Stmt, indent: str, text: str) -> None:
        self.lines.append(f"{indent}{text}{self._place(stmt)}")

    def _open(self, stmt: Stmt, indent: str, text: str, body: Seq) -> None:
        self.lines.append(f"{indent}{text}{self._place(stmt)}:")
        self._block(body, indent + INDENT)

    def _block(self, body: Seq, indent: str) -> None:
        if not body.stmts:
            self.lines.append(f"{indent}pass")
        for stmt in body.stmts:
            self.statement(stmt, indent)

    def _source(self, stmt: Stmt, indent: str) -> None:
        if not self.show_source or stmt.loc is None:
            return
        here = (stmt.loc.file, stmt.loc.line)
        if here == self._last_source:
            return
        self._last_source = here
        text = stmt.loc.source_line().strip()
        if text:
            self.lines.append(f"{indent}# {text}")

    def statement(self, stmt: Stmt, indent: str) -> None:
        """Append a statement."""
        if not isinstance(stmt, Seq):
            self._source(stmt, indent)
        _STATEMENTS[type(stmt)](self, stmt, indent)

    def _seq(self, stmt: Seq, indent: str) -> None:
        for inner in stmt.stmts:
            self.statement(inner, indent)

    def _let(self, stmt: Let, indent: str) -> None:
        value = self.expr(stmt.value)
        self._line(stmt, indent, f"let {self.name(stmt.var)}: {stmt.var.dtype} = {value}")

    def _alloc(self, stmt: Alloc, indent: str) -> None:
        init = f" = {self.expr(stmt.init)}" if stmt.init is not None else ""
        self._line(stmt, indent, f"alloc {self._declaration(stmt.buffer)}{init}")

    def _alias(self, stmt: Alias, indent: str) -> None:
        assert stmt.buffer.view_of is not None
        self._line(stmt, indent, f"view {self._declaration(stmt.buffer)} of {self.name(stmt.buffer.view_of)}")

    def _store(self, stmt: Store, indent: str) -> None:
        target = f"{self.name(stmt.buffer)}[{self._indices(stmt.indices)}]"
        mask = f" where {self.expr(stmt.mask)}" if stmt.mask is not None else ""
        hint = " nontemporal" if stmt.nontemporal else ""
        self._line(stmt, indent, f"{target} = {self.expr(stmt.value)}{mask}{hint}")

    def _for(self, stmt: For, indent: str) -> None:
        bounds = f"{self.expr(stmt.start)}, {self.expr(stmt.stop)}, {self.expr(stmt.step)}"
        extras = f", stages={stmt.num_stages}" if stmt.num_stages else ""
        for name, values in (("order", stmt.order), ("stage", stmt.stage)):
            if values:
                extras += f", {name}=({', '.join(map(str, values))},)"
        head = f"for {self.name(stmt.var)}: {stmt.var.dtype} in {stmt.kind}({bounds}{extras})"
        self._open(stmt, indent, head, stmt.body)

    def _while(self, stmt: While, indent: str) -> None:
        self._open(stmt, indent, f"while {self.expr(stmt.condition)}", stmt.body)

    def _if(self, stmt: If, indent: str) -> None:
        self._open(stmt, indent, f"if {self.expr(stmt.condition)}", stmt.then_body)
        if stmt.else_body is not None:
            self.lines.append(f"{indent}else:")
            self._block(stmt.else_body, indent + INDENT)

    def _break(self, stmt: Break, indent: str) -> None:
        self._line(stmt, indent, "break")

    def _continue(self, stmt: Continue, indent: str) -> None:
        self._line(stmt, indent, "continue")

    def _print(self, stmt: Print, indent: str) -> None:
        parts = [json.dumps(stmt.message), *map(self.expr, stmt.values), *map(self.region, stmt.regions)]
        self._line(stmt, indent, f"print {', '.join(parts)}")

    def _prefetch(self, stmt: Prefetch, indent: str) -> None:
        self._line(stmt, indent, f"prefetch {self.region(stmt.region)}")

    def _assert(self, stmt: Assert, indent: str) -> None:
        self._line(stmt, indent, f"assert {self.expr(stmt.condition)}, {json.dumps(stmt.message)}")

    def _parallel(self, stmt: Parallel, indent: str) -> None:
        pairs = ", ".join(
            f"{self.name(v)}: {v.dtype} < {self.expr(e)}" for v, e in zip(stmt.vars, stmt.extents, strict=True)
        )
        self._open(stmt, indent, f"parallel ({pairs})", stmt.body)

    def _copy(self, stmt: Copy, indent: str) -> None:
        tail = " (overlap)" if stmt.overlap else ""
        self._line(stmt, indent, f"copy {self.region(stmt.src)} -> {self.region(stmt.dst)}{tail}")

    def _transpose(self, stmt: Transpose, indent: str) -> None:
        self._line(stmt, indent, f"transpose {self.region(stmt.src)} -> {self.region(stmt.dst)}")

    def _fill(self, stmt: Fill, indent: str) -> None:
        self._line(stmt, indent, f"fill {self.region(stmt.dst)} = {self.expr(stmt.value)}")

    def _gemm(self, stmt: Gemm, indent: str) -> None:
        flags = [
            name
            for name, on in (
                ("transpose_a", stmt.transpose_a),
                ("transpose_b", stmt.transpose_b),
                ("clear_accum", stmt.clear_accum),
            )
            if on
        ]
        if stmt.policy != "square":
            flags.append(f"policy={stmt.policy}")
        if stmt.k_pack != 1:
            flags.append(f"k_pack={stmt.k_pack}")
        tail = f" ({', '.join(flags)})" if flags else ""
        text = f"gemm {self.region(stmt.c)} += {self.region(stmt.a)} @ {self.region(stmt.b)}{tail}"
        self._line(stmt, indent, text)

    def _reduce(self, stmt: Reduce, indent: str) -> None:
        flags = [f"dim={stmt.dim}"]
        flags += ["clear"] if stmt.clear else []
        flags += ["nan_propagate"] if stmt.nan_propagate else []
        text = f"reduce {stmt.op} {self.region(stmt.src)} -> {self.region(stmt.dst)} ({', '.join(flags)})"
        self._line(stmt, indent, text)

    def _scan(self, stmt: Scan, indent: str) -> None:
        flags = [f"dim={stmt.dim}", *(["reverse"] if stmt.reverse else [])]
        text = f"scan {stmt.op} {self.region(stmt.src)} -> {self.region(stmt.dst)} ({', '.join(flags)})"
        self._line(stmt, indent, text)

    def _atomic(self, stmt: Atomic, indent: str) -> None:
        if stmt.source is not None:
            operand = f"from {self.region(stmt.source)}"
        else:
            operand = self.expr(stmt.value) if stmt.value is not None else "0"
        result = ""
        if stmt.result is not None:
            result = f" -> {self.name(stmt.result)}: {stmt.result.dtype}"
        text = f"atomic {stmt.op} {self.region(stmt.dst)}, {operand} ({stmt.memory_order}){result}"
        self._line(stmt, indent, text)

    def _launch(self, stmt: Launch, indent: str) -> None:
        blocks = ", ".join(
            f"{self.name(v)}: {v.dtype} < {self.expr(g)}" for v, g in zip(stmt.block_vars, stmt.grid, strict=True)
        )
        head = f"launch ({blocks}) threads({', '.join(map(str, stmt.threads))})"
        if stmt.swizzle is not None:
            head += f" swizzle({stmt.swizzle[0]}, {stmt.swizzle[1]})"
        for name, value in stmt.annotations:
            head += f" note({json.dumps(name)}, {json.dumps(str(value))})"
        self._open(stmt, indent, head, stmt.body)

    def region(self, item: Region) -> str:
        """A region: `A[start +: extent, ...]`, the whole buffer when it is all of it."""
        parts = [f"{self.expr(s)} +: {self.expr(e)}" for s, e in zip(item.starts, item.extents, strict=True)]
        return f"{self.name(item.buffer)}[{', '.join(parts)}]"

    # --- expressions -------------------------------------------------------------------------------

    def expr(self, item: Expr) -> str:
        """An expression without outer parentheses."""
        return self._expr(item)[0]

    def _list(self, items: tuple[Expr, ...]) -> str:
        return ", ".join(self.expr(e) for e in items)

    def _indices(self, indices: tuple[Expr, ...]) -> str:
        return ", ".join(self._index(e) for e in indices)

    def _index(self, item: Expr) -> str:
        if isinstance(item, Ramp) and isinstance(item.stride, Const) and item.stride.value == 1:
            return f"{self.expr(item.base)} +: {item.dtype.lanes}"
        return self.expr(item)

    def _expr(self, item: Expr) -> tuple[str, int]:
        return _EXPRESSIONS[type(item)](self, item)

    def _wrapped(self, item: Expr, least: int) -> str:
        text, strength = self._expr(item)
        return text if strength >= least else f"({text})"

    def _const(self, item: Const) -> tuple[str, int]:
        text = literal(item)
        return text, (PRECEDENCE["neg"] if text.startswith("-") else ATOM)

    def _var(self, item: Var) -> tuple[str, int]:
        return self.name(item), ATOM

    def _unary(self, item: Unary) -> tuple[str, int]:
        symbol = {"neg": "-", "not": "not ", "bitnot": "~"}[item.op]
        strength = PRECEDENCE[item.op]
        operand = self._wrapped(item.operand, strength + (item.op != "not"))
        return f"{symbol}{operand}", strength

    def _binary(self, item: Binary) -> tuple[str, int]:
        symbol = BINARY_OPS[item.op][0]
        strength = PRECEDENCE.get(item.op)
        if strength is None:
            return f"{symbol}({self.expr(item.lhs)}, {self.expr(item.rhs)})", ATOM
        is_comparison = PRECEDENCE["lt"] == strength
        left = self._wrapped(item.lhs, strength + (is_comparison or item.op == "pow"))
        right = self._wrapped(item.rhs, strength + 1)
        return f"{left} {symbol} {right}", strength

    def _cast(self, item: Cast) -> tuple[str, int]:
        extras = f", {item.rounding}" if item.rounding != "rn" else ""
        extras += ", saturate" if item.saturate else ""
        return f"cast<{item.dtype}>({self.expr(item.value)}{extras})", ATOM

    def _reinterpret(self, item: Reinterpret) -> tuple[str, int]:
        return f"reinterpret<{item.dtype}>({self.expr(item.value)})", ATOM

    def _select(self, item: Select) -> tuple[str, int]:
        parts = (item.condition, item.on_true, item.on_false)
        return f"select({', '.join(map(self.expr, parts))})", ATOM

    def _load(self, item: Load) -> tuple[str, int]:
        mask = f" where {self.expr(item.mask)}" if item.mask is not None else ""
        inner = f"{self.name(item.buffer)}[{self._indices(item.indices)}]"
        return (f"({inner}{mask})" if mask else inner), ATOM

    def _call(self, item: Call) -> tuple[str, int]:
        return f"{item.name}<{item.dtype}>({self._list(item.args)})", ATOM

    def _ramp(self, item: Ramp) -> tuple[str, int]:
        return f"ramp({self.expr(item.base)}, {self.expr(item.stride)}, {item.dtype.lanes})", ATOM

    def _broadcast(self, item: Broadcast) -> tuple[str, int]:
        return f"broadcast({self.expr(item.value)}, {item.dtype.lanes})", ATOM

    def _shuffle(self, item: Shuffle) -> tuple[str, int]:
        lanes = ", ".join(map(str, item.lanes))
        return f"shuffle({self.expr(item.first)}, {self.expr(item.second)}, [{lanes}])", ATOM

    def _vector_reduce(self, item: VectorReduce) -> tuple[str, int]:
        return f"reduce_{item.op}({self.expr(item.value)})", ATOM


def literal(item: Const) -> str:
    """A literal that reads back to the same value and dtype."""
    value = item.value
    if item.dtype.is_bool:
        return "True" if value else "False"
    if item.dtype.is_float:
        number = float(value)
        text = "nan" if math.isnan(number) else repr(number)
    else:
        text = str(value)
    return text if item.dtype.name in PLAIN_LITERALS else f"{item.dtype}({text})"


_Emit = Callable[[Printer, Any, str], None]
_STATEMENTS: dict[type[Stmt], _Emit] = {
    Seq: Printer._seq,
    Let: Printer._let,
    Alloc: Printer._alloc,
    Alias: Printer._alias,
    Store: Printer._store,
    For: Printer._for,
    While: Printer._while,
    If: Printer._if,
    Break: Printer._break,
    Continue: Printer._continue,
    Print: Printer._print,
    Prefetch: Printer._prefetch,
    Assert: Printer._assert,
    Parallel: Printer._parallel,
    Copy: Printer._copy,
    Transpose: Printer._transpose,
    Fill: Printer._fill,
    Gemm: Printer._gemm,
    Reduce: Printer._reduce,
    Scan: Printer._scan,
    Atomic: Printer._atomic,
    Launch: Printer._launch,
}
_EXPRESSIONS: dict[type[Expr], Callable[[Printer, Any], tuple[str, int]]] = {
    Const: Printer._const,
    Var: Printer._var,
    Unary: Printer._unary,
    Binary: Printer._binary,
    Cast: Printer._cast,
    Reinterpret: Printer._reinterpret,
    Select: Printer._select,
    Load: Printer._load,
    Call: Printer._call,
    Ramp: Printer._ramp,
    Broadcast: Printer._broadcast,
    Shuffle: Printer._shuffle,
    VectorReduce: Printer._vector_reduce,
}
