"""Names that a declarative kernel may use in annotations and bodies.

The kernel's text is read, not executed: these objects exist so that editors, linters and Python itself find
the names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from tilewright.errors import AnnotationError, KernelStructureError
from tilewright.ir.dtype import DType
from tilewright.source import caller_location


@dataclass(frozen=True)
class Size:
    """The name of a size, bound by the shapes of a call."""

    name: str


@dataclass(frozen=True)
class TensorAnnotation:
    """What `float16[M, K]` is when Python evaluates it."""

    dtype: DType
    sizes: tuple[Any, ...]


def sizes(names: str) -> Any:
    """Size names for annotations that Python evaluates: `B, K, N = sizes("B K N")`.

    Commas or blanks separate them.  One name gives one object.
    """
    split = names.replace(",", " ").split()
    for name in split:
        if not name.isidentifier():
            raise AnnotationError(f"{name!r} is no name for a size", location=caller_location())
    if not split:
        raise AnnotationError("sizes(...) needs at least one name", location=caller_location())
    return Size(split[0]) if len(split) == 1 else tuple(Size(name) for name in split)


def annotate(element: DType, shape: Any) -> TensorAnnotation:
    """`element[shape]`."""
    return TensorAnnotation(element, shape if isinstance(shape, tuple) else (shape,))


class _KernelWord:
    """A word that only has a meaning inside a declarative kernel."""

    def __init__(self, name: str, use: str) -> None:
        self.name = name
        self.use = use

    def _refuse(self) -> NoReturn:
        raise KernelStructureError(
            f"{self.name} only has a meaning inside a function decorated with @tilewright.kernel",
            location=caller_location(),
            hint=self.use,
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._refuse()

    def __getitem__(self, index: Any) -> Any:
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self.name}, a word of declarative kernels>"


block_size = _KernelWord("block_size", "block_size(128, 128) sets the tile, range(block_size[0]) runs over it")
grid = _KernelWord("grid", "for i, j in grid(M, N): ...")
shared_memory = _KernelWord("shared_memory", "shared_A = shared_memory(float16, [block_size[0], K])")

DType.subscript_hook = staticmethod(annotate)
