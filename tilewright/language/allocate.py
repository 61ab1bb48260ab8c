"""Memory of a kernel: tiles on chip, mutable scalars, workspaces, outputs, and views of them.

A buffer takes the name of the Python variable that it is assigned to.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.errors import ArgumentValueError, DTypeError, KernelStructureError, ScopeError, ShapeError
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Buffer, Load, as_expr, binary, cast
from tilewright.ir.neutral import neutral_value
from tilewright.ir.stmt import Alias, Alloc, Store
from tilewright.language.annotations import Tensor, shape_tuple
from tilewright.language.tensor import element_value, fill_region, refuse_in_parallel, to_region
from tilewright.source import Location, caller_location

if TYPE_CHECKING:
    from typing import TypeGuard

# Scope names that programs use -> the scope they mean here.
SCOPE_NAMES: dict[str, str] = {
    "shared": "shared",
    "shared.dyn": "shared",
    "local": "local",
    "local.fragment": "fragment",
    "fragment": "fragment",
    "local.var": "var",
    "var": "var",
    "global": "global",
}

REDUCER_OPS = ("sum", "max", "min")


def _scope(name: str, allowed: tuple[str, ...], what: str) -> str:
    found = SCOPE_NAMES.get(name)
    if found not in allowed:
        known = ", ".join(n for n, s in SCOPE_NAMES.items() if s in allowed)
        raise ArgumentValueError(f"{what} has no scope {name!r}", location=caller_location(), hint=f"scopes: {known}")
    return found


def _on_chip(what: str, shape: Any, of: Any, scope: str, reducer: str | None = None) -> Buffer:
    loc = caller_location()
    builder = Builder.current(what)
    builder.require_launch(what, loc)
    if scope in ("shared", "fragment"):
        _refuse_in_iteration(builder, what, loc)
    sizes = shape_tuple(shape)
    buffer = Buffer(scope, sizes, _element(of, what, loc), scope, reducer=reducer, loc=loc)
    known = buffer.const_shape()
    if known is None:
        raise ShapeError(
            f"{what} needs a shape that is known while compiling",
            location=loc,
            hint="take a fixed tile size; tiles at the edge of a tensor are cut off where they reach out of it",
        )
    if 0 in known:
        raise ArgumentValueError(f"{what} of shape {known} has no elements", location=loc)
    builder.declare(buffer, scope)
    builder.emit(Alloc(buffer, loc=loc))
    return buffer


def _refuse_in_iteration(builder: Builder, what: str, loc: Location | None) -> None:
    loop = builder.innermost("parallel")
    if loop is not None:
        raise KernelStructureError(
            f"{what} inside a T.Parallel loop{f' (line {loop.loc.line})' if loop.loc else ''}: the tile belongs to "
            "the whole block",
            location=loc,
            hint="allocate it before the loop; T.alloc_local and T.alloc_var are an iteration's own",
        )


def _element(of: Any, what: str, loc: Location | None) -> DType:
    kind = dtype(of)
    if kind.kind == "handle":
        raise DTypeError(f"{what} cannot hold pointers", location=loc)
    return kind


def alloc_shared(shape: Any, dtype: Any, scope: str = "shared.dyn") -> Buffer:
    """A tile in memory that a block's threads share; its contents are undefined until written.

    shape: integers known while compiling (else ShapeError).
    """
    return _on_chip("alloc_shared", shape, dtype, _scope(scope, ("shared",), "alloc_shared"))


def alloc_fragment(shape: Any, dtype: Any, scope: str = "local.fragment") -> Buffer:
    """A tile in the registers of the whole block; shape and contents as `alloc_shared`."""
    return _on_chip("alloc_fragment", shape, dtype, _scope(scope, ("fragment",), "alloc_fragment"))


def alloc_local(shape: Any, dtype: Any, scope: str = "local") -> Buffer:
    """A small array of each thread; shape and contents as `alloc_shared`."""
    return _on_chip("alloc_local", shape, dtype, _scope(scope, ("local",), "alloc_local"))


def alloc_var(dtype: Any, init: Any = None, scope: str = "local.var") -> Load:
    """A mutable scalar: assigning to its name stores, reading its name gives the present value.

    init: its first value; undefined without.  `T.alloc_var(dtype, scope)` is understood too.
    """
    if isinstance(init, str):
        init, scope = None, init
    loc = caller_location()
    builder = Builder.current("alloc_var")
    builder.require_launch("alloc_var", loc)
    kind = _element(dtype, "alloc_var", loc)
    buffer = Buffer("var", (), kind, _scope(scope, ("var",), "alloc_var"), loc=loc)
    builder.declare(buffer, "var")
    first = None if init is None else element_value(init, buffer, loc)
    builder.emit(Alloc(buffer, first, loc=loc))
    return Load(kind, buffer, (), loc=loc)


def is_fresh(value: Any, builder: Builder) -> TypeGuard[Load]:
    """Whether `value` is a mutable scalar that no name has been given yet."""
    return isinstance(value, Load) and id(value.buffer) in builder.unnamed


def alloc_global(shape: Any, dtype: Any, scope: str = "global") -> Buffer:
    """A workspace in global memory, shared by all blocks of a call; contents as `alloc_shared`.

    shape: integers and sizes known at launch.
    """
    _scope(scope, ("global",), "alloc_global")
    return _global(shape, dtype, "alloc_global", "workspace")


def empty(shape: Any, dtype: Any = "float32") -> Buffer:
    """A tensor that the call allocates; returned from the kernel function it is a result of the call."""
    return _global(shape, dtype, "empty", "out")


def _global(shape: Any, of: Any, what: str, name: str) -> Buffer:
    loc = caller_location()
    builder = Builder.current(what)
    buffer = Buffer(name, shape_tuple(shape), _element(of, what, loc), "global", loc=loc)
    builder.declare(buffer, name)
    builder.frames[0].stmts.append(Alloc(buffer, loc=loc))
    return buffer


def alloc_reducer(shape: Any, dtype: Any, op: str = "sum", replication: str | None = None) -> Buffer:
    """A tile that iterations of T.Parallel combine into with `op` ("sum", "max", "min").

    Give it a first value (`reducer_init`, T.fill), update it as `r[i] += x` or with `reducer_update`, then
    call `finalize_reducer` before reading it.  replication: "all" or "none", where a GPU keeps the partial values.
    """
    loc = caller_location()
    if op not in REDUCER_OPS:
        raise ArgumentValueError(
            f"unknown reducer operation {op!r}", location=loc, hint=f"operations: {', '.join(REDUCER_OPS)}"
        )
    if replication not in (None, "all", "none"):
        raise ArgumentValueError(f'replication must be "all" or "none", got {replication!r}', location=loc)
    return _on_chip("alloc_reducer", shape, dtype, "fragment", op)


def _reducer(value: Any, what: str) -> Buffer:
    buffer = getattr(value, "buffer", value)
    if not isinstance(buffer, Buffer) or buffer.reducer is None:
        raise ScopeError(f"{what} needs a tensor from T.alloc_reducer", location=caller_location())
    return buffer


def reducer_init(reducer: Any, value: Any = None) -> None:
    """Set every element to `value`, by default the neutral element of the reducer's operation."""
    loc = caller_location()
    buffer = _reducer(reducer, "reducer_init")
    first = (
        neutral_value(buffer.reducer or "sum", buffer.dtype) if value is None else as_expr(value, buffer.dtype, loc=loc)
    )
    fill_region("reducer_init", to_region(reducer), first)


def reducer_update(element: Any, value: Any) -> None:
    """Combine `value` into one element `r[i]` of a reducer."""
    loc = caller_location()
    buffer = _reducer(element, "reducer_update")
    if not isinstance(element, Load):
        raise ShapeError("reducer_update takes one element, as in T.reducer_update(r[i], x)", location=loc)
    op = {"sum": "add"}.get(buffer.reducer or "sum", buffer.reducer or "sum")
    combined = binary(op, element, cast(as_expr(value, buffer.dtype, loc=loc), buffer.dtype, loc=loc), loc=loc)
    Builder.current("reducer_update").emit(
        Store(buffer, element.indices, cast(combined, buffer.dtype, loc=loc), loc=loc)
    )


def finalize_reducer(reducer: Any, batch: int = 1) -> None:
    """End of the updates: from here on the reducer's elements are the combined values.

    batch: how many elements a GPU combines at a time.
    """
    _reducer(reducer, "finalize_reducer")
    if not isinstance(batch, int) or batch < 1:
        raise ArgumentValueError(f"batch must be a positive integer, got {batch!r}", location=caller_location())
    builder = Builder.current("finalize_reducer")
    builder.require_launch("finalize_reducer")
    refuse_in_parallel(builder, "finalize_reducer", caller_location())


def view(src: Buffer, shape: Any = None, dtype: Any = None) -> Buffer:
    """The storage of `src` seen as row-major `shape` and `dtype` (each as in `src` when left out).

    Raises ShapeError when the sizes in bytes are known and differ, ScopeError for a strided or scalar source.
    """
    return _view("view", src, shape, dtype)


def reshape(src: Buffer, shape: Any) -> Buffer:
    """The storage of `src` seen as row-major `shape`."""
    return _view("reshape", src, shape, None)


def _view(what: str, src: Any, shape: Any, of: Any) -> Buffer:
    loc = caller_location()
    if not isinstance(src, Buffer) or src.scope == "var":
        raise ScopeError(f"{what} needs a whole tensor, not {type(src).__name__}", location=loc)
    if src.strides is not None:
        raise ScopeError(f"{what} needs a contiguous tensor; {src.name} is strided", location=loc)
    builder = Builder.current(what)
    if not builder.in_launch:
        raise KernelStructureError(f"{what} must stand inside `with T.Kernel(...)`", location=loc)
    sizes = src.shape if shape is None else shape_tuple(shape)
    kind = src.dtype if of is None else _element(of, what, loc)
    if kind.bits != src.dtype.bits and 4 in (kind.bits, src.dtype.bits):
        raise DTypeError(
            f"{what}: {src.name} holds {src.dtype}, and a view of 4-bit elements keeps their width, so not {kind}",
            location=loc,
            hint="pack and unpack with shifts and masks on elements",
        )
    if "handle" in (kind.kind, src.dtype.kind) and kind is not src.dtype:
        raise DTypeError(f"{what}: pointers cannot be seen as {kind}", location=loc)
    result = Buffer(src.name, sizes, kind, src.scope, view_of=src, loc=loc)
    old, new = src.const_shape(), result.const_shape()
    if old is not None and new is not None and math.prod(old) * _bits(src.dtype) != math.prod(new) * _bits(kind):
        raise ShapeError(
            f"{what}: {old} of {src.dtype} and {new} of {kind} differ in size "
            f"({math.prod(old) * _bits(src.dtype) // 8} and {math.prod(new) * _bits(kind) // 8} bytes)",
            location=loc,
        )
    builder.declare(result, f"{src.name}_view")
    builder.emit(Alias(result, loc=loc))
    return result


# `T.Tensor(shape, dtype, A.data)` is another way to write a view.
Tensor.view = view


def _bits(of: DType) -> int:
    return of.bits * of.lanes


__all__ = [
    "alloc_fragment",
    "alloc_global",
    "alloc_local",
    "alloc_reducer",
    "alloc_shared",
    "alloc_var",
    "empty",
    "finalize_reducer",
    "reducer_init",
    "reducer_update",
    "reshape",
    "view",
]
