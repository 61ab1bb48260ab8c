"""What the next block will read, asked for while this one computes.

    launch (row < 16384):
        for i in serial(0, 4096, 8): let x_here = X[row, i +: 8] ...
        for j in serial(0, 4096, 8): x[0, j +: 8] = exp(x[0, j +: 8] - ...)
becomes
        for j in serial(0, 4096, 8):
            prefetch X[row + 1, j +: 8]
            x[0, j +: 8] = exp(x[0, j +: 8] - ...)
A block that goes over its row several times is bound by memory in the first loop and by arithmetic in the others;
with the prefetch both work at once.  A worker takes consecutive blocks, so that it is its own cache that is filled.
"""

from __future__ import annotations

from tilewright.ir.expr import Buffer, Expr, Load, Ramp, Var, binary, const, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Atomic, For, Gemm, If, Launch, Let, Prefetch, Region, Seq, Stmt, Store, While
from tilewright.options import CompileOptions
from tilewright.target import Target


def prefetch_rows(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Add prefetches to the loops of blocks that read long rows in one loop and work on them in another."""
    written = {id(node.buffer) for node in walk(func.body) if isinstance(node, Store)}
    written |= {id(node.dst.buffer) for node in walk(func.body) if isinstance(node, Atomic)}
    large = {
        id(b) for b in func.buffers() if id(b) not in written and _bytes(b) > target.cache_bytes[1] and not b.strides
    }
    result: PrimFunc = _PrefetchRows(large).rewrite(func) if large else func
    return result


def _bytes(buffer: Buffer) -> int:
    """The size of a buffer, 0 when it is known at launch only."""
    total = buffer.dtype.nbytes
    for size in buffer.const_shape() or (0,):
        total *= size
    return total


class _PrefetchRows(Rewriter):
    def __init__(self, large: set[int]) -> None:
        self.large = large

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        if any(isinstance(s, (If, While, Gemm)) for s in stmt.body.stmts):
            return stmt
        block = stmt.block_vars[0]
        stmts = list(stmt.body.stmts)
        for at, first in enumerate(stmts):
            row = self._row(first, block) if isinstance(first, For) else None
            if not isinstance(first, For) or row is None:
                continue
            for other in range(at + 1, len(stmts)):
                loop = stmts[other]
                if isinstance(loop, For) and self._takes(loop, first):
                    stmts[other] = _with_prefetch(loop, first, row, block)
                    break
        if all(a is b for a, b in zip(stmts, stmt.body.stmts, strict=True)):
            return stmt
        return stmt.replace(body=Seq(tuple(stmts), loc=stmt.body.loc))

    def _row(self, loop: For, block: Var) -> Load | None:
        """The load of consecutive elements of a large tensor, one row a block."""
        bound = {id(s.var) for s in walk(loop.body) if isinstance(s, (Let, For))}
        for node in walk(loop.body):
            if not isinstance(node, Load) or id(node.buffer) not in self.large or node.mask is not None:
                continue
            last = node.indices[-1]
            names = {id(v) for i in node.indices for v in walk(i) if isinstance(v, Var)}
            consecutive = isinstance(last, Ramp) and last.base is loop.var and const_int(last.stride) == 1
            if consecutive and id(block) in names and not names & bound:
                return node
        return None

    def _takes(self, stmt: For, first: For) -> bool:
        """Whether a loop has the same iterations and reads no large tensor itself."""
        if stmt.kind != "serial":
            return False
        same = [const_int(e) for e in (stmt.start, stmt.stop, stmt.step)]
        if None in same or same != [const_int(e) for e in (first.start, first.stop, first.step)]:
            return False
        return not any(isinstance(n, (Prefetch, For)) for s in stmt.body.stmts for n in walk(s)) and not any(
            isinstance(n, Load) and id(n.buffer) in self.large for n in walk(stmt.body)
        )


def _with_prefetch(loop: For, first: For, row: Load, block: Var) -> For:
    """`loop` asking for what `first` will read in the next block."""
    changes: dict[Var, Expr] = {block: binary("add", block, 1), first.var: loop.var}
    last = row.indices[-1]
    assert isinstance(last, Ramp)
    starts = tuple(substitute(i, changes) for i in (*row.indices[:-1], last.base))
    extents = tuple(const(1) for _ in row.indices)
    asked = Prefetch(Region(row.buffer, starts, extents, loc=row.loc), loc=row.loc)
    return loop.replace(body=Seq((asked, *loop.body.stmts), loc=loop.body.loc))
