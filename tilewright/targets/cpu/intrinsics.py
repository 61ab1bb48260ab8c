"""What `Call` and `VectorReduce` compute, on values in compute form."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.errors import VerificationError
from tilewright.ir.dtype import DType
from tilewright.targets.cpu import arithmetic, mathematics
from tilewright.targets.cpu.values import Value, integer, real, vector_type, width
from tilewright.targets.cpu.writer import Writer

Function = Callable[..., Value]


def emit(w: Writer, name: str, args: list[Value], dtype: DType) -> Value:
    """The intrinsic `name` on arguments of `dtype`, before rounding to a narrower dtype.

    Raises VerificationError for a name or dtype that has no such function.
    """
    if not dtype.is_float:
        integers = _INTEGER.get(name)
        if integers is None or not dtype.is_int:
            raise VerificationError(f"intrinsic {name!r} needs floats, got {dtype}")
        return integers(w, args[0], dtype)
    function = _FLOAT.get(name)
    if function is not None:
        return function(w, *args)
    if name in mathematics.FUNCTIONS:
        return mathematics.emit(w, name, args)
    raise VerificationError(f"intrinsic {name!r} is not defined on {dtype}")


# --- floats ---------------------------------------------------------------------------------------------


def _is_nan(w: Writer, a: Value) -> Value:
    return w.fcmp("uno", a, a)


def _is_inf(w: Writer, a: Value) -> Value:
    return w.fcmp("oeq", w.intrinsic("fabs", a), real(math.inf, a.scalar_type, a.lanes))


def _is_finite(w: Writer, a: Value) -> Value:
    return w.fcmp("olt", w.intrinsic("fabs", a), real(math.inf, a.scalar_type, a.lanes))


_FLOAT: dict[str, Function] = {
    "abs": lambda w, a: w.intrinsic("fabs", a),
    "sqrt": lambda w, a: w.intrinsic("sqrt", a),
    "rsqrt": lambda w, a: w.bin("fdiv", real(1.0, a.scalar_type, a.lanes), w.intrinsic("sqrt", a)),
    "floor": arithmetic.floor,
    "ceil": arithmetic.ceil,
    "trunc": arithmetic.truncate,
    "round": arithmetic.nearest,
    "isnan": _is_nan,
    "isinf": _is_inf,
    "isfinite": _is_finite,
    "fmod": arithmetic.float_mod,
    "copysign": lambda w, a, b: w.intrinsic("copysign", a, b),
    "max_nan": lambda w, a, b: arithmetic.extreme_nan(w, "ogt", a, b),
    "min_nan": lambda w, a, b: arithmetic.extreme_nan(w, "olt", a, b),
    "fma": arithmetic.fused,
}

# --- integers ---------------------------------------------------------------------------------------------


def _absolute(w: Writer, a: Value, dtype: DType) -> Value:
    return a if dtype.kind == "uint" else w.intrinsic("abs", a, integer(0, 1))


def _popcount(w: Writer, a: Value, dtype: DType) -> Value:
    if dtype.bits == 4:
        a = w.bin("and", a, integer(15, 8, a.lanes))
    return _to_int32(w, w.intrinsic("ctpop", a))


def _leading_zeros(w: Writer, a: Value, dtype: DType) -> Value:
    if dtype.bits == 4:
        a = w.bin("and", a, integer(15, 8, a.lanes))
    count = w.intrinsic("ctlz", a, integer(0, 1))
    extra = width(a.scalar_type) - dtype.bits
    return _to_int32(w, w.bin("sub", count, integer(extra, width(a.scalar_type), a.lanes)))


def _to_int32(w: Writer, count: Value) -> Value:
    return w.convert("trunc" if width(count.scalar_type) > 32 else "zext", count, "i32")


_INTEGER: dict[str, Callable[[Writer, Value, DType], Value]] = {
    "abs": _absolute,
    "popcount": _popcount,
    "clz": _leading_zeros,
}

# --- lanes --------------------------------------------------------------------------------------------------

_REDUCE_INT = {"add": "add", "bitand": "and", "bitor": "or", "bitxor": "xor"}


def reduce(w: Writer, op: str, vector: Value, dtype: DType) -> Value:
    """All lanes combined; sums of floats as a tree.  Raises VerificationError when the dtype has no such reduction."""
    if vector.lanes == 1:
        return vector
    if dtype.is_float:
        combine = {
            "add": lambda a, b: w.bin("fadd", a, b),
            "max": lambda a, b: arithmetic.maximum(w, a, b),
            "min": lambda a, b: arithmetic.minimum(w, a, b),
            "max_nan": lambda a, b: arithmetic.extreme_nan(w, "ogt", a, b),
            "min_nan": lambda a, b: arithmetic.extreme_nan(w, "olt", a, b),
        }.get(op)
        if combine is None:
            raise VerificationError(f"vector reduction {op!r} is not defined on {dtype}")
        return _tree(w, vector, combine)
    name = _REDUCE_INT.get(op) or (f"{'s' if dtype.kind == 'int' else 'u'}{op}" if op in ("min", "max") else "")
    if not name or (dtype.is_bool and name == "add"):
        raise VerificationError(f"vector reduction {op!r} is not defined on {dtype}")
    full = f"llvm.vector.reduce.{name}.v{vector.lanes}{vector.scalar_type}"
    w.module.declare(full, vector.scalar_type, (vector.type,))
    return w.call(full, vector.scalar_type, 1, vector)


def _tree(w: Writer, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Halves combined until one lane is left; the last lane of an odd number apart."""
    rest: Value | None = None
    while vector.lanes > 1:
        if vector.lanes % 2:
            last = w.extract(vector, vector.lanes - 1)
            rest = last if rest is None else combine(rest, last)
            vector = w.shuffle(vector, None, tuple(range(vector.lanes - 1)))
            continue
        vector = combine(*w.halves(vector))
    return vector if rest is None else combine(vector, rest)


def dot2(w: Writer, acc: Value, a: Value, b: Value) -> Value:
    """acc[i] + a[2i] * b[2i] + a[2i+1] * b[2i+1] on bfloat16 bits."""
    lanes = acc.lanes
    if w.facts.dot_bf16 and lanes in (4, 8, 16):
        pairs = vector_type("bfloat", 2 * lanes)
        name = f"llvm.x86.avx512bf16.dpbf16ps.{32 * lanes}"
        w.module.declare(name, acc.type, (acc.type, pairs, pairs))
        return w.call(name, acc.type, lanes, acc, w.bitcast(a, pairs, 2 * lanes), w.bitcast(b, pairs, 2 * lanes))
    wide = vector_type("i32", lanes)
    x, y = w.bitcast(a, wide, lanes), w.bitcast(b, wide, lanes)
    for shift in (True, False):  # the even element is the lower half
        first, second = (_half_of_pair(w, v, shift) for v in (x, y))
        acc = arithmetic.fused(w, first, second, acc)
    return acc


def _half_of_pair(w: Writer, pair: Value, lower: bool) -> Value:
    lanes = pair.lanes
    bits = w.bin("shl", pair, integer(16, 32, lanes)) if lower else w.bin("and", pair, integer(0xFFFF0000, 32, lanes))
    return w.bitcast(bits, vector_type("float", lanes), lanes)
