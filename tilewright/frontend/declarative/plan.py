"""How a parallel nest is cut into blocks, and what each of its statements becomes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.errors import LanguageError
from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.expressions import Scope, evaluate_size, literal_size
from tilewright.frontend.declarative.flow import live_after
from tilewright.frontend.declarative.literals import widen_dtype
from tilewright.frontend.declarative.program import Loop, Schedule
from tilewright.frontend.declarative.recognise import ContractionLoop, MapLoop, Nest, ReductionLoop
from tilewright.frontend.declarative.statements import constant_reader, infer_types
from tilewright.ir.dtype import DType
from tilewright.ir.expr import FLOAT32, INT32, INT64, Expr, const, promote

MATMUL_TILE = (128, 128)
ROW_TILE_ELEMENTS = 1024  # of a row band: single long rows stay in a level-1 cache, and the next one is prefetched
POINT_TILE = (16, 512)
FULL_ROW = 65536  # longer rows are worked off in chunks
CHUNK = 4096


def ceil_div(a: int, b: int) -> int:
    """a / b rounded up."""
    return -(-a // b)


def round_up(a: int, b: int) -> int:
    """The next multiple of b."""
    return ceil_div(a, b) * b


def index_dtype(extent: int) -> DType:
    """int32 where indices below `extent` fit, else int64."""
    return INT32 if extent < 2**31 else INT64


@dataclass
class Axis:
    """One independent loop of a nest: `tile` of its `extent` iterations belong to a block, from `origin` on."""

    loop: Loop
    extent: int
    tile: int = 1
    origin: Expr = field(default_factory=lambda: const(0))


class NestPlan:
    """The axes of a nest with their tiles, its scalars' dtypes, and the pattern of every statement."""

    def __init__(self, scope: Scope, nest: Nest, schedule: Schedule) -> None:
        self.scope = scope
        self.program = scope.program
        self.nest = nest
        self.schedule = schedule
        self.axes = [Axis(loop, self.extent_of(loop)) for loop in nest.loops]
        self.types, constants = infer_types(scope, nest.loops, nest.body)
        for name, value in constants.items():
            scope.names[name] = constant_reader(value)
        self.contractions = self.find_contractions()
        self.patterns = {id(s): self.match(position, s) for position, s in enumerate(nest.body)}
        self.tiled = self.choose_tiles()

    def extent_of(self, loop: Loop) -> int:
        if loop.block_dim is None:
            return max(0, evaluate_size(loop.stop, self.scope, "the bound of a parallel loop"))
        found: dict[int, str] = {}
        for store in recognise.subscripts([self.nest.node], stored=True):
            for position, entry in enumerate(recognise.index_entries(store)):
                if isinstance(entry, ast.Name) and entry.id == loop.name:
                    name = recognise.tensor_name(self.program, store)
                    size = literal_size(self.scope.tensors[name].shape[position])
                    if size is not None:
                        found.setdefault(size, f"dimension {position} of {name}")
        if len(found) == 1:
            return next(iter(found))
        if not found:
            raise LanguageError(
                f"no store tells how far {loop.name} goes in the whole problem",
                location=self.program.location(loop.node),
                hint="index the result by it, or loop over the full size",
            )
        (first, first_place), (second, second_place) = list(found.items())[:2]
        raise LanguageError(
            f"{loop.name} goes to {first} by {first_place}, but to {second} by {second_place}",
            location=self.program.location(loop.node),
            hint="loop over the size that is meant instead of block_size[...]",
        )

    def find_contractions(self) -> dict[int, ContractionLoop]:
        """The statements that are contractions on one and the same pair of axes, by identity."""
        found: dict[int, ContractionLoop] = {}
        pairs: set[frozenset[str]] = set()
        for statement in self.nest.body:
            contraction = recognise.match_contraction(self.program, statement)
            extent = self.row_extent(contraction.loop) if contraction is not None else None
            if contraction is None or extent is None:
                continue
            own = [self.product_axes(product, contraction.loop.name, extent) for product in contraction.products]
            if None in own or len({*pairs, *own}) != 1:
                continue
            pairs.update(pair for pair in own if pair is not None)
            found[id(statement)] = contraction
        return found

    def product_axes(self, product: recognise.Product, k: str, extent: int) -> frozenset[str] | None:
        """The two axes that a product's tile gemm spans, None when it does not fit one."""
        sides = [self.operand_axes(o.element, k, extent) for o in (product.left, product.right)]
        if sides[0] is None or sides[1] is None or self.staged_dtype(product) is None:
            return None
        left, right = set(sides[0]), set(sides[1])
        if len(left - right) != 1 or len(right - left) != 1 or left | right != {a.loop.name for a in self.axes}:
            return None
        return frozenset(left ^ right)

    def operand_axes(self, operand: ast.Subscript, k: str, extent: int) -> list[str] | None:
        """The axes that index an operand beside `k`, None when an index is anything else or a size differs."""
        names = recognise.index_names(operand)
        tensor = recognise.tensor_name(self.program, operand)
        if names is None or names.count(k) != 1 or len(set(names)) != len(names) or tensor not in self.scope.tensors:
            return None
        extents = {axis.loop.name: axis.extent for axis in self.axes} | {k: extent}
        shape = self.scope.tensors[tensor].const_shape()
        if (
            shape is None
            or len(shape) != len(names)
            or any(extents.get(n) != s for n, s in zip(names, shape, strict=True))
        ):
            return None
        return [n for n in names if n != k]

    def staged_dtype(self, product: recognise.Product) -> DType | None:
        """The dtype in which both operands are staged, None where a tile gemm would compute something else.

        It holds every operand exactly, or as the product of the two elements would be computed.
        """
        accumulator = self.types.get(product.accumulator, FLOAT32)
        left, right = (self.operand_dtype(o) for o in (product.left, product.right))
        if left is None or right is None or left.is_bool or right.is_bool:
            return None
        computed = promote(widen_dtype(left), widen_dtype(right))
        if computed.is_float:
            if not accumulator.is_float or accumulator.bits < computed.bits:
                return None
            return left if left is right and accumulator is computed else accumulator
        return (left if left is right else computed) if accumulator is computed else None

    def operand_dtype(self, operand: recognise.Operand) -> DType | None:
        """The dtype of an operand; None where its cast loses something."""
        name = operand.element.value.id if isinstance(operand.element.value, ast.Name) else ""
        staged = self.program.staged.get(name)
        element = staged[1] if staged is not None else self.scope.tensors[name].dtype
        cast = operand.cast
        if cast is None or (element.is_float and widen_dtype(element) is cast):
            return element
        return cast if element.is_int or cast.bits >= element.bits else None

    def choose_tiles(self) -> list[Axis]:
        """Set the tile of every axis; the axes that have one."""
        block = self.block_hint()
        contraction = next(iter(self.contractions.values()), None)
        if contraction is not None:
            product = contraction.products[0]
            left = set(recognise.index_names(product.left.element) or ())
            right = set(recognise.index_names(product.right.element) or ())
            tiled = [a for a in self.axes if (a.loop.name in left) != (a.loop.name in right)]
            defaults: Sequence[int] = MATMUL_TILE
        elif self.row_length() > 0:
            tiled = [self.axes[-1]]
            defaults = (max(1, ROW_TILE_ELEMENTS // self.row_length()),)
        else:
            tiled = self.axes[-2:]
            columns = min(self.axes[-1].extent, POINT_TILE[1])
            rows = max(1, POINT_TILE[0] * POINT_TILE[1] // max(columns, 1))
            defaults = (rows, POINT_TILE[1])[-len(tiled) :]
        for position, axis in enumerate(tiled):
            hinted = block[position - len(tiled)] if len(block) >= len(tiled) - position else 0
            fitted = axis.extent if contraction is None else round_up(axis.extent, 16)
            axis.tile = hinted or max(1, min(defaults[position], fitted))
        return tiled

    def block_hint(self) -> tuple[int, ...]:
        if self.program.block_size:
            sizes = tuple(evaluate_size(e, self.scope, "block_size") for e in self.program.block_size)
        else:
            sizes = self.schedule.block
        if any(s < 1 for s in sizes):
            raise LanguageError("a block size must be positive", location=self.program.location(self.nest.node))
        return sizes

    def row_length(self) -> int:
        """The longest inner loop that is worked off as a row, 0 when there is none."""
        rows = [p.loop for p in self.patterns.values() if isinstance(p, (ReductionLoop, MapLoop))]
        return max((self.row_extent(loop) or 0 for loop in rows), default=0)

    def row_extent(self, loop: Loop) -> int | None:
        """The length of a row loop; None when it is not known before the kernel runs (a triangular loop)."""
        unknown = self.program.scalar_names - self.scope.names.keys()
        unknown |= {p.name for p in self.program.parameters if p.dims is None}
        if loop.block_dim is not None or recognise.read_names([loop.stop]) & (unknown | set(self.types)):
            return None
        if recognise.tensor_reads(loop.stop):
            return None
        return max(0, evaluate_size(loop.stop, self.scope, "the bound of a loop"))

    def match(self, position: int, statement: ast.stmt) -> ContractionLoop | ReductionLoop | MapLoop | None:
        """The pattern that a statement of the body is; rows beside a contraction are left as plain loops."""
        contraction = self.contractions.get(id(statement))
        if contraction is not None or self.contractions:
            return contraction
        live = live_after(self.nest.body, position)
        row = recognise.match_reduction(self.program, statement, live)
        if row is not None and any(self.types[u.accumulator].is_bool for u in row.updates):
            return None
        found = row or recognise.match_map(self.program, statement, live)
        return found if found is not None and self.row_extent(found.loop) is not None else None

    def is_kept(self, name: str) -> bool:
        """Whether a scalar is assigned more than once, or used by more than one run of statements."""
        if recognise.assigned_names(list(self.nest.body)).count(name) > 1:
            return True
        used = [
            index
            for index, run in enumerate(self.runs(list(self.nest.body)))
            if name in recognise.read_names(run) or name in recognise.assigned_names(run)
        ]
        return len(used) > 1

    def runs(self, body: list[ast.stmt]) -> list[list[ast.stmt]]:
        """The body cut into runs: each recognised loop alone, other statements together."""
        runs: list[list[ast.stmt]] = []
        open_run = False
        for statement in body:
            if self.recognised(statement) is not None:
                runs.append([statement])
                open_run = False
            elif open_run:
                runs[-1].append(statement)
            else:
                runs.append([statement])
                open_run = True
        return runs

    def recognised(self, statement: ast.stmt) -> ContractionLoop | ReductionLoop | MapLoop | None:
        """The pattern that a statement was found to be."""
        return self.patterns.get(id(statement))

    def drops_by_itself(self, axis: Axis, statements: Sequence[ast.stmt]) -> bool:
        """Whether every store is dropped by itself past the axis's end."""
        for store in recognise.subscripts(statements, stored=True):
            tensor = self.scope.tensors.get(recognise.tensor_name(self.program, store))
            if tensor is None:
                return False
            entries = recognise.index_entries(store)
            if not any(
                isinstance(e, ast.Name) and e.id == axis.loop.name and literal_size(size) == axis.extent
                for e, size in zip(entries, tensor.shape, strict=False)
            ):
                return False
        return True
