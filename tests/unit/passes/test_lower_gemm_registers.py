"""Register tiles: the partition, and machine code that keeps them in registers (compiled for CPUs that need not be here)."""

from __future__ import annotations

import re

import pytest
from gemm_programs import cpu, matmul

from tilewright.compiler import compile_func
from tilewright.ir.dtype import dtype
from tilewright.options import CompileOptions
from tilewright.passes.gemm_tiling import balanced, longest_k, register_tiles
from tilewright.targets.registry import backend


def covered(strips):
    """The pieces of strips in order; they must follow one another."""
    position = 0
    for strip in strips:
        assert strip.start == position
        position += strip.count * strip.size
    return position


@pytest.mark.parametrize("arch", ["avx512", "avx2", "sse2", "neon"])
@pytest.mark.parametrize("element", ["float32", "float64"])
@pytest.mark.parametrize("shape", [(128, 128, 256), (1, 5, 7), (64, 48, 32), (17, 333, 64), (256, 256, 128)])
def test_tiles_cover_the_result_and_fit_the_registers(arch, element, shape):
    target, kind = cpu(arch), dtype(element)
    m, n, k = shape
    tiles = register_tiles(target, kind, m, n, k)
    assert covered(tiles.rows) == m
    assert covered(tiles.vectors) == -(-n // target.lanes(kind.bits))
    assert len(tiles.rows) <= 2 and len(tiles.vectors) <= 2
    rows, vectors = tiles.rows[0].size, tiles.vectors[0].size
    assert rows * vectors + vectors + 1 <= target.vector_registers


def test_pieces_differ_by_at_most_one():
    strips = balanced(128, 14)
    assert [(s.count, s.size) for s in strips] == [(8, 13), (2, 12)]
    assert [(s.count, s.size) for s in balanced(12, 6)] == [(2, 6)]


def test_a_panel_of_b_stays_in_the_first_cache():
    target = cpu()
    k = longest_k(target, dtype("float32"), 128, 128)
    assert k * 32 * 4 <= target.cache_bytes[0]


MULTIPLY_ADD = {"avx512": r"vfmadd\w+ps\t.*zmm", "avx2": r"vfmadd\w+ps\t.*ymm"}


@pytest.mark.parametrize("arch", ["avx512", "avx2"])
@pytest.mark.parametrize("block", [(128, 128, 32), (64, 64, 32), (256, 256, 32)])
def test_no_vector_register_is_spilled(arch, block):
    artifact = compile_func(matmul(1024, 1024, 1024, block), cpu(arch), CompileOptions())
    lines = backend("cpu").listing(artifact, "asm").splitlines()
    assert sum(bool(re.search(MULTIPLY_ADD[arch], line)) for line in lines) >= 64
    spills = [line for line in lines if re.search(r"[yz]mm", line) and "(%rsp)" in line]
    assert spills == []
