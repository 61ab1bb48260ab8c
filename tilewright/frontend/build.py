"""`T.prim_func` and `T.macro`: runs the rewritten function, and puts together what it has built."""

from __future__ import annotations

import ast
import inspect
import sys
from collections import OrderedDict
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

from tilewright.errors import ArgumentValueError, KernelStructureError, LanguageError, ScopeError
from tilewright.frontend.activation import Activation
from tilewright.frontend.calls import explained_calls
from tilewright.frontend.liveness import check_names
from tilewright.frontend.parameters import (
    evaluate,
    make_parameter,
    missing_annotation,
    parameters,
    size_parameters,
)
from tilewright.frontend.rewrite import Rewritten, rewrite
from tilewright.frontend.source import plain_function
from tilewright.frontend.values import contains_load, is_variable
from tilewright.ir.builder import Builder
from tilewright.ir.expr import Buffer, Expr, Load
from tilewright.ir.kernel import Param, PrimFunc
from tilewright.ir.nesting import check_nesting
from tilewright.ir.stmt import Alloc, Seq
from tilewright.language import entry
from tilewright.language.annotations import RefType
from tilewright.language.tensor import BufferSlice
from tilewright.language.tracebacks import place
from tilewright.source import Location, caller_location, is_user_frame

MAX_MACRO_DEPTH = 100


def defining_frame() -> FrameType | None:
    """The innermost frame outside of this package: where a decorator is being applied."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_user_frame(frame):
        frame = frame.f_back
    return frame


def build_prim_func(function: Any) -> PrimFunc:
    """The tile program of a Python function."""
    func = plain_function(function, "@T.prim_func")
    rewritten = rewrite(func)
    source = rewritten.source
    builder = Builder(func.__name__)
    activation = Activation(builder)
    frame = defining_frame()
    arguments: dict[str, Any] = {}
    for parameter in parameters(source):
        loc = source.location(parameter.node)
        if parameter.node.annotation is None:
            if not parameter.has_default:
                raise missing_annotation(parameter.name, loc)
            continue  # a Python value, fixed at the definition
        try:
            made = make_parameter(parameter.name, evaluate(func, source, parameter, frame), builder, loc)
        except LanguageError as error:
            raise error.at(place(error) or loc) from None
        builder.params.append(made)
        activation.parameter(parameter.name, made)
        arguments[parameter.name] = made
    return run(builder, activation, rewritten, func, arguments)


def run(
    builder: Builder,
    activation: Activation,
    rewritten: Rewritten,
    func: FunctionType,
    arguments: dict[str, Any],
    params: Callable[[], list[Param]] | None = None,
) -> PrimFunc:
    """Run `func` with `arguments`, and make the program of what it built and returned.

    params: gives the parameters after the run, where the run itself declares them.
    """
    bound = inspect.BoundArguments(inspect.signature(func), OrderedDict(arguments))
    bound.apply_defaults()
    body = rewritten.function(func, activation)
    with builder.activate():
        with explained_calls():
            result = body(*bound.args, **bound.kwargs)
        if params is not None:
            builder.params[:] = params()
        return finish(builder, result, rewritten.source.location(rewritten.source.tree))


def finish(builder: Builder, result: Any, loc: Location) -> PrimFunc:
    """The program: outputs from what the function returned, sizes from the shapes, every name checked."""
    params: list[Param] = list(builder.params)
    outputs: list[int] = []
    returned = result if isinstance(result, (tuple, list)) else () if result is None else (result,)
    top = builder.frames[0].stmts
    for value in returned:
        alloc = next((s for s in top if isinstance(s, Alloc) and s.buffer is value), None)
        if alloc is None:
            raise KernelStructureError(
                f"a kernel returns tensors made by T.empty, each once; this is {_describe(value)}", location=loc
            )
        top.remove(alloc)
        outputs.append(len(params))
        params.append(alloc.buffer)
    if builder.unopened:
        raise KernelStructureError(
            "T.Kernel(...) has no effect by itself",
            location=builder.unopened[0],
            hint="write `with T.Kernel(...) as bx:` and put the kernel's statements inside",
        )
    for buffer in list(builder.unnamed.values()):
        builder.name_buffer(buffer, buffer.name)
    sizes = size_parameters(params)
    body = Seq(tuple(top), loc=loc)
    func = PrimFunc(builder.name, tuple(params), body, sizes, tuple(outputs), loc=loc)
    check_nesting(func)
    check_names(func)
    return func


def _describe(value: Any) -> str:
    if isinstance(value, Buffer):
        return f"{value.name}, a tensor of scope {value.scope}"
    return "a run-time value" if isinstance(value, Expr) else f"{type(value).__name__} {value!r}"


class Macro:
    """A function that is inlined where a kernel calls it."""

    def __init__(self, func: FunctionType, frame: FrameType | None) -> None:
        self.func = func
        self.signature = inspect.signature(func)
        self.__name__ = func.__name__
        self.__qualname__ = func.__qualname__
        self.__doc__ = func.__doc__
        self.__wrapped__ = func
        self.references = self._references(frame)

    def _references(self, frame: FrameType | None) -> frozenset[str]:
        """Names of the parameters that are annotated T.Ref."""
        source = rewrite(self.func).source
        return frozenset(
            parameter.name
            for parameter in parameters(source, variable=True)
            if "Ref" in self._text(parameter.node)
            and isinstance(evaluate(self.func, source, parameter, frame), RefType)
        )

    @staticmethod
    def _text(node: Any) -> str:
        return ast.unparse(node.annotation) if node.annotation is not None else ""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else _Bound(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        builder = Builder.current(f"macro {self.__name__}")
        try:
            bound = self.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentValueError(
                f"macro {self.__name__}: {error}",
                location=caller_location(),
                hint=f"its parameters are {self.__name__}({', '.join(self.signature.parameters)})",
            ) from None
        bound.apply_defaults()
        activation = Activation(builder)
        for name, value in bound.arguments.items():
            passed = (
                self._reference(name, value, activation)
                if name in self.references
                else _by_value(name, value, activation)
            )
            bound.arguments[name] = passed
            activation.parameter(name, passed)
        builder.macro_depth += 1
        try:
            if builder.macro_depth > MAX_MACRO_DEPTH:
                raise KernelStructureError(
                    f"macro {self.__name__} calls itself without end",
                    location=caller_location(),
                    hint="the recursion must end by a condition on Python values",
                )
            return rewrite(self.func).function(self.func, activation)(*bound.args, **bound.kwargs)
        finally:
            builder.macro_depth -= 1

    def _reference(self, name: str, value: Any, activation: Activation) -> Any:
        if isinstance(value, (Buffer, BufferSlice)):
            return value
        if is_variable(value):
            return value
        if isinstance(value, Load):
            fixed = tuple(activation.let("index", i) if contains_load(i) else i for i in value.indices)
            return value.replace(indices=fixed)
        raise ScopeError(
            f"parameter {name!r} of macro {self.__name__} is a T.Ref: it takes a T.alloc_var variable or an element "
            f"of a tensor, not {_describe(value)}",
            location=caller_location(),
        )

    def __repr__(self) -> str:
        return f"<macro {self.__qualname__}>"


def _by_value(name: str, value: Any, activation: Activation) -> Any:
    """An argument: what it reads from memory is read at the call."""
    if is_variable(value):
        activation.builder.name_buffer(value.buffer, name)
        return activation.let(name, value)
    return activation.freeze(value, name)


class _Bound:
    """A macro that is a method, bound to its object."""

    def __init__(self, macro: Macro, instance: Any) -> None:
        self.macro = macro
        self.instance = instance

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.macro(self.instance, *args, **kwargs)


def build_macro(function: Any) -> Macro:
    """The macro of a Python function."""
    return Macro(plain_function(function, "@T.macro"), defining_frame())


entry.install("prim_func", build_prim_func)
entry.install("macro", build_macro)
