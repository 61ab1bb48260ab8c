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

from tilewright.errors import ArgumentShapeError, ArgumentValueError, LanguageError
from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.body import check_extents, check_written, read_body
from tilewright.frontend.declarative.check import check_names, check_statements
from tilewright.frontend.declarative.emit import NestEmitter
from tilewright.frontend.declarative.expressions import Scope, evaluate_size, variable_reader
from tilewright.frontend.declarative.findings import Finding
from tilewright.frontend.declarative.flow import flow_of
from tilewright.frontend.declarative.program import Parameter, Program, Schedule, parse_signature
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
        self.program, statements = parse_signature(function)
        read_body(self.program, statements)
        self.name = self.program.name
        self.parameters: list[Parameter] = self.program.parameters
        check_statements(self.program, self.program.body)
        check_names(self.program)
        check_written(self.program, self.written)
        self.program.body = recognise.lift_accumulation(self.program, self.program.body)

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

    def check_sizes(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes that are given by name.  Raises ArgumentValueError on one that is unknown, missing or no size."""
        known = ", ".join(sorted(self.program.size_names)) or "it has none"
        for name, size in sizes.items():
            if name not in self.program.size_names:
                raise ArgumentValueError(f"{self.name} has no size {name!r}", hint=f"sizes: {known}")
            if isinstance(size, bool) or not isinstance(size, int) or size < 0:
                raise ArgumentValueError(f"{self.name}: size {name} must be an integer from 0 on, got {size!r}")
        for name in sorted(self.program.size_names - sizes.keys()):
            if not self._is_number(name):
                raise ArgumentValueError(f"{self.name}: size {name!r} is missing", hint=f"sizes: {known}")
        return dict(sizes)

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
    ) -> tuple[PrimFunc, list[Finding]]:
        """The tile program for `sizes`, and what was made of every loop.

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
        check_extents(self.program, scope, schedule)
        findings: list[Finding] = []
        with builder.activate():
            for segment in segments(self.program):
                self._emit_segment(builder, scope, segment, schedule, findings)
        positions = tuple(i for i, p in enumerate(self.parameters) if p.name in outputs)
        loc = params[0].loc if params else None
        func = PrimFunc(self.name, tuple(params), builder.frames[0].seq(), outputs=positions, loc=loc)
        return func, findings

    def _emit_segment(
        self, builder: Builder, scope: Scope, segment: list[ast.stmt], schedule: Schedule, findings: list[Finding]
    ) -> None:
        first = segment[0]
        if len(segment) == 1 and isinstance(first, ast.For):
            nest = recognise.find_nest(self.program, first)
            if nest is not None:
                NestEmitter(builder, scope, nest, schedule, findings).emit()
                return
            text = "iterations of this loop may depend on one another; it runs serially in one block"
        else:
            text = "statements outside of independent loops; they run in order in one block"
        findings.append(Finding(first.lineno, text, plain=True))
        nest = recognise.one_point(self.program, segment)
        emitter = NestEmitter(builder, scope, nest, schedule, findings)
        if emitter.finds_patterns():
            emitter.emit()
        else:
            emit_sequential(builder, scope, segment, schedule.threads)


def segments(program: Program) -> list[list[ast.stmt]]:
    """The statements cut into parts that share no scalar: an independent loop alone, other statements together."""
    body = program.body
    joined = [False] * len(body)  # whether a statement belongs to the part of the one before
    for position in range(1, len(body)):
        for name in flow_of([body[position]]).exposed:
            sources = [p for p in range(position) if name in recognise.assigned_names([body[p]])]
            for between in range(sources[0] + 1, position + 1) if sources else ():
                joined[between] = True
        both_plain = not isinstance(body[position], ast.For) and not isinstance(body[position - 1], ast.For)
        joined[position] = joined[position] or both_plain
    parts: list[list[ast.stmt]] = []
    for statement, follows in zip(body, joined, strict=True):
        if follows:
            parts[-1].append(statement)
        else:
            parts.append([statement])
    return parts


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
