"""What the printer and the parser of IR text agree on: words, operators, and which dtypes go without saying."""

from __future__ import annotations

import keyword
import re
from functools import lru_cache

from tilewright.ir.dtype import FORMATS, DType
from tilewright.ir.expr import BINARY_OPS, BOOL, INT32, Buffer, Const, Expr
from tilewright.ir.intrinsics import INTRINSICS

# Binding strength of operators; everything else is a call or an atom.
PRECEDENCE: dict[str, int] = {
    "or": 1,
    "and": 2,
    "not": 3,
    **dict.fromkeys(("lt", "le", "gt", "ge", "eq", "ne"), 4),
    "bitor": 5,
    "bitxor": 6,
    "bitand": 7,
    "shl": 8,
    "shr": 8,
    "add": 9,
    "sub": 9,
    "mul": 10,
    "div": 10,
    "floordiv": 10,
    "floormod": 10,
    "neg": 11,
    "bitnot": 11,
    "pow": 12,
}
ATOM = 20

# Symbol -> operation, for operations written between and before their operands.
INFIX: dict[str, str] = {symbol: op for op, (symbol, _) in BINARY_OPS.items() if op in PRECEDENCE}
PREFIX: dict[str, str] = {"-": "neg", "not": "not", "~": "bitnot"}
# `a < b < c` and `a ** b ** c` are refused, since Python reads them in another way than from left to right.
UNCHAINED = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "pow"})
# Binary operations that are written as calls.
BINARY_CALLS = frozenset(op for op in BINARY_OPS if op not in PRECEDENCE)
VECTOR_REDUCE = "reduce_"

NON_FINITE = ("inf", "nan")
_RESERVED = frozenset({*keyword.kwlist, *NON_FINITE})
_DTYPE = re.compile(rf"(?:{'|'.join(FORMATS)})(?:x[1-9]\d*)?")


def is_dtype(word: str) -> bool:
    """Whether `word` is the name of a dtype as the printer writes it."""
    return _DTYPE.fullmatch(word) is not None


@lru_cache(maxsize=1024)
def identifier(name: str) -> str:
    """A word near `name` that the parser takes for a name."""
    word = re.sub(r"\W", "_", name) or "v"
    if word[0].isdigit():
        word = f"v{word}"
    return f"{word}_" if word in _RESERVED or is_dtype(word) else word


def call_result(name: str, first: DType | None) -> DType | None:
    """The dtype of a call of the intrinsic `name` on a first argument of dtype `first`, None when it is not known."""
    entry = INTRINSICS.get(name)
    if entry is None or first is None:
        return None
    results = {"same": first, "bool": BOOL.with_lanes(first.lanes), "int32": INT32.with_lanes(first.lanes)}
    return results[entry.result]


def element(buffer: Buffer, indices: tuple[Expr, ...]) -> DType:
    """The dtype of an access: the buffer's, with as many lanes as the indices have."""
    lanes = max([i.dtype.lanes for i in indices], default=1)
    return buffer.dtype if lanes == 1 else buffer.dtype.with_lanes(lanes)


def is_int32(item: Expr, value: int) -> bool:
    """Whether `item` is the int32 literal `value`."""
    return isinstance(item, Const) and item.dtype is INT32 and item.value == value
