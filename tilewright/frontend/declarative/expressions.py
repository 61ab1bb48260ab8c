"""Python expressions of a declarative kernel as IR expressions.

Arithmetic on narrow floats is done in float32, on narrow integers in int32, and rounded or wrapped where it is
stored, so that a kernel means the same whether its loops are recognised or compiled as they stand.
"""

from __future__ import annotations

import ast
import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tilewright.errors import LanguageError, ShapeError, UnsupportedSyntaxError
from tilewright.frontend.declarative.functions import ALIASES, FUNCTIONS
from tilewright.frontend.declarative.literals import adapt, balance, combine, convert, fold_function, widen
from tilewright.frontend.declarative.program import Program, call_name, foreign_function
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    FLOAT32,
    INT32,
    Buffer,
    Const,
    Expr,
    Load,
    Var,
    as_bool,
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
    shared: results that were computed before, by the text of their expression.
    """

    program: Program
    sizes: dict[str, int]
    tensors: dict[str, Buffer]
    names: dict[str, Reader] = field(default_factory=dict)
    shared: dict[str, Callable[[], Expr]] = field(default_factory=dict)

    def child(self) -> Scope:
        """A scope whose names may be added to without changing this one."""
        return Scope(self.program, self.sizes, self.tensors, dict(self.names), dict(self.shared))


def tensor_of(scope: Scope, node: ast.Subscript) -> str:
    """The tensor that a subscript reads or writes (a staged name leads to its tensor)."""
    loc = scope.program.location(node)
    if not isinstance(node.value, ast.Name):
        raise UnsupportedSyntaxError("only tensors can be indexed", location=loc, hint="write A[i, j], not A[i][j]")
    name = node.value.id
    name = scope.program.staged.get(name, (name, None))[0]
    if name not in scope.tensors:
        raise LanguageError(
            f"{name!r} is not a tensor parameter of {scope.program.name}",
            location=loc,
            hint=f"tensors: {', '.join(scope.tensors)}",
        )
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
        raise ShapeError(
            f"{name} has {buffer.ndim} dimensions but {len(entries)} indices",
            location=loc,
            hint="give one index for each dimension",
        )
    indices = []
    for position, entry in enumerate(entries):
        if isinstance(entry, ast.Slice):
            raise UnsupportedSyntaxError("slices have no meaning here", location=loc, hint="write the loop")
        index = translate(entry, scope)
        if not index.dtype.is_int:
            raise LanguageError(
                f"an index must be an integer, got {index.dtype}",
                location=scope.program.location(entry),
                hint="use // for a quotient, or int(x)",
            )
        indices.append(_known_index(index, buffer, position, scope.program.location(entry)))
    return name, tuple(indices)


def _known_index(index: Expr, buffer: Buffer, position: int, loc: Location) -> Expr:
    """A literal index counted from the front; any other index as it is."""
    size = buffer.shape[position]
    if not isinstance(index, Const) or not isinstance(size, Const):
        return index
    value, extent = int(index.value), int(size.value)
    if not -extent <= value < extent:
        raise ShapeError(
            f"index {value} is outside of dimension {position} of {buffer.name}, which has size {extent}",
            location=loc,
            hint=f"indices go from {-extent} to {extent - 1}" if extent else "the dimension has no elements",
        )
    return const(value % extent, loc=loc)


def translate(node: ast.expr, scope: Scope) -> Expr:
    """`node` as an IR expression.  Raises UnsupportedSyntaxError, LanguageError, DTypeError with the place."""
    if scope.shared:
        reuse = scope.shared.get(ast.dump(node))
        if reuse is not None:
            return reuse()
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise UnsupportedSyntaxError(
            f"{type(node).__name__} is not part of the declarative form",
            location=scope.program.location(node),
            hint="numbers, names, elements, arithmetic, comparisons, `a if c else b` and calls of known functions are",
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
    raise LanguageError(
        f"{node.id!r} is a {type(value).__name__}, which cannot stand in a kernel",
        location=loc,
        hint="pass arrays as parameters; numbers of the module are known",
    )


def _subscript(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    name, indices = translate_indices(node, scope)
    buffer = scope.tensors[name]
    value: Expr = Load(buffer.dtype, buffer, indices, loc=loc)
    staged = scope.program.staged.get(node.value.id)
    if staged is not None:
        value = cast(value, staged[1], loc=loc)
    return widen(value)


def _binary_operation(node: Any, scope: Scope) -> Expr:
    operation = _BINARY.get(type(node.op))
    loc = scope.program.location(node)
    if operation is None:
        raise UnsupportedSyntaxError(
            f"operator {type(node.op).__name__} has no meaning here",
            location=loc,
            hint="write the loop; elements are numbers here",
        )
    return combine(operation, translate(node.left, scope), translate(node.right, scope), loc)


def _unary_operation(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    if isinstance(node.op, ast.Not):
        return unary("not", condition(node.operand, scope), loc=loc)
    operand = translate(node.operand, scope)
    if operand.dtype.is_bool:
        operand = cast(operand, INT32, loc=loc)
    if isinstance(node.op, ast.UAdd):
        return operand
    return unary("neg" if isinstance(node.op, ast.USub) else "bitnot", operand, loc=loc)


def condition(node: ast.expr, scope: Scope) -> Expr:
    """`node` where only its truth matters: a number is true when it is not 0, `and` and `or` take any operands."""
    if isinstance(node, ast.BoolOp):
        loc = scope.program.location(node)
        operation = "and" if isinstance(node.op, ast.And) else "or"
        result = condition(node.values[0], scope)
        for value in node.values[1:]:
            result = binary(operation, result, condition(value, scope), loc=loc)
        return result
    return as_bool(translate(node, scope), loc=scope.program.location(node))


def _comparison(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    values = [translate(v, scope) for v in (node.left, *node.comparators)]
    result: Expr | None = None
    for operator, left, right in zip(node.ops, values, values[1:], strict=False):
        operation = _COMPARE.get(type(operator))
        if operation is None:
            raise UnsupportedSyntaxError(
                f"{type(operator).__name__} has no meaning here", location=loc, hint="compare numbers: < <= > >= == !="
            )
        part = combine(operation, left, right, loc)
        result = part if result is None else binary("and", result, part, loc=loc)
    assert result is not None
    return result


def _boolean(node: Any, scope: Scope) -> Expr:
    for value in node.values:
        operand = translate(value, scope)
        if not operand.dtype.is_bool:
            raise UnsupportedSyntaxError(
                f"`and` and `or` give one of their operands in Python; as a value they take bools here, not {operand.dtype}",
                location=scope.program.location(value),
                hint="compare, `x != 0`, or choose with `a if condition else b`",
            )
    return condition(node, scope)


def _conditional(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    test = condition(node.test, scope)
    if isinstance(test, Const):
        return translate(node.body if test.value else node.orelse, scope)
    first, second = balance(translate(node.body, scope), translate(node.orelse, scope))
    return select(test, first, second, loc=loc)


def _attribute(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    if isinstance(node.value, ast.Name):
        try:
            value = getattr(scope.program.lookup(node.value.id), node.attr)
        except (KeyError, ValueError, AttributeError):
            value = None
        if isinstance(value, (bool, int, float)):
            return const(value, loc=loc)
    raise UnsupportedSyntaxError(
        f".{node.attr} has no meaning here", location=loc, hint="numbers of modules are known, such as math.pi"
    )


def _call(node: Any, scope: Scope) -> Expr:
    loc = scope.program.location(node)
    name = call_name(node)
    if node.keywords:
        raise UnsupportedSyntaxError(
            "functions take positional arguments only here", location=loc, hint="give the values in order"
        )
    foreign = foreign_function(scope.program, node)
    if foreign is not None:
        raise UnsupportedSyntaxError(
            f"{name} is a function of {foreign}; a declarative kernel is read, not executed, and cannot call it",
            location=loc,
            hint="write its expression here",
        )
    if name == "infinity":
        return const(math.inf, loc=loc)
    element = scope.program.resolve_dtype(node.func)
    operands = list(node.args)
    if name == "cast" and len(operands) == 2:
        element = scope.program.resolve_dtype(operands.pop())
        if element is None:
            raise LanguageError("the second argument of cast must be a dtype", location=loc, hint="cast(x, float32)")
    if element is not None:
        _check_arity(name, 1, operands, loc)
        return _to_dtype(name, operands[0], element, scope, loc)
    arguments = [translate(argument, scope) for argument in operands]
    function = FUNCTIONS.get(name)
    if function is not None:
        arity, build = function
        _check_arity(name, arity, arguments, loc)
        return build(*arguments, loc=loc)
    name = ALIASES.get(name, name)
    if name in INTRINSICS:
        _check_arity(name, INTRINSICS[name].arity, arguments, loc)
        folded = fold_function(name, arguments, loc)
        if folded is not None:
            return folded
        for other in list(arguments):
            arguments = [adapt(argument, other.dtype) for argument in arguments]
        return intrinsic(name, *arguments, loc=loc)
    raise LanguageError(
        f"function {name or '?'} is not known in a declarative kernel",
        location=loc,
        hint=f"known: dtypes, {', '.join(sorted({*FUNCTIONS, *INTRINSICS}))}",
    )


def _to_dtype(name: str, node: ast.expr, element: DType, scope: Scope, loc: Location) -> Expr:
    """`float32(x)`: rounded to `element`, then in the dtype in which that is computed.  `float("inf")` is read too."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return const(float(node.value), loc=loc)
        except ValueError:
            raise UnsupportedSyntaxError(f"{node.value!r} is not a number", location=loc) from None
    value = translate(node, scope)
    if isinstance(value, Const) and element is FLOAT32:
        exact = float(value.value)
        return const(exact if name == "float" else ctypes.c_float(exact).value, loc=loc)
    return widen(convert(value, element, loc))


def _check_arity(name: str, arity: int | None, arguments: Sequence[object], loc: Location) -> None:
    if (arity is None and not arguments) or (arity is not None and len(arguments) != arity):
        expected = "at least one argument" if arity is None else f"{arity} argument{'s' if arity > 1 else ''}"
        raise LanguageError(
            f"{name} takes {expected}, got {len(arguments)}", location=loc, hint=f"call {name} with {expected}"
        )


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
    if isinstance(value, Const):
        raise LanguageError(
            f"{what} must be an integer, not {value.dtype}",
            location=scope.program.location(node),
            hint="use // for a quotient, or int(x)",
        )
    raise LanguageError(
        f"{what} must depend on sizes only",
        location=scope.program.location(node),
        hint="use sizes of the annotations and numbers",
    )


def literal_size(size: Expr) -> int | None:
    """The integer that a size is, None when it is not literal."""
    return int(size.value) if isinstance(size, Const) else None
