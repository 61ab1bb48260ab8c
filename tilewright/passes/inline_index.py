"""Names that users give to index arithmetic, put back where they are used, so that ranges can be proven.

    let row: int32 = by * 16 + i
    y[row, j] = x[row, j]
becomes
    y[by * 16 + i, j] = x[by * 16 + i, j]
Only integers and conditions without loads are inlined; they are cheap, and their value cannot change.
"""

from __future__ import annotations

from itertools import islice

from tilewright.ir.expr import Expr, Load, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, walk
from tilewright.ir.stmt import Let, Seq, Stmt
from tilewright.options import CompileOptions
from tilewright.target import Target

LARGEST = 64  # nodes; beyond that a name keeps the text readable and the compile fast


def inline_index(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Replace names of index expressions by what they stand for."""
    result: PrimFunc = _Inline().rewrite(func)
    return result


class _Inline(Rewriter):
    def __init__(self) -> None:
        self.values: dict[int, Expr] = {}

    def rewrite_Let(self, stmt: Let) -> Stmt:
        value: Expr = self.rewrite(stmt.value)
        kind = stmt.var.dtype
        if kind.lanes == 1 and (kind.is_int or kind.is_bool) and _is_cheap(value):
            self.values[id(stmt.var)] = value
            return Seq((), loc=stmt.loc)
        return stmt if value is stmt.value else Let(stmt.var, value, loc=stmt.loc)

    def rewrite_Var(self, item: Var) -> Expr:
        return self.values.get(id(item), item)


def _is_cheap(value: Expr) -> bool:
    nodes = list(islice(walk(value), LARGEST + 1))
    return len(nodes) <= LARGEST and not any(isinstance(node, Load) for node in nodes)
