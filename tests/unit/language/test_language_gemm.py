"""T.gemm from Python source: transposes, scopes, dtypes, clear_accum, slices, tails."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from language_harness import both_targets, near, random, run, same

import tilewright.language as T

SCOPES = [
    ("shared",) * 3,
    ("fragment",) * 3,
    ("shared", "shared", "fragment"),
    ("fragment", "shared", "shared"),
    ("shared", "fragment", "fragment"),
]
ALLOCATIONS = {"shared": T.alloc_shared, "fragment": T.alloc_fragment}


def matmul(
    m, n, k, of, accum, ta=False, tb=False, scopes=("shared", "shared", "fragment"), policy=T.GemmWarpPolicy.Square
):
    bm, bn, bk = 16, 24, 8
    allocations = [ALLOCATIONS[s] for s in scopes]

    @T.prim_func
    def main(
        A: T.Tensor((k, m) if ta else (m, k), of),
        B: T.Tensor((n, k) if tb else (k, n), of),
        C: T.Tensor((m, n), accum),
    ):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=64) as (bx, by):
            a = allocations[0]((bk, bm) if ta else (bm, bk), of)
            b = allocations[1]((bn, bk) if tb else (bk, bn), of)
            c = allocations[2]((bm, bn), accum)
            T.clear(c)
            for ko in T.Pipelined(T.ceildiv(k, bk), num_stages=2):
                if ta:
                    T.copy(A[ko * bk, by * bm], a)
                else:
                    T.copy(A[by * bm, ko * bk], a)
                if tb:
                    T.copy(B[bx * bn, ko * bk], b)
                else:
                    T.copy(B[ko * bk, bx * bn], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb, policy=policy, k_pack=1)
            T.copy(c, C[by * bm, bx * bn])

    return main


def product(a, b, ta=False, tb=False):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return (a.T if ta else a) @ (b.T if tb else b)


@both_targets
@pytest.mark.parametrize(("ta", "tb"), list(itertools.product([False, True], repeat=2)))
@pytest.mark.parametrize("scopes", SCOPES)
def test_transposes_and_scopes(ta, tb, scopes, target):
    m, n, k = 37, 29, 23
    a, b = random((k, m) if ta else (m, k)), random((n, k) if tb else (k, n))
    near(
        run(matmul(m, n, k, "float32", "float32", ta, tb, scopes), a, b, target=target, out_idx=-1),
        product(a, b, ta, tb),
        k=k,
    )


@both_targets
@pytest.mark.parametrize(
    ("of", "accum"),
    [
        ("float16", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("float64", "float64"),
        ("float8_e4m3fn", "float32"),
        ("float8_e5m2", "float32"),
        ("int8", "int32"),
        ("uint8", "int32"),
    ],
)
def test_dtypes(of, accum, target):
    a, b = random((18, 20), of), random((20, 25), of)
    c = run(matmul(18, 25, 20, of, accum), a, b, target=target, out_idx=-1)
    if accum == "int32":
        same(c, product(a, b))
    elif accum == "float16":  # rounded after each of the three steps
        np.testing.assert_allclose(c, product(a, b), rtol=0, atol=3 * 2.0**-11 * np.abs(product(a, b)).max())
    else:
        near(c, product(a, b), accum, k=20)


@both_targets
@pytest.mark.parametrize("policy", list(T.GemmWarpPolicy))
def test_policies_change_nothing(policy, target):
    a, b = random((16, 8)), random((8, 24))
    near(
        run(matmul(16, 24, 8, "float32", "float32", policy=policy), a, b, target=target, out_idx=-1), product(a, b), k=8
    )


@both_targets
@pytest.mark.parametrize("clear", [False, True])
def test_the_accumulator_is_kept_or_cleared(clear, target):
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), B: T.Tensor((8, 8), "float32"), C: T.Tensor((8, 8), "float32")):
        with T.Kernel(1):
            a, b, c = (T.alloc_shared((8, 8), "float32") for _ in range(3))
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            for _ in T.serial(3):
                T.gemm(a, b, c, clear_accum=clear)
            T.copy(c, C)

    a, b, c = (random((8, 8)) for _ in range(3))
    before = c.astype(np.float64)
    run(main, a, b, c, target=target)
    near(c, product(a, b) if clear else before + 3 * product(a, b), k=25)


@both_targets
def test_operands_that_are_slices(target):
    @T.prim_func
    def main(A: T.Tensor((2, 8, 16), "float32"), B: T.Tensor((16, 16), "float32"), C: T.Tensor((8, 16), "float32")):
        with T.Kernel(1):
            a = T.alloc_shared((2, 8, 16), "float32")
            b = T.alloc_shared((16, 16), "float32")
            c = T.alloc_fragment((8, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a[1, :, 0:8], b[8:16, :], c)
            T.gemm(a[0, 0:8, 8:16], b[0:8, 0:8], c[:, 8:16])
            T.copy(c, C)

    a, b, c = random((2, 8, 16)), random((16, 16)), np.zeros((8, 16), np.float32)
    run(main, a, b, c, target=target)
    expected = product(a[1, :, :8], b[8:])
    expected[:, 8:] += product(a[0, :, 8:], b[:8, :8])
    near(c, expected, k=16)


@both_targets
def test_infinities_and_nan_spread_along_their_row_and_column(target):
    a, b = random((20, 11)), random((11, 30))
    a[3, 4], b[5, 7] = np.nan, np.inf
    c = run(matmul(20, 30, 11, "float32", "float32"), a, b, target=target, out_idx=-1)
    with np.errstate(invalid="ignore"):
        expected = product(a, b)
    assert np.isnan(c[3]).all() and np.isfinite(np.delete(np.delete(c, 3, 0), 7, 1)).all()
    near(c, expected, k=11)
