"""A last look at the finished program: every variable and buffer is used inside of the block that introduces it.

Names of the user's function are followed while it runs; this catches what went round them, through a list, a
dictionary, an object or a helper function.
"""

from __future__ import annotations

from tilewright.errors import NameRebindingError, ScopeError
from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node
from tilewright.ir.stmt import Alias, Alloc, Atomic, For, Launch, Let, Parallel, Region, Seq, Stmt, Store
from tilewright.language.sizes import is_dynamic
from tilewright.source import Location


def check_names(func: PrimFunc) -> None:
    """Raise NameRebindingError or ScopeError, with the place, for a use outside of the block."""
    checker = _Checker()
    checker.live.update(id(p) for p in func.params)
    checker.live.update(id(s) for s in func.sizes)
    checker.visit(func.body, func.loc)


class _Checker:
    def __init__(self) -> None:
        self.live: set[int] = set()
        self.added: list[int] = []

    def add(self, item: Var | Buffer) -> None:
        self.live.add(id(item))
        self.added.append(id(item))

    def buffer(self, buffer: Buffer, loc: Location | None) -> None:
        if id(buffer) not in self.live:
            raise ScopeError(
                f"tensor {buffer.name!r} is used outside of the block that allocates it"
                + (f" (line {buffer.loc.line})" if buffer.loc else ""),
                location=loc,
                hint="allocate it before the block",
            )

    def variable(self, var: Var, loc: Location | None) -> None:
        if id(var) in self.live:
            return
        if is_dynamic(var):
            raise NameRebindingError(
                f"the size {var.name!r} is in the shape of no parameter, so it has no value",
                location=loc,
                hint="pass it as a scalar parameter, or use it in a tensor's shape",
            )
        raise NameRebindingError(
            f"the value {var.name!r} is used outside of the block that computes it"
            + (f" (line {var.loc.line})" if var.loc else ""),
            location=loc,
            hint="keep what changes at run time in a T.alloc_var or a buffer",
        )

    def visit(self, node: Node, outer: Location | None) -> None:
        """Check `node`; `outer` is the place of the statement around it."""
        if isinstance(node, Expr):
            self.expression(node, outer)
            return
        loc = (node.loc or outer) if isinstance(node, Stmt) else outer
        if isinstance(node, (Store, Region)):
            self.buffer(node.buffer, loc)
        elif isinstance(node, Alias) and node.buffer.view_of is not None:
            self.buffer(node.buffer.view_of, loc)
        if isinstance(node, Seq):
            mark = len(self.added)
            for stmt in node.stmts:
                self.visit(stmt, loc)
            self.live.difference_update(self.added[mark:])
            del self.added[mark:]
            return
        if isinstance(node, (For, Parallel, Launch)):
            self.loop(node, loc)
            return
        for child in node.children():
            self.visit(child, loc)
        if isinstance(node, Let):
            self.add(node.var)
        elif isinstance(node, (Alloc, Alias)):
            self.add(node.buffer)
        elif isinstance(node, Atomic) and node.result is not None:
            self.add(node.result)

    def expression(self, expr: Expr, loc: Location | None) -> None:
        pending: list[Node] = [expr]
        while pending:
            item = pending.pop()
            if isinstance(item, Var):
                self.variable(item, loc)
            elif isinstance(item, Load):
                self.buffer(item.buffer, loc)
            pending.extend(item.children())

    def loop(self, node: For | Parallel | Launch, loc: Location | None) -> None:
        for child in node.children():
            if child is not node.body:
                self.visit(child, loc)
        mine = (node.var,) if isinstance(node, For) else node.vars if isinstance(node, Parallel) else node.block_vars
        self.live.update(id(v) for v in mine)
        self.visit(node.body, loc)
        self.live.difference_update(id(v) for v in mine)
