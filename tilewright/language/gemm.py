"""Matrix multiplication of tiles."""

from __future__ import annotations

import enum
from typing import Any

from tilewright.errors import ArgumentValueError, DTypeError, ScopeError, ShapeError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Gemm, Region
from tilewright.language.operands import begin_tile, describe, matrix, matrix_extents, same_size, size_text
from tilewright.source import Location


class GemmWarpPolicy(enum.IntEnum):
    """How the waves of a block divide the rows and columns of the result."""

    Square = 0
    FullRow = 1
    FullCol = 2


_POLICIES = {GemmWarpPolicy.Square: "square", GemmWarpPolicy.FullRow: "full_row", GemmWarpPolicy.FullCol: "full_col"}


def gemm(
    A: Any,
    B: Any,
    C: Any,
    transpose_A: bool = False,
    transpose_B: bool = False,
    policy: GemmWarpPolicy = GemmWarpPolicy.Square,
    clear_accum: bool = False,
    k_pack: int = 1,
    wg_wait: int = 0,
    mbar: Any = None,
) -> None:
    """C += op(A) · op(B) for tiles in shared or fragment memory; `clear_accum` starts from 0.

    op(A) is M×K, op(B) is K×N, C is M×N; products and sums are done in C's dtype, float32 at least.
    Raises ShapeError, DTypeError or ScopeError with the shapes, dtypes and scopes of the operands.
    """
    builder, loc = begin_tile("T.gemm")
    a, b, c = (matrix(v, f"operand {n} of T.gemm") for v, n in ((A, "A"), (B, "B"), (C, "C")))
    _check_scopes(a, b, c, loc)
    _check_shapes(a, b, c, transpose_A, transpose_B, loc)
    _check_dtypes(a.buffer.dtype, b.buffer.dtype, c.buffer.dtype, loc)
    if not isinstance(policy, int) or policy not in _POLICIES:
        raise ArgumentValueError(f"unknown gemm policy {policy!r}", location=loc, hint="T.GemmWarpPolicy.Square")
    if not isinstance(k_pack, int) or k_pack < 1:
        raise ArgumentValueError(f"k_pack must be a positive integer, got {k_pack!r}", location=loc)
    builder.emit(
        Gemm(a, b, c, bool(transpose_A), bool(transpose_B), bool(clear_accum), _POLICIES[policy], k_pack, loc=loc)
    )


def _check_scopes(a: Region, b: Region, c: Region, loc: Location | None) -> None:
    for region, name in ((a, "A"), (b, "B"), (c, "C")):
        if region.buffer.scope not in ("shared", "fragment", "local"):
            raise ScopeError(
                f"operand {name} of T.gemm is {describe(region)}; it must be in shared or fragment memory",
                location=loc,
                hint="T.copy the tile to a buffer from T.alloc_shared or T.alloc_fragment first",
            )
    if c.buffer is a.buffer or c.buffer is b.buffer:
        raise ScopeError("T.gemm cannot write to a tensor that it reads", location=loc)


def _check_shapes(a: Region, b: Region, c: Region, ta: bool, tb: bool, loc: Location | None) -> None:
    m, ka = _transposed(matrix_extents(a), ta)
    kb, n = _transposed(matrix_extents(b), tb)
    rows, columns = matrix_extents(c)
    problems = [
        f"{name} is {size_text(x)} by {left} but {size_text(y)} by {right}"
        for name, x, y, left, right in (
            ("K", ka, kb, "A", "B"),
            ("M", m, rows, "A", "C"),
            ("N", n, columns, "B", "C"),
        )
        if not same_size(x, y)
    ]
    if problems:
        form = f"A{'ᵀ' if ta else ''} · B{'ᵀ' if tb else ''}"
        raise ShapeError(
            f"T.gemm: shapes do not fit for {form}: A is {describe(a)}, B is {describe(b)}, C is {describe(c)}: "
            + "; ".join(problems),
            location=loc,
            hint="transpose_A and transpose_B say that an operand is stored K×M or N×K",
        )


def _transposed(extents: tuple[Expr, Expr], transpose: bool) -> tuple[Expr, Expr]:
    return (extents[1], extents[0]) if transpose else extents


def _check_dtypes(a: DType, b: DType, c: DType, loc: Location | None) -> None:
    eight_bit = a.is_float and b.is_float and a.bits == b.bits == 8
    integers = a.is_int and b.is_int and a.bits == b.bits
    if a is not b and not eight_bit and not integers:
        raise DTypeError(
            f"T.gemm: A is {a} and B is {b}; operands must have one dtype", location=loc, hint="T.copy casts"
        )
    if a.is_float:
        fits = c.is_float and c.bits >= max(16, min(a.bits, 32)) and not (a.bits == 64 and c.bits < 64)
    else:
        fits = a.is_int and c.kind in ("int", "uint") and c.bits >= max(a.bits, 32)
    if not fits:
        wanted = "float32 (or float16 for float16)" if a.is_float else "int32"
        raise DTypeError(f"T.gemm: {a} operands cannot be summed in {c}", location=loc, hint=f"make C {wanted}")


__all__ = ["GemmWarpPolicy", "gemm"]
