"""The body of a declarative function: schedule hints, staged tensors, and the statements that compute."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tilewright.errors import (
    AnnotationError,
    ArgumentValueError,
    DTypeError,
    LanguageError,
    UnsupportedSyntaxError,
)
from tilewright.frontend.declarative.expressions import Scope, evaluate_size, literal_size
from tilewright.frontend.declarative.program import Program, Schedule, call_name

SHARED_PREFIXES = ("shared_", "smem_", "s_")
SHARED_SUFFIXES = ("_shared", "_smem", "_s")


class _Declarations(ast.NodeTransformer):
    """`x: float32 = value` as `x = float32(value)`."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.stmt:
        if not isinstance(node.target, ast.Name) or node.value is None:
            raise UnsupportedSyntaxError(
                "a declaration is `name: dtype = value`",
                location=self.program.location(node),
                hint="give the name a value with its dtype",
            )
        if self.program.resolve_dtype(node.annotation) is None:
            raise AnnotationError(
                f"the annotation of {node.target.id!r} is no dtype",
                location=self.program.location(node.annotation),
                hint="leave it out, or write a dtype such as float32",
            )
        value = ast.copy_location(ast.Call(node.annotation, [node.value], []), node.value)
        return ast.copy_location(ast.Assign([node.target], value), node)


def read_body(program: Program, statements: list[ast.stmt]) -> None:
    """Fill in the program's block size, staged tensors and statements.  Raises LanguageError and its kinds, with the place."""
    declarations = _Declarations(program)
    for statement in [declarations.visit(s) for s in statements]:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        if isinstance(statement, ast.Pass):
            continue
        if isinstance(statement, ast.Expr) and call_name(statement.value) == "block_size":
            assert isinstance(statement.value, ast.Call)
            program.block_size = tuple(statement.value.args)
            if not program.block_size or statement.value.keywords:
                raise ArgumentValueError(
                    "block_size takes one size for each tiled dimension",
                    location=program.location(statement),
                    hint="block_size(128, 128)",
                )
        elif isinstance(statement, ast.Assign) and call_name(statement.value) == "shared_memory":
            _read_shared(program, statement)
        else:
            program.body.append(statement)
    if not program.body:
        raise LanguageError(
            f"kernel {program.name} has no statement that computes something",
            location=program.location(statements[-1]),
            hint="write the loops that store to a tensor",
        )


def _read_shared(program: Program, statement: ast.Assign) -> None:
    call = statement.value
    assert isinstance(call, ast.Call)
    loc = program.location(call)
    target = statement.targets[0]
    if len(statement.targets) != 1 or not isinstance(target, ast.Name) or len(call.args) != 2:
        raise UnsupportedSyntaxError(
            "shared_memory takes a dtype and the sizes of the tile",
            location=program.location(statement),
            hint="shared_A = shared_memory(float16, [block_size[0], K])",
        )
    element = program.resolve_dtype(call.args[0])
    if element is None:
        raise DTypeError(
            "the first argument of shared_memory must be a dtype", location=loc, hint="shared_memory(float16, [...])"
        )
    tensors = {p.name: p for p in program.parameters if p.dims is not None}
    source = next((name for name in _staged_names(target.id) if name in tensors), None)
    for keyword in call.keywords:
        if keyword.arg == "of" and isinstance(keyword.value, ast.Name):
            source = keyword.value.id
    if source not in tensors:
        raise LanguageError(
            f"{target.id} stages no tensor: its name leads to no parameter",
            location=program.location(target),
            hint=f"call it shared_<tensor> for one of {', '.join(tensors)}, or say shared_memory(dtype, sizes, of=A)",
        )
    shape = call.args[1]
    dims = tensors[source].dims or ()
    if not isinstance(shape, (ast.List, ast.Tuple)) or len(shape.elts) != len(dims):
        raise LanguageError(
            f"{target.id} must have {len(dims)} sizes, as {source} has",
            location=program.location(shape),
            hint="give the extent of the tile in each dimension, [block_size[0], K]",
        )
    program.staged_extents[target.id] = tuple(shape.elts)
    program.staged[target.id] = (source, element)
    program.staged_places[target.id] = program.location(target)


def _staged_names(name: str) -> Iterator[str]:
    for prefix in SHARED_PREFIXES:
        if name.startswith(prefix):
            yield name[len(prefix) :]
    for suffix in SHARED_SUFFIXES:
        if name.endswith(suffix):
            yield name[: -len(suffix)]


def check_written(program: Program, written: list[str]) -> None:
    """Raises LanguageError where a tensor is staged that the kernel writes."""
    for name, (tensor, _) in program.staged.items():
        if tensor in written:
            raise LanguageError(
                f"{name} stages {tensor}, but {tensor} is written",
                location=program.staged_places[name],
                hint=f"read {tensor} itself",
            )


def check_extents(program: Program, scope: Scope, schedule: Schedule) -> None:
    """Raises ArgumentValueError where a staged tile is neither as long as the block nor as the tensor.

    Without a block size any positive extent will do: the compiler chooses the tile.
    """
    blocks = {evaluate_size(e, scope, "block_size") for e in program.block_size} or set(schedule.block)
    for name, extents in program.staged_extents.items():
        sizes = scope.tensors[program.staged[name][0]].shape
        for extent, size in zip(extents, sizes, strict=True):
            if _block_dimension(program, extent):
                continue
            value = evaluate_size(extent, scope, f"an extent of {name}")
            fits = value in {*blocks, schedule.block_k, literal_size(size)} if blocks else value > 0
            if not fits and value != literal_size(size):
                raise ArgumentValueError(
                    f"{name} has the extent {value}, which is neither that of the block nor that of the tensor "
                    f"({literal_size(size)})",
                    location=program.location(extent),
                    hint="write block_size[d], or the whole dimension's size",
                )


def _block_dimension(program: Program, node: ast.expr) -> bool:
    """Whether an extent is `block_size[d]`; raises ArgumentValueError where the block has no such dimension."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "block_size"):
        return False
    position = node.slice.value if isinstance(node.slice, ast.Constant) else None
    if not isinstance(position, int) or not 0 <= position < len(program.block_size):
        raise ArgumentValueError(
            f"block_size has {len(program.block_size)} entries, indexed by literals",
            location=program.location(node),
            hint="call block_size(...) with one size for each tiled dimension",
        )
    return True
