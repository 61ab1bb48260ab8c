"""The declarative form as read from Python source: parameters, schedule hints and loop nests.

Nothing is executed here.  Sizes are a namespace of their own, so annotations are read from the syntax
tree: in `A: float16[B, K]` the names in the brackets are sizes, whatever else they mean in the module.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from tilewright.errors import (
    AnnotationError,
    ArgumentValueError,
    LanguageError,
    SourceUnavailableError,
    UnsupportedSyntaxError,
)
from tilewright.ir.dtype import ALIASES, FORMATS, DType, dtype
from tilewright.source import Location


@dataclass(frozen=True)
class Parameter:
    """A parameter: a tensor with `dims` (syntax of sizes), or a scalar when `dims` is None."""

    name: str
    dtype: DType
    dims: tuple[ast.expr, ...] | None
    loc: Location


@dataclass(frozen=True)
class Schedule:
    """Optional hints: tile of the last dimensions of the result, step along a contraction, stages, threads."""

    block: tuple[int, ...] = ()
    block_k: int = 32
    stages: int = 3
    threads: int = 128


@dataclass(frozen=True)
class Loop:
    """One loop of a nest.  `block_dim`: for `range(block_size[d])`, d; then the extent is the whole dimension's."""

    name: str
    start: ast.expr | None
    stop: ast.expr
    step: ast.expr | None
    block_dim: int | None
    node: ast.For


@dataclass
class Program:
    """A parsed declarative function."""

    name: str
    function: FunctionType
    file: str
    parameters: list[Parameter]
    staged: dict[str, tuple[str, DType]] = field(default_factory=dict)
    """Name of a `shared_memory` buffer -> (tensor that it stages, dtype)."""
    staged_extents: dict[str, tuple[ast.expr, ...]] = field(default_factory=dict)
    staged_places: dict[str, Location] = field(default_factory=dict)
    block_size: tuple[ast.expr, ...] = ()
    body: list[ast.stmt] = field(default_factory=list)

    @property
    def size_names(self) -> set[str]:
        """The names in the annotations' brackets."""
        dims = [dim for parameter in self.parameters for dim in parameter.dims or ()]
        return {node.id for dim in dims for node in ast.walk(dim) if isinstance(node, ast.Name)}

    @property
    def scalar_names(self) -> set[str]:
        """The scalar parameters, indices and locals: what is not known before the kernel runs."""
        stored = {
            node.id
            for statement in self.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        }
        return stored | {p.name for p in self.parameters if p.dims is None}

    def location(self, node: ast.AST) -> Location:
        """Where `node` stands; of a statement with a body its first line."""
        line = getattr(node, "lineno", 0)
        text = linecache.getline(self.file, line)
        if isinstance(node, ast.stmt) and hasattr(node, "body"):
            first = len(text[: node.col_offset].encode()[: node.col_offset].decode(errors="replace")) + 1
            return Location(self.file, line, first, line, len(text.rstrip()) + 1, self.name)

        def column(offset: int, of: str) -> int:
            return len(of.encode()[:offset].decode(errors="replace")) + 1

        end_line = getattr(node, "end_lineno", line) or line
        end_text = text if end_line == line else linecache.getline(self.file, end_line)
        start = column(getattr(node, "col_offset", 0), text)
        end = column(getattr(node, "end_col_offset", 0) or 0, end_text)
        return Location(self.file, line, start, end_line, end, self.name)

    def lookup(self, name: str) -> Any:
        """The Python value that `name` has where the function was defined; raises KeyError."""
        code = self.function.__code__
        if name in code.co_freevars and self.function.__closure__ is not None:
            cell = self.function.__closure__[code.co_freevars.index(name)]
            return cell.cell_contents
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        if name in vars(builtins):
            return getattr(builtins, name)
        raise KeyError(name)

    def resolve_dtype(self, node: ast.expr) -> DType | None:
        """The dtype that an expression names, None when it is not one."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return dtype(node.value) if node.value in FORMATS or node.value in ALIASES else None
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if isinstance(node, ast.Name):
            try:
                value = self.lookup(name)
            except (KeyError, ValueError):
                value = None
            if isinstance(value, DType):
                return value
            if isinstance(value, str) and (value in FORMATS or value in ALIASES):
                return dtype(value)
            if value is not None and name not in ("float", "int", "bool"):
                return None
        return dtype(name) if name in FORMATS or name in ALIASES else None


def parse_signature(function: Callable[..., Any]) -> tuple[Program, list[ast.stmt]]:
    """Read a declarative function up to its body: the program with its parameters, and the body's statements.

    Raises SourceUnavailableError, AnnotationError, UnsupportedSyntaxError with the place.
    """
    if not isinstance(function, FunctionType):
        raise LanguageError(
            f"@tilewright.kernel goes on a Python function, not on {type(function).__name__}",
            hint="write `@tilewright.kernel` directly above `def`",
        )
    definition, file = _function_ast(function)
    program = Program(function.__name__, function, file, [])
    _check_signature(program, definition)
    for argument in definition.args.args:
        program.parameters.append(_parameter(program, argument))
    return program, definition.body


def _function_ast(function: FunctionType) -> tuple[ast.FunctionDef, str]:
    file = function.__code__.co_filename
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        raise SourceUnavailableError(
            f"the source of {function.__name__} cannot be read",
            location=Location(file, function.__code__.co_firstlineno),
            hint="define the kernel in a file or a notebook cell",
        ) from None
    source = "".join(lines)
    indented = source[:1] in (" ", "\t")
    # A wrapper instead of a dedent, so that columns stay those of the file.
    text = f"if 1:\n{source}" if indented else source
    try:
        tree = ast.parse(text)
    except SyntaxError:
        tree = ast.parse(textwrap.dedent(source))
        indented = False
    ast.increment_lineno(tree, first - (2 if indented else 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == function.__name__:
            return node, file
    raise SourceUnavailableError(
        f"no `def {function.__name__}` in the source that Python gives for it", location=Location(file, first)
    )


def _check_signature(program: Program, definition: ast.FunctionDef) -> None:
    arguments = definition.args
    for extra, what in ((arguments.vararg, "*args"), (arguments.kwarg, "**kwargs")):
        if extra is not None:
            raise UnsupportedSyntaxError(
                f"a kernel cannot take {what}", location=program.location(extra), hint="name every parameter"
            )
    for extra in [*arguments.posonlyargs, *arguments.kwonlyargs]:
        raise UnsupportedSyntaxError(
            "a kernel takes plain parameters only", location=program.location(extra), hint="remove `/` and `*`"
        )
    if arguments.defaults:
        raise UnsupportedSyntaxError(
            "a declarative kernel's parameters have no defaults",
            location=program.location(arguments.defaults[0]),
            hint="pass the value in the call, or use a number of the module",
        )


def _parameter(program: Program, argument: ast.arg) -> Parameter:
    loc = program.location(argument)
    annotation = argument.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if annotation is None:
        raise AnnotationError(
            f"parameter {argument.arg!r} has no annotation", location=loc, hint="write it as `A: float16[M, K]`"
        )
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    found = program.resolve_dtype(base)
    if found is None:
        raise AnnotationError(
            f"the annotation of {argument.arg!r} does not start with a dtype",
            location=loc,
            hint="write it as `A: float16[M, K]`, or `n: int32` for a scalar",
        )
    if not isinstance(annotation, ast.Subscript):
        return Parameter(argument.arg, found, None, loc)
    inner = annotation.slice
    dims = tuple(inner.elts) if isinstance(inner, ast.Tuple) else (inner,)
    for dim in dims:
        for part in ast.walk(dim):
            if isinstance(part, ast.Slice):
                raise AnnotationError("a size cannot be a slice", location=loc, hint="name it: float16[M, K]")
    return Parameter(argument.arg, found, dims, loc)


def call_name(node: ast.AST | None) -> str:
    """The last name of the function that `node` calls, "" when it is no call."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


LIBRARIES = {"builtins", "math", "numpy", "tilewright", "tilelang", "torch", "jax", "cupy", "scipy", "ml_dtypes"}
"""Packages whose functions mean what functions of the same name mean in a kernel."""


def foreign_function(program: Program, call: ast.Call) -> str | None:
    """The module of the function that `call` names, when the program has one and it is not of a known library."""
    path: list[str] = []
    node = call.func
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    try:
        value = program.lookup(node.id)
        for name in reversed(path):
            value = getattr(value, name)
    except (KeyError, ValueError, AttributeError):
        return None
    if isinstance(value, (str, DType)):
        return None
    module = getattr(value, "__module__", None)
    if not isinstance(module, str):
        module = "this program" if isinstance(value, FunctionType) else type(value).__module__
    return None if module.split(".")[0] in LIBRARIES else module


def read_loops(program: Program, node: ast.For) -> list[Loop]:
    """The loops of one `for` statement: one for `range`, several for `grid`."""
    if node.orelse:
        raise UnsupportedSyntaxError(
            "a loop has no `else` here", location=program.location(node.orelse[0]), hint="put the code after the loop"
        )
    kind = call_name(node.iter)
    arguments = node.iter.args if isinstance(node.iter, ast.Call) else []
    if kind == "grid":
        targets = node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]
        if len(targets) != len(arguments):
            raise UnsupportedSyntaxError(
                f"grid of {len(arguments)} sizes gives {len(arguments)} indices, not {len(targets)}",
                location=program.location(node.target),
                hint="name one index for each size",
            )
        return [_loop(program, t, None, size, None, node) for t, size in zip(targets, arguments, strict=True)]
    if kind in ("range", "serial") and 1 <= len(arguments) <= 3:
        start = arguments[0] if len(arguments) > 1 else None
        stop = arguments[1] if len(arguments) > 1 else arguments[0]
        return [_loop(program, node.target, start, stop, arguments[2] if len(arguments) > 2 else None, node)]
    raise UnsupportedSyntaxError(
        "loops of a declarative kernel run over range(...) or grid(...)",
        location=program.location(node.iter),
        hint="count with range and index what you iterate over",
    )


def _loop(
    program: Program,
    target: ast.expr,
    start: ast.expr | None,
    stop: ast.expr,
    step: ast.expr | None,
    node: ast.For,
) -> Loop:
    if not isinstance(target, ast.Name):
        raise UnsupportedSyntaxError(
            "a loop index is one plain name", location=program.location(target), hint="for i in range(M)"
        )
    block_dim = None
    for bound in (start, step):
        if bound is not None and any(isinstance(n, ast.Name) and n.id == "block_size" for n in ast.walk(bound)):
            raise UnsupportedSyntaxError(
                "a loop over the block is range(block_size[d]), from 0 in steps of 1",
                location=program.location(bound),
                hint="loop over the full size, range(start, M), and leave the blocks to the compiler",
            )
    if isinstance(step, ast.Constant) and step.value == 0:
        raise ArgumentValueError(
            "the step of a loop cannot be 0",
            location=program.location(step),
            hint="leave it out, or give one that is not 0",
        )
    if isinstance(stop, ast.Subscript) and isinstance(stop.value, ast.Name) and stop.value.id == "block_size":
        index = stop.slice
        if not isinstance(index, ast.Constant) or not isinstance(index.value, int):
            raise UnsupportedSyntaxError(
                "block_size is indexed by a literal", location=program.location(stop), hint="block_size[0]"
            )
        if not 0 <= index.value < len(program.block_size):
            raise ArgumentValueError(
                f"block_size has {len(program.block_size)} entries, so block_size[{index.value}] does not exist",
                location=program.location(stop),
                hint="call block_size(...) with one size for each tiled dimension",
            )
        if start is not None or step is not None:
            raise UnsupportedSyntaxError(
                "a loop over the block is range(block_size[d]), from 0 in steps of 1",
                location=program.location(stop),
                hint="loop over the full size, range(start, M), and leave the blocks to the compiler",
            )
        block_dim = index.value
    return Loop(target.id, start, stop, step, block_dim, node)
