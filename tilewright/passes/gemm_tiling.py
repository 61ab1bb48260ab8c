"""How a gemm is cut for a core with vector registers and caches: register tiles, and how much of K at a time.

The micro-kernel holds a tile of the result in registers, `rows` times `vectors` of them, and for every k takes
`vectors` vectors of a row of B and `rows` broadcast elements of A (Goto and van de Geijn, "Anatomy of
high-performance matrix multiplication", 2008).
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import DType
from tilewright.target import Target

# Vectors of B a micro-kernel takes, in order of preference among equally fast ones.
VECTORS = (2, 3, 4, 1)
# Independent accumulators that hide the latency of a multiply-add: 4 cycles, 2 a cycle.
ACCUMULATORS = 8
# A panel of B (all its k for the vectors of a micro-kernel) stays in the level 1 cache beside the passing A and C.
PANEL_SHARE = 0.7
# The rows of A stay in the level 2 cache while the panels of B pass.  B and the result pass once for every stage and
# may come from the level 3 cache (measured on a Zen 3 with 512 KiB: room for them too cost 30 % of the speed).
ROWS_SHARE = 0.5
# More k at a time than this gains nothing.
LONGEST_K = 256
# k steps in one iteration of the micro-kernel's loop; 1 to 8 are equal, 16 makes LLVM spill.
K_UNROLL = 4
# Costs in cycles for one k: of a load (they compete with the multiply-adds for issue), of the start and the end of a
# register tile, and of a micro-kernel of another size (compile time and instruction cache).
LOAD_COST = 0.02
TILE_COST = 0.1
VARIANT_COST = 0.02


@dataclass(frozen=True, slots=True)
class Strip:
    """`count` equal pieces of `size`, the first at `start`."""

    start: int
    count: int
    size: int


@dataclass(frozen=True, slots=True)
class RegisterTiles:
    """A partition of the result's rows, and of its columns in vectors; at most two sizes of each."""

    rows: tuple[Strip, ...]
    vectors: tuple[Strip, ...]


def longest_k(target: Target, dtype: DType, m: int, n: int) -> int:
    """How many k of an m by n gemm to stage at a time: a power of two."""
    level1, level2, _ = target.cache_bytes
    size = dtype.nbytes
    k = LONGEST_K
    panel = min(n, VECTORS[0] * target.lanes(dtype.bits))
    while k > 32 and (k * panel * size > PANEL_SHARE * level1 or k * m * size > ROWS_SHARE * level2):
        k //= 2
    return k


def register_tiles(target: Target, dtype: DType, m: int, n: int, k: int) -> RegisterTiles:
    """The partition of an m by n result, with k up to the given one, that takes the fewest cycles."""
    lanes = target.lanes(dtype.bits)
    total = -(-n // lanes)
    best: tuple[float, RegisterTiles] | None = None
    for vectors in VECTORS:
        most_rows = (target.vector_registers - _spare_registers(target) - vectors) // vectors
        panel_bytes = k * vectors * lanes * dtype.nbytes
        if (
            most_rows < 1
            or vectors > total
            or (vectors > VECTORS[0] and panel_bytes > PANEL_SHARE * target.cache_bytes[0])
        ):
            continue
        tiles = RegisterTiles(balanced(m, most_rows), balanced(total, vectors))
        cycles = _cycles(tiles)
        if best is None or cycles < best[0]:
            best = (cycles, tiles)
    assert best is not None
    return best[1]


def _spare_registers(target: Target) -> int:
    """Registers for elements of A and for copies: of many, LLVM uses some to load elements ahead, and spills without."""
    return 1 if target.vector_registers <= 16 else 3


def balanced(length: int, most: int) -> tuple[Strip, ...]:
    """`length` in pieces of at most `most` that differ by at most one, larger ones first."""
    count = -(-length // most)
    size, larger = divmod(length, count)
    strips = []
    if larger:
        strips.append(Strip(0, larger, size + 1))
    strips.append(Strip(larger * (size + 1), count - larger, size))
    return tuple(strips)


def _cycles(tiles: RegisterTiles) -> float:
    """Cycles for one k of the whole result: two multiply-adds and two loads a cycle."""
    total = 0.0
    for r in tiles.rows:
        for v in tiles.vectors:
            loads = r.size + v.size
            busy = max(r.size * v.size, loads, ACCUMULATORS) / 2
            total += r.count * v.count * (busy + LOAD_COST * loads + TILE_COST) + VARIANT_COST
    return total
