"""Walking and rewriting IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from tilewright.ir.expr import Buffer, Expr, Load, Var
from tilewright.ir.node import REGISTRY, Node
from tilewright.ir.stmt import Alias, Alloc, Region, Seq, Stmt, Store


class Rewriter:
    """Rebuilds a tree bottom up.  A subclass defines `rewrite_<NodeClass>` for the classes it cares about.

    A method returns a node (the same object for "unchanged"); for statements also a Seq, which is spliced
    into the enclosing one.  `generic(node)` rewrites the children.  Buffers are mapped by `rewrite_buffer`.
    """

    _table: ClassVar[dict[type[Node], Callable[[Any, Any], Any]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._table = {
            node_class: method
            for name, node_class in REGISTRY.items()
            if (method := getattr(cls, f"rewrite_{name}", None)) is not None
        }

    def rewrite(self, item: Any) -> Any:
        """The rewritten `item`."""
        method = self._table.get(type(item))
        if method is not None:
            return method(self, item)
        return item.map_children(self.rewrite)

    def generic(self, item: Any) -> Any:
        """`item` with its children rewritten."""
        return item.map_children(self.rewrite)

    def rewrite_Seq(self, seq: Seq) -> Seq:
        changed = False
        result: list[Stmt] = []
        for stmt in seq.stmts:
            new = self.rewrite(stmt)
            changed = changed or new is not stmt
            if isinstance(new, Seq):
                result.extend(new.stmts)
            else:
                result.append(new)
        return Seq(tuple(result), loc=seq.loc) if changed else seq


Rewriter.__init_subclass__()


class Substitute(Rewriter):
    """Replaces variables by expressions and buffers by buffers."""

    def __init__(self, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> None:
        self.variables = variables
        self.buffers = buffers or {}

    def rewrite_Var(self, var: Var) -> Expr:
        return self.variables.get(var, var)

    def _rebuffer(self, item: Any) -> Any:
        item = self.generic(item)
        new = self.buffers.get(item.buffer)
        return item if new is None else item.replace(buffer=new)

    def rewrite_Load(self, item: Load) -> Load:
        return self._rebuffer(item)  # type: ignore[no-any-return]

    def rewrite_Store(self, item: Store) -> Store:
        return self._rebuffer(item)  # type: ignore[no-any-return]

    def rewrite_Region(self, item: Region) -> Region:
        return self._rebuffer(item)  # type: ignore[no-any-return]

    def rewrite_Alloc(self, item: Alloc) -> Alloc:
        return self._rebuffer(item)  # type: ignore[no-any-return]

    def rewrite_Alias(self, item: Alias) -> Alias:
        return self._rebuffer(item)  # type: ignore[no-any-return]


def substitute(item: Any, variables: Mapping[Var, Expr], buffers: Mapping[Buffer, Buffer] | None = None) -> Any:
    """`item` with variables (and buffers) replaced."""
    return Substitute(variables, buffers).rewrite(item)


def walk(item: Node) -> Iterator[Node]:
    """`item` and all nodes below it, parents first, in source order."""
    pending = [item]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(reversed(list(current.children())))
