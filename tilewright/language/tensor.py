"""What `A[...]` means in a kernel: elements, boxes, and stores; and how a tile operation reads its operands."""

from __future__ import annotations

import operator
import sys
from types import FrameType
from typing import Any

from tilewright.errors import (
    ArgumentValueError,
    DTypeError,
    KernelStructureError,
    ScopeError,
    ShapeError,
    UnknownNameError,
    UnsupportedSyntaxError,
)
from tilewright.ir.arrayspec import ArraySpec
from tilewright.ir.builder import Builder
from tilewright.ir.expr import Buffer, Expr, Load, Var, as_expr, cast, const, const_int
from tilewright.ir.stmt import Fill, Region, Store
from tilewright.language.linear import difference
from tilewright.source import Location, caller_location, is_user_frame


class BufferSlice:
    """A box of `buffer`, written `A[i0:i1, k]`: `starts` and `extents` for every dimension.

    `scalar[d]` says that dimension d was given as one index (its extent is 1 and it is no dimension of the box).
    """

    __slots__ = ("buffer", "extents", "loc", "scalar", "starts")

    def __init__(
        self,
        buffer: Buffer,
        starts: tuple[Expr, ...],
        extents: tuple[Expr, ...],
        scalar: tuple[bool, ...],
        loc: Location | None = None,
    ) -> None:
        self.buffer = buffer
        self.starts = starts
        self.extents = extents
        self.scalar = scalar
        self.loc = loc

    @property
    def shape(self) -> tuple[int | Expr, ...]:
        """The extents of the dimensions given as slices; integers where known while compiling."""
        return tuple(plain(e) for e, scalar in zip(self.extents, self.scalar, strict=True) if not scalar)

    @property
    def ndim(self) -> int:
        """How many dimensions were given as slices."""
        return self.scalar.count(False)

    @property
    def dtype(self) -> Any:
        """The buffer's dtype."""
        return self.buffer.dtype

    def region(self) -> Region:
        """The box as an IR region."""
        return Region(self.buffer, self.starts, self.extents, loc=self.loc)

    def __repr__(self) -> str:
        return f"BufferSlice({self.buffer.name}, {len(self.starts)}d)"

    def __getitem__(self, index: Any) -> Load | BufferSlice:
        """Index the box itself: `A[i][j]`, `A[4:8, :][0]`."""
        inner = index if isinstance(index, tuple) else (index,)
        inner = _expand_ellipsis(inner, self.ndim)
        if len(inner) > self.ndim:
            raise ShapeError(
                f"{len(inner)} indices for a {self.ndim}-dimensional slice of {self.buffer.name}",
                location=caller_location(),
            )
        given = iter(inner)
        full: list[Any] = []
        for start, extent, scalar in zip(self.starts, self.extents, self.scalar, strict=True):
            item = slice(None) if scalar else next(given, slice(None))
            if scalar:
                full.append(start)
                continue
            low, length, single = _one_index(item, extent, caller_location())
            full.append(start + low if single else slice(start + low, start + low + length))
        return subscript(self.buffer, tuple(full))

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        if isinstance(target, BufferSlice):
            store(target.buffer, _as_index(target), value)
        else:
            store(target.buffer, target.indices, value)


def plain(size: Expr) -> int | Expr:
    """A size as a Python integer where it is a literal, else as it is."""
    known = const_int(size)
    return size if known is None else known


def shape_of(buffer: Buffer) -> tuple[int | Expr, ...]:
    """`buffer.shape` as the user sees it: integers where known while compiling."""
    return tuple(plain(s) for s in buffer.shape)


def subscript(buffer: Buffer, index: Any) -> Load | BufferSlice:
    """`buffer[index]`: a Load when every dimension has a scalar index, else a BufferSlice.

    Fewer indices than dimensions take the remaining dimensions whole; `...` stands for whole dimensions.
    A negative integer that is known while compiling counts from the end.  Raises ShapeError for too many
    indices, DTypeError for an index that is no integer, ArgumentValueError for a slice with a step.
    """
    loc = caller_location()
    given = index if isinstance(index, tuple) else (index,)
    if not buffer.shape and len(given) == 1 and const_int(given[0]) == 0:
        given = ()
    given = _expand_ellipsis(given, buffer.ndim)
    if len(given) > buffer.ndim:
        raise ShapeError(f"{len(given)} indices for {buffer.name}, which has {buffer.ndim} dimensions", location=loc)
    starts: list[Expr] = []
    extents: list[Expr] = []
    scalar: list[bool] = []
    for position, extent in enumerate(buffer.shape):
        item = given[position] if position < len(given) else slice(None)
        start, length, single = _one_index(item, extent, loc)
        starts.append(start)
        extents.append(length)
        scalar.append(single)
    if all(scalar):
        return Load(buffer.dtype, buffer, tuple(starts), loc=loc)
    return BufferSlice(buffer, tuple(starts), tuple(extents), tuple(scalar), loc)


def _expand_ellipsis(given: tuple[Any, ...], ndim: int) -> tuple[Any, ...]:
    at = next((p for p, item in enumerate(given) if item is Ellipsis), None)
    if at is None:
        return given
    return given[:at] + (slice(None),) * (ndim - len(given) + 1) + given[at + 1 :]


_ONE = const(1)
_ZERO = const(0)


def _one_index(item: Any, extent: Expr, loc: Location | None) -> tuple[Expr, Expr, bool]:
    """(start, extent, is one index) for one dimension of size `extent`."""
    if not isinstance(item, slice):
        return _position(item, extent, loc), _ONE, True
    if item.step is not None and const_int(item.step) != 1:
        raise ArgumentValueError("a slice of a tensor has no step", location=loc, hint="loop over the indices instead")
    if item.start is None and item.stop is None:
        return _ZERO, extent, False
    start = _ZERO if item.start is None else _position(item.start, extent, loc)
    stop = extent if item.stop is None else _position(item.stop, extent, loc)
    length = difference(stop, start, loc)
    known = const_int(length)
    if known is not None and known < 0:
        raise ShapeError(f"this slice has the negative length {known}", location=loc)
    return start, length, False


def _position(item: Any, extent: Expr, loc: Location | None) -> Expr:
    if isinstance(item, bool) or item is None or isinstance(item, (str, float, list, Buffer, BufferSlice)):
        raise DTypeError(f"an index must be an integer, not {type(item).__name__}", location=loc)
    value = as_expr(item, loc=loc)
    if not value.dtype.is_int:
        raise DTypeError(f"an index must be an integer, not {value.dtype}", location=loc, hint="T.cast it to int32")
    known, size = const_int(value), const_int(extent)
    if known is not None and known < 0:
        if size is not None and -known > size:
            raise ShapeError(
                f"index {known} lies before the start of a dimension of size {size}",
                location=loc,
                hint="a negative literal counts from the end",
            )
        return difference(extent, const(-known), loc)
    return value


def _as_index(target: BufferSlice) -> tuple[Any, ...]:
    return tuple(
        start if scalar else slice(start, start + extent)
        for start, extent, scalar in zip(target.starts, target.extents, target.scalar, strict=True)
    )


def head_address(value: Any) -> Load | None:
    """The element that `value` names, for operations that take `A[by * bm, k * bk]` as the corner of a box; else None."""
    if isinstance(value, Var):
        builder = Builder.active()
        value = builder.let_value(value) if builder is not None else None
    return value if isinstance(value, Load) else None


def to_region(value: Any, what: str = "operand") -> Region:
    """The box that `value` names: a whole tensor, a slice, or one element (extents 1).

    Raises ScopeError naming `what` when `value` is no place in memory.
    """
    if isinstance(value, Buffer):
        return Region(value, (_ZERO,) * value.ndim, value.shape, loc=caller_location())
    if isinstance(value, BufferSlice):
        return value.region()
    if isinstance(value, Region):
        return value
    load = head_address(value)
    if load is not None:
        return Region(load.buffer, load.indices, (_ONE,) * len(load.indices), loc=load.loc)
    if hasattr(value, "as_expr"):
        value = value.as_expr()
    if isinstance(value, ArraySpec):
        raise ScopeError(
            f"the {what} is an argument that is not declared",
            location=caller_location(),
            hint="declare it by a statement such as `A: T.Tensor((M, N), dtype)` before it is used",
        )
    kind = f"a {value.dtype} value" if isinstance(value, Expr) else f"{type(value).__name__} {value!r}"
    raise ScopeError(
        f"the {what} must be a tensor, a slice of one or an element of one, not {kind}", location=caller_location()
    )


def store(buffer: Buffer, index: Any, value: Any) -> None:
    """`buffer[index] = value`: a store of one element, a fill of a box with a scalar, or a copy of an equal box."""
    loc = caller_location()
    target = subscript(buffer, index)
    builder = Builder.current(f"a store to {buffer.name}")
    builder.require_launch(f"a store to {buffer.name}", loc)
    if isinstance(target, Load):
        if isinstance(value, (Buffer, BufferSlice)):
            raise ShapeError(
                f"one element of {buffer.name} cannot take a whole tensor",
                location=loc,
                hint="give the value's indices too, or T.copy",
            )
        builder.emit(Store(buffer, target.indices, element_value(value, buffer, loc), loc=loc))
        return
    if isinstance(value, (Buffer, BufferSlice)):
        raise ShapeError(
            "a slice takes a scalar (every element is set to it)", location=loc, hint="T.copy(src, dst) copies a box"
        )
    fill_region(f"a store to a slice of {buffer.name}", target.region(), value)


def refuse_in_parallel(builder: Builder, what: str, loc: Location | None) -> None:
    """Raise KernelStructureError when a T.Parallel loop is open."""
    loop = builder.innermost("parallel")
    if loop is not None:
        where = f" (line {loop.loc.line})" if loop.loc else ""
        raise KernelStructureError(
            f"{what} inside a T.Parallel loop{where}: it is an operation of the whole block, not of one iteration",
            location=loc,
            hint="put it before or after the loop, use T.serial instead of T.Parallel, or work on elements: "
            "dst[i, j] = src[i, j]",
        )


def element_value(value: Any, buffer: Buffer, loc: Location | None) -> Expr:
    """`value` as what an element of `buffer` holds.  Raises DTypeError for a vector of another length."""
    result = as_expr(value, buffer.dtype, loc=loc)
    if result.dtype.lanes not in (1, buffer.dtype.lanes):
        raise DTypeError(
            f"an element of {buffer.name} is a {buffer.dtype}, and the value a {result.dtype}",
            location=loc,
            hint=f"give {buffer.name} elements of that vector type, or store the lanes one by one",
        )
    return cast(result, buffer.dtype, loc=loc)


def fill_region(what: str, target: Region, value: Any) -> None:
    """Emit the fill of a box with a scalar, cast to its dtype.

    Inside of T.Parallel only memory of the iteration itself can be filled, else KernelStructureError.
    """
    loc = caller_location()
    builder = Builder.current(what)
    builder.require_launch(what, loc)
    if target.buffer.scope not in ("local", "var"):
        refuse_in_parallel(builder, what, loc)
    if target.buffer.dtype.kind == "handle":
        raise DTypeError(f"{what} needs numbers, and {target.buffer.name} holds pointers", location=loc)
    builder.emit(Fill(target, element_value(value, target.buffer, loc), loc=loc))


def _refuse_operator(self: Buffer | BufferSlice, *other: Any) -> Any:
    name = self.name if isinstance(self, Buffer) else f"a slice of {self.buffer.name}"
    raise ScopeError(
        f"arithmetic on {name}, which is a tensor",
        location=caller_location(),
        hint="index it, as in A[i, j] inside of T.Parallel, or use an operation on tensors such as T.copy or T.fill",
    )


_OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")


def _refuse_truth(self: Buffer | BufferSlice) -> bool:
    raise UnsupportedSyntaxError(
        f"{_what(self)} is a tensor, which is neither true nor false",
        location=caller_location(),
        hint="index it, or use T.any_of or T.all_of",
    )


def _refuse_length(self: Buffer | BufferSlice) -> int:
    raise UnsupportedSyntaxError(f"len() of {_what(self)}", location=caller_location(), hint="use .shape[0]")


def _refuse_attribute(self: Buffer | BufferSlice, name: str) -> Any:
    if name.startswith("__") or name == "as_expr":  # what Python and this package look for
        raise AttributeError(name)
    raise UnknownNameError(
        f"{_what(self)}, a tensor, has no attribute {name!r}",
        location=caller_location(),
        hint=f"a tensor has {', '.join(_ATTRIBUTES)}; operations on it are functions, such as T.reduce_sum",
    )


def _refuse_ufunc(self: Any, function: Any, method: str, *operands: Any, **options: Any) -> Any:
    """NumPy's functions on tensors and run-time values; its scalars are numbers like any other in operators."""
    operation = _UFUNCS.get(function.__name__)
    numbers = all(isinstance(x, (Expr, int, float)) or getattr(x, "shape", None) == () for x in operands)
    if operation is None or method != "__call__" or options or not numbers:
        name = {"maximum": "max", "minimum": "min", "absolute": "abs"}.get(function.__name__, function.__name__)
        raise UnsupportedSyntaxError(
            f"NumPy works on arrays, not on {_what(self)} of a kernel",
            location=_outside_numpy(),
            hint=f"use T.{name}" if method == "__call__" and operation is None else "use the operations of T",
        )
    return operation(*(x.item() if getattr(x, "shape", None) == () else x for x in operands))


def _outside_numpy() -> Location | None:
    """The place of the call into NumPy, parts of which are written in Python."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and (
        not is_user_frame(frame) or frame.f_globals.get("__name__", "").partition(".")[0] == "numpy"
    ):
        frame = frame.f_back
    return None if frame is None else Location.from_frame(frame)


def _what(value: Any) -> str:
    if isinstance(value, BufferSlice):
        return f"a slice of {value.buffer.name}"
    return str(value.name) if isinstance(value, Buffer) else "a run-time value"


def _refuse_rounding(name: str) -> Any:
    def refuse(self: Expr, *digits: Any) -> Any:
        raise UnsupportedSyntaxError(
            f"Python's {name}() needs a number that is known while compiling",
            location=caller_location(),
            hint=f"use T.{name}",
        )

    return refuse


_ATTRIBUTES = ("shape", "ndim", "dtype", "name", "scope", "data")
# NumPy's names of operators -> the operators, for `numpy.float32(2) * A[i]`.
_UFUNCS: dict[str, Any] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
    "left_shift": operator.lshift,
    "right_shift": operator.rshift,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
for _class in (Buffer, BufferSlice):
    setattr(_class, "__bool__", _refuse_truth)  # noqa: B010
    setattr(_class, "__len__", _refuse_length)  # noqa: B010
    setattr(_class, "__getattr__", _refuse_attribute)  # noqa: B010
for _owner in (Buffer, BufferSlice, Expr):
    setattr(_owner, "__array_ufunc__", _refuse_ufunc)  # noqa: B010
for _name in ("round", "floor", "ceil", "trunc"):
    setattr(Expr, f"__{_name}__", _refuse_rounding(_name))
for _name in (*_OPERATORS, *(f"r{op}" for op in _OPERATORS), "lt", "le", "gt", "ge", "neg", "invert", "abs", "matmul"):
    for _class in (Buffer, BufferSlice):
        setattr(_class, f"__{_name}__", _refuse_operator)

# `A.data` stands for the storage of A, in `T.Tensor(shape, dtype, A.data)`.
setattr(Buffer, "data", property(lambda buffer: buffer))  # noqa: B010
Buffer.getitem_hook = subscript
Buffer.setitem_hook = store
