"""Elementwise maps of declarative kernels, and loops that no pattern fits and that run as they stand."""

# ruff: noqa: F821

from __future__ import annotations

import linecache
import math

import numpy as np
import pytest

import tilewright
from tilewright import grid
from tilewright.ir.dtype import dtype as dtype_of
from tilewright.language import bfloat16, float16, float32, float64, int8, int32, int64, uint32

TARGETS = ("cpu", "reference")
SLOPE = 0.1

MAPS = """
@tilewright.kernel
def kernel(X: {0}[M, N], row: {0}[N], column: {0}[M], Y: {0}[M, N]):
    for i, j in grid(M, N):
        x = X[i, j] + row[j] * 2
        if j <= i and x > column[i]:
            Y[i, j] = x - column[i]
        else:
            Y[i, j] = where(x > 0, x, 3 - x)
"""


def make(source: str, *dtypes: str):
    """The kernel of a source text, in a file of its own."""
    text = "from __future__ import annotations\n" + source.format(*dtypes)
    file = f"<maps {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"tilewright": tilewright}
    exec(compile(text, file, "exec"), space)
    return space["kernel"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ["float16", "bfloat16", "float32", "float64", "int32", "int8"])
@pytest.mark.parametrize("m, n", [(100, 77), (1, 1), (3, 1030), (0, 3)])
def test_masks_and_broadcasts(element, target, m, n):
    """Values are small integers, so that every dtype holds every result."""
    generator = np.random.default_rng(2)
    kind = dtype_of(element).numpy
    x, row, column = (generator.integers(-9, 10, shape).astype(kind) for shape in ((m, n), (n,), (m,)))
    kernel = make(MAPS, element)
    wide = x.astype(float) + row.astype(float) * 2
    i, j = np.mgrid[:m, :n]
    edge = column.astype(float)[:, None]
    expected = np.where((j <= i) & (wide > edge), wide - edge, np.where(wide > 0, wide, 3 - wide))
    np.testing.assert_array_equal(kernel(x, row, column, target=target).astype(float), expected)
    assert kernel.notes(M=m, N=n) == []


@tilewright.kernel
def vector(X: float32[N], Y: float32[N], alpha: float32):
    for i in range(N):
        Y[i] = exp(-X[i]) * alpha if X[i] > 0 else SLOPE * X[i]


@tilewright.kernel
def cube(X: float32[A, B, C], Y: float16[B, A, C]):
    for b, a, c in grid(B, A, C):
        Y[b, a, c] = X[a, b, c] * C


@tilewright.kernel
def inner(X: float32[N], Y: float32[N]):
    for i in range(N - 1):
        Y[i] = (X[i] + X[i + 1]) / 2


@pytest.mark.parametrize("target", TARGETS)
def test_one_and_three_dimensions_and_part_of_a_tensor(target):
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float32)
    y = np.empty_like(x)
    vector(x, y, 2.0, target=target)
    np.testing.assert_allclose(y, np.where(x > 0, 2 * np.exp(-x), np.float32(0.1) * x), rtol=1e-6)
    x = np.random.default_rng(0).standard_normal((5, 70, 33)).astype(np.float32)
    np.testing.assert_array_equal(cube(x, target=target), (x * 33).transpose(1, 0, 2).astype(np.float16))
    x, y = np.arange(100, dtype=np.float32), np.full(100, 7, np.float32)
    inner(x, y, target=target)
    np.testing.assert_array_equal(y, [*(x[:-1] + 0.5), 7])


@pytest.mark.parametrize("target", TARGETS)
def test_numbers_are_pythons(target):
    """Literals adapt to float64, operations on literals and sizes are exact, small ints are computed wide."""

    @tilewright.kernel
    def numbers(X: float64[N], U: uint32[N], Q: int8[N], Y: float64[N], V: uint32[N], R: int32[N], S: int64[N]):
        for i in range(N):
            tenth = 0.1
            Y[i] = X[i] * tenth + 1 / math.sqrt(N + 3) + max(X[i], 0.3)
            V[i] = U[i] // 2 + U[i] % 10
            R[i] = (Q[i] * Q[i]) ** 2 // 3 - (Q[i] < 0) + ~(Q[i] > 3) - i**3
            S[i] = N * 10**12 + i

    n = 40
    x = np.random.default_rng(0).standard_normal(n)
    u = np.linspace(0, 2**32 - 1, n).astype(np.uint32)
    q = np.linspace(-128, 127, n).astype(np.int8)
    y, v, r, s = numbers(x, u, q, target=target)
    np.testing.assert_allclose(y, x * 0.1 + 1 / math.sqrt(n + 3) + np.maximum(x, 0.3), rtol=1e-15)
    np.testing.assert_array_equal(v, u // 2 + u % 10)
    wide, i = q.astype(int), np.arange(n)
    np.testing.assert_array_equal(r, wide**4 // 3 - (wide < 0) - 1 - (wide > 3) - i**3)
    np.testing.assert_array_equal(s, n * 10**12 + i)


@pytest.mark.parametrize("target", TARGETS)
def test_casts(target):
    @tilewright.kernel
    def casts(X: float32[N], I: int32[N], H: float32[N], B: float32[N], Z: int32[N]):  # noqa: E741
        for i in range(N):
            I[i] = int(X[i])
            half: float16 = X[i]
            H[i] = half
            B[i] = cast(X[i], bfloat16) + float32(1)
            Z[i] = bool(X[i]) + (not X[i]) * 2

    x = np.array([1.7, -1.7, 0.1, 3.14159, 0, -0.0], np.float32)
    integer, half, brain, zero = casts(x, target=target)
    np.testing.assert_array_equal(integer, x.astype(np.int32))
    np.testing.assert_array_equal(half, x.astype(np.float16).astype(np.float32))
    np.testing.assert_array_equal(brain, x.astype(dtype_of("bfloat16").numpy).astype(np.float32) + 1)
    np.testing.assert_array_equal(zero, [1, 1, 1, 1, 2, 2])


# --- loops that depend on one another ---------------------------------------------------------------


@tilewright.kernel
def prefix_sum(X: float32[N], Y: float32[N]):
    for i in range(N):
        Y[i] = X[i] + (Y[i - 1] if i > 0 else 0.0)


@tilewright.kernel
def running_sum(X: float32[M, N], Y: float32[M, N]):
    for i in range(M):
        s = 0.0
        for j in range(N):
            s += X[i, j]
            Y[i, j] = s


@tilewright.kernel
def shift(A: int32[N]):
    for i in range(N - 1):
        A[i + 1] = A[i]


@tilewright.kernel
def histogram(X: int32[N], H: int32[B]):
    for i in range(N):
        H[X[i]] += 1


@tilewright.kernel
def stencil(X: float32[M, N], Y: float32[M, N]):
    for i, j in grid(M, N):
        Y[i, j] = (X[i - 1, j] if i > 0 else 0.0) + X[i, (j + 1) % N] - X[M - 1 - i, j]


@tilewright.kernel
def triangle(X: float32[N, N], Y: float32[N, N], S: float32[N]):
    for i in range(N):
        s = 0.0
        for j in range(i + 1):
            Y[i, j] = X[i, j]
            s += X[i, j]
        for j in range(N - 1, i, -1):
            Y[i, j] = -X[i, j]
        S[i] = s


@tilewright.kernel
def two_steps(X: float32[N], Y: float32[N], Z: float32[N]):
    for i in range(N):
        Y[i] = X[i] * 2
    for i in range(N):
        Z[i] = Y[N - 1 - i]


@tilewright.kernel
def fibonacci(F: int64[N]):
    a = 0
    b = int64(1)
    for i in range(N):
        F[i] = a
        c = a + b
        a = b
        b = c


@tilewright.kernel
def gauss_seidel(X: float32[N], rounds: int32):
    for _r in range(rounds):
        for i in range(1, N - 1):
            X[i] = (X[i - 1] + X[i + 1]) / 2


@pytest.mark.parametrize("target", TARGETS)
def test_loops_that_depend_on_one_another(target):
    x = np.arange(1, 71, dtype=np.float32)
    np.testing.assert_array_equal(prefix_sum_of(x, target), np.cumsum(x))
    square = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(running_sum(square, target=target), np.cumsum(square, axis=1))
    a = np.arange(3, 9, dtype=np.int32)
    shift(a, target=target)
    np.testing.assert_array_equal(a, [3] * 6)
    values, bins = np.random.default_rng(0).integers(0, 9, 500).astype(np.int32), np.zeros(9, np.int32)
    histogram(values, bins, target=target)
    np.testing.assert_array_equal(bins, np.bincount(values, minlength=9))
    above = np.vstack([np.zeros((1, 7), np.float32), square[:-1]])
    np.testing.assert_array_equal(stencil(square, target=target), above + np.roll(square, -1, 1) - square[::-1])
    square = np.arange(36, dtype=np.float32).reshape(6, 6)
    y, s = triangle(square, target=target)
    np.testing.assert_array_equal(y, np.tril(square) - np.triu(square, 1))
    np.testing.assert_array_equal(s, np.tril(square).sum(1))
    y, z = np.empty_like(x), np.empty_like(x)
    two_steps(x, y, z, target=target)
    np.testing.assert_array_equal(z, 2 * x[::-1])
    assert list(fibonacci.compile(N=60, target=target, returns=True)())[-1] == 956722026041
    x, expected = np.array([0, 5, 3, 8, 1], np.float32), [0.0, 5, 3, 8, 1]
    for _ in range(3):
        for i in range(1, 4):
            expected[i] = (expected[i - 1] + expected[i + 1]) / 2
    gauss_seidel(x, 3, target=target)
    np.testing.assert_array_equal(x, expected)


def prefix_sum_of(x: np.ndarray, target: str) -> np.ndarray:
    y = np.empty_like(x)
    prefix_sum(x, y, target=target)
    return y


PLAIN = {
    prefix_sum: {"N": 8},
    shift: {"N": 8},
    histogram: {"N": 8, "B": 3},
    running_sum: {"M": 4, "N": 8},
    triangle: {"N": 8},
    fibonacci: {"N": 8},
    gauss_seidel: {"N": 8},
}


@pytest.mark.parametrize("kernel", PLAIN, ids=lambda kernel: kernel.__name__)
def test_plain_code_is_named(kernel):
    """What is not recognised is said, with its line; what is, is not."""
    notes = kernel.notes(**PLAIN[kernel])
    assert notes
    assert all((note.startswith("line ") and "serial" in note) or "in one block" in note for note in notes)
    assert set(notes) <= set(kernel.explain(**PLAIN[kernel]).split("\n"))


def test_recognised_code_is_explained():
    assert stencil.notes(M=5, N=7) == []
    first, second = stencil.explain(M=500, N=700).split("\n")
    assert "i, j: 500 × 700 independent iterations, in blocks of 16 × 512" in first
    assert "every point of the tile" in second


@pytest.mark.parametrize("target", TARGETS)
def test_conditions_on_sizes_choose_while_compiling(target):
    """What is not chosen is not looked at: index 5 does not exist for 3 columns; a negative bound is no iteration."""

    @tilewright.kernel
    def chosen(X: float32[M, N], Y: float32[M]):
        for i in range(M):
            if N > 5:
                Y[i] = X[i, 5]
            else:
                Y[i] = X[i, 2] if N < 6 else X[i, 5]
        for i in range(M - 9):
            Y[i] = 0.0

    for n in (3, 6):
        x = np.arange(4 * n, dtype=np.float32).reshape(4, n)
        np.testing.assert_array_equal(chosen(x, target=target), x[:, n - 1])
