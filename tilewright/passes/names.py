"""Fresh variables for passes."""

from __future__ import annotations

from tilewright.ir.expr import INT32, INT64, Expr, Var, const_int


def index_var(name: str, extent: Expr) -> Var:
    """A loop variable for 0..extent-1, int64 where the extent is or may be beyond int32."""
    known = const_int(extent)
    wide = extent.dtype.bits > 32 if known is None else known >= 1 << 31
    return Var(INT64 if wide else INT32, name)


_NAMES = "ijklmn"


def axis_name(position: int) -> str:
    """The usual name of the loop over dimension `position`."""
    return _NAMES[position] if position < len(_NAMES) else f"i{position}"
