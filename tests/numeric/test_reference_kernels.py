"""Whole kernels in hand-built IR, evaluated by the reference, against NumPy in float64."""

import io
import time

import numpy as np
import pytest

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, Var, as_expr, const
from tilewright.ir.intrinsics import intrinsic
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import (
    Alloc,
    Copy,
    Fill,
    For,
    Gemm,
    Launch,
    Parallel,
    Print,
    Reduce,
    Region,
    Seq,
    Store,
)
from tilewright.simulator.reference import run
from tilewright.simulator.tolerance import tolerance

F32 = dtype("float32")
I32 = dtype("int32")


def buffer(name, shape, of="float32", scope="global"):
    return Buffer(name, tuple(as_expr(s, I32) for s in shape), dtype(of), scope)


def region(of, starts=None, extents=None):
    starts = starts if starts is not None else [0] * of.ndim
    return Region(of, tuple(as_expr(s, I32) for s in starts), tuple(as_expr(e, I32) for e in extents or of.shape))


def kernel(params, grid, block_vars, *body, sizes=()):
    launch = Launch(tuple(as_expr(g, I32) for g in grid), tuple(block_vars), Seq(tuple(body)))
    return PrimFunc("kernel", tuple(params), Seq((launch,)), sizes=tuple(sizes))


def loop(var, stop, *body, kind="serial"):
    return For(var, const(0), as_expr(stop, I32), const(1), Seq(tuple(body)), kind)


def close(actual, expected, of, k=1):
    rtol, atol = tolerance(of, k)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=rtol, atol=atol)


def matmul(m, n, k, bm, bn, bk, of):
    a, b, c = buffer("A", (m, k), of), buffer("B", (k, n), of), buffer("C", (m, n), of)
    a_tile, b_tile = buffer("As", (bm, bk), of, "shared"), buffer("Bs", (bk, bn), of, "shared")
    acc = buffer("acc", (bm, bn), "float64" if of == "float64" else "float32", "fragment")
    bx, by, ko = Var(I32, "bx"), Var(I32, "by"), Var(I32, "ko")
    return kernel(
        (a, b, c),
        ((n + bn - 1) // bn, (m + bm - 1) // bm),
        (bx, by),
        Alloc(a_tile),
        Alloc(b_tile),
        Alloc(acc),
        Fill(region(acc), const(0.0)),
        loop(
            ko,
            (k + bk - 1) // bk,
            Copy(region(a, (by * bm, ko * bk), (bm, bk)), region(a_tile)),
            Copy(region(b, (ko * bk, bx * bn), (bk, bn)), region(b_tile)),
            Gemm(region(a_tile), region(b_tile), region(acc)),
            kind="pipelined",
        ),
        Copy(region(acc), region(c, (by * bm, bx * bn), (bm, bn))),
    )


@pytest.mark.parametrize("of", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2"])
def test_matmul_of_sizes_that_are_no_multiple_of_the_tile(of):
    rng = np.random.default_rng(1)
    m, n, k = 100, 77, 33
    a = rng.standard_normal((m, k)).astype(dtype(of).numpy)
    b = rng.standard_normal((k, n)).astype(dtype(of).numpy)
    c = np.full((m, n), np.nan, dtype(of).numpy)
    run(matmul(m, n, k, 32, 16, 16, of), [a, b, c], order=3)
    close(c, a.astype(np.float64) @ b.astype(np.float64), of, k)


def test_matmul_speed():
    a = np.ones((256, 256), np.float16)
    c = np.zeros((256, 256), np.float16)
    func = matmul(256, 256, 256, 64, 64, 32, "float16")
    start = time.perf_counter()
    run(func, [a, a, c])
    assert time.perf_counter() - start < 0.5
    assert np.all(c == 256)


def test_softmax_with_dynamic_rows():
    m = Var(I32, "m")
    width, rows = 50, 8
    x, y = buffer("X", (m, width)), buffer("Y", (m, width))
    tile, top, total = (
        buffer("t", (rows, width), scope="fragment"),
        buffer("top", (rows,), scope="fragment"),
        buffer("total", (rows,), scope="fragment"),
    )
    bx, i, j = Var(I32, "bx"), Var(I32, "i"), Var(I32, "j")
    shifted = intrinsic("exp", Load(F32, tile, (i, j)) - Load(F32, top, (i,)))
    func = kernel(
        (x, y),
        ((m + 7) // 8,),
        (bx,),
        Alloc(tile),
        Alloc(top),
        Alloc(total),
        Copy(region(x, (bx * rows, 0), (rows, width)), region(tile)),
        Reduce("max", region(tile), region(top), 1),
        Parallel((i, j), (const(rows), const(width)), Seq((Store(tile, (i, j), shifted),))),
        Reduce("sum", region(tile), region(total), 1),
        Parallel(
            (i, j),
            (const(rows), const(width)),
            Seq((Store(tile, (i, j), Load(F32, tile, (i, j)) / Load(F32, total, (i,))),)),
        ),
        Copy(region(tile), region(y, (bx * rows, 0), (rows, width))),
        sizes=(m,),
    )
    values = np.random.default_rng(2).standard_normal((21, width)).astype(np.float32)
    result = np.zeros_like(values)
    run(func, [values, result])
    exact = np.exp(values.astype(np.float64))
    close(result, exact / exact.sum(1, keepdims=True), "float32", width)


@pytest.mark.parametrize("order", ["forward", "reverse", 7])
def test_block_order(order):
    out = buffer("out", (6,), "int32")
    bx, by = Var(I32, "bx"), Var(I32, "by")
    text = io.StringIO()
    func = kernel((out,), (3, 2), (bx, by), Store(out, (by * 3 + bx,), by * 10 + bx), Print("block", (bx, by)))
    result = np.zeros(6, np.int32)
    run(func, [result], order=order, stdout=text)
    assert result.tolist() == [0, 1, 2, 10, 11, 12]
    pairs = [int(line.split(": ")[1]) for line in text.getvalue().splitlines()]
    seen = list(zip(pairs[::2], pairs[1::2], strict=True))
    plain = [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)]
    if order == 7:
        assert sorted(seen) == sorted(plain) and seen != plain
    else:
        assert seen == (plain if order == "forward" else plain[::-1])
