"""Rewrites a kernel function so that running it builds the IR.

Every statement whose meaning depends on whether its operands are Python values or expressions becomes a
call of the activation `__tw` (`frontend/activation.py`), which decides when it is run:

    if c:                __tw_1 = __tw.if_(c)
        x = a            if __tw_1.then():
    else:                    x = __tw.bind("x", a)
        y = b                if __tw_1.end():
                                 if __tw_1.lost("x"): x = __tw_1.dead("x")
                         if __tw_1.orelse():
                             ...

    for i in r: s        __tw_2 = __tw.for_(r, ("i",))
                         for __tw_3 in __tw_2:
                             i = __tw.bind_target("i", __tw_3)
                             s
                         if __tw_2.finish(): ...

    a and b              __tw.and_(a, lambda: b)
    A[i] = v             __tw.setitem(A, i, v)

Positions are kept, so that an error raised while running has the user's line and columns.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any

from tilewright.frontend.check import check
from tilewright.frontend.names import BlockNames
from tilewright.frontend.source import FunctionSource, parse

RUNTIME = "__tw"
# Not the function's own name, which its body may refer to.
_BODY = "__tw_body"

# Methods of Python's containers that keep their argument: what is read from memory must be read now.
_KEEPING = frozenset(("add", "append", "appendleft", "extend", "insert", "setdefault", "update"))


class Rewritten:
    """The code of a rewritten function; `function` makes it callable with an activation."""

    __slots__ = ("code", "original", "source")

    def __init__(self, code: CodeType, original: CodeType, source: FunctionSource) -> None:
        self.code = code
        self.original = original
        self.source = source

    def function(self, func: FunctionType, activation: Any) -> FunctionType:
        """`func` rewritten, its free variables those of `func`, `__tw` the activation."""
        cells = dict(zip(self.original.co_freevars, func.__closure__ or (), strict=True))
        cells[RUNTIME] = _cell(activation)
        made = FunctionType(
            self.code,
            func.__globals__,
            func.__name__,
            func.__defaults__,
            tuple(cells[name] for name in self.code.co_freevars),
        )
        made.__kwdefaults__ = func.__kwdefaults__
        return made


def _cell(value: Any) -> Any:
    return (lambda: value).__closure__[0]  # type: ignore[index]


_CACHE: dict[int, Rewritten] = {}


def rewrite(func: FunctionType) -> Rewritten:
    """The rewritten form of `func`, from a cache by its code.  Raises UnsupportedSyntaxError, SourceUnavailableError."""
    original = func.__code__
    found = _CACHE.get(id(original))
    if found is None:
        source = parse(func)
        check(source)
        found = _CACHE[id(original)] = Rewritten(_compile(source, func), original, source)
    return found


def _compile(source: FunctionSource, func: FunctionType) -> CodeType:
    tree = _Rewriter(source, _class_name(func)).function()
    free = [*func.__code__.co_freevars, RUNTIME]
    factory = ast.FunctionDef(
        name="__tw_factory",
        args=_arguments([ast.arg(arg=name) for name in free]),
        body=[tree],
        decorator_list=[],
    )
    factory = ast.copy_location(_complete(factory), tree)
    module = ast.Module(body=[ast.fix_missing_locations(factory)], type_ignores=[])
    flags = func.__code__.co_flags & _FUTURE_FLAGS
    compiled = compile(module, source.file, "exec", flags=flags, dont_inherit=True)
    body = _inner(_inner(compiled, "__tw_factory"), _BODY)
    if sys.version_info >= (3, 11):
        return body.replace(co_name=func.__name__, co_qualname=func.__qualname__)
    return body.replace(co_name=func.__name__)


def _complete(tree: ast.FunctionDef) -> ast.FunctionDef:
    """With the field that Python 3.12 added."""
    if "type_params" in tree._fields:
        setattr(tree, "type_params", [])  # noqa: B010
    return tree


def _future_flags() -> int:
    import __future__

    mask = 0
    for name in __future__.all_feature_names:
        mask |= getattr(__future__, name).compiler_flag
    return mask


_FUTURE_FLAGS = _future_flags()


def _inner(code: CodeType, name: str) -> CodeType:
    return next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)


def _class_name(func: FunctionType) -> str:
    """The class that `func` is a method of, for private names; empty when it is none."""
    parts = func.__qualname__.split(".")
    return parts[-2].lstrip("_") if len(parts) > 1 and parts[-2] != "<locals>" else ""


def _arguments(args: list[ast.arg]) -> ast.arguments:
    return ast.arguments(posonlyargs=[], args=args, kwonlyargs=[], kw_defaults=[], defaults=[])


class _Rewriter(ast.NodeTransformer):
    """Builds the new tree of one function."""

    def __init__(self, source: FunctionSource, class_name: str) -> None:
        self.source = source
        self.class_name = class_name
        self.names = BlockNames(source.tree)
        self.counter = 0

    # --- making nodes ------------------------------------------------------------------------

    def temporary(self) -> str:
        self.counter += 1
        return f"{RUNTIME}_{self.counter}"

    @staticmethod
    def name(name: str, at: ast.AST) -> ast.expr:
        return ast.copy_location(ast.Name(id=name, ctx=ast.Load()), at)

    def call(self, method: str, args: Sequence[ast.expr], at: ast.AST, owner: str = RUNTIME) -> ast.expr:
        """`owner.method(args)`, standing at `at`."""
        target = ast.copy_location(ast.Attribute(value=self.name(owner, at), attr=method, ctx=ast.Load()), at)
        return ast.copy_location(ast.Call(func=target, args=list(args), keywords=[]), at)

    @staticmethod
    def constant(value: Any, at: ast.AST) -> ast.expr:
        return ast.copy_location(ast.Constant(value=value), at)

    @staticmethod
    def assign(name: str, value: ast.expr, at: ast.AST) -> ast.stmt:
        target = ast.copy_location(ast.Name(id=name, ctx=ast.Store()), at)
        return ast.copy_location(ast.Assign(targets=[target], value=value), at)

    @staticmethod
    def thunk(body: ast.expr) -> ast.expr:
        return ast.copy_location(ast.Lambda(args=_arguments([]), body=body), body)

    @staticmethod
    def statement(value: ast.expr, at: ast.AST) -> ast.stmt:
        return ast.copy_location(ast.Expr(value=value), at)

    def block(self, stmts: Sequence[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for stmt in stmts:
            made = self.visit(stmt)
            result.extend(made if isinstance(made, list) else [made])
        return result

    # --- the function ------------------------------------------------------------------------

    def function(self) -> ast.FunctionDef:
        tree = self.source.tree
        old = tree.args
        strip = [ast.copy_location(ast.arg(arg=a.arg), a) for a in (*old.posonlyargs, *old.args)]
        args = ast.arguments(
            posonlyargs=strip[: len(old.posonlyargs)],
            args=strip[len(old.posonlyargs) :],
            vararg=ast.arg(arg=old.vararg.arg) if old.vararg else None,
            kwonlyargs=[ast.copy_location(ast.arg(arg=a.arg), a) for a in old.kwonlyargs],
            kw_defaults=[None] * len(old.kwonlyargs),
            kwarg=ast.arg(arg=old.kwarg.arg) if old.kwarg else None,
            defaults=[],
        )
        made = ast.FunctionDef(name=_BODY, args=args, body=self.block(tree.body), decorator_list=[])
        return ast.copy_location(_complete(made), tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        """A helper inside of the kernel stays plain Python."""
        return [node, self.assign(node.name, self.bind(node.name, self.name(node.name, node), node), node)]

    # --- control flow ------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        handle = self.temporary()
        result = [self.assign(handle, self.call("if_", [self.visit(node.test)], node.test), node.test)]
        with self.names.enter(node, "body"):
            body = self.block(node.body)
        body.extend(self.leave(handle, "end", self.names.bound(node, "body"), node))
        result.append(self.branch(handle, "then", body, node))
        if node.orelse:
            with self.names.enter(node, "orelse"):
                orelse = self.block(node.orelse)
            orelse.extend(self.leave(handle, "end", self.names.bound(node, "orelse"), node))
            result.append(self.branch(handle, "orelse", orelse, node))
        result.append(self.statement(self.call("close", [], node.test, handle), node.test))
        return result

    def branch(self, handle: str, method: str, body: list[ast.stmt], at: ast.If) -> ast.stmt:
        return ast.copy_location(ast.If(test=self.call(method, [], at.test, handle), body=body, orelse=[]), at)

    def leave(self, handle: str, method: str, names: Sequence[str], at: ast.AST) -> list[ast.stmt]:
        """The end of a block: names that it introduced are dead afterwards if it was a block of the IR."""
        ended = self.call(method, [], at, handle)
        if not names:
            return [self.statement(ended, at)]
        kills: list[ast.stmt] = []
        for name in names:
            text = self.constant(name, at)
            kill = self.assign(name, self.call("dead", [text], at, handle), at)
            test = self.call("lost", [text], at, handle)
            kills.append(ast.copy_location(ast.If(test=test, body=[kill], orelse=[]), at))
        return [ast.copy_location(ast.If(test=ended, body=kills, orelse=[]), at)]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        handle, item = self.temporary(), self.temporary()
        iterable = self.iterable(node.iter)
        names = self.constant(tuple(_target_names(node.target)), node.iter)
        start = self.assign(handle, self.call("for_", [iterable, names], node.iter), node.iter)
        with self.names.enter(node, "body"):
            head = self.store(node.target, self.name(item, node.target), bind="bind_target")
            body = [*head, *self.block(node.body)]
        target = ast.copy_location(ast.Name(id=item, ctx=ast.Store()), node.target)
        loop = ast.For(target=target, iter=self.name(handle, node.iter), body=body, orelse=[])
        after = self.leave(handle, "finish", self.names.bound(node, "body"), node.iter)
        return [start, ast.copy_location(loop, node), *after]

    def iterable(self, node: ast.expr) -> ast.expr:
        """What a `for` goes over: a call of the built-in `range` is a loop of the kernel."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "range":
            plain = not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args)
            if plain:
                return self.call("range_", [self.name("range", node.func), *[self.visit(a) for a in node.args]], node)
        made: ast.expr = self.visit(node)
        return made

    def visit_While(self, node: ast.While) -> list[ast.stmt]:
        handle, item = self.temporary(), self.temporary()
        literal = self.constant(isinstance(node.test, ast.Constant), node.test)
        test = self.thunk(self.visit(node.test))
        start = self.assign(handle, self.call("while_", [test, literal], node.test), node.test)
        with self.names.enter(node, "body"):
            body = self.block(node.body)
        target = ast.copy_location(ast.Name(id=item, ctx=ast.Store()), node.test)
        loop = ast.For(target=target, iter=self.name(handle, node.test), body=body, orelse=[])
        after = self.leave(handle, "finish", self.names.bound(node, "body"), node.test)
        return [start, ast.copy_location(loop, node), *after]

    def visit_Break(self, node: ast.Break) -> ast.stmt:
        return self.jump("break", node)

    def visit_Continue(self, node: ast.Continue) -> ast.stmt:
        return self.jump("continue", node)

    def jump(self, word: str, node: ast.stmt) -> ast.stmt:
        test = self.call("jump", [self.constant(word, node)], node)
        return ast.copy_location(ast.If(test=test, body=[node], orelse=[]), node)

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        value = self.visit(node.value) if node.value is not None else self.constant(None, node)
        return ast.copy_location(ast.Return(value=self.call("return_", [value], node)), node)

    def visit_Raise(self, node: ast.Raise) -> list[ast.stmt]:
        return [self.statement(self.call("raise_", [], node), node), self.generic_statement(node)]

    def generic_statement(self, node: ast.stmt) -> ast.stmt:
        made = self.generic_visit(node)
        assert isinstance(made, ast.stmt)
        return made

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        message = self.visit(node.msg) if node.msg is not None else self.constant(None, node)
        return self.statement(self.call("assert_", [self.visit(node.test), self.thunk(message)], node), node)

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        if len(node.items) > 1:
            inner = ast.copy_location(ast.With(items=node.items[1:], body=node.body), node)
            self.names.replace(node, inner)
            outer = ast.copy_location(ast.With(items=node.items[:1], body=[inner]), node)
            return self.with_one(outer, ())
        return self.with_one(node, self.names.bound(node, "body"))

    def with_one(self, node: ast.With, bound: Sequence[str]) -> list[ast.stmt]:
        handle, item = self.temporary(), self.temporary()
        context, target = node.items[0].context_expr, node.items[0].optional_vars
        names = self.constant(tuple(_target_names(target)) if target is not None else (), context)
        start = self.assign(handle, self.call("with_", [self.visit(context), names], context), context)
        with self.names.enter(node, "body"):
            head = self.store(target, self.name(item, target)) if target is not None else []
            body = [*head, *self.block(node.body)]
        variable = ast.copy_location(ast.Name(id=item, ctx=ast.Store()), context)
        opened = ast.withitem(context_expr=self.name(handle, context), optional_vars=variable)
        made = ast.copy_location(ast.With(items=[opened], body=body), node)
        return [start, made, *self.leave(handle, "finish", bound, context)]

    def visit_Match(self, node: Any) -> Any:
        node.subject = self.call("python_only", [self.visit(node.subject), self.constant("match", node)], node.subject)
        for case in node.cases:
            if case.guard is not None:
                case.guard = self.visit(case.guard)
            captured = _captured(case.pattern)
            binds = [self.assign(n, self.bind(n, self.name(n, case.pattern), case.pattern), node) for n in captured]
            case.body = [*binds, *self.block(case.body)]
        return node

    # --- assignment --------------------------------------------------------------------------

    def bind(self, name: str, value: ast.expr, at: ast.AST, method: str = "bind") -> ast.expr:
        return self.call(method, [self.constant(name, at), value], at)

    def store(self, target: ast.expr, value: ast.expr, bind: str = "bind") -> list[ast.stmt]:
        """Statements that assign `value` to `target`."""
        if isinstance(target, ast.Name):
            return [self.assign(target.id, self.bind(target.id, value, target, bind), target)]
        if isinstance(target, (ast.Tuple, ast.List)):
            return self.store_parts(target, value, bind)
        if isinstance(target, ast.Subscript):
            arguments = [self.visit(target.value), self.index(target.slice), value]
            return [self.statement(self.call("setitem", arguments, target), target)]
        if isinstance(target, ast.Attribute):
            arguments = [self.visit(target.value), self.constant(self.mangle(target.attr), target), value]
            return [self.statement(self.call("setattr", arguments, target), target)]
        raise AssertionError(type(target).__name__)

    def store_parts(self, target: ast.Tuple | ast.List, value: ast.expr, bind: str) -> list[ast.stmt]:
        parts = self.temporary()
        star = next((p for p, t in enumerate(target.elts) if isinstance(t, ast.Starred)), -1)
        plain = all(isinstance(t, ast.Name) for t in target.elts)
        names = self.constant(tuple(t.id for t in target.elts if isinstance(t, ast.Name)) if plain else None, target)
        arguments = [value, self.constant(len(target.elts), target), self.constant(star, target), names]
        result = [self.assign(parts, self.call("unpack", arguments, target), target)]
        for position, element in enumerate(target.elts):
            inner = element.value if isinstance(element, ast.Starred) else element
            part = ast.copy_location(
                ast.Subscript(value=self.name(parts, inner), slice=self.constant(position, inner), ctx=ast.Load()),
                inner,
            )
            result.extend(self.store(inner, part, bind))
        return result

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        value = self.visit(node.value)
        if len(node.targets) == 1:
            return self.store(node.targets[0], value)
        shared = self.temporary()
        result = [self.assign(shared, self.call("shared", [value], node.value), node.value)]
        for target in node.targets:
            result.extend(self.store(target, self.name(shared, node.value)))
        return result

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        operator = self.constant(type(node.op).__name__, node)
        target = node.target
        if isinstance(target, ast.Name):
            old = self.visit(ast.copy_location(ast.Name(id=target.id, ctx=ast.Load()), target))
            arguments = [self.constant(target.id, target), operator, old, self.visit(node.value)]
            return [self.assign(target.id, self.call("augment", arguments, node), node)]
        owner = self.temporary()
        result = [self.assign(owner, self.visit(target.value), target)]
        if isinstance(target, ast.Attribute):
            attribute = self.mangle(target.attr)
            old = ast.Attribute(value=self.name(owner, target), attr=attribute, ctx=ast.Load())
            key, method = self.constant(attribute, target), "setattr"
        else:
            index = self.temporary()
            result.append(self.assign(index, self.index(target.slice), target))
            old = ast.Subscript(value=self.name(owner, target), slice=self.name(index, target), ctx=ast.Load())
            key, method = self.name(index, target), "setitem"
        combined = self.call("inplace", [operator, ast.copy_location(old, target), self.visit(node.value)], node)
        result.append(self.statement(self.call(method, [self.name(owner, target), key, combined], target), target))
        return result

    def visit_AnnAssign(self, node: ast.AnnAssign) -> list[ast.stmt]:
        annotation = self.thunk(self.visit(node.annotation))
        if node.value is None:
            if not isinstance(node.target, ast.Name):
                return []
            text = self.constant(node.target.id, node.target)
            return [self.assign(node.target.id, self.call("declare", [text, annotation], node.annotation), node.target)]
        value = self.call("annotated", [self.visit(node.value), annotation], node.value)
        return self.store(node.target, value)

    def index(self, node: ast.expr) -> ast.expr:
        """A subscript as a value: slices become slice objects."""
        if isinstance(node, ast.Slice):
            parts = [
                self.constant(None, node) if p is None else self.visit(p) for p in (node.lower, node.upper, node.step)
            ]
            return self.call("slice", parts, node)
        if isinstance(node, ast.Tuple):
            items = [self.index(item) for item in node.elts]
            return ast.copy_location(ast.Tuple(elts=items, ctx=ast.Load()), node)
        made: ast.expr = self.visit(node)
        return made

    # --- expressions -------------------------------------------------------------------------

    def visit_Name(self, node: ast.Name) -> ast.expr:
        node.id = self.mangle(node.id)
        if isinstance(node.ctx, ast.Load) and self.names.may_be_dead(node.id):
            return self.call("read", [node], node)
        return node

    def mangle(self, name: str) -> str:
        private = self.class_name and name.startswith("__") and not name.endswith("__")
        return f"_{self.class_name}{name}" if private else name

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        value = self.visit(node.value)
        if node.attr == "shape" and isinstance(node.ctx, ast.Load):
            return self.call("shape", [value], node)
        made = ast.Attribute(value=value, attr=self.mangle(node.attr), ctx=node.ctx)
        return ast.copy_location(made, node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        method = "and_" if isinstance(node.op, ast.And) else "or_"
        result = self.visit(node.values[0])
        for value in node.values[1:]:
            result = self.call(method, [result, self.thunk(self.visit(value))], node)
        made: ast.expr = result
        return made

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return self.call("not_", [operand], node)
        return ast.copy_location(ast.UnaryOp(op=node.op, operand=operand), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        sides = [self.thunk(self.visit(node.body)), self.thunk(self.visit(node.orelse))]
        return self.call("ifexp", [self.visit(node.test), *sides], node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        operands = [self.visit(v) for v in (node.left, *node.comparators)]
        names = [type(op).__name__ for op in node.ops]
        if len(names) > 1:
            pairs = [
                ast.copy_location(ast.Tuple(elts=[self.constant(n, node), self.thunk(v)], ctx=ast.Load()), node)
                for n, v in zip(names, operands[1:], strict=True)
            ]
            return self.call("chain", [operands[0], *pairs], node)
        if names[0] in ("Is", "IsNot", "In", "NotIn"):
            return self.call("compare", [self.constant(names[0], node), *operands], node)
        return ast.copy_location(ast.Compare(left=operands[0], ops=node.ops, comparators=operands[1:]), node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        func = node.func
        made = ast.copy_location(
            ast.Call(
                func=self.visit(func),
                args=[self.visit(a) for a in node.args],
                keywords=[
                    ast.copy_location(ast.keyword(arg=k.arg, value=self.visit(k.value)), k) for k in node.keywords
                ],
            ),
            node,
        )
        if isinstance(func, ast.Attribute) and func.attr in _KEEPING:
            made.args = [a if isinstance(a, ast.Starred) else self.call("freeze", [a], a) for a in made.args]
        elif isinstance(func, ast.Name) and func.id in ("min", "max") and not made.keywords and len(made.args) > 1:
            return self.call("minmax", [made.func, *made.args], node)
        return made

    def visit_Lambda(self, node: ast.Lambda) -> ast.expr:
        return ast.copy_location(ast.Lambda(args=node.args, body=self.visit(node.body)), node)


def _target_names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for element in target.elts:
            yield from _target_names(element)


def _captured(pattern: Any) -> list[str]:
    found = [getattr(node, field, None) for node in ast.walk(pattern) for field in ("name", "rest")]
    return [name for name in found if isinstance(name, str)]
