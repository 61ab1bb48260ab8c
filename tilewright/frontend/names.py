"""Which blocks of a function assign which names, so that only reads that may see a dead name are checked."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager

_Block = tuple[int, str]


class BlockNames:
    """Assigned names by block; a block is one branch of a compound statement."""

    def __init__(self, tree: ast.FunctionDef) -> None:
        self._bound: dict[_Block, list[str]] = {}
        self._blocks_of: dict[str, set[_Block]] = {}
        self._open: list[_Block] = []
        self._keep: list[ast.AST] = []
        for stmt in tree.body:
            self._collect(stmt, ())

    def _collect(self, node: ast.AST, blocks: tuple[_Block, ...]) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            self._bind(node.id, blocks)
        elif isinstance(node, ast.FunctionDef):
            self._bind(node.name, blocks)
            return
        elif isinstance(node, (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            return
        if isinstance(node, (ast.If, ast.For, ast.While, ast.With)):
            for field, value in ast.iter_fields(node):
                inside = (*blocks, (id(node), "orelse" if field == "orelse" else "body"))
                if field in ("test", "iter"):
                    continue
                for child in value if isinstance(value, list) else [value]:
                    if isinstance(child, ast.AST):
                        self._collect(child, inside)
            return
        for child in ast.iter_child_nodes(node):
            self._collect(child, blocks)

    def _bind(self, name: str, blocks: tuple[_Block, ...]) -> None:
        for block in blocks:
            names = self._bound.setdefault(block, [])
            if name not in names:
                names.append(name)
        if blocks:
            self._blocks_of.setdefault(name, set()).add(blocks[-1])

    def bound(self, node: ast.AST, branch: str) -> list[str]:
        """Names assigned in that branch of `node`, also in blocks inside of it."""
        return self._bound.get((id(node), branch), [])

    def replace(self, old: ast.AST, new: ast.AST) -> None:
        """Let `new` stand for the body of `old`."""
        self._keep.append(new)
        self._bound[(id(new), "body")] = self.bound(old, "body")
        for blocks in self._blocks_of.values():
            if (id(old), "body") in blocks:
                blocks.add((id(new), "body"))

    @contextmanager
    def enter(self, node: ast.AST, branch: str) -> Iterator[None]:
        """Reads made inside stand in that branch of `node`."""
        self._open.append((id(node), branch))
        try:
            yield
        finally:
            self._open.pop()

    def may_be_dead(self, name: str) -> bool:
        """Whether a read of `name` here stands outside of every block that assigns it."""
        blocks = self._blocks_of.get(name)
        return blocks is not None and blocks.isdisjoint(self._open)
