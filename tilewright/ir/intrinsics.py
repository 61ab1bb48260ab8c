"""The table of pure intrinsics that `Call` may name.

What each computes is defined by the reference evaluator; a backend has one entry for each name here.
Floats below 32 bits are computed in float32 and rounded to the argument's dtype.  The reference rounds the
true float32 result of the transcendental functions once; a target may be a few units in the last place off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.errors import DTypeError
from tilewright.ir.dtype import DType
from tilewright.ir.expr import BOOL, FLOAT32, INT32, Call, Expr, as_expr, cast, promote
from tilewright.source import Location


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """arity; `domain`: "float" (integers are converted to float32), "int", "number"; `result`: "same", "bool" or "int32"."""

    arity: int
    domain: str = "float"
    result: str = "same"


_UNARY_FLOAT = (
    "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh "
    "asinh acosh atanh erf sigmoid floor ceil trunc round"
)

# `round` is half to even.  `rsqrt` is 1/sqrt(x), `sigmoid` 1/(1+exp(-x)).
# `fma` rounds once.  `fmod` has the dividend's sign (C).  `max_nan`, `min_nan` give NaN when either operand is.
INTRINSICS: dict[str, Intrinsic] = {
    **{name: Intrinsic(1) for name in _UNARY_FLOAT.split()},
    "abs": Intrinsic(1, "number"),
    "isnan": Intrinsic(1, "float", "bool"),
    "isinf": Intrinsic(1, "float", "bool"),
    "isfinite": Intrinsic(1, "float", "bool"),
    "atan2": Intrinsic(2),
    "fmod": Intrinsic(2),
    "copysign": Intrinsic(2),
    "hypot": Intrinsic(2),
    "max_nan": Intrinsic(2),
    "min_nan": Intrinsic(2),
    "fma": Intrinsic(3),
    "popcount": Intrinsic(1, "int", "int32"),
    "clz": Intrinsic(1, "int", "int32"),
}


def intrinsic(name: str, *args: Any, loc: Location | None = None) -> Expr:
    """A checked call of the intrinsic `name`, arguments promoted to one dtype.

    Raises DTypeError when an argument's dtype does not fit.
    """
    entry = INTRINSICS[name]
    like = next((a.dtype for a in args if isinstance(a, Expr)), None)
    values = [as_expr(a, like, loc=loc) for a in args]
    common = values[0].dtype
    for value in values[1:]:
        common = promote(common, value.dtype)
    if entry.domain == "float" and not common.is_float:
        if common.kind == "handle":
            raise DTypeError(f"{name} needs a number, got {common}", location=loc)
        common = FLOAT32.with_lanes(common.lanes)
    if entry.domain == "int" and not common.is_int:
        raise DTypeError(f"{name} needs an integer, got {common}", location=loc)
    if entry.domain == "number" and common.is_bool:
        common = INT32.with_lanes(common.lanes)
    results: dict[str, DType] = {
        "same": common,
        "bool": BOOL.with_lanes(common.lanes),
        "int32": INT32.with_lanes(common.lanes),
    }
    return Call(results[entry.result], name, tuple(cast(v, common, loc=loc) for v in values), loc=loc)
