"""Plain statements of a declarative kernel, translated one by one, and the dtypes of its scalars."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

from tilewright.errors import LanguageError, UnsupportedSyntaxError
from tilewright.frontend.declarative.expressions import (
    Scope,
    translate,
    translate_indices,
    variable_reader,
    widen,
)
from tilewright.frontend.declarative.program import Loop, Program, read_loops
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType
from tilewright.ir.expr import INT32, Buffer, Expr, Load, Var, binary, cast, const, promote
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
            if handler is None:
                raise UnsupportedSyntaxError(
                    f"{type(statement).__name__} is not part of the declarative form",
                    location=self.scope.program.location(statement),
                    hint="loops over range or grid, if, assignments and stores are",
                )
            result.extend(handler(self, statement))
        loc = self.scope.program.location(statements[0]) if statements else None
        return Seq(tuple(result), loc=loc)

    def _assign(self, statement: ast.Assign) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        if len(statement.targets) != 1:
            raise UnsupportedSyntaxError("assign to one name at a time", location=loc)
        return [self._assign_to(statement.targets[0], statement.value, loc)]

    def _annotated(self, statement: ast.AnnAssign) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        if statement.value is None:
            raise UnsupportedSyntaxError("a declaration needs a value", location=loc)
        return [self._assign_to(statement.target, statement.value, loc)]

    def _assign_to(self, target: ast.expr, value: ast.expr, loc: Location) -> Stmt:
        result = translate(value, self.scope)
        if isinstance(target, ast.Name):
            return self._set_scalar(target.id, result, loc)
        if isinstance(target, ast.Subscript):
            return self._set_element(target, result, loc)
        raise UnsupportedSyntaxError("assign to a name or to a tensor's element", location=loc)

    def _set_scalar(self, name: str, value: Expr, loc: Location) -> Stmt:
        if name in self.scope.sizes or name in self.scope.tensors:
            raise LanguageError(f"{name!r} is a size or a tensor and cannot be assigned", location=loc)
        stored = self.store_scalar(name, value, loc)
        if stored is not None:
            return stored
        variable = self.builder.fresh_var(name, value.dtype, loc)
        self.scope.names[name] = variable_reader(variable)
        return Let(variable, value, loc=loc)

    def _set_element(self, target: ast.Subscript, value: Expr, loc: Location) -> Stmt:
        if isinstance(target.value, ast.Name) and target.value.id in self.scope.program.staged:
            raise LanguageError(
                f"{target.value.id} stages a tensor that is read; it cannot be written",
                location=loc,
                hint=f"write to {self.scope.program.staged[target.value.id][0]} itself",
            )
        name, indices = translate_indices(target, self.scope)
        buffer = self.scope.tensors[name]
        return Store(buffer, indices, cast(value, buffer.dtype, loc=loc), loc=loc)

    def _augmented(self, statement: ast.AugAssign) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        old: ast.expr
        if isinstance(statement.target, ast.Name):
            old = ast.Name(statement.target.id, ast.Load())
        elif isinstance(statement.target, ast.Subscript):
            old = ast.Subscript(statement.target.value, statement.target.slice, ast.Load())
        else:
            raise UnsupportedSyntaxError("update a name or a tensor's element", location=loc)
        old = ast.copy_location(old, statement.target)
        combined = ast.copy_location(ast.BinOp(old, statement.op, statement.value), statement)
        return [self._assign_to(statement.target, combined, loc)]

    def _if(self, statement: ast.If) -> list[Stmt]:
        loc = self.scope.program.location(statement)
        condition = translate(statement.test, self.scope)
        if condition.dtype.is_float:
            condition = binary("ne", condition, 0.0, loc=loc)
        branches = []
        for branch in (statement.body, statement.orelse):
            outer = self.scope
            self.scope = outer.child()
            try:
                branches.append(self.sequence(branch))
            finally:
                self.scope = outer
        return [If(condition, branches[0], branches[1] if statement.orelse else None, loc=loc)]

    def _for(self, statement: ast.For) -> list[Stmt]:
        program = self.scope.program
        loc = program.location(statement)
        outer = self.scope
        self.scope = outer.child()
        headers: list[tuple[Var, Expr, Expr, Expr]] = []
        for loop in read_loops(program, statement):
            start: Expr = translate(loop.start, self.scope) if loop.start is not None else const(0)
            stop = translate(loop.stop, self.scope)
            step: Expr = translate(loop.step, self.scope) if loop.step is not None else const(1)
            element = promote(promote(start.dtype, stop.dtype), step.dtype)
            if not element.is_int:
                raise LanguageError("the bounds of a loop must be integers", location=loc)
            variable = self.builder.fresh_var(loop.name, element, loc)
            self.scope.names[loop.name] = variable_reader(variable)
            headers.append((variable, cast(start, element), cast(stop, element), cast(step, element)))
        body = self.sequence(statement.body)
        self.scope = outer
        for index, first, last, stride in reversed(headers):
            body = Seq((For(index, first, last, stride, body, loc=loc),), loc=loc)
        return list(body.stmts)

    def _expression(self, statement: ast.Expr) -> list[Stmt]:
        if isinstance(statement.value, ast.Constant):
            return []
        raise UnsupportedSyntaxError(
            "an expression alone does nothing here", location=self.scope.program.location(statement)
        )

    def _pass(self, statement: ast.Pass) -> list[Stmt]:
        return []

    _HANDLERS: dict[type[ast.stmt], Callable[..., list[Stmt]]] = {  # noqa: RUF012
        ast.Assign: _assign,
        ast.AnnAssign: _annotated,
        ast.AugAssign: _augmented,
        ast.If: _if,
        ast.For: _for,
        ast.Expr: _expression,
        ast.Pass: _pass,
    }


def emit_sequential(builder: Builder, scope: Scope, statements: Sequence[ast.stmt], threads: int) -> None:
    """One block that executes `statements` as they stand, in order."""
    loc = scope.program.location(statements[0])
    types = infer_types(scope.program, scope, (), statements)
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
            return None if buffer is None else Store(buffer, (), cast(value, buffer.dtype, loc=place), loc=place)

        body = Statements(builder, inner, store).sequence(statements)
        for stmt in body.stmts:
            builder.emit(stmt)
    block = builder.fresh_var("bx", INT32, loc)
    builder.emit(Launch((const(1),), (block,), frame.seq(), threads=(threads, 1, 1), loc=loc))


def infer_types(program: Program, scope: Scope, loops: Sequence[Loop], body: Sequence[ast.stmt]) -> dict[str, DType]:
    """The dtype of every scalar: that of all its values together, floats in float32 at least."""
    inner = scope.child()
    for loop in loops:
        inner.names[loop.name] = variable_reader(Var(INT32, loop.name))
    types: dict[str, DType] = {}

    def note(name: str, value: ast.expr) -> None:
        element = widen(translate(value, inner)).dtype
        types[name] = promote(types[name], element) if name in types else element
        inner.names[name] = variable_reader(Var(types[name], name))

    def visit(statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.For):
                for loop in read_loops(program, statement):
                    inner.names[loop.name] = variable_reader(Var(INT32, loop.name))
                visit(statement.body)
            elif isinstance(statement, ast.If):
                visit(statement.body)
                visit(statement.orelse)
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                note(statement.targets[0].id, statement.value)
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
                note(statement.target.id, statement.value)
            elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                name = statement.target.id
                if name not in types:
                    raise LanguageError(
                        f"{name!r} is updated before it has a value",
                        location=program.location(statement),
                        hint=f"assign it first, `{name} = 0.0`",
                    )
                operation = ast.BinOp(ast.Name(name, ast.Load()), statement.op, statement.value)
                for part in ast.walk(operation):
                    if not hasattr(part, "lineno"):
                        ast.copy_location(part, statement)
                note(name, operation)

    for _ in range(2):  # a loop's later assignment may widen what its earlier ones see
        visit(body)
    return types


def element_reader(buffer: Buffer, indices: tuple[Expr, ...]) -> Callable[[Location], Expr]:
    return lambda loc: Load(buffer.dtype, buffer, indices, loc=loc)
