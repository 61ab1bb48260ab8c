"""The base of every IR node, and the decorator that defines one.

A node is never mutated.  Children are the fields whose annotation names a node class (also in
a tuple, also optional); `map_children` is generated for them, so that a pass states only the
node types it cares about.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from tilewright.source import Location

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:  # typing has it from Python 3.11 on; at run time it does nothing

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorated: decorated


NodeT = TypeVar("NodeT", bound="Node")

# Class name -> class, for the text parser and for finding child fields.
REGISTRY: dict[str, type[Node]] = {}


@dataclass(slots=True, eq=False)
class Node:
    """Base of all nodes.  `loc` is the user's source that the node stands for."""

    loc: Location | None = field(default=None, kw_only=True, repr=False)
    child_fields: ClassVar[tuple[tuple[str, bool], ...]] = ()
    """Pairs (field name, is a tuple) of the fields that hold nodes."""

    def map_children(self, function: Callable[[Any], Any]) -> Any:
        """This node with `function` applied to each child; the same object when no child changed."""
        return self

    def children(self) -> Iterator[Node]:
        """The child nodes in field order."""
        for name, is_tuple in self.child_fields:
            value = getattr(self, name)
            if is_tuple:
                yield from value
            elif value is not None:
                yield value

    def replace(self: NodeT, **changes: Any) -> NodeT:
        """A copy with some fields replaced."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values.update(changes)
        return type(self)(**values)


def reference(*, default: Any = MISSING) -> Any:
    """A field that refers to a node without owning it (a loop's variable, say): not a child."""
    return field(default=default, metadata={"reference": True})


@dataclass_transform(eq_default=False, field_specifiers=(field, reference))
def node(cls: type[NodeT]) -> type[NodeT]:
    """Make `cls` a node: slots, identity comparison, generated `map_children`, registered by name."""
    made = dataclass(slots=True, eq=False)(cls)
    REGISTRY[made.__name__] = made
    made.child_fields = tuple(_child_fields(made))
    if made.child_fields:
        setattr(made, "map_children", _generate_map_children(made))  # noqa: B010
    return made


def _child_fields(cls: type[Node]) -> Iterator[tuple[str, bool]]:
    for f in fields(cls):
        if f.metadata.get("reference"):
            continue
        words = re.findall(r"\w+", str(f.type))
        if any(word in REGISTRY for word in words):
            yield f.name, words[0] == "tuple"


def map_tuple(function: Callable[[Any], Any], items: tuple[Any, ...]) -> tuple[Any, ...]:
    """`function` over a tuple; the same tuple when every item came back unchanged."""
    mapped = tuple([function(item) for item in items])
    for old, new in zip(items, mapped, strict=True):
        if old is not new:
            return mapped
    return items


def _generate_map_children(cls: type[Node]) -> Callable[[Any, Callable[[Any], Any]], Any]:
    lines = ["def map_children(self, function):"]
    for name, is_tuple in cls.child_fields:
        if is_tuple:
            lines.append(f"    {name} = map_tuple(function, self.{name})")
        else:
            lines.append(f"    {name} = self.{name}")
            lines.append(f"    if {name} is not None: {name} = function({name})")
    unchanged = " and ".join(f"{name} is self.{name}" for name, _ in cls.child_fields)
    lines.append(f"    if {unchanged}: return self")
    mapped = {name for name, _ in cls.child_fields}
    arguments = ", ".join(f"{f.name}={f.name if f.name in mapped else 'self.' + f.name}" for f in fields(cls))
    lines.append(f"    return cls({arguments})")
    namespace: dict[str, Any] = {"cls": cls, "map_tuple": map_tuple}
    exec("\n".join(lines), namespace)
    generated: Callable[[Any, Callable[[Any], Any]], Any] = namespace["map_children"]
    return generated
