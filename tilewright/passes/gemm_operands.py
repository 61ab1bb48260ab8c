"""What the passes on gemms ask about their operands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import FLOAT32, Buffer, Expr, Load, const, const_int
from tilewright.ir.node import Node
from tilewright.ir.stmt import Alias, Copy, Fill, Gemm, If, Launch, Region, Seq, Stmt, Store
from tilewright.ir.structural import same

# Added to the rows of a staging buffer, so that the elements of a column do not share a cache set.
PITCH_PADDING_BYTES = 64
BFLOAT16 = dtype("bfloat16")


def compute_dtype(gemm: Gemm) -> DType | None:
    """The dtype that a gemm multiplies and sums in; None for operands without a vector form here."""
    result = gemm.c.buffer.dtype
    if result.lanes > 1 or not (result.is_float or result.is_int) or result.bits < 8:
        return None
    for operand in (gemm.a.buffer.dtype, gemm.b.buffer.dtype):
        if operand.lanes > 1 or operand.bits < 8 or not (operand.is_float or operand.is_int):
            return None
    return FLOAT32 if result.is_float and result.bits <= 32 else result


def matrix_axes(region: Region) -> tuple[int, int] | None:
    """The two dimensions of a matrix region: the last two, or those whose extent is not 1."""
    rank = len(region.extents)
    if rank >= 2 and all(const_int(e) == 1 for e in region.extents[:-2]):
        return rank - 2, rank - 1
    kept = [d for d, e in enumerate(region.extents) if const_int(e) != 1]
    return (kept[0], kept[1]) if len(kept) == 2 else None


def matrix_extents(region: Region) -> tuple[Expr, Expr]:
    """Rows and columns of a matrix region."""
    axes = matrix_axes(region)
    assert axes is not None
    return region.extents[axes[0]], region.extents[axes[1]]


def consecutive_columns(region: Region) -> bool:
    """Whether neighbours in the matrix's rows are neighbours in memory."""
    axes = matrix_axes(region)
    if axes is None or axes[1] != len(region.extents) - 1:
        return False
    strides = region.buffer.strides
    return strides is None or const_int(strides[-1]) == 1


def is_blocked(gemm: Gemm) -> bool:
    """Whether `lower_gemm` takes this gemm: M and N known, rows of B and C consecutive in memory, dtypes with a vector form."""
    if is_paired(gemm):
        return True
    if compute_dtype(gemm) is None or any(matrix_axes(r) is None for r in (gemm.a, gemm.b, gemm.c)):
        return False
    sizes = [const_int(e) for e in matrix_extents(gemm.c)]
    if None in sizes or 0 in sizes:
        return False
    return not gemm.transpose_b and consecutive_columns(gemm.b) and consecutive_columns(gemm.c)


def is_paired(gemm: Gemm) -> bool:
    """Whether `pair_gemm` brought the operands into its form: elements of B are vectors of pairs; no program has such a gemm."""
    a, b = gemm.a.buffer.dtype, gemm.b.buffer.dtype
    return a is BFLOAT16 and b.lanes > 1 and b.scalar is BFLOAT16


def depth_of(gemm: Gemm) -> Expr:
    """The K extent."""
    rows, columns = matrix_extents(gemm.a)
    return rows if gemm.transpose_a else columns


def conditional_gemm(stmt: Stmt) -> tuple[Gemm, Expr] | None:
    """A gemm, and the condition under which it clears its result first; None for other statements."""
    if isinstance(stmt, Gemm):
        return stmt, const(stmt.clear_accum)
    if not isinstance(stmt, If) or stmt.else_body is None:
        return None
    bodies = (stmt.then_body.stmts, stmt.else_body.stmts)
    if any(len(body) != 1 or not isinstance(body[0], Gemm) for body in bodies):
        return None
    first, later = bodies[0][0], bodies[1][0]
    assert isinstance(first, Gemm) and isinstance(later, Gemm)
    alike = all(same_region(x, y) for x, y in zip(first.children(), later.children(), strict=True))
    flags = (first.transpose_a, first.transpose_b) == (later.transpose_a, later.transpose_b)
    if alike and flags and first.clear_accum and not later.clear_accum:
        return later, stmt.condition
    return None


def same_region(a: object, b: object) -> bool:
    """Whether two nodes are regions built alike of one buffer."""
    if not isinstance(a, Region) or not isinstance(b, Region) or a.buffer is not b.buffer:
        return False
    return all(same(x, y) for x, y in zip(a.starts + a.extents, b.starts + b.extents, strict=True))


def is_whole(region: Region) -> bool:
    """Whether a region is its whole buffer, of known size."""
    shape = region.buffer.const_shape()
    return all(const_int(s) == 0 for s in region.starts) and shape is not None and region.const_extents == shape


def padded_strides(shape: Sequence[int], dtype: DType) -> tuple[Expr, ...]:
    """Row-major strides whose rows are a cache line apart from a multiple of the page-like strides that collide."""
    padding = PITCH_PADDING_BYTES * 8 // max(dtype.bits, 8)
    strides = [1]
    for size in reversed(shape[1:]):
        pitch = strides[0] * size
        strides.insert(0, pitch + padding if len(strides) == 1 and pitch % padding == 0 else pitch)
    return tuple(const(s) for s in strides)


@dataclass(slots=True)
class Staging:
    """An on-chip buffer that gemms read as A or B, and how else a launch uses it.

    copies: all that write it; gemms: all that read it.  elements: single elements or parts of it are used too.
    fresh: every gemm reads what a copy in the same sequence has just written.
    """

    buffer: Buffer
    copies: list[Copy] = field(default_factory=list)
    gemms: list[Gemm] = field(default_factory=list)
    elements: bool = False
    fresh: bool = True

    @property
    def private(self) -> bool:
        """Whether it only brings data from copies to the gemms after them."""
        return self.fresh and not self.elements


def staging_buffers(launch: Launch) -> list[Staging]:
    """The buffers that only copies, fills, single elements, and gemms as A and B use, in order of appearance."""
    scan = _StagingScan()
    scan.visit(launch.body)
    kept = [s for name, s in scan.found.items() if name not in scan.others and s.gemms]
    return [s for s in kept if s.buffer.scope != "global" and s.buffer.reducer is None and s.buffer.view_of is None]


class _StagingScan:
    """One walk over a launch.  others: buffers with a use that a staging buffer does not have."""

    def __init__(self) -> None:
        self.found: dict[int, Staging] = {}
        self.others: set[int] = set()

    def visit(self, item: Node) -> None:
        """Note the uses in `item`."""
        if isinstance(item, Seq):
            self._sequence(item)
            return
        if isinstance(item, Alias):
            self.others |= {id(item.buffer), id(item.buffer.view_of)}
        elif isinstance(item, Region):
            self.others.add(id(item.buffer))
        elif isinstance(item, (Load, Store)):
            self._staging(item.buffer).elements = True
        for child in item.children():
            self.visit(child)

    def _staging(self, buffer: Buffer) -> Staging:
        return self.found.setdefault(id(buffer), Staging(buffer))

    def _sequence(self, seq: Seq) -> None:
        written: dict[int, Region] = {}
        for stmt in seq.stmts:
            gemm = conditional_gemm(stmt)
            if isinstance(stmt, Copy):
                self._staging(stmt.src.buffer).elements = True
                self._staging(stmt.dst.buffer).copies.append(stmt)
                written[id(stmt.dst.buffer)] = stmt.dst
                self._bounds(stmt.src, stmt.dst)
            elif isinstance(stmt, Fill):
                self._staging(stmt.dst.buffer).elements = True
                self._bounds(stmt.dst)
                self.visit(stmt.value)
            elif gemm is not None:
                self._gemm(gemm[0], written)
            else:
                self.visit(stmt)

    def _gemm(self, gemm: Gemm, written: dict[int, Region]) -> None:
        self.visit(gemm.c)
        for region in (gemm.a, gemm.b):
            staging = self._staging(region.buffer)
            staging.gemms.append(gemm)
            new = written.get(id(region.buffer))
            if new is None or not (is_whole(new) or same_region(new, region)):
                staging.fresh = False
            self._bounds(region)

    def _bounds(self, *regions: Region) -> None:
        for region in regions:
            for bound in region.starts + region.extents:
                self.visit(bound)
