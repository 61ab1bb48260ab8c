"""Reads expressions, regions and declarations of IR text; the counterpart of `printer_expressions`.

The parser builds nodes as written, nothing is folded or converted; whether types fit is the verifier's affair.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.errors import DTypeError
from tilewright.ir.dtype import DType, dtype
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
    const,
)
from tilewright.ir.grammar import (
    BINARY_CALLS,
    INFIX,
    NON_FINITE,
    PRECEDENCE,
    PREFIX,
    UNCHAINED,
    VECTOR_REDUCE,
    call_result,
    element,
    is_dtype,
)
from tilewright.ir.lexer import Cursor, Token
from tilewright.ir.stmt import Region


class ExpressionParser(Cursor):
    """Reads expressions; knows the names in scope."""

    def __init__(self, text: str, file: str) -> None:
        super().__init__(text, file)
        self._scopes: list[dict[str, Var | Buffer]] = [{}]
        # Literals without a dtype, by id: they take that of their surroundings.
        self._loose: dict[int, Const] = {}

    # --- names -----------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Open a scope."""
        self._scopes.append({})

    def leave(self) -> None:
        """Close the innermost scope."""
        self._scopes.pop()

    def new_name(self) -> Token:
        """A word that may name something new."""
        token = self.expect_kind("name", "a name")
        if is_dtype(token.text) or token.text in NON_FINITE:
            self.fail(f"{token.text!r} is no name, it has a meaning of its own", token)
        if self._find(token.text) is not None:
            self.fail(f"{token.text!r} is declared already", token)
        return token

    def declare(self, name: str, item: Var | Buffer) -> None:
        """`name` stands for `item` to the end of the innermost scope."""
        self._scopes[-1][name] = item

    def new_var(self, name: Token, of: DType) -> Var:
        """Declare a variable."""
        var = Var(of, name.text, loc=self.since(name))
        self.declare(name.text, var)
        return var

    def _find(self, name: str) -> Var | Buffer | None:
        return next((scope[name] for scope in reversed(self._scopes) if name in scope), None)

    def buffer(self) -> Buffer:
        """The name of a known buffer."""
        token = self.expect_kind("name", "the name of a buffer")
        found = self._find(token.text)
        if not isinstance(found, Buffer):
            what = "is not declared here" if found is None else "is a variable, not a buffer"
            self.fail(f"{token.text!r} {what}", token)
        return found

    # --- dtypes and lists ------------------------------------------------------------------------------

    def dtype(self) -> DType:
        """The name of a dtype."""
        if self.token.kind != "name" or not is_dtype(self.token.text):
            self.expected("a dtype")
        return dtype(self.take().text)

    def optional_dtype(self) -> DType | None:
        """`: dtype` if it comes next."""
        return self.dtype() if self.accept(":") else None

    def exprs(self, closing: str) -> tuple[Expr, ...]:
        """Expressions with commas between, up to and with the closing bracket."""
        found: list[Expr] = []
        while not self.accept(closing):
            if found:
                self.expect(",", f"',' or {closing!r}")
            found.append(self.expr())
        return tuple(found)

    def bracketed(self) -> tuple[Expr, ...]:
        """`(expressions)`."""
        self.expect("(")
        return self.exprs(")")

    def integers(self) -> tuple[int, ...]:
        """`[integers]`."""
        found: list[int] = []
        self.expect("[")
        while not self.accept("]"):
            if found:
                self.expect(",", "',' or ']'")
            found.append(self.integer())
        return tuple(found)

    # --- buffers -----------------------------------------------------------------------------------------

    def declaration(self, implied_scope: str = "", of_view: bool = False) -> Buffer:
        """`name: dtype[shape] scope` and so on, declared."""
        name = self.new_name()
        self.expect(":")
        of = self.dtype()
        self.expect("[")
        shape = self.exprs("]")
        scope = implied_scope
        if self.token.kind == "name" and self.token.text in Buffer.SCOPES:
            scope = self.take().text
        elif not implied_scope:
            self.expected(f"a memory scope ({', '.join(Buffer.SCOPES)})")
        made = Buffer(name.text, shape, of, scope)
        self._clauses(made)
        if of_view:
            self.expect("of")
            made.view_of = self.buffer()
        made.loc = self.since(name)
        self.declare(name.text, made)
        return made

    def _clauses(self, made: Buffer) -> None:
        if self.accept("strides"):
            made.strides = self.bracketed()
        if self.accept("reducer"):
            self.expect("(")
            made.reducer = self.word("an operation")
            self.expect(")")
        if self.accept("safe"):
            self.expect("(")
            made.safe_value = self.typed(made.dtype)
            self.expect(")")

    def region(self) -> Region:
        """A box of a buffer, or a whole one."""
        start = self.token
        buffer = self.buffer()
        if not self.accept("["):
            zeros = tuple([const(0, INT32, loc=self.since(start)) for _ in buffer.shape])
            return Region(buffer, zeros, buffer.shape, loc=self.since(start))
        starts: list[Expr] = []
        extents: list[Expr] = []
        while not self.accept("]"):
            if starts:
                self.expect(",", "',', '+:' or ']'")
            at = self.token
            starts.append(self.expr())
            extents.append(self.expr() if self.accept("+:") else const(1, INT32, loc=self.since(at)))
        return Region(buffer, tuple(starts), tuple(extents), loc=self.since(start))

    def indices(self) -> tuple[Expr, ...]:
        """The indices of an access, in brackets."""
        found: list[Expr] = []
        self.expect("[")
        while not self.accept("]"):
            if found:
                self.expect(",", "',', '+:' or ']'")
            found.append(self._index())
        return tuple(found)

    def _index(self) -> Expr:
        start = self.token
        base = self.expr()
        if not self.accept("+:"):
            return base
        lanes = self.count("the number of elements")
        one = const(1, base.dtype, loc=self.since(start))
        return Ramp(base.dtype.with_lanes(lanes), base, one, loc=self.since(start))

    # --- literals ------------------------------------------------------------------------------------------

    def typed(self, of: DType | None) -> Expr:
        """An expression where one of dtype `of` is expected."""
        return self.fitted(self.expr(), of)

    def fitted(self, item: Expr, of: DType | None) -> Expr:
        """`item`, a literal without a dtype as one of dtype `of`."""
        if of is None or item.dtype is of or id(item) not in self._loose:
            return item
        return self._literal(item, of)

    def pair(self, lhs: Expr, rhs: Expr) -> tuple[Expr, Expr]:
        """Two operands of one operation; a literal without a dtype takes that of the other."""
        if id(lhs) in self._loose and id(rhs) not in self._loose:
            return self.fitted(lhs, rhs.dtype), rhs
        return lhs, self.fitted(rhs, lhs.dtype)

    def _literal(self, number: Expr, of: DType) -> Const:
        assert isinstance(number, Const)
        value = number.value
        try:
            if isinstance(value, bool) is not of.is_bool or (isinstance(value, float) and not of.is_float):
                raise DTypeError(f"{value} is not a value of {of}")
            return Const(of, const(value, of.scalar).value, loc=number.loc)
        except DTypeError as error:
            assert number.loc is not None
            self._lexer.fail(number.loc.line, number.loc.column, number.loc.end_column, error.message)

    def _number(self) -> Const:
        """A literal without a dtype."""
        start = self.token
        negative = self.accept("-")
        token = self.take()
        value: bool | int | float
        if token.kind == "int":
            value = int(token.text)
        elif token.text in ("True", "False"):
            value = token.text == "True"
        else:
            value = float(token.text)
        of = BOOL if isinstance(value, bool) else FLOAT32 if isinstance(value, float) else INT32
        made = Const(of, -value if negative else value, loc=self.since(start))
        self._loose[id(made)] = made
        return made

    def _at_number(self, distance: int = 0) -> bool:
        token = self.ahead(distance)
        return token.kind in ("int", "float") or (token.kind == "name" and token.text in NON_FINITE)

    # --- operators -----------------------------------------------------------------------------------------

    def expr(self, least: int = 1) -> Expr:
        """An expression of operators that bind at least as strongly as `least`."""
        start = self.token
        left = self._prefix()
        before = 0
        while True:
            op = INFIX.get(self.token.text) if self.token.kind in ("op", "name") else None
            if op is None or PRECEDENCE[op] < least:
                return left
            if op in UNCHAINED and PRECEDENCE[op] == before:
                self.fail(f"{self.token.text!r} does not chain: set brackets")
            self.take()
            before = PRECEDENCE[op]
            lhs, rhs = self.pair(left, self.expr(before + 1))
            gives_bool = BINARY_OPS[op][1] in ("compare", "logic")
            result = BOOL.with_lanes(lhs.dtype.lanes) if gives_bool else lhs.dtype
            left = Binary(result, op, lhs, rhs, loc=self.since(start))

    def _prefix(self) -> Expr:
        start = self.token
        if self.is_op("-") and self._at_number(1):
            return self._number()
        op = PREFIX.get(start.text) if start.kind in ("op", "name") else None
        if op is None:
            return self._atom()
        self.take()
        operand = self.expr(PRECEDENCE[op] + (op != "not"))
        return Unary(operand.dtype, op, operand, loc=self.since(start))

    def _atom(self) -> Expr:
        token = self.token
        if self._at_number() or (token.kind == "name" and token.text in ("True", "False")):
            return self._number()
        if token.kind == "op" and token.text == "(":
            return self._parenthesised()
        if token.kind != "name":
            self.expected("an expression")
        if self.is_op("<", 1) and is_dtype(self.ahead(2).text) and self.is_op(">", 3) and self.is_op("(", 4):
            return self._with_dtype()
        if self.is_op("(", 1):
            return self._called()
        return self._named()

    def _parenthesised(self) -> Expr:
        start = self.take()
        inner = self.expr()
        if self.accept("where"):
            if not isinstance(inner, Load) or inner.mask is not None:
                self.fail("only what is read from a buffer can have a mask", start)
            inner = inner.replace(mask=self.expr(), loc=self.since(start))
        self.expect(")")
        return inner

    def _named(self) -> Expr:
        token = self.take()
        found = self._find(token.text)
        if isinstance(found, Var):
            return found
        if found is None:
            self.fail(f"{token.text!r} is not declared here", token)
        if not self.is_op("["):
            self.fail(f"{token.text!r} is a buffer: expected its indices in [ ]", token)
        indices = self.indices()
        return Load(element(found, indices), found, indices, loc=self.since(token))

    # --- calls ---------------------------------------------------------------------------------------------

    def _with_dtype(self) -> Expr:
        """`name<dtype>(...)`."""
        start = self.take()
        self.expect("<")
        of = self.dtype()
        self.expect(">")
        self.expect("(")
        if start.text == "cast":
            return self._cast(start, of)
        if start.text == "reinterpret":
            value = self.expr()
            self.expect(")")
            return Reinterpret(of, value, loc=self.since(start))
        return self._call(start, of)

    def _cast(self, start: Token, of: DType) -> Expr:
        value = self.expr()
        rounding, saturate = "rn", False
        while self.accept(","):
            if self.accept("saturate"):
                saturate = True
            else:
                rounding = self.word("a rounding", ("rn", "rz"))
        self.expect(")")
        return Cast(of, value, rounding, saturate, loc=self.since(start))

    def _called(self) -> Expr:
        """`name(...)`."""
        start = self.take()
        name = start.text
        self.expect("(")
        if is_dtype(name):
            return self._typed_literal(dtype(name))
        if name in BINARY_CALLS:
            first, second = self.pair(*self._arguments(start, 2))
            return Binary(first.dtype, name, first, second, loc=self.since(start))
        if name.startswith(VECTOR_REDUCE):
            (value,) = self._arguments(start, 1)
            return VectorReduce(value.dtype.scalar, name.removeprefix(VECTOR_REDUCE), value, loc=self.since(start))
        special = _SPECIAL.get(name)
        return special(self, start) if special is not None else self._call(start, None)

    def _typed_literal(self, of: DType) -> Const:
        if not (self._at_number() or self._at_number(self.is_op("-")) or self.token.text in ("True", "False")):
            self.expected(f"a literal of {of}")
        made = self._number()
        self.expect(")")
        return self._literal(made, of)

    def _arguments(self, start: Token, count: int) -> tuple[Expr, ...]:
        found = self.exprs(")")
        if len(found) != count:
            self.fail(f"{start.text!r} takes {count} arguments, not {len(found)}", start)
        return found

    def _call(self, start: Token, of: DType | None) -> Expr:
        found = self.exprs(")")
        arguments = (*found[:1], *[self.fitted(a, found[0].dtype) for a in found[1:]])
        result = of or call_result(start.text, found[0].dtype if found else None)
        if result is None:
            self.fail(f"what {start.text!r} gives is not known: write {start.text}<dtype>(...)", start)
        return Call(result, start.text, arguments, loc=self.since(start))

    def _select(self, start: Token) -> Expr:
        condition, *values = self._arguments(start, 3)
        on_true, on_false = self.pair(*values)
        return Select(on_true.dtype, condition, on_true, on_false, loc=self.since(start))

    def _ramp(self, start: Token) -> Expr:
        base = self.expr()
        self.expect(",")
        stride = self.typed(base.dtype)
        lanes = self._last_integer()
        return Ramp(base.dtype.with_lanes(lanes), base, stride, loc=self.since(start))

    def _broadcast(self, start: Token) -> Expr:
        value = self.expr()
        lanes = self._last_integer()
        return Broadcast(value.dtype.with_lanes(lanes), value, loc=self.since(start))

    def _last_integer(self) -> int:
        self.expect(",")
        lanes = self.count("the number of lanes")
        self.expect(")")
        return lanes

    def _shuffle(self, start: Token) -> Expr:
        first = self.expr()
        self.expect(",")
        second = self.expr()
        self.expect(",")
        at = self.token
        lanes = self.integers()
        self.expect(")")
        if not lanes:
            self.fail("expected one lane at least", at)
        return Shuffle(first.dtype.with_lanes(len(lanes)), first, second, lanes, loc=self.since(start))


_SPECIAL: dict[str, Callable[[ExpressionParser, Token], Expr]] = {
    "select": ExpressionParser._select,
    "ramp": ExpressionParser._ramp,
    "broadcast": ExpressionParser._broadcast,
    "shuffle": ExpressionParser._shuffle,
}
