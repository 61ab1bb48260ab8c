"""The two forms of a jit function, told apart by their body.

Lazy: the function returns a prim_func; running it builds one.  Eager: the function itself is the kernel; its
tensors are declared by statements `A: T.Tensor((M, K), dtype)`, its sizes come from the arguments by T.const, and
running the rewritten function with descriptions of the arguments builds the program.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from tilewright.errors import (
    AnnotationError,
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentTypeError,
    KernelStructureError,
    LanguageError,
)
from tilewright.frontend.activation import Activation
from tilewright.frontend.build import defining_frame, run
from tilewright.frontend.check import check
from tilewright.frontend.parameters import Parameter, evaluate, make_parameter, parameters
from tilewright.frontend.rewrite import rewrite
from tilewright.frontend.source import FunctionSource, parse, plain_function
from tilewright.ir.arrayspec import ArraySpec
from tilewright.ir.builder import Builder
from tilewright.ir.expr import Buffer, const_int
from tilewright.ir.kernel import Param, PrimFunc
from tilewright.language.annotations import TensorType
from tilewright.language.tracebacks import place, shows_the_user
from tilewright.source import Location, caller_location


@dataclass(frozen=True, slots=True)
class Dependence:
    """What of an argument a program was built from, and so does not hold for others.

    rank: of a tensor, whose dtype counts too; None for a number, of which nothing counts.
    shape, strides: the dimensions whose size or stride counts.
    """

    rank: int | None
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


class JitTemplate:
    """A jit function: `form` "lazy" or "eager", `signature`, and `build` for one set of arguments.

    Raises LanguageError, SourceUnavailableError for what is no function with a source.
    """

    @shows_the_user
    def __init__(self, function: Any) -> None:
        self.func: FunctionType = plain_function(function, "@tilewright.jit")
        self.source: FunctionSource = parse(self.func)
        self.signature = inspect.signature(self.func)
        self.form = "eager" if _is_eager(self.source.tree) else "lazy"
        self._types: dict[str, Any] = {}
        self.used_before_declared: frozenset[str] = frozenset()
        if self.form == "eager":
            check(self.source)
            self._types = _annotated_in_signature(self)
            self.used_before_declared = _used_before_declared(self.source.tree)

    @property
    def name(self) -> str:
        """The function's name."""
        return self.func.__name__

    @shows_the_user
    def build(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The program: lazy from the function's own arguments, eager from one mapping `values`.

        values: name -> ArraySpec for a tensor, a Python value for anything else; parameters left out take their
        defaults.  Raises LanguageError on a wrong program, ArgumentShapeError, ArgumentDTypeError,
        ArgumentCountError where the arguments do not fit the declarations.
        """
        return self._build_eager(*args, **kwargs)[0] if self.form == "eager" else self._build_lazy(*args, **kwargs)

    @shows_the_user
    def specialise(self, values: Mapping[str, Any]) -> tuple[PrimFunc, dict[str, Dependence]]:
        """The program of an eager function, and what it depends on: of an argument without an entry, on all of it.

        Raises as `build` does.
        """
        return self._build_eager(values)

    def _build_lazy(self, *args: Any, **kwargs: Any) -> PrimFunc:
        result = self.func(*args, **kwargs)
        if not isinstance(result, PrimFunc):
            raise KernelStructureError(
                f"{self.name} returned {type(result).__name__}, not a function decorated with @T.prim_func",
                location=self.source.location(self.source.tree),
                hint="return the prim_func; or write the kernel itself, with `with T.Kernel(...)` in this function",
            )
        return result

    def _build_eager(self, values: Mapping[str, Any]) -> tuple[PrimFunc, dict[str, Dependence]]:
        rewritten = rewrite(self.func)
        bound = self._arguments(values)
        builder = Builder(self.name)
        declarations = _Declarations(self, builder, bound)
        activation = Activation(builder, declarations.declare)
        builder.const_size = declarations.const_size
        arguments = dict(bound)
        with builder.activate():
            for name, annotation in self._types.items():
                arguments[name] = declarations.declare(name, annotation)
        for name, value in arguments.items():
            activation.parameter(name, value)
        func = run(builder, activation, rewritten, self.func, arguments, declarations.ordered)
        declarations.check_complete()
        return func, declarations.dependences()

    def _arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        bound: dict[str, Any] = {}
        for name, parameter in self.signature.parameters.items():
            if name in values:
                bound[name] = values[name]
            elif parameter.default is not inspect.Parameter.empty:
                bound[name] = parameter.default
            else:
                raise ArgumentCountError(f"{self.name}() needs a value for {name!r}")
        unknown = [name for name in values if name not in bound]
        if unknown:
            raise ArgumentCountError(f"{self.name}() has no parameter {unknown[0]!r}")
        return bound


class _Declarations:
    """Parameters of one build of an eager kernel."""

    def __init__(self, template: JitTemplate, builder: Builder, values: dict[str, Any]) -> None:
        self.template = template
        self.builder = builder
        self.values = values
        self.declared: dict[str, Param] = {}
        self._read: set[tuple[str, str, int]] = set()  # (parameter, "shape" or "strides", position) given by T.const

    def declare(self, name: str, annotation: Any) -> Param:
        """`name: annotation` in the body (or the signature)."""
        loc = caller_location()
        if name not in self.values:
            raise AnnotationError(f"{name!r} is no parameter of {self.template.name}", location=loc)
        if name in self.declared:
            raise AnnotationError(f"parameter {name!r} is declared twice", location=loc)
        here = loc or self.template.source.location(self.template.source.tree)
        made = make_parameter(name, annotation, self.builder, here)
        value = self.values[name]
        if isinstance(made, Buffer):
            self._compare(name, made, value, annotation, here)
        elif isinstance(value, ArraySpec):
            raise ArgumentTypeError(
                f"parameter {name!r} is declared as a {made.dtype} number, and a tensor is given", location=here
            )
        self.declared[name] = made
        return made

    def _compare(self, name: str, buffer: Buffer, value: Any, annotation: TensorType, loc: Location) -> None:
        if not isinstance(value, ArraySpec):
            raise self._no_tensor(name, f"{annotation}", loc)
        if value.dtype is not buffer.dtype:
            raise ArgumentDTypeError(f"{name} is declared as {buffer.dtype}, and {value.dtype} is given", location=loc)
        known = [const_int(s) for s in buffer.shape]
        fits = len(known) == len(value.shape) and all(
            a is None or a == b for a, b in zip(known, value.shape, strict=True)
        )
        if not fits:
            raise ArgumentShapeError(f"{name} is declared as {annotation}, and {value.shape} is given", location=loc)

    def _no_tensor(self, name: str, declared: str, loc: Location | None) -> ArgumentTypeError:
        value = self.values[name]
        return ArgumentTypeError(
            f"parameter {name!r} is declared as {declared}, and {type(value).__name__} is given",
            location=loc,
            hint=f"pass an array of NumPy, torch or another library with DLPack for {name}",
        )

    def const_size(self, const_name: str) -> int:
        """The value of T.const: the size of the first declared tensor that has it as a dimension (or stride)."""
        for parameter, field, position, size in _named_sizes(self.template.source.tree):
            if size == const_name:
                value = self.values.get(parameter)
                if parameter in self.values and not isinstance(value, ArraySpec):
                    raise self._no_tensor(parameter, "a tensor", caller_location())
                if isinstance(value, ArraySpec):
                    sizes = value.shape if field == "shape" else value.strides
                    if sizes is None:
                        sizes = _row_major(value.shape)
                    if position < len(sizes):
                        self._read.add((parameter, field, position))
                        return sizes[position]
                    raise ArgumentShapeError(
                        f"{parameter} has {len(sizes)} dimensions, its declaration has more", location=caller_location()
                    )
        raise AnnotationError(
            f"T.const({const_name!r}): no tensor parameter is declared with {const_name} as a size of its own",
            location=caller_location(),
            hint=f"declare one, as in `A: T.Tensor(({const_name}, ...), dtype)`, or use an ordinary Python value",
        )

    def ordered(self) -> list[Param]:
        """The declared parameters in the order of the signature."""
        return [self.declared[name] for name in self.values if name in self.declared]

    def dependences(self) -> dict[str, Dependence]:
        """What the program depends on, for the parameters that it does not depend on wholly.

        A parameter that the body uses before it declares it is still the caller's argument there, so all of it counts.
        """
        found: dict[str, Dependence] = {}
        early = self.template.used_before_declared
        for name, made in self.declared.items():
            if name in early:
                continue
            if isinstance(made, Buffer):
                fixed = {i for i, size in enumerate(made.shape) if const_int(size) is not None}
                fixed |= {p for n, field, p in self._read if n == name and field == "shape"}
                strides = {p for n, field, p in self._read if n == name and field == "strides"}
                found[name] = Dependence(made.ndim, tuple(sorted(fixed)), tuple(sorted(strides)))
            else:
                found[name] = Dependence(None)
        return found

    def check_complete(self) -> None:
        """Raise AnnotationError for a tensor argument without a declaration."""
        source = self.template.source
        for parameter in parameters(source):
            if isinstance(self.values[parameter.name], ArraySpec) and parameter.name not in self.declared:
                raise AnnotationError(
                    f"tensor parameter {parameter.name!r} is not declared",
                    location=source.location(parameter.node),
                    hint=f"write `{parameter.name}: T.Tensor((M, N), dtype)` as a statement at the start of the function",
                )


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _own_nodes(tree: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body, nested functions left out."""
    pending: list[ast.AST] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _used_before_declared(tree: ast.FunctionDef) -> frozenset[str]:
    """The names that the function reads, in the order of its text, before the end of the statement `name: type`."""
    declared: dict[str, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            place = (node.end_lineno or node.lineno, node.end_col_offset or 0)
            declared[node.target.id] = min(place, declared.get(node.target.id, place))
    return frozenset(
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and (node.lineno, node.col_offset) < declared.get(node.id, (0, 0))
    )


def _called(node: ast.AST | None) -> str:
    """The last part of the name that `node` calls; empty when it is no call."""
    if not isinstance(node, ast.Call):
        return ""
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def _is_eager(tree: ast.FunctionDef) -> bool:
    names = {a.arg for a in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    for node in _own_nodes(tree):
        if isinstance(node, ast.AnnAssign) and node.value is None:
            if isinstance(node.target, ast.Name) and node.target.id in names:
                return True
        elif (isinstance(node, ast.With) and any(_called(item.context_expr) == "Kernel" for item in node.items)) or (
            _called(node) == "const" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        ):
            return True
    return False


def _annotated_in_signature(template: JitTemplate) -> dict[str, Any]:
    """Tensor and scalar types that an eager function gives in its signature."""
    found: dict[str, Any] = {}
    frame = defining_frame()
    for parameter in parameters(template.source):
        node = parameter.node.annotation
        if (node is not None and _called(node) in ("Tensor", "StridedTensor")) or isinstance(node, ast.Subscript):
            value = _signature_type(template, parameter, frame)
            if isinstance(value, TensorType):
                found[parameter.name] = value
    return found


def _signature_type(template: JitTemplate, parameter: Parameter, frame: Any) -> Any:
    try:
        return evaluate(template.func, template.source, parameter, frame)
    except LanguageError as error:
        raise error.at(place(error) or template.source.location(parameter.node)) from None


def _named_sizes(tree: ast.FunctionDef) -> Iterator[tuple[str, str, int, str]]:
    """(parameter, "shape" or "strides", position, name of the const) of each declared size that is a name."""
    consts: dict[str, str] = {}
    for node in _own_nodes(tree):
        if isinstance(node, ast.Assign):
            consts.update(_const_names(node))
        elif isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            for field, sizes in _size_lists(node.annotation):
                for position, size in enumerate(sizes):
                    if isinstance(size, ast.Name):
                        yield node.target.id, field, position, consts.get(size.id, size.id)


def _const_names(node: ast.Assign) -> dict[str, str]:
    """Python name -> name of the const, for `M, N = T.const("M, N")`."""
    call = node.value
    if _called(call) != "const" or not isinstance(call, ast.Call) or not call.args:
        return {}
    text = call.args[0]
    if not isinstance(text, ast.Constant) or not isinstance(text.value, str):
        return {}
    names = text.value.replace(",", " ").split()
    target = node.targets[0]
    targets = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    return {t.id: name for t, name in zip(targets, names, strict=False) if isinstance(t, ast.Name)}


def _size_lists(annotation: ast.expr) -> Iterator[tuple[str, list[ast.expr]]]:
    """The shape, and the strides where there are some, of a written tensor type."""
    if isinstance(annotation, ast.Call):
        parts = list(annotation.args)
        keywords = {k.arg: k.value for k in annotation.keywords}
        parts = [keywords.get("shape") or parts[0], *parts[1:]] if parts or "shape" in keywords else []
        strided = _called(annotation) == "StridedTensor"
    elif isinstance(annotation, ast.Subscript) and isinstance(annotation.slice, ast.Tuple):
        parts = list(annotation.slice.elts)
        name = annotation.value
        strided = (name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")) == "StridedTensor"
    else:
        return
    for field, part in zip(("shape", "strides"), parts, strict=False):
        if field == "shape" or strided:
            yield field, part.elts if isinstance(part, (ast.Tuple, ast.List)) else [part]
