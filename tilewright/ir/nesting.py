"""The limit on how deep a program nests, checked without recursion.

Passes, printers and back-ends recurse over the tree; Python and LLVM have stacks of a fixed size.
"""

from __future__ import annotations

from tilewright.errors import UnsupportedSyntaxError
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.node import Node

MOST_LEVELS = 200
"""Nodes from the function's body to the deepest leaf.  A level takes up to four Python frames of the default 1000."""
MOST_NODES = 2_000_000
"""Nodes of the tree; parts that are used several times count each time, since passes see them each time."""

HINT = "assign parts of it to names inside the kernel: each assignment is computed once and starts afresh"


def check_nesting(func: PrimFunc) -> None:
    """Raise UnsupportedSyntaxError where `func` nests deeper, or is larger, than the compiler can take."""
    heights: dict[int, int] = {}
    sizes: dict[int, int] = {}
    stack: list[tuple[Node, bool]] = [(func.body, False)]
    while stack:
        item, seen = stack.pop()
        if id(item) in heights:
            continue
        children = list(item.children())
        if children and not seen:
            stack.append((item, True))
            stack.extend((child, False) for child in children)
            continue
        heights[id(item)] = 1 + max([heights[id(c)] for c in children], default=0)
        sizes[id(item)] = 1 + sum([sizes[id(c)] for c in children])
        if heights[id(item)] > MOST_LEVELS:
            raise too_deep(item)
        if sizes[id(item)] > MOST_NODES:
            raise UnsupportedSyntaxError(
                f"this part of the program has more than {MOST_NODES} operations", location=item.loc, hint=HINT
            )


def too_deep(item: Node | None = None) -> UnsupportedSyntaxError:
    """The error for a program that nests too deep at `item`."""
    what = (
        f"operations nest more than {MOST_LEVELS} levels deep here"
        if item is not None
        else "the program nests too deep"
    )
    return UnsupportedSyntaxError(what, location=item.loc if item is not None else None, hint=HINT)
