"""Scalar and vector expressions, shared by both IR levels.

Expressions are pure.  Their meaning is fixed by the reference evaluator; in short:
- integers wrap at their width, except index arithmetic, which is exact in 64 bits: a Unary, Binary, Select
  or widening Cast of signed integers all of whose leaves are loop variables, block indices, sizes
  (`PrimFunc.sizes`), lets of such values, and literals, one at least not a literal.  Such a value wraps
  where it is stored, cast to a narrower integer, or meets another kind of operand;
- `floordiv` and `floormod` round towards minus infinity (Python), `truncdiv` and `truncmod`
  towards zero (C); division of an integer by zero gives 0, its remainder gives 0; the smallest
  integer divided by -1 is itself;
- on floats a // b is floor(a / b), `truncdiv` trunc(a / b), with the rounded quotient; `truncmod` is C's
  exact fmod, and a % b the same plus b where its sign differs from b's (NaN for b = 0);
- a shift by a negative amount or by the width or more gives 0, `>>` of a signed integer 0 or -1;
- floats below 32 bits are computed in float32 and rounded to nearest even at every node (tfloat32 is
  computed as float32, and rounded to 10 mantissa bits by a cast to it only);
- `min` and `max` return the operand that is not NaN, and NaN only when both are; the sign of a zero is open;
- a float cast to an integer rounds towards zero, saturates, and takes NaN to 0; cast to bool it is `!= 0`;
- a cast to a float rounds once, whatever it comes from; "rz" rounds towards zero and makes no finite value infinite;
- a cast to a float format without infinity saturates only where asked (`saturate`), else
  overflow gives NaN, as ml_dtypes does (float4_e2m1fn, which has no NaN either, saturates, and NaN gives a zero);
- the payload of a NaN is kept by loads, stores and copies that do not convert, else it is open.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Union

from tilewright.errors import DTypeError, LanguageError, UnsupportedSyntaxError
from tilewright.ir.dtype import DType, dtype
from tilewright.ir.node import Node, node, reference
from tilewright.source import Location, caller_location

BOOL = dtype("bool")
INT32 = dtype("int32")
INT64 = dtype("int64")
FLOAT32 = dtype("float32")

ExprLike = Union["Expr", int, float, bool]


@node
class Expr(Node):
    """A pure value of type `dtype`."""

    dtype: DType

    # Arithmetic operators build nodes; see `binary`.
    def __add__(self, other: Any) -> Expr:
        return _operator("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return _operator("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return _operator("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return _operator("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return _operator("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return _operator("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return _operator("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return _operator("div", other, self)

    def __floordiv__(self, other: Any) -> Expr:
        return _operator("floordiv", self, other)

    def __rfloordiv__(self, other: Any) -> Expr:
        return _operator("floordiv", other, self)

    def __mod__(self, other: Any) -> Expr:
        return _operator("floormod", self, other)

    def __rmod__(self, other: Any) -> Expr:
        return _operator("floormod", other, self)

    def __pow__(self, other: Any) -> Expr:
        return _operator("pow", self, other)

    def __rpow__(self, other: Any) -> Expr:
        return _operator("pow", other, self)

    def __and__(self, other: Any) -> Expr:
        return _operator("bitand", self, other)

    def __rand__(self, other: Any) -> Expr:
        return _operator("bitand", other, self)

    def __or__(self, other: Any) -> Expr:
        return _operator("bitor", self, other)

    def __ror__(self, other: Any) -> Expr:
        return _operator("bitor", other, self)

    def __xor__(self, other: Any) -> Expr:
        return _operator("bitxor", self, other)

    def __rxor__(self, other: Any) -> Expr:
        return _operator("bitxor", other, self)

    def __lshift__(self, other: Any) -> Expr:
        return _operator("shl", self, other)

    def __rlshift__(self, other: Any) -> Expr:
        return _operator("shl", other, self)

    def __rshift__(self, other: Any) -> Expr:
        return _operator("shr", self, other)

    def __rrshift__(self, other: Any) -> Expr:
        return _operator("shr", other, self)

    def __lt__(self, other: Any) -> Expr:
        return _operator("lt", self, other)

    def __le__(self, other: Any) -> Expr:
        return _operator("le", self, other)

    def __gt__(self, other: Any) -> Expr:
        return _operator("gt", self, other)

    def __ge__(self, other: Any) -> Expr:
        return _operator("ge", self, other)

    def __eq__(self, other: Any) -> Expr:  # type: ignore[override]
        return _operator("eq", self, other)

    def __ne__(self, other: Any) -> Expr:  # type: ignore[override]
        return _operator("ne", self, other)

    __hash__ = object.__hash__

    def __neg__(self) -> Expr:
        return unary("neg", self, loc=caller_location())

    def __pos__(self) -> Expr:
        return self

    def __invert__(self) -> Expr:
        return unary("not" if self.dtype.is_bool else "bitnot", self, loc=caller_location())

    def __abs__(self) -> Expr:
        return call("abs", (self,), self.dtype, loc=caller_location())

    def __bool__(self) -> bool:
        raise UnsupportedSyntaxError(
            "this value is known only when the kernel runs, so Python cannot branch on it",
            location=caller_location(),
            hint="kernels and macros may branch on it with `if`, `while`, `and`, `or`, `x if c else y`: decorate a plain helper function with @T.macro, or use T.if_then_else",
        )

    def __index__(self) -> int:
        raise UnsupportedSyntaxError(
            "this value is known only when the kernel runs, but a Python integer is needed here",
            location=caller_location(),
            hint="sizes of on-chip buffers, unrolled loops and list indices must be known while compiling",
        )

    __int__ = __index__

    def __float__(self) -> float:
        raise UnsupportedSyntaxError(
            "this value is known only when the kernel runs, but a Python float is needed here",
            location=caller_location(),
            hint="use T.cast(x, 'float32')",
        )

    def __iter__(self) -> Any:
        raise UnsupportedSyntaxError(
            "a run-time value cannot be iterated over", location=caller_location(), hint="use T.serial(n) or range(n)"
        )

    def __getitem__(self, index: Any) -> Expr:
        """`v[0]` of a mutable scalar (`T.alloc_var`) is the scalar; anything else is refused."""
        if isinstance(self, Load) and self.buffer.scope == "var" and const_int(index) == 0:
            return self
        raise UnsupportedSyntaxError(
            "a scalar value cannot be indexed", location=caller_location(), hint="only tensors have elements"
        )

    def __contains__(self, item: Any) -> bool:
        raise UnsupportedSyntaxError("`in` has no meaning on a run-time value", location=caller_location())

    def astype(self, to: Any) -> Expr:
        """This value cast to dtype `to`."""
        return cast(self, to, loc=caller_location())


@node
class Const(Expr):
    """A literal.  `value` is a Python bool, int or float."""

    value: bool | int | float

    # A literal is known while compiling, so Python may use it as the number that it is.
    def __bool__(self) -> bool:
        return bool(self.value)

    def __index__(self) -> int:
        if not isinstance(self.value, int):
            raise TypeError(f"{self.value!r} is not an integer")
        return int(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __format__(self, spec: str) -> str:
        return format(self.value, spec)


@node
class Var(Expr):
    """A named scalar: a parameter, a size, a block index, a loop variable or a let.  Compared by identity."""

    name: str


@node
class Unary(Expr):
    """`neg` (number), `not` (bool), `bitnot` (integer)."""

    op: str
    operand: Expr


@node
class Binary(Expr):
    """An operation of `BINARY_OPS` on two operands of the same dtype."""

    op: str
    lhs: Expr
    rhs: Expr


@node
class Cast(Expr):
    """`value` converted to `dtype`.  `rounding`: "rn" or "rz" (to floats); `saturate`: clamp to the finite range."""

    value: Expr
    rounding: str = "rn"
    saturate: bool = False


@node
class Reinterpret(Expr):
    """The bits of `value` read as `dtype` of the same width."""

    value: Expr


@node
class Select(Expr):
    """`on_true` where `condition`, else `on_false`; only the chosen side counts (a load in the other has no effect)."""

    condition: Expr
    on_true: Expr
    on_false: Expr


@node
class Load(Expr):
    """An element of `buffer`.

    Tile IR: an index out of range reads 0, or the buffer's safe value.
    Lowered IR: in range by construction wherever `mask` holds; 0 where it does not.  An index
    may be a vector (Ramp, or any vector expression for a gather); then the value is one.
    """

    buffer: Buffer = reference()
    indices: tuple[Expr, ...] = ()
    mask: Expr | None = None


@node
class Call(Expr):
    """A pure intrinsic from `tilewright.ir.intrinsics`."""

    name: str
    args: tuple[Expr, ...]


@node
class Ramp(Expr):
    """Lowered IR: the vector base, base + stride, ... of `dtype.lanes` lanes."""

    base: Expr
    stride: Expr


@node
class Broadcast(Expr):
    """Lowered IR: a scalar in every one of `dtype.lanes` lanes."""

    value: Expr


@node
class Shuffle(Expr):
    """Lowered IR: lane i of the result is lane `lanes[i]` of `first` followed by `second`."""

    first: Expr
    second: Expr
    lanes: tuple[int, ...]


@node
class VectorReduce(Expr):
    """Lowered IR: all lanes of `value` combined by `op` ("add", "max", "min", "bitand", "bitor", "bitxor") to a scalar."""

    op: str
    value: Expr


class Buffer:
    """A tensor in some memory.  Compared by identity; not a node, so that rewriting never copies it.

    scope: "global" (also parameters), "shared", "fragment" (registers of the whole block),
    "local" (private to a thread; one copy a block where the block is sequential), "var" (a
    mutable scalar, shape ()); "register" (lowered IR only).
    shape, strides: expressions, strides in elements, None for row-major.
    view_of: the buffer whose storage this one reads as another shape or dtype.
    reducer: for `alloc_reducer`, the operation that combines concurrent updates ("sum", "max", "min").
    safe_value: what an out-of-range read gives, None for 0.
    """

    __slots__ = ("dtype", "loc", "name", "reducer", "safe_value", "scope", "shape", "strides", "view_of")

    SCOPES: ClassVar[tuple[str, ...]] = ("global", "shared", "fragment", "local", "var", "register")
    # `A[i, j]`, `A[i0:i1, k] = v` in a kernel: installed by the language layer.
    getitem_hook: ClassVar[Any] = None
    setitem_hook: ClassVar[Any] = None

    def __init__(
        self,
        name: str,
        shape: tuple[Expr, ...],
        dtype: DType,
        scope: str = "global",
        strides: tuple[Expr, ...] | None = None,
        *,
        view_of: Buffer | None = None,
        reducer: str | None = None,
        safe_value: Expr | None = None,
        loc: Location | None = None,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = dtype
        self.scope = scope
        self.strides = strides
        self.view_of = view_of
        self.reducer = reducer
        self.safe_value = safe_value
        self.loc = loc

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def const_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, None when a size is known at launch only."""
        sizes = [int(s.value) for s in self.shape if isinstance(s, Const)]
        return tuple(sizes) if len(sizes) == len(self.shape) else None

    def __repr__(self) -> str:
        return f"Buffer({self.name}, {self.scope}, {self.dtype}, {len(self.shape)}d)"

    def __getitem__(self, index: Any) -> Any:
        return Buffer.getitem_hook(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        Buffer.setitem_hook(self, index, value)

    def __iter__(self) -> Any:
        raise UnsupportedSyntaxError(
            f"tensor {self.name} cannot be iterated over", location=caller_location(), hint="loop over its indices"
        )

    def __contains__(self, item: Any) -> bool:
        raise UnsupportedSyntaxError(f"`in` has no meaning on tensor {self.name}", location=caller_location())


# op -> (symbol in text, kind).  kind: "arith" keeps the dtype, "compare" gives bool,
# "logic" takes and gives bool, "bits" takes integers (and bool for and/or/xor).
BINARY_OPS: dict[str, tuple[str, str]] = {
    "add": ("+", "arith"),
    "sub": ("-", "arith"),
    "mul": ("*", "arith"),
    "div": ("/", "arith"),
    "floordiv": ("//", "arith"),
    "floormod": ("%", "arith"),
    "truncdiv": ("truncdiv", "arith"),
    "truncmod": ("truncmod", "arith"),
    "min": ("min", "arith"),
    "max": ("max", "arith"),
    "pow": ("**", "arith"),
    "lt": ("<", "compare"),
    "le": ("<=", "compare"),
    "gt": (">", "compare"),
    "ge": (">=", "compare"),
    "eq": ("==", "compare"),
    "ne": ("!=", "compare"),
    "and": ("and", "logic"),
    "or": ("or", "logic"),
    "bitand": ("&", "bits"),
    "bitor": ("|", "bits"),
    "bitxor": ("^", "bits"),
    "shl": ("<<", "bits"),
    "shr": (">>", "bits"),
}


def const(value: bool | int | float, to: Any = None, *, loc: Location | None = None) -> Const:
    """A literal of dtype `to`; by default bool, int32 (int64 when it does not fit) or float32."""
    if to is None:
        if isinstance(value, bool):
            to = BOOL
        elif isinstance(value, int):
            to = INT32 if -(1 << 31) <= value < (1 << 31) else INT64
        else:
            to = FLOAT32
    to = dtype(to)
    if to.is_float:
        value = float(value)
    elif to.is_bool:
        value = bool(value)
    else:
        if isinstance(value, float):
            if math.isnan(value) or value != int(value):
                raise DTypeError(f"{value} is not a value of {to}", location=loc, hint="cast explicitly")
            value = int(value)
        low, high = to.int_range() if to.is_int else (0, (1 << 64) - 1)
        value = int(value)
        if not low <= value <= high:
            raise DTypeError(f"{value} does not fit in {to} ({low} to {high})", location=loc)
    return Const(to, value, loc=loc)


def as_expr(value: Any, like: DType | None = None, *, loc: Location | None = None) -> Expr:
    """`value` as an expression.  A Python number takes the dtype `like` where it fits.

    Raises DTypeError for anything that is neither an expression nor a number.
    """
    if isinstance(value, Expr):
        return value
    converted = getattr(value, "as_expr", None)
    if converted is not None:
        result: Expr = converted()
        return result
    if isinstance(value, (bool, int, float)):
        if like is not None:
            if isinstance(value, float) and not like.is_float:
                return const(value, FLOAT32, loc=loc)
            if isinstance(value, int) and like.is_bool and not isinstance(value, bool):
                return const(value, loc=loc)
            if like.is_int and not like.int_range()[0] <= value <= like.int_range()[1]:
                return const(value, loc=loc)
            return const(value, like.scalar, loc=loc)
        return const(value, loc=loc)
    item = getattr(value, "item", None)
    if item is not None and getattr(value, "shape", None) == ():  # a NumPy scalar
        return const(item(), dtype(value.dtype), loc=loc)
    if isinstance(value, Buffer):
        raise DTypeError(
            f"a number or tile expression is needed here, not the tensor {value.name}",
            location=loc or caller_location(),
            hint=f"give the indices of an element, as in {value.name}[{', '.join('ijklmn'[: value.ndim])}]",
        )
    raise DTypeError(
        f"a number or tile expression is needed here, not {type(value).__name__} {value!r}",
        location=loc or caller_location(),
    )


def promote(a: DType, b: DType) -> DType:
    """The dtype in which a binary operation on `a` and `b` is done.

    float with int: the float; float16 with bfloat16, or two different 8-bit floats: float32;
    otherwise the wider float or integer; signed with unsigned of one width: signed.
    """
    if a is b:
        return a
    x, y = a.scalar, b.scalar
    lanes = max(a.lanes, b.lanes)
    if x is y:
        return x.with_lanes(lanes)
    if x.is_bool or y.is_bool:
        result = y if x.is_bool else x
    elif x.is_float != y.is_float:
        result = x if x.is_float else y
    elif x.is_float:
        result = FLOAT32 if x.bits == y.bits else (x if x.bits > y.bits else y)
    elif x.bits == y.bits:
        result = x if x.kind == "int" else y
    else:
        result = x if x.bits > y.bits else y
    return result.with_lanes(lanes)


def _operator(op: str, lhs: Any, rhs: Any) -> Expr:
    return binary(op, lhs, rhs, loc=caller_location())


def binary(op: str, lhs: Any, rhs: Any, *, loc: Location | None = None) -> Expr:
    """`lhs op rhs` with operands promoted to one dtype and constants folded.

    Raises DTypeError when the operation has no meaning on the operands.
    """
    lhs = as_expr(lhs, rhs.dtype if isinstance(rhs, Expr) else None, loc=loc)
    rhs = as_expr(rhs, lhs.dtype, loc=loc)
    kind = BINARY_OPS[op][1]
    if kind == "logic":
        lhs, rhs = as_bool(lhs, loc=loc), as_bool(rhs, loc=loc)
        common = BOOL.with_lanes(max(lhs.dtype.lanes, rhs.dtype.lanes))
    else:
        common = promote(lhs.dtype, rhs.dtype)
    if common.kind == "handle":
        raise DTypeError(f"{BINARY_OPS[op][0]} has no meaning on a pointer", location=loc)
    if op in ("div", "pow") and not common.is_float:
        common = FLOAT32.with_lanes(common.lanes)
    elif common.is_bool and kind == "arith":
        common = INT32.with_lanes(common.lanes)
    elif kind == "bits" and (common.is_float or (common.is_bool and op in ("shl", "shr"))):
        raise DTypeError(
            f"{BINARY_OPS[op][0]} needs integers, got {lhs.dtype} and {rhs.dtype}",
            location=loc,
            hint="cast to an integer, or T.reinterpret to work on the bits",
        )
    lhs, rhs = cast(lhs, common, loc=loc), cast(rhs, common, loc=loc)
    result = BOOL.with_lanes(common.lanes) if kind == "compare" else common
    folded = fold_binary(op, lhs, rhs, result)
    return folded if folded is not None else Binary(result, op, lhs, rhs, loc=loc)


def fold_binary(op: str, lhs: Expr, rhs: Expr, result: DType) -> Expr | None:
    """The value of an integer or bool operation on literals, and of the neutral elements; None when not known.

    Float literals are left to the evaluator, so that rounding has one definition.
    """
    a = lhs.value if isinstance(lhs, Const) and not lhs.dtype.is_float else None
    b = rhs.value if isinstance(rhs, Const) and not rhs.dtype.is_float else None
    if a is not None and b is not None:
        value = _fold_integers(op, int(a), int(b))
        if value is None:
            return None
        if result.is_int:
            low, high = result.int_range()
            if not low <= value <= high:
                return None
        return const(bool(value) if result.is_bool else value, result)
    if lhs.dtype.is_int:
        if op in ("add", "sub", "shl", "shr") and b == 0:
            return lhs
        if op == "add" and a == 0:
            return rhs
        if op == "mul" and (a == 1 or b == 1):
            return rhs if a == 1 else lhs
        if op == "mul" and (a == 0 or b == 0):
            return lhs if a == 0 else rhs
        if op == "floordiv" and b == 1:
            return lhs
        if op == "floormod" and b == 1:
            return const(0, result)
    return None


def _fold_integers(op: str, a: int, b: int) -> int | None:
    if op in ("floordiv", "floormod", "truncdiv", "truncmod") and b == 0:
        return 0
    if op in ("shl", "shr") and not 0 <= b < 64:
        return None
    table: dict[str, Any] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "floordiv": lambda: a // b,
        "floormod": lambda: a % b,
        "truncdiv": lambda: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
        "truncmod": lambda: abs(a) % abs(b) * (1 if a >= 0 else -1),
        "min": lambda: min(a, b),
        "max": lambda: max(a, b),
        "lt": lambda: a < b,
        "le": lambda: a <= b,
        "gt": lambda: a > b,
        "ge": lambda: a >= b,
        "eq": lambda: a == b,
        "ne": lambda: a != b,
        "and": lambda: bool(a and b),
        "or": lambda: bool(a or b),
        "bitand": lambda: a & b,
        "bitor": lambda: a | b,
        "bitxor": lambda: a ^ b,
        "shl": lambda: a << b,
        "shr": lambda: a >> b,
    }
    compute = table.get(op)
    return None if compute is None else compute()


def unary(op: str, operand: Any, *, loc: Location | None = None) -> Expr:
    """`neg`, `not` or `bitnot` of `operand`; literals are folded.  Raises DTypeError on a dtype without that operation."""
    operand = as_expr(operand, loc=loc)
    if op == "not":
        operand = as_bool(operand, loc=loc)
    elif op == "neg" and operand.dtype.is_bool:
        operand = cast(operand, INT32, loc=loc)
    elif op == "bitnot" and not operand.dtype.is_int:
        raise DTypeError(f"~ needs an integer, got {operand.dtype}", location=loc)
    if isinstance(operand, Const):
        if op == "neg" and (operand.dtype.is_float or operand.value != operand.dtype.int_range()[0]):
            if operand.dtype.kind != "uint":
                return const(-operand.value, operand.dtype, loc=loc)
        elif op == "not":
            return const(not operand.value, BOOL, loc=loc)
    return Unary(operand.dtype, op, operand, loc=loc)


def cast(value: Any, to: Any, *, rounding: str = "rn", saturate: bool = False, loc: Location | None = None) -> Expr:
    """`value` as dtype `to` (lanes follow the value); itself when it is that already.  Integer and bool literals are folded."""
    target = dtype(to)
    source: Expr = as_expr(value, loc=loc)
    if target.lanes == 1:
        target = target.with_lanes(source.dtype.lanes)
    if source.dtype is target:
        return source
    if "handle" in (source.dtype.kind, target.kind):
        raise DTypeError(f"cannot cast {source.dtype} to {target}", location=loc)
    if isinstance(source, Const) and not source.dtype.is_float and target.lanes == 1:
        exact = isinstance(source.value, (bool, int)) and abs(int(source.value)) <= 256
        fits = target.is_int and target.int_range()[0] <= source.value <= target.int_range()[1]
        if fits or target.is_bool or (target.is_float and target.bits >= 32 and exact):
            return const(bool(source.value) if target.is_bool else source.value, target, loc=loc)
    return Cast(target, source, rounding, saturate, loc=loc)


def as_bool(value: Any, *, loc: Location | None = None) -> Expr:
    """`value` as a condition: a number is true when it is not 0."""
    number: Expr = as_expr(value, loc=loc)
    return number if number.dtype.is_bool else binary("ne", number, const(0, number.dtype.scalar), loc=loc)


def select(condition: Any, on_true: Any, on_false: Any, *, loc: Location | None = None) -> Expr:
    """`on_true` where `condition` holds, else `on_false`, promoted to one dtype."""
    condition = as_bool(condition, loc=loc)
    like = next((v.dtype for v in (on_true, on_false) if isinstance(v, Expr)), None)
    on_true, on_false = as_expr(on_true, like, loc=loc), as_expr(on_false, like, loc=loc)
    common = promote(on_true.dtype, on_false.dtype)
    first, second = cast(on_true, common, loc=loc), cast(on_false, common, loc=loc)
    if isinstance(condition, Const):
        return first if condition.value else second
    return Select(common, condition, first, second, loc=loc)


def call(name: str, args: tuple[Expr, ...], result: DType, *, loc: Location | None = None) -> Call:
    """An intrinsic call; argument checks belong to the caller (`ir.intrinsics`)."""
    return Call(result, name, args, loc=loc)


def const_int(value: Any) -> int | None:
    """The integer that `value` is known to be while compiling, else None."""
    if isinstance(value, Const) and value.dtype.is_int:
        return int(value.value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return None


def require_const_int(value: Any, what: str, *, loc: Location | None = None) -> int:
    """`const_int(value)`; raises LanguageError naming `what` when it is known at run time only."""
    result = const_int(value)
    if result is None:
        raise LanguageError(f"{what} must be an integer that is known while compiling, got {value!r}", location=loc)
    return result
