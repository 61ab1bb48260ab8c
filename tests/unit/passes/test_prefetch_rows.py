"""Prefetches of the next block's row: where they go, where there are none, and that they change no result."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import For, Prefetch
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.targets.registry import resolve_target

OPTIONS = CompileOptions(verify=True)


def softmax(M, N, rows=1):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, rows), threads=32) as bx:
            x = T.alloc_fragment((rows, N), "float32")
            top = T.alloc_fragment((rows,), "float32")
            total = T.alloc_fragment((rows,), "float32")
            T.copy(X[bx * rows, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(rows, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * rows, 0])

    return main


def copy(M, N):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as bx:
            for j in T.Parallel(N):
                Y[bx, j] = X[bx, j] + 1.0

    return main


def in_place(M, N):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=32) as bx:
            x = T.alloc_fragment((N,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0:N], x)
            T.reduce_sum(x, total, dim=0)
            for j in T.Parallel(N):
                X[bx, j] = x[j] / total[0]

    return main


def prefetches(func):
    lowered = lower_cpu(func, resolve_target("cpu:avx2"), OPTIONS)
    loops = [s for s in lowered.body.stmts[0].body.stmts if isinstance(s, For)]
    return [sum(isinstance(n, Prefetch) for n in walk(loop)) for loop in loops], print_func(lowered)


def test_the_second_loop_asks_for_the_next_row():
    counts, text = prefetches(softmax(32768, 4096))
    assert counts == [0, 1, 0]
    assert "prefetch X[bx + 1, j]" in text


@pytest.mark.parametrize("program", [softmax(8, 64), copy(32768, 4096), in_place(32768, 4096)])
def test_no_prefetch(program):
    """Of tensors that the caches hold, where no other loop works, and of what the kernel writes."""
    counts, _ = prefetches(program)
    assert not any(counts)


def test_the_last_block_asks_beyond_the_tensor():
    m, n = 2048, 1024  # 8 MiB: beyond a second-level cache
    x = np.random.default_rng(0).standard_normal((m, n)).astype(np.float32)
    y = np.zeros_like(x)
    tilewright.compile(softmax(m, n), target="cpu")(x, y)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=1e-5)
