"""Reads the text of a function back: the inverse of `printer.print_func`, for both levels of IR.

`parse_func(print_func(f))` is `f` up to the identity of variables and buffers and to locations
(`structural.same_function`).  docs/ir.md describes the form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tilewright.errors import ParseError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import INT32, Buffer, Expr, Var, const
from tilewright.ir.grammar import element
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.lexer import Token
from tilewright.ir.parser_tiles import TileParser
from tilewright.ir.stmt import (
    ATOMIC_OPS,
    FOR_KINDS,
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    For,
    If,
    Launch,
    Let,
    Parallel,
    Prefetch,
    Print,
    Region,
    Seq,
    Stmt,
    Store,
    While,
)
from tilewright.ir.verifier import LEVELS

MEMORY_ORDERS = ("relaxed", "acquire", "release", "acq_rel", "seq_cst")


def parse_func(text: str, file: str = "<ir>") -> PrimFunc:
    """The function that `text` writes out.

    Nodes have the place `@ "file":line:column` that their statement names, else their place in the text, which `file`
    names.  Raises ParseError, with the place in the text and what was expected there.
    """
    try:
        return Parser(text, file).function()
    except RecursionError:
        raise ParseError(f"{file}: the text nests too deep") from None


class Parser(TileParser):
    """Reads functions and statements."""

    # --- function ----------------------------------------------------------------------------------------

    def function(self) -> PrimFunc:
        """The whole text."""
        start = self.expect("func")
        quoted = self.token.kind == "string"
        name = self._string("a name") if quoted else self.word("the function's name")
        sizes = self._sizes() if self.accept("[") else ()
        params = self._params()
        self.expect("level")
        self.expect("(")
        level = self.word("a level", LEVELS)
        self.expect(")")
        outputs = tuple(self._output_list()) if self.accept("outputs") else ()
        loc = self._place() or self.since(start)
        body = self._block()
        self.expect_kind("end", "the end of the text")
        return PrimFunc(name, params, body, sizes, outputs, level, loc=loc)

    def _sizes(self) -> tuple[Var, ...]:
        found: list[Var] = []
        while not self.accept("]"):
            if found:
                self.expect(",", "',' or ']'")
            found.append(self._scalar_param())
        return tuple(found)

    def _scalar_param(self) -> Var:
        name = self.new_name()
        self.expect(":")
        return self.new_var(name, self.dtype())

    def _params(self) -> tuple[Buffer | Var, ...]:
        """The parameters.  Shapes may name scalars that come later, so the scalars are declared first."""
        self.expect("(")
        start = self.at
        scalars = dict(self._scalars_ahead())
        self.at = start
        found: list[Buffer | Var] = []
        while not self.accept(")"):
            if self.at in scalars:
                found.append(scalars[self.at])
                self.at += 3
            else:
                found.append(self.declaration(implied_scope="global"))
            if not self.is_op(")"):
                self.expect(",", "',' or ')'")
        return tuple(found)

    def _scalars_ahead(self) -> Iterator[tuple[int, Var]]:
        """`name: dtype` without a shape: the position, and the variable declared."""
        while self.token.kind == "name" or self.is_op(","):
            at = self.at
            if self.token.kind == "name" and self.is_op(":", 1) and not self.is_op("[", 3):
                yield at, self._scalar_param()
            else:
                self._skip_param()

    def _skip_param(self) -> None:
        depth = 0
        while self.token.kind != "end":
            if self.token.text in ("(", "["):
                depth += 1
            elif self.token.text in (")", "]"):
                depth -= 1
            if depth < 0:
                return
            if self.take().text == "," and depth == 0:
                return

    def _output_list(self) -> Iterator[int]:
        self.expect("(")
        yield self.integer()
        while not self.accept(")"):
            self.expect(",", "',' or ')'")
            yield self.integer()

    # --- blocks ------------------------------------------------------------------------------------------

    def _block(self) -> Seq:
        """`:` and an indented block, in a scope of its own."""
        start = self.expect(":")
        self.expect_kind("newline", "the end of the line")
        self.expect_kind("indent", "an indented block")
        self.enter()
        stmts: list[Stmt] = []
        while self.token.kind != "dedent":
            if self.is_word("pass") and self.ahead(1).kind == "newline":
                self.at += 2
            else:
                stmts.append(self.statement())
        self.leave()
        self.take()
        return Seq(tuple(stmts), loc=self.since(start))

    @contextmanager
    def _inner(self) -> Iterator[None]:
        """A scope for the variables of a loop or launch."""
        self.enter()
        yield
        self.leave()

    def statement(self) -> Stmt:
        """One statement, to the end of its line or block."""
        start = self.token
        if start.kind == "indent":
            self.fail("this line is indented, but opens no block")
        if start.kind != "name":
            self.expected("a statement")
        read = None if self.is_op("[", 1) else _STATEMENTS.get(start.text)
        if read is None:
            if self._find(start.text) is None:
                self.fail(f"{start.text!r} is neither a statement ({', '.join(_STATEMENTS)}) nor a buffer")
            return self._store()
        self.take()
        return read(self, start)

    # --- statements of both levels -------------------------------------------------------------------------

    def _scope(self, start: Token) -> Stmt:
        loc = self._place() or self.since(start)
        return self._block().replace(loc=loc)

    def _let(self, start: Token) -> Stmt:
        name = self.new_name()
        of = self.optional_dtype()
        self.expect("=")
        value = self.typed(of)
        return Let(self.new_var(name, of or value.dtype), value, loc=self._end(start))

    def _alloc(self, start: Token) -> Stmt:
        buffer = self.declaration()
        init = self.typed(buffer.dtype) if self.accept("=") else None
        return Alloc(buffer, init, loc=self._end(start))

    def _alias(self, start: Token) -> Stmt:
        return Alias(self.declaration(of_view=True), loc=self._end(start))

    def _store(self) -> Stmt:
        start = self.token
        buffer = self.buffer()
        indices = self.indices()
        self.expect("=")
        value = self.typed(element(buffer, indices))
        mask = self.expr() if self.accept("where") else None
        nontemporal = self.accept("nontemporal")
        return Store(buffer, indices, value, mask, nontemporal, loc=self._end(start))

    def _for(self, start: Token) -> Stmt:
        name = self.new_name()
        of = self.optional_dtype() or INT32
        self.expect("in")
        kind = self.word("a kind of loop", FOR_KINDS)
        first, last, step = self._range(of)
        stages, placed = self._stages()
        loc = self._place() or self.since(start)
        with self._inner():
            var = self.new_var(name, of)
            body = self._block()
        return For(
            var, first, last, step, body, kind, stages, placed.get("order", ()), placed.get("stage", ()), loc=loc
        )

    def _range(self, of: DType) -> tuple[Expr, Expr, Expr]:
        """`(stop`, `(start, stop` or `(start, stop, step`."""
        start = self.expect("(")
        found = [self.typed(of)]
        while self.is_op(",") and not self.is_op("=", 2):
            self.take()
            found.append(self.typed(of))
        if len(found) > 3:
            self.fail(f"a loop has a start, a stop and a step, not {len(found)} bounds", start)
        if len(found) == 1:
            found.insert(0, const(0, of, loc=self.since(start)))
        if len(found) == 2:
            found.append(const(1, of, loc=self.since(start)))
        return found[0], found[1], found[2]

    def _stages(self) -> tuple[int, dict[str, tuple[int, ...]]]:
        """`, stages=n, order=[...], stage=[...])`."""
        stages = 0
        placed: dict[str, tuple[int, ...]] = {}
        while not self.accept(")"):
            self.expect(",", "',' or ')'")
            name = self.word("a hint", ("stages", "order", "stage"))
            self.expect("=")
            if name == "stages":
                stages = self.integer()
            else:
                placed[name] = self.integers()
        return stages, placed

    def _while(self, start: Token) -> Stmt:
        condition = self.expr()
        loc = self._place() or self.since(start)
        return While(condition, self._block(), loc=loc)

    def _if(self, start: Token) -> Stmt:
        condition = self.expr()
        loc = self._place() or self.since(start)
        then_body = self._block()
        else_body = self._block() if self.accept("else") else None
        return If(condition, then_body, else_body, loc=loc)

    def _break(self, start: Token) -> Stmt:
        return Break(loc=self._end(start))

    def _continue(self, start: Token) -> Stmt:
        return Continue(loc=self._end(start))

    def _print(self, start: Token) -> Stmt:
        message = self._string("a text in quotes")
        values: list[Expr] = []
        regions: list[Region] = []
        while self.accept(","):
            if self.is_word("tile") and self.ahead(1).kind == "name":
                self.take()
                regions.append(self.region())
            elif regions:
                self.expected("'tile' and a region")
            else:
                values.append(self.expr())
        return Print(message, tuple(values), tuple(regions), loc=self._end(start))

    def _assert(self, start: Token) -> Stmt:
        condition = self.expr()
        self.expect(",")
        return Assert(condition, self._string("a text in quotes"), loc=self._end(start))

    def _prefetch(self, start: Token) -> Stmt:
        return Prefetch(self.region(), loc=self._end(start))

    def _atomic(self, start: Token) -> Stmt:
        order = self.word("a memory order", MEMORY_ORDERS)
        op = self.word("an operation", ATOMIC_OPS)
        dst = self.region()
        value: Expr | None = None
        source: Region | None = None
        if self.accept(","):
            if self.is_word("from") and self.ahead(1).kind == "name":
                self.take()
                source = self.region()
            else:
                value = self.typed(dst.buffer.dtype)
        result = None
        if self.accept("->"):
            name = self.new_name()
            result = self.new_var(name, self.optional_dtype() or dst.buffer.dtype)
        return Atomic(op, dst, value, source, order, result, loc=self._end(start))

    def _counters(self) -> tuple[list[tuple[Token, DType]], tuple[Expr, ...]]:
        """`(name < extent, ...)`: names with their dtypes, and extents."""
        names: list[tuple[Token, DType]] = []
        extents: list[Expr] = []
        self.expect("(")
        while not self.accept(")"):
            if names:
                self.expect(",", "',' or ')'")
            name = self.new_name()
            names.append((name, self.optional_dtype() or INT32))
            self.expect("<")
            extents.append(self.typed(names[-1][1]))
        return names, tuple(extents)

    def _launch(self, start: Token) -> Stmt:
        names, grid = self._counters()
        threads = self._threads()
        swizzle = self._swizzle() if self.accept("swizzle") else None
        notes: list[tuple[str, object]] = []
        while self.accept("note"):
            self.expect("(")
            title = self._string("a name in quotes")
            self.expect(",")
            notes.append((title, self._note()))
            self.expect(")")
        loc = self._place() or self.since(start)
        with self._inner():
            block_vars = tuple([self.new_var(*name) for name in names])
            body = self._block()
        return Launch(grid, block_vars, body, threads, swizzle, tuple(notes), loc=loc)

    def _threads(self) -> tuple[int, int, int]:
        start = self.expect("threads")
        self.expect("(")
        found = [self.integer()]
        while not self.accept(")"):
            self.expect(",", "',' or ')'")
            found.append(self.integer())
        if len(found) > 3:
            self.fail("threads have at most three dimensions", start)
        found += [1, 1]
        return found[0], found[1], found[2]

    def _swizzle(self) -> tuple[int, str]:
        self.expect("(")
        size = self.integer()
        self.expect(",")
        kind = self.word("an order", ("row", "column"))
        self.expect(")")
        return size, kind

    def _note(self) -> object:
        """The value of a hint: a text, number, True, False, None, or a list of such."""
        if self.token.kind == "string":
            return self._string("a text")
        for word, value in (("True", True), ("False", False), ("None", None)):
            if self.accept(word):
                return value
        if not self.accept("["):
            sign = -1 if self.accept("-") else 1
            if not self._at_number():
                self.expected("a text, a number, True, False, None or a list")
            token = self.take()
            return sign * (int(token.text) if token.kind == "int" else float(token.text))
        found: list[object] = []
        while not self.accept("]"):
            if found:
                self.expect(",", "',' or ']'")
            found.append(self._note())
        return tuple(found)

    # --- tile operations -----------------------------------------------------------------------------------

    def _parallel(self, start: Token) -> Stmt:
        names, extents = self._counters()
        loc = self._place() or self.since(start)
        with self._inner():
            variables = tuple([self.new_var(*name) for name in names])
            body = self._block()
        return Parallel(variables, extents, body, loc=loc)


_STATEMENTS: dict[str, Callable[[Parser, Token], Stmt]] = {
    "scope": Parser._scope,
    "let": Parser._let,
    "alloc": Parser._alloc,
    "view": Parser._alias,
    "for": Parser._for,
    "while": Parser._while,
    "if": Parser._if,
    "break": Parser._break,
    "continue": Parser._continue,
    "print": Parser._print,
    "prefetch": Parser._prefetch,
    "assert": Parser._assert,
    "parallel": Parser._parallel,
    "copy": Parser._copy,
    "transpose": Parser._transpose,
    "fill": Parser._fill,
    "gemm": Parser._gemm,
    "reduce": Parser._reduce,
    "scan": Parser._scan,
    "atomic": Parser._atomic,
    "launch": Parser._launch,
}
