"""How tile operations read their operands: as regions of equal extents, one of which may be a head address."""

from __future__ import annotations

from typing import Any

from tilewright.errors import ArgumentValueError, DTypeError, ScopeError, ShapeError
from tilewright.ir.builder import Builder
from tilewright.ir.expr import Buffer, Expr, const, const_int
from tilewright.ir.stmt import Region
from tilewright.language.linear import difference
from tilewright.language.tensor import BufferSlice, head_address, refuse_in_parallel, to_region
from tilewright.source import Location, caller_location

_ONE = const(1)


def begin(what: str) -> tuple[Builder, Location | None]:
    """The builder for the operation `what`, and the user's place.  Raises KernelStructureError outside of a kernel."""
    loc = caller_location()
    builder = Builder.current(what)
    builder.require_launch(what, loc)
    return builder, loc


def begin_tile(what: str) -> tuple[Builder, Location | None]:
    """`begin` for an operation of the whole block.  Raises KernelStructureError inside of T.Parallel too."""
    builder, loc = begin(what)
    refuse_in_parallel(builder, what, loc)
    return builder, loc


def extents_text(region: Region) -> str:
    """The extents of a region for a message: literals as numbers, others by name."""
    return "(" + ", ".join(size_text(e) for e in region.extents) + ")"


def size_text(size: Expr) -> str:
    """A size for a message."""
    known = const_int(size)
    return str(known) if known is not None else str(getattr(size, "name", "?"))


def describe(region: Region) -> str:
    """A region for a message: name, extents, dtype, scope."""
    buffer = region.buffer
    return f"{buffer.name} {extents_text(region)} {buffer.dtype} {buffer.scope}"


def is_box(value: Any) -> bool:
    """Whether a value says its own extents (a tensor or a slice), unlike a head address."""
    return isinstance(value, (Buffer, BufferSlice, Region))


def paired_regions(first: Any, second: Any, what: str) -> tuple[Region, Region]:
    """Two operands as regions of the same extents, those of 1 left aside.

    A head address (`A[i, k]`) takes the extents of the other operand, its last dimensions first.
    Raises ShapeError with both shapes where extents differ.
    """
    boxes = [to_region(v, f"operand of {what}") for v in (first, second)]
    heads = [not is_box(v) and head_address(v) is not None and bool(r.starts) for v, r in zip((first, second), boxes)]  # noqa: B905
    if heads[0] and not heads[1]:
        boxes[0] = _extend_head(boxes[0], boxes[1], what)
    elif heads[1] and not heads[0]:
        boxes[1] = _extend_head(boxes[1], boxes[0], what)
    require_same_extents(boxes[0], boxes[1], what)
    return boxes[0], boxes[1]


def _extend_head(head: Region, box: Region, what: str) -> Region:
    extents = list(box.extents)
    rank = len(head.starts)
    while len(extents) > rank and const_int(extents[0]) == 1:
        extents.pop(0)
    if len(extents) > rank:
        kept = [e for e in extents if const_int(e) != 1]
        if len(kept) > rank:
            raise ShapeError(
                f"{what}: {head.buffer.name} has {rank} dimensions, which cannot hold the extents {extents_text(box)}",
                location=caller_location(),
            )
        extents = kept
    full = (_ONE,) * (rank - len(extents)) + tuple(extents)
    return Region(head.buffer, head.starts, full, loc=head.loc)


def squeezed(region: Region) -> list[Expr]:
    """The extents that are not 1."""
    return [e for e in region.extents if const_int(e) != 1]


def require_same_extents(a: Region, b: Region, what: str) -> None:
    """Raise ShapeError, with both shapes, unless the extents are equal once those of 1 are dropped."""
    left, right = squeezed(a), squeezed(b)
    same = len(left) == len(right) and all(same_size(x, y) for x, y in zip(left, right, strict=True))
    if not same:
        raise ShapeError(
            f"{what}: extents differ: {describe(a)} and {describe(b)}",
            location=caller_location(),
            hint="slice one of them, or give one by its first element, as in A[i, k]",
        )


def same_size(a: Expr, b: Expr) -> bool:
    """Whether two sizes are known to be equal."""
    return a is b or const_int(difference(a, b)) == 0


def require_writable(region: Region, what: str) -> Region:
    """The region; raises ScopeError when it is nothing that a kernel can write."""
    if region.buffer.scope not in Buffer.SCOPES:
        raise ScopeError(f"{what} cannot write to {region.buffer.scope} memory", location=caller_location())
    return region


def require_disjoint(source: Region, target: Region, what: str) -> None:
    """Raise ArgumentValueError where two boxes of one tensor are known to overlap without being the same."""
    if source.buffer is not target.buffer:
        return
    offsets = [const_int(difference(b, a)) for a, b in zip(source.starts, target.starts, strict=True)]
    sizes = [(const_int(a), const_int(b)) for a, b in zip(source.extents, target.extents, strict=True)]
    overlap = all(
        d is not None and a is not None and b is not None and -b < d < a
        for d, (a, b) in zip(offsets, sizes, strict=True)
    )
    if overlap and any(offsets):
        raise ArgumentValueError(
            f"{what}: source and destination overlap in {source.buffer.name}",
            location=caller_location(),
            hint="go through another tile",
        )


def matrix(value: Any, what: str) -> Region:
    """An operand as a two-dimensional region: dimensions of extent 1 before the last two are dropped."""
    region = to_region(value, what)
    if len(region.extents) < 2 or any(const_int(e) != 1 for e in region.extents[:-2]):
        if len(squeezed(region)) == 2:
            return region
        raise ShapeError(f"the {what} must be a matrix, got {describe(region)}", location=caller_location())
    return region


def matrix_extents(region: Region) -> tuple[Expr, Expr]:
    """Rows and columns of what `matrix` gave."""
    if all(const_int(e) == 1 for e in region.extents[:-2]):
        return region.extents[-2], region.extents[-1]
    rows, columns = squeezed(region)
    return rows, columns


def choice(value: Any, allowed: dict[Any, str], what: str) -> str:
    """`value` looked up; raises ArgumentValueError that lists what is allowed."""
    found = allowed.get(value) if isinstance(value, (str, int)) or value is None else None
    if found is None:
        known = ", ".join(repr(k) for k in allowed)
        raise ArgumentValueError(f"{what} cannot be {value!r}", location=caller_location(), hint=f"allowed: {known}")
    return found


def require_number(region: Region, what: str) -> None:
    """Raise DTypeError unless the region holds numbers."""
    if region.buffer.dtype.kind == "handle":
        raise DTypeError(f"{what} needs numbers, got {describe(region)}", location=caller_location())
