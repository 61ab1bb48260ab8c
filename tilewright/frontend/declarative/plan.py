"""How a parallel nest is cut into blocks, and what each of its statements becomes."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.errors import LanguageError
from tilewright.frontend.declarative import recognise
from tilewright.frontend.declarative.expressions import Scope, evaluate_size
from tilewright.frontend.declarative.program import Loop, Schedule
from tilewright.frontend.declarative.recognise import ContractionLoop, MapLoop, Nest, ReductionLoop
from tilewright.frontend.declarative.statements import infer_types
from tilewright.ir.dtype import DType
from tilewright.ir.expr import FLOAT32, INT32, INT64, Const, Expr, const, promote

MATMUL_TILE = (128, 128)
ROW_TILE_ELEMENTS = 8192  # of a row band: fits a level-1 or level-2 cache together with what is derived from it
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
        self.types = infer_types(self.program, scope, nest.loops, nest.body)
        found = [(s, self.find_contraction(s)) for s in nest.body]
        self.contractions = {id(s): c for s, c in found if c is not None}
        self.tiled = self.choose_tiles()

    def extent_of(self, loop: Loop) -> int:
        if loop.block_dim is None:
            return evaluate_size(loop.stop, self.scope, "the bound of a parallel loop")
        for store in recognise.subscripts([self.nest.node], stored=True):
            for position, entry in enumerate(recognise.index_entries(store)):
                if isinstance(entry, ast.Name) and entry.id == loop.name:
                    size = self.scope.tensors[recognise.tensor_name(self.program, store)].shape[position]
                    if isinstance(size, Const):
                        return int(size.value)
        raise LanguageError(
            f"no store tells how far {loop.name} goes in the whole problem",
            location=self.program.location(loop.node),
            hint="index the result by it, or loop over the full size",
        )

    def find_contraction(self, statement: ast.stmt) -> ContractionLoop | None:
        """The contraction that `statement` is, when its operands fit a tile gemm on two axes of this nest."""
        found = recognise.match_contraction(self.program, statement)
        if found is None:
            return None
        extent = evaluate_size(found.loop.stop, self.scope, "the bound of a contraction")
        order = [axis.loop.name for axis in self.axes]
        for product in found.products:
            sides = [self.operand_axes(s, found.loop.name, extent) for s in (product.left, product.right)]
            if sides[0] is None or sides[1] is None:
                return None
            left, right = set(sides[0]), set(sides[1])
            shared = left & right
            if len(left - shared) != 1 or len(right - shared) != 1 or left | right != set(order):
                return None
            if not self.fits_gemm(product):
                return None
        return found

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

    def fits_gemm(self, product: recognise.Product) -> bool:
        left, right = (self.operand_dtype(s) for s in (product.left, product.right))
        accumulator = self.types.get(product.accumulator, FLOAT32)
        common = promote(left, right)
        if common.is_float:
            return accumulator.is_float and accumulator.bits >= max(32, common.bits)
        return common.is_int and accumulator.is_int

    def operand_dtype(self, operand: ast.Subscript) -> DType:
        name = operand.value.id if isinstance(operand.value, ast.Name) else ""
        staged = self.program.staged.get(name)
        return staged[1] if staged is not None else self.scope.tensors[name].dtype

    def choose_tiles(self) -> list[Axis]:
        """Set the tile of every axis; the axes that have one."""
        block = self.block_hint()
        contraction = next(iter(self.contractions.values()), None)
        if contraction is not None:
            product = contraction.products[0]
            left = set(recognise.index_names(product.left) or ())
            right = set(recognise.index_names(product.right) or ())
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
        lengths = [0]
        for statement in self.nest.body:
            if id(statement) in self.contractions:
                continue
            row = recognise.match_reduction(self.program, statement) or self.match_map(statement)
            if row is not None and self.row_extent(row.loop) is not None:
                lengths.append(self.row_extent(row.loop) or 0)
        return max(lengths)

    def row_extent(self, loop: Loop) -> int | None:
        """The literal length of a row loop; None when it depends on the iteration (a triangular loop)."""
        names = recognise.read_names([loop.stop])
        if names & ({axis.loop.name for axis in self.axes} | set(self.types)) or recognise.tensor_reads(loop.stop):
            return None
        return evaluate_size(loop.stop, self.scope, "the bound of a loop")

    def match_map(self, statement: ast.stmt) -> MapLoop | None:
        outer = set(recognise.assigned_names([s for s in self.nest.body if s is not statement]))
        return recognise.match_map(self.program, statement, outer)

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
        contraction = self.contractions.get(id(statement))
        if contraction is not None:
            return contraction
        row = recognise.match_reduction(self.program, statement) or self.match_map(statement)
        return row if row is not None and self.row_extent(row.loop) is not None else None

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


def literal_size(size: Expr) -> int | None:
    """The integer that a size is, None when it is not literal."""
    return int(size.value) if isinstance(size, Const) else None
