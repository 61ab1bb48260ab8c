"""IR as text: what `get_kernel_source()` shows, and what `ir.parser` reads back.

Both levels have one form, which docs/ir.md describes.  What the surroundings tell is left out: the dtype of a literal
next to an operand, of a let, of an int32 loop variable; the brackets of a region that is its whole buffer.  Names are
unique where they are known; a name is free again after its block.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.grammar import element
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.printer_expressions import ExpressionPrinter
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
    Scan,
    Seq,
    Stmt,
    Store,
    Transpose,
    While,
)

INDENT = "    "

Vars = tuple[Var, ...]
Exprs = tuple[Expr, ...]


def print_func(func: PrimFunc, *, locations: bool = False, show_source: bool = False) -> str:
    """A function as text.

    locations: append `@ "file":line:column` to every statement.  show_source: the user's line as a comment
    before each statement that comes from a new line.
    """
    return Printer(locations, show_source).function(func)


def print_stmt(stmt: Stmt) -> str:
    """A statement as text, a Seq as its statements."""
    printer = Printer(False, False)
    for inner in stmt.stmts if isinstance(stmt, Seq) else (stmt,):
        printer.statement(inner, "")
    return "\n".join(printer.lines)


def print_expr(item: Expr) -> str:
    """An expression as text."""
    return ExpressionPrinter().expr(item)


class Printer(ExpressionPrinter):
    """Collects the lines of one text."""

    def __init__(self, locations: bool, show_source: bool) -> None:
        super().__init__()
        self.locations = locations
        self.show_source = show_source
        self.lines: list[str] = []
        self._last_source: tuple[str, int] | None = None

    # --- function ----------------------------------------------------------------------------------

    def function(self, func: PrimFunc) -> str:
        """The whole function."""
        sizes = ", ".join([f"{self.names.declare(s)}: {s.dtype}" for s in func.sizes])
        names = [self.names.declare(p) for p in func.params]
        name = func.name if func.name.isidentifier() else json.dumps(func.name)
        head = f"func {name}{f'[{sizes}]' if sizes else ''}("
        for param, known_as in zip(func.params, names, strict=True):
            head += f"\n{INDENT}{self._param(param, known_as)},"
        head += "\n" if func.params else ""
        outputs = f" outputs({', '.join(map(str, func.outputs))})" if func.outputs else ""
        self.lines.append(f"{head}) level({func.level}){outputs}{self._place(func)}:")
        self._block(func.body, INDENT)
        return "\n".join(self.lines) + "\n"

    def _param(self, param: Var | Buffer, name: str) -> str:
        if isinstance(param, Var):
            return f"{name}: {param.dtype}"
        return self.declaration(param, name, implied_scope="global")

    # --- blocks --------------------------------------------------------------------------------------

    def _place(self, item: Any) -> str:
        if not self.locations or item.loc is None:
            return ""
        return f" @ {json.dumps(item.loc.file)}:{item.loc.line}:{item.loc.column}"

    def _line(self, stmt: Stmt, indent: str, text: str) -> None:
        self.lines.append(f"{indent}{text}{self._place(stmt)}")

    def _open(self, stmt: Stmt, indent: str, head: str, body: Seq) -> None:
        self.lines.append(f"{indent}{head}{self._place(stmt)}:")
        self._block(body, indent + INDENT)

    def _block(self, body: Seq, indent: str) -> None:
        self.names.enter()
        for stmt in body.stmts:
            self.statement(stmt, indent)
        self.names.leave()
        if not body.stmts:
            self.lines.append(f"{indent}pass")

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

    # --- statements of both levels ---------------------------------------------------------------------

    def _seq(self, stmt: Seq, indent: str) -> None:
        self._open(stmt, indent, "scope", stmt)

    def _let(self, stmt: Let, indent: str) -> None:
        value = self.expr(stmt.value)
        dtype = "" if stmt.var.dtype is stmt.value.dtype else f": {stmt.var.dtype}"
        self._line(stmt, indent, f"let {self.names.declare(stmt.var)}{dtype} = {value}")

    def _alloc(self, stmt: Alloc, indent: str) -> None:
        init = f" = {self.typed(stmt.init, stmt.buffer.dtype)}" if stmt.init is not None else ""
        name = self.names.declare(stmt.buffer)
        self._line(stmt, indent, f"alloc {self.declaration(stmt.buffer, name)}{init}")

    def _alias(self, stmt: Alias, indent: str) -> None:
        assert stmt.buffer.view_of is not None
        name = self.names.declare(stmt.buffer)
        viewed = self.names.find(stmt.buffer.view_of)
        self._line(stmt, indent, f"view {self.declaration(stmt.buffer, name)} of {viewed}")

    def _store(self, stmt: Store, indent: str) -> None:
        target = f"{self.names.find(stmt.buffer)}[{self.indices(stmt.indices)}]"
        value = self.typed(stmt.value, element(stmt.buffer, stmt.indices))
        mask = f" where {self.expr(stmt.mask)}" if stmt.mask is not None else ""
        hint = " nontemporal" if stmt.nontemporal else ""
        self._line(stmt, indent, f"{target} = {value}{mask}{hint}")

    def _for(self, stmt: For, indent: str) -> None:
        arguments = self._range(stmt)
        if stmt.num_stages:
            arguments.append(f"stages={stmt.num_stages}")
        for name, values in (("order", stmt.order), ("stage", stmt.stage)):
            if values:
                arguments.append(f"{name}=[{', '.join(map(str, values))}]")
        self.names.enter()
        head = f"for {self.counter(stmt.var)} in {stmt.kind}({', '.join(arguments)})"
        self._open(stmt, indent, head, stmt.body)
        self.names.leave()

    def _range(self, stmt: For) -> list[str]:
        """The bounds as Python's range has them."""
        dtype = stmt.var.dtype
        bounds = [self.typed(bound, dtype) for bound in (stmt.start, stmt.stop, stmt.step)]
        if not (bounds[2] == "1" and stmt.step.dtype is dtype):
            return bounds
        return bounds[1:2] if bounds[0] == "0" and stmt.start.dtype is dtype else bounds[:2]

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
        regions = [f"tile {self.region(r)}" for r in stmt.regions]
        parts = [json.dumps(stmt.message), *map(self.expr, stmt.values), *regions]
        self._line(stmt, indent, f"print {', '.join(parts)}")

    def _assert(self, stmt: Assert, indent: str) -> None:
        self._line(stmt, indent, f"assert {self.expr(stmt.condition)}, {json.dumps(stmt.message)}")

    def _prefetch(self, stmt: Prefetch, indent: str) -> None:
        self._line(stmt, indent, f"prefetch {self.region(stmt.region)}")

    def _atomic(self, stmt: Atomic, indent: str) -> None:
        text = f"atomic {stmt.memory_order} {stmt.op} {self.region(stmt.dst)}"
        if stmt.source is not None:
            text += f", from {self.region(stmt.source)}"
        elif stmt.value is not None:
            text += f", {self.typed(stmt.value, stmt.dst.buffer.dtype)}"
        if stmt.result is not None:
            dtype = "" if stmt.result.dtype is stmt.dst.buffer.dtype else f": {stmt.result.dtype}"
            text += f" -> {self.names.declare(stmt.result)}{dtype}"
        self._line(stmt, indent, text)

    def _launch(self, stmt: Launch, indent: str) -> None:
        threads = list(stmt.threads)
        while len(threads) > 1 and threads[-1] == 1:
            threads.pop()
        tail = f" threads({', '.join(map(str, threads))})"
        if stmt.swizzle is not None:
            tail += f" swizzle({stmt.swizzle[0]}, {stmt.swizzle[1]})"
        for name, value in stmt.annotations:
            tail += f" note({json.dumps(name)}, {_note(value)})"
        self._box(stmt, indent, "launch", stmt.block_vars, stmt.grid, tail)

    def _box(self, stmt: Launch | Parallel, indent: str, head: str, variables: Vars, extents: Exprs, tail: str) -> None:
        texts = [self.typed(e, v.dtype) for v, e in zip(variables, extents, strict=True)]
        self.names.enter()
        pairs = [f"{self.counter(v)} < {e}" for v, e in zip(variables, texts, strict=True)]
        self._open(stmt, indent, f"{head} ({', '.join(pairs)}){tail}", stmt.body)
        self.names.leave()

    # --- tile operations -------------------------------------------------------------------------------

    def _parallel(self, stmt: Parallel, indent: str) -> None:
        self._box(stmt, indent, "parallel", stmt.vars, stmt.extents, "")

    def _move(self, stmt: Copy | Transpose | Reduce | Scan, indent: str, head: str, flags: list[str]) -> None:
        tail = f" ({', '.join(flags)})" if flags else ""
        self._line(stmt, indent, f"{head} {self.region(stmt.src)} -> {self.region(stmt.dst)}{tail}")

    def _copy(self, stmt: Copy, indent: str) -> None:
        self._move(stmt, indent, "copy", _flags(overlap=stmt.overlap))

    def _transpose(self, stmt: Transpose, indent: str) -> None:
        self._move(stmt, indent, "transpose", [])

    def _fill(self, stmt: Fill, indent: str) -> None:
        value = self.typed(stmt.value, stmt.dst.buffer.dtype)
        self._line(stmt, indent, f"fill {self.region(stmt.dst)} = {value}")

    def _gemm(self, stmt: Gemm, indent: str) -> None:
        flags = _flags(transpose_a=stmt.transpose_a, transpose_b=stmt.transpose_b)
        if stmt.policy != "square":
            flags.append(f"policy={stmt.policy}")
        if stmt.k_pack != 1:
            flags.append(f"k_pack={stmt.k_pack}")
        tail = f" ({', '.join(flags)})" if flags else ""
        sign = "=" if stmt.clear_accum else "+="
        text = f"gemm {self.region(stmt.c)} {sign} {self.region(stmt.a)} @ {self.region(stmt.b)}{tail}"
        self._line(stmt, indent, text)

    def _reduce(self, stmt: Reduce, indent: str) -> None:
        flags = _flags(clear=stmt.clear, nan_propagate=stmt.nan_propagate)
        self._move(stmt, indent, f"reduce {stmt.op}", [f"dim={stmt.dim}", *flags])

    def _scan(self, stmt: Scan, indent: str) -> None:
        self._move(stmt, indent, f"scan {stmt.op}", [f"dim={stmt.dim}", *_flags(reverse=stmt.reverse)])


def _flags(**flags: bool) -> list[str]:
    return [name for name, on in flags.items() if on]


def _note(value: object) -> str:
    """The value of a hint: a text, number, bool, None, or a tuple of such."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_note, value))}]"
    if value is None or isinstance(value, (bool, int, float)):
        return repr(value)
    return json.dumps(str(value))


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
