"""Copies that run beside the gemm of the step before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from gemm_programs import cpu, matmul

from tilewright.ir.expr import INT32, Var, const
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Copy, Region, Store
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.chunk_gemm import chunk_gemm
from tilewright.passes.companions import companion_of
from tilewright.passes.default import lower_cpu
from tilewright.passes.overlap_copies import overlap_copies
from tilewright.simulator.reference import run

OPTIONS = CompileOptions(verify=True)


def overlapped(func):
    result = overlap_copies(chunk_gemm(func, cpu(), OPTIONS), cpu(), OPTIONS)
    verify(result)
    return result


def overlapping(func):
    """The buffers whose copies overlap."""
    return {c.dst.buffer.name for c in walk(overlapped(func)) if isinstance(c, Copy) and c.overlap}


def test_two_stages():
    text = print_func(overlapped(matmul(1024, 1024, 1024, (128, 128, 32))))
    assert [line.strip() for line in text.splitlines()[6:]] == [
        "alloc C_local: float32[128, 128] fragment",
        "alloc A_shared: float32[2, 128, 256] shared strides(34816, 272, 1)",
        "alloc B_shared: float32[2, 256, 128] shared strides(36864, 144, 1)",
        "copy A[by * 128 +: 128, 0 * 256 +: 256] -> A_shared[0, 0 +: 128, 0 +: 256]",
        "copy B[0 * 256 +: 256, bx * 128 +: 128] -> B_shared[0, 0 +: 256, 0 +: 128]",
        "for step in serial(4):",
        "copy A[by * 128 +: 128, min(step + 1, 3) * 256 +: 256] -> A_shared[(step + 1) % 2, 0 +: 128, 0 +: 256] (overlap)",
        "copy B[min(step + 1, 3) * 256 +: 256, bx * 128 +: 128] -> B_shared[(step + 1) % 2, 0 +: 256, 0 +: 128] (overlap)",
        "if step == 0:",
        "gemm C_local = A_shared[step % 2, 0 +: 128, 0 +: 256] @ B_shared[step % 2, 0 +: 256, 0 +: 128]",
        "else:",
        "gemm C_local += A_shared[step % 2, 0 +: 128, 0 +: 256] @ B_shared[step % 2, 0 +: 256, 0 +: 128]",
        "copy C_local -> C[by * 128 +: 128, bx * 128 +: 128]",
    ]


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (matmul(64, 64, 512), {"A_shared", "B_shared"}),
        (matmul(64, 64, 512, dtype="float16"), {"A_shared", "B_shared"}),
        (matmul(64, 64, 512, transpose_a=True), {"A_shared", "B_shared"}),
        (matmul(64, 64, 512, transpose_b=True), {"A_shared"}),
        (matmul(65, 64, 512), {"B_shared"}),  # some rows of A's tiles lie outside
        (matmul(64, 64, 500), set()),  # and some of K
        (matmul(64, 64, 512, block=(32, 24, 16)), {"A_shared"}),  # no whole number of vectors in B's rows
        (matmul(64, 64, 128), set()),  # one step
    ],
)
def test_which_copies_overlap(program, names):
    assert overlapping(program) == names


@pytest.mark.parametrize("arch", ["avx512", "avx2"])
@pytest.mark.parametrize(
    ("sizes", "block"),
    [
        ((16, 32, 96), (16, 32, 16)),
        ((12, 48, 128), (12, 48, 64)),
        ((9, 35, 69), (8, 32, 16)),
        ((4, 128, 64), (4, 128, 16)),
    ],
)
@pytest.mark.parametrize("more", [{}, {"dtype": "float16"}, {"transpose_a": True}, {"transpose_b": True}])
def test_the_meaning_stays(arch, sizes, block, more):
    func = matmul(*sizes, block, **more)
    target = replace(cpu(arch), cache_bytes=(2 << 10, 8 << 10, 1 << 20))  # so small that each 32 of K are a step
    lowered = lower_cpu(func, target, OPTIONS)
    tails = any(size % tile for size, tile in zip(sizes, block, strict=True))
    assert ("[(step + 1) % 2, row" in print_func(lowered)) == (not tails)
    rng = np.random.default_rng(1)
    a, b, c = (rng.integers(-2, 3, p.const_shape()).astype(p.dtype.numpy) for p in func.params)
    got = c.copy()
    run(func, [a, b, c])
    run(lowered, [a, b, got])
    np.testing.assert_array_equal(c, got)


@pytest.mark.parametrize(("calls", "iterations"), [(40, 64), (3, 5), (1, 1), (7, 16), (200, 8)])
@pytest.mark.parametrize(("rows", "vectors"), [(128, 8), (16, 1), (5, 3), (64, 4)])
def test_every_vector_is_copied(calls, iterations, rows, vectors):
    func = matmul(16, 16, 16)
    buffers = func.params[:2]
    extents = (const(rows), const(vectors * 16))
    regions = [Region(b, (const(0), const(0)), extents) for b in buffers]
    companion = companion_of(Copy(regions[0], regions[1], True), cpu())
    call, iteration = Var(INT32, "call"), Var(INT32, "iteration")
    slot = companion.slot(call, iteration, calls, iterations)
    assert len(slot) == companion.each(calls * iterations)
    seen = set()
    for c in range(calls):
        for i in range(iterations):
            for part in slot:
                seen.add(_target(part, {id(call): c, id(iteration): i}))
    assert seen == {(row, 16 * vector) for row in range(rows) for vector in range(vectors)}


def _target(part, values):
    values = dict(values)
    for let in part[:2]:
        values[id(let.var)] = _value(let.value, values)
    store = part[-1]
    assert isinstance(store, Store)
    row, column = store.indices
    return _value(row, values), _value(column.base, values)


def _value(item, values):
    if id(item) in values:
        return values[id(item)]
    if hasattr(item, "value"):
        return item.value
    left, right = _value(item.lhs, values), _value(item.rhs, values)
    return {
        "add": lambda: left + right,
        "sub": lambda: left - right,
        "mul": lambda: left * right,
        "floordiv": lambda: left // right,
        "floormod": lambda: left % right,
        "min": lambda: min(left, right),
    }[item.op]()
