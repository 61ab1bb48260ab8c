"""Plain statements of a declarative kernel, translated one by one, and the dtypes of its scalars."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from tilewright.errors import ArgumentValueError, LanguageError
from tilewright.frontend.declarative.expressions import (
    Scope,
    condition,
    translate,
    translate_indices,
    variable_reader,
)
from tilewright.frontend.declarative.literals import convert, widen_dtype
from tilewright.frontend.declarative.program import Loop, read_loops
from tilewright.frontend.declarative.recognise import assigned_names
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType
from tilewright.ir.expr import INT32, INT64, Buffer, Const, Expr, Load, Var, cast, const, promote
from tilewright.ir.stmt import Alloc, For, If, Launch, Let, Seq, Stmt, Store
from tilewright.source import Location


class Statements:
    """Translates plain statements; scalars are stored by `store_scalar`, or bound by Let where that gives None."""

    def __init__(
        self, builder: Builder, scope: Scope, store_scalar: Callable[[str, Expr, Location], Stmt | None]
    ) -> None:
        self.builder = builder
        self.scope = scope
        self.store_scalar = store_scalar

    def sequence(self, statements: Sequence[ast.stmt]) -> Seq:
        """The statements as a Seq."""
        result: list[Stmt] = []
        for statement in statements:
            handler = self._HANDLERS.get(type(statement))
            assert handler is not None, "check_statements lets no other statement through"
            result.extend(handler(self, statement))
        loc = self.scope.program.location(statements[0]) if statements else None
        return Seq(tuple(result), loc=loc)

    def _assign(self, statement: ast.Assign) -> list[Stmt]:
        return [self._assign_to(statement.targets[0], statement.value, self.scope.program.location(statement))]

    def _assign_to(self, target: ast.expr, value: ast.expr, loc: Location) -> Stmt:
        result = translate(value, self.scope)
        if isinstance(target, ast.Name):
            return self._set_scalar(target.id, result, loc)
        assert isinstance(target, ast.Subscript)
        return self._set_element(target, result, loc)

    def _set_scalar(self, name: str, value: Expr, loc: Location) -> Stmt:
        stored = self.store_scalar(name, value, loc)
        if stored is not None:
            return stored
        if isinstance(value, Const):
            self.scope.names[name] = constant_reader(value)
            return Seq((), loc=loc)
        variable = self.builder.fresh_var(name, value.dtype, loc)
        self.scope.names[name] = variable_reader(variable)
        return Let(variable, value, loc=loc)

    def _set_element(self, target: ast.Subscript, value: Expr, loc: Location) -> Stmt:
        name, indices = translate_indices(target, self.scope)
        buffer = self.scope.tensors[name]
        return Store(buffer, indices, convert(value, buffer.dtype, loc), loc=loc)

    def _augmented(self, statement: ast.AugAssign) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        target = statement.target
        old: ast.expr
        if isinstance(target, ast.Name):
            old = ast.Name(target.id, ast.Load())
        else:
            assert isinstance(target, ast.Subscript)
            old = ast.Subscript(target.value, target.slice, ast.Load())
        old = ast.copy_location(old, statement.target)
        combined = ast.copy_location(ast.BinOp(old, statement.op, statement.value), statement)
        return [self._assign_to(statement.target, combined, loc)]

    def _if(self, statement: ast.If) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        test = condition(statement.test, self.scope)
        if isinstance(test, Const):
            return list(self.sequence(statement.body if test.value else statement.orelse).stmts)
        branches = []
        for branch in (statement.body, statement.orelse):
            outer = self.scope
            self.scope = outer.child()
            try:
                branches.append(self.sequence(branch))
            finally:
                self.scope = outer
        return [If(test, branches[0], branches[1] if statement.orelse else None, loc=loc)]

    def _for(self, statement: ast.For) -> list[Stmt]:
        program = self.scope.program
        loc = program.location(statement)
        outer = self.scope
        self.scope = outer.child()
        headers: list[tuple[Var, Expr, Expr, Expr]] = []
        for loop in read_loops(program, statement):
            start, stop, step = loop_bounds(loop, self.scope)
            element = promote(promote(start.dtype, stop.dtype), step.dtype)
            variable = self.builder.fresh_var(loop.name, element, loc)
            self.scope.names[loop.name] = variable_reader(variable)
            headers.append((variable, cast(start, element), cast(stop, element), cast(step, element)))
        body = self.sequence(statement.body)
        self.scope = outer
        for index, first, last, stride in reversed(headers):
            body = Seq((For(index, first, last, stride, body, loc=loc),), loc=loc)
        return list(body.stmts)

    def _nothing(self, statement: ast.Pass | ast.Expr) -> list[Stmt]:
        return []

    _HANDLERS: dict[type[ast.stmt], Callable[..., list[Stmt]]] = {  # noqa: RUF012
        ast.Assign: _assign,
        ast.AugAssign: _augmented,
        ast.If: _if,
        ast.For: _for,
        ast.Expr: _nothing,
        ast.Pass: _nothing,
    }


def emit_sequential(builder: Builder, scope: Scope, statements: Sequence[ast.stmt], threads: int) -> None:
    """One block that executes `statements` as they stand, in order."""
    loc = scope.program.location(statements[0])
    types, _ = infer_types(scope, (), statements)
    inner = scope.child()
    variables = {}
    with builder.scope("launch", loc=loc) as frame:
        for name, element in types.items():
            buffer = Buffer(builder.unique_name(name), (), element, "var", loc=loc)
            variables[name] = buffer
            inner.names[name] = element_reader(buffer, ())
            builder.emit(Alloc(buffer, cast(const(0), element), loc=loc))

        def store(name: str, value: Expr, place: Location) -> Stmt | None:
            buffer = variables.get(name)
            return None if buffer is None else Store(buffer, (), convert(value, buffer.dtype, place), loc=place)

        body = Statements(builder, inner, store).sequence(statements)
        for stmt in body.stmts:
            builder.emit(stmt)
    block = builder.fresh_var("bx", INT32, loc)
    builder.emit(Launch((const(1),), (block,), frame.seq(), threads=(threads, 1, 1), loc=loc))


def loop_bounds(loop: Loop, scope: Scope) -> tuple[Expr, Expr, Expr]:
    """Start, stop and step of a loop.  Raises LanguageError where one is no integer."""
    if loop.block_dim is not None:
        raise LanguageError(
            f"{loop.name} runs over a block, but its iterations are not independent of one another",
            location=scope.program.location(loop.node.iter),
            hint="index everything that is stored by it, or loop over range(size)",
        )
    start: Expr = translate(loop.start, scope) if loop.start is not None else const(0)
    stop = translate(loop.stop, scope)
    step: Expr = translate(loop.step, scope) if loop.step is not None else const(1)
    for bound, node in ((start, loop.start), (stop, loop.stop), (step, loop.step)):
        if not bound.dtype.is_int:
            raise LanguageError(
                f"the bounds of a loop must be integers, not {bound.dtype}",
                location=scope.program.location(node or loop.node),
                hint="use // for a quotient, or int(x)",
            )
    if isinstance(step, Const) and step.value == 0:
        raise ArgumentValueError(
            "the step of a loop cannot be 0",
            location=scope.program.location(loop.node.iter),
            hint="leave it out, or give one that is not 0",
        )
    return start, stop, step


class _Types:
    """The dtype of every scalar, that of all its values together; scalars with one literal value are constants."""

    def __init__(self, scope: Scope, assigned: Sequence[str]) -> None:
        self.scope = scope
        self.assigned = assigned
        self.types: dict[str, DType] = {}
        self.constants: dict[str, Const] = {}

    def note(self, name: str, value: ast.expr) -> None:
        result = translate(value, self.scope)
        if isinstance(result, Const) and self.assigned.count(name) == 1:
            self.constants[name] = result
            self.scope.names[name] = constant_reader(result)
            return
        element = widen_dtype(result.dtype)
        self.types[name] = promote(self.types[name], element) if name in self.types else element
        self.scope.names[name] = variable_reader(Var(self.types[name], name))

    def visit(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.For):
                for loop in read_loops(self.scope.program, statement):
                    element = INT32
                    if loop.block_dim is None:
                        start, stop, step = loop_bounds(loop, self.scope)
                        element = promote(promote(start.dtype, stop.dtype), step.dtype)
                    self.scope.names[loop.name] = variable_reader(Var(element, loop.name))
                self.visit(statement.body)
            elif isinstance(statement, ast.If):
                test = condition(statement.test, self.scope)
                known = bool(test.value) if isinstance(test, Const) else None
                self.visit(statement.body if known is not False else ())
                self.visit(statement.orelse if known is not True else ())
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self.note(statement.targets[0].id, statement.value)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                read = ast.copy_location(ast.Name(statement.target.id, ast.Load()), statement.target)
                self.note(read.id, ast.copy_location(ast.BinOp(read, statement.op, statement.value), statement))


def infer_types(
    scope: Scope, loops: Sequence[Loop], body: Sequence[ast.stmt]
) -> tuple[dict[str, DType], dict[str, Const]]:
    """The dtype of every scalar, widened, and the values of those that have one literal value."""
    inner = scope.child()
    for loop in loops:
        wide = loop.block_dim is None and loop_bounds(loop, scope)[1].dtype is INT64
        inner.names[loop.name] = variable_reader(Var(INT64 if wide else INT32, loop.name))
    found = _Types(inner, assigned_names(body))
    before: dict[str, DType] | None = None
    while before != found.types:  # a loop's later assignment may widen what its earlier ones see
        before = dict(found.types)
        found.visit(body)
    return found.types, found.constants


def constant_reader(value: Expr) -> Callable[[Location], Expr]:
    """A reader that gives `value` everywhere."""
    return lambda loc: value


def element_reader(buffer: Buffer, indices: tuple[Expr, ...]) -> Callable[[Location], Expr]:
    return lambda loc: Load(buffer.dtype, buffer, indices, loc=loc)
