"""What a kernel's parameters may be annotated with."""

from __future__ import annotations

from typing import Any

from tilewright.errors import AnnotationError, ArgumentValueError, DTypeError
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.expr import Buffer, Expr, as_expr, const_int
from tilewright.language.tracebacks import shows_the_user
from tilewright.source import caller_location


def shape_tuple(shape: Any, what: str = "shape") -> tuple[Expr, ...]:
    """`shape` (one size, or several in a tuple or list) as integer expressions.

    Raises ArgumentValueError naming `what` for a negative size, DTypeError for a size that is no integer.
    """
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    result: list[Expr] = []
    for size in sizes:
        value = None if isinstance(size, (bool, str)) else as_expr(size, loc=caller_location())
        if value is None or not value.dtype.is_int:
            raise DTypeError(f"a {what} consists of integers, got {size!r}", location=caller_location())
        known = const_int(value)
        if known is not None and known < 0:
            raise ArgumentValueError(
                f"the {what} {_text(sizes)} has the negative size {known}", location=caller_location()
            )
        result.append(value)
    return tuple(result)


def _text(sizes: tuple[Any, ...]) -> str:
    return (
        "(" + ", ".join(str(const_int(s)) if const_int(s) is not None else getattr(s, "name", "?") for s in sizes) + ")"
    )


class TensorType:
    """The type of a tensor parameter: shape, dtype, and strides in elements (None: row-major)."""

    __slots__ = ("dtype", "shape", "strides")

    def __init__(self, shape: Any, of: Any, strides: Any = None) -> None:
        self.shape = shape_tuple(shape)
        self.dtype: DType = dtype(of)
        self.strides = None if strides is None else shape_tuple(strides, "strides tuple")
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise AnnotationError(
                f"{len(self.strides)} strides for {len(self.shape)} dimensions", location=caller_location()
            )

    def buffer(self, name: str) -> Buffer:
        """A global buffer of this type."""
        return Buffer(name, self.shape, self.dtype, "global", self.strides)

    def __repr__(self) -> str:
        return f"Tensor({_text(self.shape)}, {self.dtype})"


class _TensorAnnotation:
    """`T.Tensor((M, K), dtype)` or `T.Tensor[[M, K], dtype]`: a row-major tensor parameter.

    Inside of a kernel `T.Tensor(shape, dtype, other.data)` names the storage of another tensor, as `T.view` does.
    """

    view: Any = None  # installed where views are made

    @shows_the_user
    def __call__(self, shape: Any, dtype: Any = "float32", data: Any = None) -> Any:
        return TensorType(shape, dtype) if data is None else self.view(data, shape, dtype)

    @shows_the_user
    def __getitem__(self, key: Any) -> TensorType:
        if not isinstance(key, tuple) or len(key) != 2:
            raise AnnotationError("write T.Tensor[[size, ...], dtype]", location=caller_location())
        return TensorType(key[0], key[1])

    def __repr__(self) -> str:
        return "T.Tensor"


class _StridedTensorAnnotation:
    """`T.StridedTensor(shape, strides, dtype)`, also in brackets: a tensor parameter with strides in elements."""

    @shows_the_user
    def __call__(self, shape: Any, strides: Any, dtype: Any = "float32") -> TensorType:
        return TensorType(shape, dtype, strides)

    @shows_the_user
    def __getitem__(self, key: Any) -> TensorType:
        if not isinstance(key, tuple) or len(key) != 3:
            raise AnnotationError(
                "write T.StridedTensor[[size, ...], [stride, ...], dtype]", location=caller_location()
            )
        return TensorType(key[0], key[2], key[1])

    def __repr__(self) -> str:
        return "T.StridedTensor"


class TileType:
    """The type of a tile as a macro's parameter; it documents, and is not compared with what is passed."""

    def __init__(self, name: str, shape: Any, of: Any) -> None:
        self.text = f"{name}({_text(shape_tuple(shape))}, {dtype(of)})"

    def __repr__(self) -> str:
        return self.text


class _TileAnnotation:
    """`T.SharedBuffer((M, K), dtype)` and its like: a macro's parameter that is a tile."""

    def __init__(self, name: str) -> None:
        self.name = name

    @shows_the_user
    def __call__(self, shape: Any, dtype: Any = "float32") -> TileType:
        return TileType(self.name, shape, dtype)

    def __repr__(self) -> str:
        return f"T.{self.name}"


class RefType:
    """`T.Ref` as the annotation of a macro's parameter: an assignment to it changes the caller's variable."""

    def __getitem__(self, key: Any) -> RefType:
        return self

    def __repr__(self) -> str:
        return "T.Ref"


Tensor = _TensorAnnotation()
StridedTensor = _StridedTensorAnnotation()
TensorBuffer = Tensor
SharedBuffer = _TileAnnotation("SharedBuffer")
FragmentBuffer = _TileAnnotation("FragmentBuffer")
LocalBuffer = _TileAnnotation("LocalBuffer")
Ref = RefType()
ptr = dtype("handle")


__all__ = ["FragmentBuffer", "LocalBuffer", "Ref", "SharedBuffer", "StridedTensor", "Tensor", "ptr"]
