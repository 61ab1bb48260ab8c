"""IR text as tokens, and a cursor over them.

Blocks are indented as in Python: the lexer gives "newline", "indent" and "dedent" tokens, none inside of brackets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from tilewright.errors import ParseError
from tilewright.source import Location

_TOKEN = re.compile(
    r"""(?P<space>[ ]+|\#.*)
      | (?P<float>\d+(?:\.\d*(?:[eE][+-]?\d+)?|[eE][+-]?\d+))
      | (?P<int>\d+)
      | (?P<name>[^\W\d]\w*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<op>\+:|\+=|->|\*\*|//|<<|>>|<=|>=|==|!=|[-()\[\],:=<>+*/%&|^~@])""",
    re.VERBOSE,
)
_SHOWN = {"newline": "the end of the line", "indent": "an indented line", "dedent": "the end of the block"}


class TextLocation(Location):
    """A span of IR text, which may be in no file: it carries its line."""

    __slots__ = ("_text",)

    def __init__(self, file: str, line: int, column: int, end_column: int, text: str) -> None:
        super().__init__(file, line, column, line, end_column)
        self._text = text

    def source_line(self) -> str:
        """The line that the span is on."""
        return self._text


class Token(NamedTuple):
    """kind: "name", "int", "float", "string", "op", "newline", "indent", "dedent" or "end".  Columns are 1-based."""

    kind: str
    text: str
    line: int
    column: int

    @property
    def end_column(self) -> int:
        """One past the token's last column."""
        return self.column + max(len(self.text), 1)

    def describe(self) -> str:
        """The token as an error names it."""
        return _SHOWN.get(self.kind) or ("the end of the text" if self.kind == "end" else repr(self.text))


class Lexer:
    """Turns one text into tokens."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.lines = text.split("\n")
        self._indents = [0]
        self._brackets = 0

    def fail(self, line: int, column: int, end_column: int, message: str) -> NoReturn:
        """Raise ParseError for a span of a line."""
        raise ParseError(message, location=self.location(line, column, end_column))

    def location(self, line: int, column: int, end_column: int) -> TextLocation:
        """The location of a span of a line."""
        return TextLocation(self.file, line, column, end_column, self.lines[line - 1].rstrip("\r"))

    def tokens(self) -> Iterator[Token]:
        """All tokens; the last one is "end"."""
        for number, line in enumerate(self.lines, 1):
            found = list(self._line(number, line.rstrip("\r")))
            if not found:
                continue
            if not self._brackets:
                yield from self._indentation(found[0])
            yield from found
            self._count_brackets(found)
            if not self._brackets:
                last = found[-1]
                yield Token("newline", "", number, last.end_column)
        end = len(self.lines)
        for _ in self._indents[1:]:
            yield Token("dedent", "", end, 1)
        yield Token("end", "", end, len(self.lines[-1]) + 1)

    def _line(self, number: int, line: str) -> Iterator[Token]:
        position = 0
        while position < len(line):
            match = _TOKEN.match(line, position)
            if match is None:
                what = "a text without its closing quote" if line[position] == '"' else f"{line[position]!r}"
                self.fail(number, position + 1, position + 2, f"{what} has no meaning in IR text")
            if match.lastgroup != "space":
                yield Token(str(match.lastgroup), match.group(), number, position + 1)
            position = match.end()

    def _indentation(self, first: Token) -> Iterator[Token]:
        depth = first.column - 1
        if depth > self._indents[-1]:
            self._indents.append(depth)
            yield Token("indent", "", first.line, first.column)
        while depth < self._indents[-1]:
            self._indents.pop()
            yield Token("dedent", "", first.line, first.column)
        if depth != self._indents[-1]:
            self.fail(first.line, 1, first.column, "this indentation fits no block around it")

    def _count_brackets(self, tokens: list[Token]) -> None:
        for token in tokens:
            if token.kind == "op" and token.text in "([":
                self._brackets += 1
            elif token.kind == "op" and token.text in ")]":
                self._brackets = max(self._brackets - 1, 0)


class Cursor:
    """A place in a list of tokens: looking ahead, and taking what must or may come."""

    def __init__(self, text: str, file: str) -> None:
        self._lexer = Lexer(text, file)
        self.tokens = list(self._lexer.tokens())
        self.at = 0

    @property
    def token(self) -> Token:
        """The next token."""
        return self.tokens[self.at]

    def ahead(self, distance: int) -> Token:
        """The token `distance` after the next one."""
        return self.tokens[min(self.at + distance, len(self.tokens) - 1)]

    def since(self, start: Token) -> TextLocation:
        """The location from `start` to the token taken last, as far as it is on the same line."""
        last = self.tokens[max(self.at - 1, 0)]
        end = last.end_column if last.line == start.line and last.column >= start.column else start.end_column
        return self._lexer.location(start.line, start.column, end)

    def fail(self, message: str, at: Token | None = None) -> NoReturn:
        """Raise ParseError at a token, by default the next one."""
        token = at or self.token
        self._lexer.fail(token.line, token.column, token.end_column, message)

    def expected(self, what: str) -> NoReturn:
        """Raise ParseError because the next token is not `what`."""
        self.fail(f"expected {what}, found {self.token.describe()}")

    def is_op(self, text: str, distance: int = 0) -> bool:
        """Whether the next token (or one after it) is the operator or bracket `text`."""
        token = self.ahead(distance)
        return token.kind == "op" and token.text == text

    def is_word(self, text: str) -> bool:
        """Whether the next token is the word `text`."""
        return self.token.kind == "name" and self.token.text == text

    def take(self) -> Token:
        """The next token, passed over."""
        token = self.token
        self.at += 1
        return token

    def accept(self, text: str) -> bool:
        """Pass over the operator or word `text` if it comes next."""
        if self.token.kind in ("op", "name") and self.token.text == text:
            self.at += 1
            return True
        return False

    def expect(self, text: str, what: str = "") -> Token:
        """Pass over the operator or word `text`, which must come next."""
        if self.token.kind not in ("op", "name") or self.token.text != text:
            self.expected(what or repr(text))
        return self.take()

    def expect_kind(self, kind: str, what: str) -> Token:
        """Pass over a token of `kind`, which must come next."""
        if self.token.kind != kind:
            self.expected(what)
        return self.take()

    def word(self, what: str, among: tuple[str, ...] = ()) -> str:
        """A word, one of `among` where given."""
        if self.token.kind != "name" or (among and self.token.text not in among):
            self.expected(f"{what} ({', '.join(among)})" if among else what)
        return self.take().text

    def integer(self, what: str = "an integer") -> int:
        """A literal integer."""
        sign = -1 if self.accept("-") else 1
        return sign * int(self.expect_kind("int", what).text)

    def count(self, what: str) -> int:
        """A literal integer from 1 on."""
        token = self.token
        value = self.integer(what)
        if value < 1:
            self.fail(f"expected {what}, which is at least 1", token)
        return value
