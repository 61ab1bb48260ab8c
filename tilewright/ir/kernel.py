"""The function that a user wrote, as one unit of compilation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Union

from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.node import Node, node, reference
from tilewright.ir.stmt import Launch, Seq, Stmt

Param = Union[Buffer, Var]


@node
class PrimFunc(Node):
    """A tile program: parameters, and a body of launches that run one after the other.

    params: buffers (scope "global") and scalars, in the order of the call.
    sizes: variables that stand in the shapes and strides of parameters, bound from the arguments.
    outputs: positions in `params` of buffers that the call allocates and returns (`out_idx`, `empty`).
    level: "tile", "lowered", or "lowering" between passes.
    """

    name: str
    params: tuple[Param, ...] = reference()
    body: Seq
    sizes: tuple[Var, ...] = reference(default=())
    outputs: tuple[int, ...] = ()
    level: str = "tile"

    def buffers(self) -> Iterator[Buffer]:
        """The buffer parameters in order."""
        for param in self.params:
            if isinstance(param, Buffer):
                yield param

    def launches(self) -> Iterator[Launch]:
        """The launches in the order in which they run."""
        pending: list[Stmt] = [self.body]
        while pending:
            stmt = pending.pop()
            if isinstance(stmt, Launch):
                yield stmt
            elif isinstance(stmt, Seq):
                pending.extend(reversed(stmt.stmts))


def size_variables(shape: tuple[Expr, ...]) -> Iterator[Var]:
    """The variables that occur in a shape, each time that they occur."""
    pending: list[Node] = list(shape)
    while pending:
        item = pending.pop()
        if isinstance(item, Var):
            yield item
        pending.extend(item.children())
