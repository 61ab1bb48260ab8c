"""What was made of every loop, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.frontend.declarative.expressions import literal_size
from tilewright.frontend.declarative.plan import CHUNK, FULL_ROW, Axis
from tilewright.frontend.declarative.recognise import ContractionLoop, ReductionLoop
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer


@dataclass(frozen=True)
class Finding:
    """What was made of a loop or statement.  plain: no pattern was recognised, it runs as it stands."""

    line: int
    text: str
    plain: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


def axes_text(axes: Sequence[Axis]) -> str:
    """The independent loops of a nest and their blocks."""
    names = ", ".join(axis.loop.name for axis in axes)
    extents = " × ".join(str(axis.extent) for axis in axes)
    tiles = " × ".join(str(axis.tile) for axis in axes)
    return f"{names}: {extents} independent iterations, in blocks of {tiles}"


def reduction_text(found: ReductionLoop, extent: int) -> str:
    """A reduction along a row."""
    what = ", ".join(f"{update.accumulator} ({update.op})" for update in found.updates)
    return f"{found.loop.name}: a reduction of {extent} to {what}{_chunked(extent)}"


def map_text(name: str, extent: int) -> str:
    """A parallel loop along a row."""
    return f"{name}: a parallel loop over {extent}{_chunked(extent)}"


def contraction_text(found: ContractionLoop, element: DType, staged: Sequence[Buffer], extent: int, step: int) -> str:
    """A tile gemm with its staged operands."""
    buffers = ", ".join(f"{b.name} {b.dtype}[{', '.join(str(literal_size(size)) for size in b.shape)}]" for b in staged)
    into = ", ".join(dict.fromkeys(product.accumulator for product in found.products))
    return (
        f"{found.loop.name}: a contraction of {extent} to {into} ({element}), a tile gemm in steps of {step}; "
        f"staged: {buffers}"
    )


def _chunked(extent: int) -> str:
    return f", in chunks of {CHUNK}" if extent > FULL_ROW else ""
