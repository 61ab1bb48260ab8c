"""Annotations of kernel functions: evaluating them, and the parameters that they make."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import CellType, FrameType, FunctionType
from typing import Any

from tilewright.errors import AnnotationError, ArgumentValueError, DTypeError
from tilewright.frontend.source import FunctionSource
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.kernel import Param, size_variables
from tilewright.language.annotations import RefType, TensorType
from tilewright.source import Location

_EXAMPLE = 'for example A: T.Tensor((M, N), "float32") or n: T.int32'


class Parameter:
    """One parameter of a kernel function: name, place, annotation node, whether it has a default."""

    __slots__ = ("has_default", "keyword_only", "name", "node")

    def __init__(self, node: ast.arg, *, has_default: bool, keyword_only: bool) -> None:
        self.name = node.arg
        self.node = node
        self.has_default = has_default
        self.keyword_only = keyword_only


def parameters(source: FunctionSource, *, variable: bool = False) -> Iterator[Parameter]:
    """The parameters in order.  Raises AnnotationError for `*args` and `**kwargs` unless `variable`."""
    args = source.tree.args
    for extra in (args.vararg, args.kwarg):
        if extra is not None and not variable:
            raise AnnotationError(
                f"a kernel has a fixed list of parameters, no *{extra.arg}", location=source.location(extra)
            )
    positional = [*args.posonlyargs, *args.args]
    required = len(positional) - len(args.defaults)
    for position, node in enumerate(positional):
        yield Parameter(node, has_default=position >= required, keyword_only=False)
    for node, default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        yield Parameter(node, has_default=default is not None, keyword_only=True)


def evaluate(func: FunctionType, source: FunctionSource, parameter: Parameter, frame: FrameType | None) -> Any:
    """The value of a parameter's annotation, None when it has none.

    An annotation that Python left as text is evaluated where the function was defined: its closure, the functions
    around it (`frame` and its callers), and its globals.
    """
    if parameter.node.annotation is None:
        return None
    value = func.__annotations__.get(parameter.name)
    if not isinstance(value, str):
        return value
    node = parameter.node.annotation
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if node.value.isidentifier() and _is_dtype(node.value):
            return dtype(node.value)
        inner = ast.parse(node.value, mode="eval").body
        for child in ast.walk(inner):
            ast.copy_location(child, node)
        node = inner
    code = compile(ast.Expression(body=node), source.file, "eval", dont_inherit=True)
    try:
        return eval(code, func.__globals__, _Names(func, frame))
    except NameError as error:
        raise AnnotationError(
            f"the annotation of {parameter.name!r} cannot be evaluated: {error}",
            location=source.location(node),
            hint=_EXAMPLE,
        ) from None


def _is_dtype(name: str) -> bool:
    try:
        dtype(name)
    except DTypeError:
        return False
    return True


class _Names(dict[str, Any]):
    """Local names at a function's definition."""

    def __init__(self, func: FunctionType, frame: FrameType | None) -> None:
        super().__init__()
        around = func.__qualname__.replace("<locals>.", "").split(".")[:-1]
        frames: list[FrameType] = []
        while frame is not None:
            if frame.f_code.co_filename == func.__code__.co_filename and frame.f_code.co_name in around:
                frames.append(frame)
            frame = frame.f_back
        for outer in reversed(frames):
            self.update(outer.f_locals)
        for name, cell in zip(func.__code__.co_freevars, func.__closure__ or (), strict=True):
            filled, value = _contents(cell)
            if filled:
                self[name] = value


def _contents(cell: CellType) -> tuple[bool, Any]:
    """Whether the variable has a value yet, and the value."""
    try:
        return True, cell.cell_contents
    except ValueError:
        return False, None


def make_parameter(name: str, annotation: Any, builder: Builder, loc: Location) -> Param:
    """The IR parameter called `name` for the value of its annotation.  Raises AnnotationError."""
    if isinstance(annotation, TensorType):
        buffer = annotation.buffer(builder.unique_name(name))
        buffer.loc = loc
        for size in size_variables((*buffer.shape, *(buffer.strides or ()))):
            builder.reserve(size.name)
        return buffer
    kind = _scalar(annotation)
    if kind is None or kind.lanes != 1:
        raise AnnotationError(
            f"the annotation of {name!r} is no tensor type and no scalar dtype: {annotation!r}",
            location=loc,
            hint=_EXAMPLE,
        )
    return builder.fresh_var(name, kind, loc)


def _scalar(annotation: Any) -> DType | None:
    if isinstance(annotation, (Buffer, Expr, RefType)) or annotation is None:
        return None
    try:
        return dtype(annotation)
    except DTypeError:
        return None


def missing_annotation(name: str, loc: Location) -> AnnotationError:
    """The error for a parameter that has neither an annotation nor a default."""
    return AnnotationError(f"parameter {name!r} has no annotation", location=loc, hint=_EXAMPLE)


def size_parameters(params: list[Param]) -> tuple[Var, ...]:
    """The variables in shapes and strides, each once.

    Raises AnnotationError when one never stands alone in a shape or stride (its value cannot be found then),
    ArgumentValueError when one has the name of a parameter.
    """
    sizes: dict[int, Var] = {}
    alone: set[int] = set()
    for param in params:
        if isinstance(param, Buffer):
            for size in (*param.shape, *(param.strides or ())):
                if isinstance(size, Var):
                    alone.add(id(size))
                sizes.update((id(v), v) for v in size_variables((size,)))
    names = {p.name: p for p in params}
    for var in sizes.values():
        if id(var) not in alone:
            where = next(p for p in params if isinstance(p, Buffer) and _mentions(p, var))
            raise AnnotationError(
                f"the size {var.name!r} occurs only inside of expressions, so its value cannot be found",
                location=where.loc,
                hint="make it the whole size of some dimension",
            )
        if var.name in names:
            raise ArgumentValueError(
                f"{var.name!r} is both a size and a parameter", location=names[var.name].loc, hint="rename one of them"
            )
    return tuple(sizes.values())


def _mentions(buffer: Buffer, var: Var) -> bool:
    return any(v is var for v in size_variables((*buffer.shape, *(buffer.strides or ()))))
