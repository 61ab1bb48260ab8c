"""Loop kinds that a sequential block does not have: "pipelined" becomes "serial", "vectorized" a parallel loop,
and an "unroll" too long to be expanded "serial".
"""

from __future__ import annotations

from tilewright.ir.expr import Var, binary, cast, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Break, Continue, For, Parallel, Seq, Stmt
from tilewright.options import CompileOptions
from tilewright.target import Target

LONGEST_UNROLL = 64


def lower_loops(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Leave only "serial" and short "unroll" loops, and Parallel."""
    result: PrimFunc = _LowerLoops().rewrite(func)
    return result


class _LowerLoops(Rewriter):
    def rewrite_For(self, stmt: For) -> Stmt:
        body = self.rewrite(stmt.body)
        if stmt.kind == "vectorized" and const_int(stmt.step) == 1 and not _leaves(body):
            extent = binary("sub", stmt.stop, stmt.start)
            lane = Var(stmt.var.dtype, stmt.var.name, loc=stmt.var.loc)
            shifted = cast(binary("add", stmt.start, lane), stmt.var.dtype)
            return Parallel((lane,), (extent,), substitute(body, {stmt.var: shifted}), loc=stmt.loc)
        kind = (
            "unroll"
            if stmt.kind == "unroll" and _trip_count(stmt) <= LONGEST_UNROLL and not _leaves(body)
            else "serial"
        )
        return For(stmt.var, stmt.start, stmt.stop, stmt.step, body, kind, loc=stmt.loc)


def _trip_count(stmt: For) -> int:
    bounds = [const_int(e) for e in (stmt.start, stmt.stop, stmt.step)]
    if any(b is None for b in bounds):
        return LONGEST_UNROLL + 1
    start, stop, step = (b or 0 for b in bounds)
    return len(range(start, stop, step or 1))


def _leaves(body: Seq) -> bool:
    return any(isinstance(node, (Break, Continue)) for node in walk(body))
