"""Looking into a running kernel: print and device_assert."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import as_bool, as_expr
from tilewright.ir.stmt import Assert, Print
from tilewright.language.operands import begin, is_box
from tilewright.language.tensor import to_region


def print(obj: Any = None, msg: str = "", warp_group_id: int = 0, warp_id: int = 0) -> None:
    """Write a value, or all elements of a tensor or slice, to the caller's standard output, after `msg`."""
    builder, loc = begin("T.print")
    if isinstance(obj, str):
        builder.emit(Print(obj, loc=loc))
    elif is_box(obj):
        builder.emit(Print(str(msg), (), (to_region(obj),), loc=loc))
    else:
        builder.emit(Print(str(msg), () if obj is None else (as_expr(obj, loc=loc),), loc=loc))


def device_assert(condition: Any, msg: str = "", no_stack_info: bool = False) -> None:
    """Stop the kernel, and raise DeviceAssertError in the caller, when the condition does not hold."""
    builder, loc = begin("T.device_assert")
    value = condition.as_expr() if hasattr(condition, "as_expr") else condition
    builder.emit(Assert(as_bool(value, loc=loc), str(msg), loc=loc))


__all__ = ["device_assert", "print"]
