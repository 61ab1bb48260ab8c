"""What the micro-kernel of a gemm does for one step along K: for one k, or for two with the pair dot product.

    acc[i, j] = fma(broadcast(A[m + i, k]), B[k, n + j * 16 +: 16], acc[i, j])
or, where `pair_gemm` made pairs of the operands (A bfloat16, elements of B vectors of 16 pairs),
    acc[i, j] = dot2_bf16(acc[i, j], broadcast(A[m + i, 2 * k +: 2]), B[k, n // 16 + j])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import FLOAT32, Broadcast, Call, Expr, Load, Ramp, Reinterpret, Var, binary, cast, const
from tilewright.ir.stmt import Gemm, Region
from tilewright.passes.gemm_operands import compute_dtype, depth_of, is_paired, matrix_axes
from tilewright.source import Location
from tilewright.target import Target

UINT32 = dtype("uint32")


class Products(Protocol):
    """Steps along K, and the vector code of one of them.

    element: dtype of the accumulators' lanes.  operand: dtype of the vectors that are multiplied.
    """

    @property
    def element(self) -> DType: ...

    @property
    def operand(self) -> DType: ...

    @property
    def steps(self) -> Expr: ...

    def left(self, m: Expr, step: Expr) -> Expr:
        """Row m of A for a step, the same in all lanes."""

    def right(self, step: Expr, n: Expr, j: Var, mask: Expr | None) -> Expr:
        """Vector j of B from column n on, for a step."""

    def accumulate(self, a: Expr, b: Expr, total: Expr) -> Expr:
        """`total` with the products of a step added."""


def products_of(gemm: Gemm, target: Target) -> Products:
    """How the micro-kernel of a blocked gemm multiplies on a target."""
    if is_paired(gemm):
        return PairProducts(gemm)
    element = compute_dtype(gemm)
    assert element is not None
    # Without an instruction for it a fused multiply-add is a slow library call, and nothing here asks for one rounding.
    fused = element.is_float and bool(dict(target.extras).get("fma", True))
    return SingleProducts(gemm, element, target.lanes(element.bits), fused)


@dataclass(frozen=True, slots=True)
class SingleProducts:
    """One k a step, by multiply-adds."""

    gemm: Gemm
    element: DType
    lanes: int
    fused: bool

    @property
    def operand(self) -> DType:
        """Vectors of the accumulators' dtype."""
        return self.element.with_lanes(self.lanes)

    @property
    def steps(self) -> Expr:
        """K."""
        return depth_of(self.gemm)

    def left(self, m: Expr, step: Expr) -> Expr:
        """A[m, step] in all lanes."""
        gemm, loc = self.gemm, self.gemm.loc
        element = _element(gemm.a, (step, m) if gemm.transpose_a else (m, step), loc)
        return Broadcast(self.operand, cast(element, self.element, loc=loc), loc=loc)

    def right(self, step: Expr, n: Expr, j: Var, mask: Expr | None) -> Expr:
        """B[step, n + j * lanes +: lanes]."""
        region, loc = self.gemm.b, self.gemm.loc
        indices = vector_indices(region, step, binary("add", n, binary("mul", j, self.lanes)), self.lanes)
        kind = region.buffer.dtype.with_lanes(self.lanes)
        return cast(Load(kind, region.buffer, indices, mask, loc=loc), self.operand, loc=loc)

    def accumulate(self, a: Expr, b: Expr, total: Expr) -> Expr:
        """a · b + total."""
        loc = self.gemm.loc
        if self.fused:
            return Call(a.dtype, "fma", (a, b, total), loc=loc)
        return binary("add", binary("mul", a, b, loc=loc), total, loc=loc)


@dataclass(frozen=True, slots=True)
class PairProducts:
    """Two k a step, by bfloat16 pair dot products; where K is odd, A's last pairs end with zeros, and so do B's."""

    gemm: Gemm

    @property
    def element(self) -> DType:
        """Sums are float32."""
        return FLOAT32

    @property
    def operand(self) -> DType:
        """The elements of B: as many pairs as float32 has lanes."""
        return self.gemm.b.buffer.dtype

    @property
    def steps(self) -> Expr:
        """K / 2, rounded up."""
        return binary("floordiv", binary("add", depth_of(self.gemm), 1), 2)

    def left(self, m: Expr, step: Expr) -> Expr:
        """The pair A[m, 2 * step +: 2] in all lanes, moved as 32 bits."""
        region, loc = self.gemm.a, self.gemm.loc
        indices = vector_indices(region, m, binary("mul", step, 2), 2)
        pair = Load(region.buffer.dtype.with_lanes(2), region.buffer, indices, loc=loc)
        bits = Broadcast(UINT32.with_lanes(self.operand.lanes // 2), Reinterpret(UINT32, pair, loc=loc), loc=loc)
        return Reinterpret(self.operand, bits, loc=loc)

    def right(self, step: Expr, n: Expr, j: Var, mask: Expr | None) -> Expr:
        """An element of B; all of it is there, also beyond the last column."""
        region = self.gemm.b
        column = binary("add", binary("floordiv", n, self.operand.lanes // 2), j)
        indices = (binary("add", region.starts[0], step), binary("add", region.starts[1], column))
        return Load(self.operand, region.buffer, indices, loc=self.gemm.loc)

    def accumulate(self, a: Expr, b: Expr, total: Expr) -> Expr:
        """Both products of each pair added to the lane's total."""
        return Call(total.dtype, "dot2_bf16", (total, a, b), loc=self.gemm.loc)


def vector_indices(region: Region, row: Expr, column: Expr, lanes: int) -> tuple[Expr, ...]:
    """The indices of `lanes` neighbours in a row of a matrix region."""
    first, second = matrix_axes(region) or (0, 1)
    indices = list(region.starts)
    indices[first] = binary("add", region.starts[first], row)
    base = binary("add", region.starts[second], column)
    indices[second] = Ramp(base.dtype.with_lanes(lanes), base, const(1, base.dtype))
    return tuple(indices)


def _element(region: Region, at: tuple[Expr, Expr], loc: Location | None) -> Load:
    """Element `at` of a matrix region."""
    indices = list(region.starts)
    for axis, offset in zip(matrix_axes(region) or (0, 1), at, strict=True):
        indices[axis] = binary("add", region.starts[axis], offset)
    return Load(region.buffer.dtype, region.buffer, tuple(indices), loc=loc)
