"""Python expressions of a declarative kernel as IR expressions.

Arithmetic on narrow floats is done in float32 and rounded where it is stored, so that a kernel means the
same whether its loops are recognised or compiled as they stand.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import LanguageError, ShapeError, UnsupportedSyntaxError
from tilewright.frontend.declarative.program import Program, call_name
from tilewright.ir.expr import (
    FLOAT32,
    INT32,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    as_expr,
    binary,
    cast,
    const,
    select,
    unary,
)
from tilewright.ir.intrinsics import INTRINSICS, intrinsic
from tilewright.source import Location

Reader = Callable[[Location], Expr]

_BINARY: dict[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "floormod",
    ast.Pow: "pow",
    ast.BitAnd: "bitand",
    ast.BitOr: "bitor",
    ast.BitXor: "bitxor",
    ast.LShift: "shl",
    ast.RShift: "shr",
}
_COMPARE: dict[type[ast.cmpop], str] = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}


@dataclass
class Scope:
    """What names mean at one place of the program.

    sizes: values of sizes.  names: readers of loop indices, scalars and locals.  tensors: buffers by name.
    load: how an element of a tensor is read (staged copies replace it).  shared: results that were computed
    before, by the text of their expression.
    """

    program: Program
    sizes: dict[str, int]
    tensors: dict[str, Buffer]
    names: dict[str, Reader] = field(default_factory=dict)
    load: Callable[[ast.Subscript, str, tuple[Expr, ...], Location], Expr | None] | None = None
    shared: dict[str, Callable[[], Expr]] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope whose names may be added to without changing this one."""
        return Scope(self.program, self.sizes, self.tensors, dict(self.names), self.load, dict(self.shared))


def tensor_of(scope: Scope, node: ast.Subscript) -> str:
    """The tensor that a subscript reads or writes (a staged name leads to its tensor)."""
    loc = scope.program.location(node)
    if not isinstance(node.value, ast.Name):
        raise UnsupportedSyntaxError("only tensors can be indexed", location=loc)
    name = node.value.id
    name = scope.program.staged.get(name, (name, None))[0]
    if name not in scope.tensors:
        raise LanguageError(f"{name!r} is not a tensor parameter of {scope.program.name}", location=loc)
    return name


def index_nodes(node: ast.Subscript) -> list[ast.expr]:
    """The index expressions of a subscript."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


def translate_indices(node: ast.Subscript, scope: Scope) -> tuple[str, tuple[Expr, ...]]:
    """The tensor and index expressions of a subscript, rank checked."""
    name = tensor_of(scope, node)
    loc = scope.program.location(node)
    entries = index_nodes(node)
    buffer = scope.tensors[name]
    if len(entries) != buffer.ndim:
        raise ShapeError(f"{name} has {buffer.ndim} dimensions but {len(entries)} indices", location=loc)
    indices = []
    for position, entry in enumerate(entries):
        if isinstance(entry, ast.Slice):
            raise UnsupportedSyntaxError("slices have no meaning here", location=loc, hint="write the loop")
        index = translate(entry, scope)
        if not index.dtype.is_int:
            raise LanguageError(
                f"an index must be an integer, got {index.dtype}", location=scope.program.location(entry)
            )
        size = buffer.shape[position]
        if isinstance(index, Const) and index.value < 0 and isinstance(size, Const):
            index = const(int(size.value) + int(index.value), INT32, loc=loc)
        indices.append(index)
    return name, tuple(indices)


def translate(node: ast.expr, scope: Scope) -> Expr:
    """`node` as an IR expression.  Raises UnsupportedSyntaxError, LanguageError, DTypeError with the place."""
    if scope.shared:
        reuse = scope.shared.get(ast.dump(node))
        if reuse is not None:
            return reuse()
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise UnsupportedSyntaxError(
            f"{type(node).__name__} is not part of the declarative form", location=scope.program.location(node)
        )
    return handler(node, scope)


def _constant(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    if isinstance(node.value, (bool, int, float)):
        return const(node.value, loc=loc)
    raise UnsupportedSyntaxError(f"{node.value!r} is not a number", location=loc)


def _name(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    reader = scope.names.get(node.id)
    if reader is not None:
        return reader(loc)
    if node.id in scope.sizes:
        return const(scope.sizes[node.id], INT32 if scope.sizes[node.id] < 2**31 else None, loc=loc)
    try:
        value = scope.program.lookup(node.id)
    except (KeyError, ValueError):
        raise LanguageError(
            f"name {node.id!r} is not defined here",
            location=loc,
            hint="loop indices, sizes, scalar parameters, locals assigned before, and numbers of the module are known",
        ) from None
    if isinstance(value, (bool, int, float)):
        return const(value, loc=loc)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return as_expr(value, loc=loc)
    raise LanguageError(f"{node.id!r} is a {type(value).__name__}, which cannot stand in a kernel", location=loc)


def _subscript(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    name, indices = translate_indices(node, scope)
    if scope.load is not None:
        staged = scope.load(node, name, indices, loc)
        if staged is not None:
            return widen(staged)
    buffer = scope.tensors[name]
    return widen(Load(buffer.dtype, buffer, indices, loc=loc))


def widen(value: Expr) -> Expr:
    """A narrow float as float32."""
    return cast(value, FLOAT32, loc=value.loc) if value.dtype.is_narrow_float else value


def _binary_operation(node: Any, scope: Scope) -> Expr:
    operation = _BINARY.get(type(node.op))
    loc = scope.program.location(node)
    if operation is None:
        raise UnsupportedSyntaxError(f"operator {type(node.op).__name__} has no meaning here", location=loc)
    return binary(operation, translate(node.left, scope), translate(node.right, scope), loc=loc)


def _unary_operation(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    operand = translate(node.operand, scope)
    if isinstance(node.op, ast.UAdd):
        return operand
    operations = {ast.USub: "neg", ast.Not: "not", ast.Invert: "bitnot"}
    return unary(operations[type(node.op)], operand, loc=loc)


def _comparison(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    values = [translate(v, scope) for v in (node.left, *node.comparators)]
    result: Expr | None = None
    for operator, left, right in zip(node.ops, values, values[1:], strict=False):
        operation = _COMPARE.get(type(operator))
        if operation is None:
            raise UnsupportedSyntaxError(f"{type(operator).__name__} has no meaning here", location=loc)
        part = binary(operation, left, right, loc=loc)
        result = part if result is None else binary("and", result, part, loc=loc)
    assert result is not None
    return result


def _boolean(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    operation = "and" if isinstance(node.op, ast.And) else "or"
    result = translate(node.values[0], scope)
    for value in node.values[1:]:
        result = binary(operation, result, translate(value, scope), loc=loc)
    return result


def _conditional(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    return select(translate(node.test, scope), translate(node.body, scope), translate(node.orelse, scope), loc=loc)


def _attribute(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    constants = {"inf": math.inf, "nan": math.nan, "pi": math.pi, "e": math.e}
    if node.attr in constants:
        return const(constants[node.attr], loc=loc)
    if isinstance(node.value, ast.Name):
        try:
            value = getattr(scope.program.lookup(node.value.id), node.attr)
        except (KeyError, ValueError, AttributeError):
            value = None
        if isinstance(value, (bool, int, float)):
            return const(value, loc=loc)
    raise UnsupportedSyntaxError(f".{node.attr} has no meaning here", location=loc)


def _extreme(operation: str) -> Callable[..., Expr]:
    def combine(*values: Expr, loc: Location) -> Expr:
        result = values[0]
        for value in values[1:]:
            result = binary(operation, result, value, loc=loc)
        return result

    return combine


def _infinity(*values: Expr, loc: Location) -> Expr:
    return const(math.inf, loc=loc)


def _relu(value: Expr, *, loc: Location) -> Expr:
    return binary("max", value, const(0, value.dtype), loc=loc)


def _pow(base: Expr, exponent: Expr, *, loc: Location) -> Expr:
    return binary("pow", base, exponent, loc=loc)


def _choose(condition: Expr, on_true: Expr, on_false: Expr, *, loc: Location) -> Expr:
    return select(condition, on_true, on_false, loc=loc)


_FUNCTIONS: dict[str, tuple[int | None, Callable[..., Expr]]] = {
    "max": (None, _extreme("max")),
    "maximum": (2, _extreme("max")),
    "min": (None, _extreme("min")),
    "minimum": (2, _extreme("min")),
    "relu": (1, _relu),
    "pow": (2, _pow),
    "where": (3, _choose),
    "if_then_else": (3, _choose),
    "infinity": (None, _infinity),
}
_ALIASES = {"fabs": "abs", "rint": "round", "nearbyint": "round"}


def _call(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    name = call_name(node)
    if node.keywords:
        raise UnsupportedSyntaxError("functions take positional arguments only here", location=loc)
    if name in ("float", "infinity") and len(node.args) == 1:
        text = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
        if name == "float" and isinstance(text, str):
            return const(float(text), loc=loc)
        if name == "infinity":
            return const(math.inf, loc=loc)
    arguments = [translate(argument, scope) for argument in node.args if not _is_dtype(argument, scope)]
    function = _FUNCTIONS.get(name)
    if function is not None:
        arity, build = function
        _check_arity(name, arity, arguments, loc)
        return build(*arguments, loc=loc)
    name = _ALIASES.get(name, name)
    if name in INTRINSICS:
        _check_arity(name, INTRINSICS[name].arity, arguments, loc)
        return intrinsic(name, *arguments, loc=loc)
    element = scope.program.resolve_dtype(node.func)
    if name == "cast" and len(node.args) == 2:
        element = scope.program.resolve_dtype(node.args[1])
    if element is not None:
        _check_arity(name, 1, arguments, loc)
        return widen(cast(arguments[0], element, loc=loc))
    raise LanguageError(
        f"function {name or '?'} is not known in a declarative kernel",
        location=loc,
        hint=f"known: dtypes, {', '.join(sorted({*_FUNCTIONS, *INTRINSICS}))}",
    )


def _is_dtype(node: ast.expr, scope: Scope) -> bool:
    return (
        isinstance(node, (ast.Name, ast.Attribute, ast.Constant))
        and (not isinstance(node, ast.Name) or (node.id not in scope.names and node.id not in scope.sizes))
        and scope.program.resolve_dtype(node) is not None
    )


def _check_arity(name: str, arity: int | None, arguments: list[Expr], loc: Location) -> None:
    if (arity is None and not arguments) or (arity is not None and len(arguments) != arity):
        expected = "at least one argument" if arity is None else f"{arity} argument{'s' if arity > 1 else ''}"
        raise LanguageError(f"{name} takes {expected}, got {len(arguments)}", location=loc)


_HANDLERS: dict[type[ast.expr], Callable[[Any, Scope], Expr]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Subscript: _subscript,
    ast.BinOp: _binary_operation,
    ast.UnaryOp: _unary_operation,
    ast.Compare: _comparison,
    ast.BoolOp: _boolean,
    ast.IfExp: _conditional,
    ast.Attribute: _attribute,
    ast.Call: _call,
}


def reader(value: Expr) -> Reader:
    """A reader that always gives `value`."""
    return lambda loc: value


def variable_reader(variable: Var) -> Reader:
    """A reader of a variable."""
    return lambda loc: variable


def evaluate_size(node: ast.expr, scope: Scope, what: str) -> int:
    """The integer value of a size expression; raises LanguageError where it depends on more than sizes."""
    value = translate(node, scope)
    if isinstance(value, Const) and value.dtype.is_int:
        return int(value.value)
    raise LanguageError(f"{what} must depend on sizes only", location=scope.program.location(node))
