"""The declarative form: plain nested loops over tensors, turned into a tile program.

```python
@tilewright.kernel
def matmul(A: float16[M, K], B: float16[K, N], C: float16[M, N]):
    for i, j in grid(M, N):
        acc = float32(0)
        for k in range(K):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc
```
Loops whose iterations are independent become the blocks of a launch.  Inside, a sum of products of two
elements becomes a tile gemm with staged operands, other reductions become tile reductions, loops that only
store become parallel loops.  What is not recognised runs as it stands and is named in `notes`.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.errors import ArgumentShapeError, LanguageError, UnsupportedSyntaxError
from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.emit import NestEmitter
from tilewright.frontend.declarative.expressions import Scope, evaluate_size, variable_reader
from tilewright.frontend.declarative.program import Parameter, Program, Schedule, parse_program
from tilewright.frontend.declarative.statements import emit_sequential
from tilewright.ir.builder import Builder
from tilewright.ir.expr import INT32, Buffer, Var, const
from tilewright.ir.kernel import PrimFunc

Shapes = Mapping[str, tuple[int, ...]]


class DeclarativeTemplate:
    """A parsed declarative function, to be built for given sizes.

    function: the Python function.  Raises LanguageError and its kinds, with the place, where it is not one.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.program: Program = parse_program(function)
        self.name = self.program.name
        self.parameters: list[Parameter] = self.program.parameters
        self._check_statements()

    def _check_statements(self) -> None:
        for statement in self.program.body:
            if not isinstance(statement, ast.For):
                raise UnsupportedSyntaxError(
                    "a declarative kernel is made of loops; this statement stands outside of them",
                    location=self.program.location(statement),
                    hint="put it into the loop that needs it",
                )

    @property
    def written(self) -> list[str]:
        """The tensors that the kernel stores to."""
        names = {recognise.tensor_name(self.program, s) for s in recognise.subscripts(self.program.body, stored=True)}
        return [p.name for p in self.parameters if p.name in names]

    @property
    def results(self) -> list[str]:
        """The tensors that the kernel stores to and never reads: a call may leave them out."""
        loaded = {recognise.tensor_name(self.program, s) for s in recognise.subscripts(self.program.body, stored=False)}
        return [name for name in self.written if name not in loaded]

    def bind_sizes(self, shapes: Shapes) -> dict[str, int]:
        """The values of the sizes, from the shapes of the tensors that are given.

        Raises ArgumentShapeError where shapes contradict the annotations or one another.
        """
        sizes: dict[str, int] = {}
        origin: dict[str, str] = {}
        for parameter in self.parameters:
            shape = shapes.get(parameter.name)
            if parameter.dims is None or shape is None:
                continue
            if len(shape) != len(parameter.dims):
                raise ArgumentShapeError(
                    f"{self.name}: {parameter.name} must have {len(parameter.dims)} dimensions "
                    f"({self._dims_text(parameter)}), got shape {shape}",
                    location=parameter.loc,
                )
            for position, (dim, size) in enumerate(zip(parameter.dims, shape, strict=True)):
                if not isinstance(dim, ast.Name):
                    continue
                known = sizes.setdefault(dim.id, size)
                if known != size:
                    raise ArgumentShapeError(
                        f"{self.name}: size {dim.id} is {known} by {origin[dim.id]}, but {size} by dimension "
                        f"{position} of {parameter.name} (shape {shape})",
                        location=parameter.loc,
                    )
                origin.setdefault(dim.id, f"dimension {position} of {parameter.name}")
        return sizes

    def shape_of(self, parameter: Parameter, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The shape that the annotation gives for `sizes`.  Raises LanguageError when a size is not known."""
        scope = Scope(self.program, dict(sizes), {})
        shape = []
        for dim in parameter.dims or ():
            missing = [n.id for n in ast.walk(dim) if isinstance(n, ast.Name) and n.id not in sizes]
            unknown = [n for n in missing if not self._is_number(n)]
            if unknown:
                raise LanguageError(
                    f"size {unknown[0]} of {parameter.name} is in no shape of the tensors that were given",
                    location=parameter.loc,
                    hint="pass the result tensor too, or use the size in another parameter",
                )
            shape.append(evaluate_size(dim, scope, "a size"))
        return tuple(shape)

    def _is_number(self, name: str) -> bool:
        try:
            return isinstance(self.program.lookup(name), int)
        except (KeyError, ValueError):
            return False

    def _dims_text(self, parameter: Parameter) -> str:
        return ", ".join(ast.unparse(d) for d in parameter.dims or ())

    def build(
        self, sizes: Mapping[str, int], schedule: Schedule | None = None, outputs: tuple[str, ...] = ()
    ) -> tuple[PrimFunc, list[str]]:
        """The tile program for `sizes`, and notes on what was not recognised.

        outputs: names of tensors that the call allocates and returns.
        """
        schedule = schedule or Schedule()
        builder = Builder(self.name)
        tensors: dict[str, Buffer] = {}
        scope = Scope(self.program, dict(sizes), tensors)
        params: list[Buffer | Var] = []
        for parameter in self.parameters:
            builder.unique_name(parameter.name)
            if parameter.dims is None:
                variable = Var(parameter.dtype, parameter.name, loc=parameter.loc)
                scope.names[parameter.name] = variable_reader(variable)
                params.append(variable)
                continue
            shape = tuple(const(s, INT32 if s < 2**31 else None) for s in self.shape_of(parameter, sizes))
            tensors[parameter.name] = Buffer(parameter.name, shape, parameter.dtype, "global", loc=parameter.loc)
            params.append(tensors[parameter.name])
        notes: list[str] = []
        with builder.activate():
            for statement in self.program.body:
                assert isinstance(statement, ast.For)
                self._emit_nest(builder, scope, statement, schedule, notes)
        positions = tuple(i for i, p in enumerate(self.parameters) if p.name in outputs)
        loc = params[0].loc if params else None
        func = PrimFunc(self.name, tuple(params), builder.frames[0].seq(), outputs=positions, loc=loc)
        return func, notes

    def _emit_nest(
        self, builder: Builder, scope: Scope, statement: ast.For, schedule: Schedule, notes: list[str]
    ) -> None:
        statement = recognise.lift_accumulation(statement)
        nest = recognise.find_nest(self.program, statement)
        if nest is not None:
            NestEmitter(builder, scope, nest, schedule, notes).emit()
            return
        notes.append(
            f"line {statement.lineno}: iterations of this loop may depend on one another; it runs serially in one block"
        )
        emit_sequential(builder, scope, [statement], schedule.threads)


def make_schedule(**hints: Any) -> Schedule:
    """A schedule from the hints `block`, `block_k`, `stages`, `threads`.  Raises LanguageError on a bad one."""
    block = hints.pop("block", ())
    values = {"block": (block,) if isinstance(block, int) else tuple(block), **hints}
    known = set(Schedule.__dataclass_fields__)
    for name, value in values.items():
        entries = value if isinstance(value, tuple) else (value,)
        if name not in known or not all(isinstance(v, int) and v >= (0 if name == "stages" else 1) for v in entries):
            raise LanguageError(
                f"schedule hint {name}={value!r} is not allowed",
                hint=f"hints are positive integers: {', '.join(sorted(known))}",
            )
    return replace(Schedule(), **values)
