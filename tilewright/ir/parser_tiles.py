"""Reads the statements that move and combine tiles; what all statements share."""

from __future__ import annotations

import json
from typing import Any

from tilewright.ir.lexer import Token
from tilewright.ir.parser_expressions import ExpressionParser
from tilewright.ir.stmt import REDUCE_OPS, Copy, Fill, Gemm, Reduce, Region, Scan, Stmt, Transpose
from tilewright.source import Location

SCAN_OPS = ("sum", "max")


class TileParser(ExpressionParser):
    """Reads tile operations.  Each method starts after the first word and reads to the end of the line."""

    def _string(self, what: str) -> str:
        token = self.expect_kind("string", what)
        try:
            return str(json.loads(token.text))
        except ValueError:
            self.fail("a text as JSON writes it is expected", token)

    def _place(self) -> Location | None:
        """`@ "file":line:column` if it comes next."""
        if not self.accept("@"):
            return None
        file = self._string("a file name in quotes")
        self.expect(":")
        line = self.integer("a line")
        self.expect(":")
        return Location(file, line, self.integer("a column"))

    def _end(self, start: Token) -> Location:
        """The end of a line; the location of its statement."""
        loc = self._place() or self.since(start)
        self.expect_kind("newline", "the end of the line")
        return loc

    def _from_to(self) -> tuple[Region, Region]:
        src = self.region()
        self.expect("->")
        return src, self.region()

    def _flags(self, *switches: str, numbers: tuple[str, ...] = (), words: tuple[str, ...] = ()) -> dict[str, Any]:
        """`(switch, number=3, word=w, ...)` if it comes next, by name."""
        found: dict[str, Any] = {}
        if not self.accept("("):
            return found
        while not self.accept(")"):
            if found:
                self.expect(",", "',' or ')'")
            name = self.word("a flag", (*numbers, *words, *switches))
            if name not in switches:
                self.expect("=")
            found[name] = self.integer() if name in numbers else self.word("a word") if name in words else True
        return found

    def _copy(self, start: Token) -> Stmt:
        src, dst = self._from_to()
        return Copy(src, dst, "overlap" in self._flags("overlap"), loc=self._end(start))

    def _transpose(self, start: Token) -> Stmt:
        src, dst = self._from_to()
        return Transpose(src, dst, loc=self._end(start))

    def _fill(self, start: Token) -> Stmt:
        dst = self.region()
        self.expect("=")
        return Fill(dst, self.typed(dst.buffer.dtype), loc=self._end(start))

    def _gemm(self, start: Token) -> Stmt:
        c = self.region()
        clear = self.accept("=")
        if not clear:
            self.expect("+=", "'+=' or '='")
        a = self.region()
        self.expect("@")
        b = self.region()
        flags = self._flags("transpose_a", "transpose_b", numbers=("k_pack",), words=("policy",))
        transposed = ("transpose_a" in flags, "transpose_b" in flags)
        policy, k_pack = flags.get("policy", "square"), flags.get("k_pack", 1)
        return Gemm(a, b, c, *transposed, clear, policy, k_pack, loc=self._end(start))

    def _reduce(self, start: Token) -> Stmt:
        op = self.word("an operation", REDUCE_OPS)
        src, dst = self._from_to()
        flags = self._flags("clear", "nan_propagate", numbers=("dim",))
        dim = self._dim(flags)
        return Reduce(op, src, dst, dim, "clear" in flags, "nan_propagate" in flags, loc=self._end(start))

    def _scan(self, start: Token) -> Stmt:
        op = self.word("an operation", SCAN_OPS)
        src, dst = self._from_to()
        flags = self._flags("reverse", numbers=("dim",))
        return Scan(op, src, dst, self._dim(flags), "reverse" in flags, loc=self._end(start))

    def _dim(self, flags: dict[str, Any]) -> int:
        if "dim" not in flags:
            self.expected("(dim=...)")
        return int(flags["dim"])
