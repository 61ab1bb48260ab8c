"""Local and var buffers that iterations of a Parallel write become each iteration's own.

    alloc t: float32[] var
    parallel (i < 64):
        t[] = x[i]
        y[i] = t[] * t[]
becomes
    alloc t: float32[] var
    parallel (i < 64):
        alloc t_own: float32[] var
        t_own[] = t[]
        t_own[] = x[i]
        y[i] = t_own[] * t_own[]
The first value is the outer one; the outer buffer is undefined after the loop.
"""

from __future__ import annotations

from tilewright.ir.expr import Buffer, Load, Var, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alloc, Atomic, Copy, Fill, Gemm, Parallel, Reduce, Scan, Seq, Stmt, Store, Transpose
from tilewright.options import CompileOptions
from tilewright.passes.lower_tiles import serial_nest
from tilewright.target import Target

PRIVATE_SCOPES = ("var", "local")


def privatise(func: PrimFunc, target: Target, options: CompileOptions) -> PrimFunc:
    """Give every iteration its own copy of the local and var buffers that it writes."""
    result: PrimFunc = _Privatise().rewrite(func)
    return result


class _Privatise(Rewriter):
    def rewrite_Parallel(self, stmt: Parallel) -> Stmt:
        own = {id(node.buffer) for node in walk(stmt.body) if isinstance(node, Alloc)}
        written: dict[int, Buffer] = {}
        for node in walk(stmt.body):
            target = _written(node)
            if target is not None and target.scope in PRIVATE_SCOPES and id(target) not in own:
                written[id(target)] = target
        if not written:
            return stmt
        copies = {old: _copy_of(old) for old in written.values()}
        prefix: list[Stmt] = []
        for old, new in copies.items():
            prefix += [Alloc(new, loc=stmt.loc), _copy(old, new)]
        body = substitute(stmt.body, {}, copies)
        return Parallel(stmt.vars, stmt.extents, Seq((*prefix, *body.stmts), loc=stmt.body.loc), loc=stmt.loc)


def _written(node: Node) -> Buffer | None:
    if isinstance(node, Store):
        return node.buffer
    if isinstance(node, Gemm):
        return node.c.buffer
    return node.dst.buffer if isinstance(node, (Atomic, Copy, Fill, Reduce, Scan, Transpose)) else None


def _copy_of(old: Buffer) -> Buffer:
    return Buffer(f"{old.name}_own", old.shape, old.dtype, old.scope, old.strides, loc=old.loc)


def _copy(old: Buffer, new: Buffer) -> Stmt:
    variables = tuple(Var(const(0).dtype, f"i{d}") for d in range(old.ndim))
    store = Store(new, variables, Load(old.dtype, old, variables, loc=old.loc), loc=old.loc)
    return serial_nest(variables, old.shape, store, old.loc)
