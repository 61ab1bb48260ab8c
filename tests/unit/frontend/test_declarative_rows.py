"""Row reductions of declarative kernels: sums, extremes, softmax, normalisations, and full reductions."""

# ruff: noqa: F821

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest

import tilewright
from tilewright.ir.dtype import dtype as dtype_of
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Reduce
from tilewright.language import float16, float32, float64, int32, int64, uint8

TARGETS = ("cpu", "reference")
DTYPES = ("float16", "bfloat16", "float32", "float64")
EPS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-22, "float64": 2**-50}

SOFTMAX = """
@tilewright.kernel
def kernel(X: {0}[M, N], Y: {0}[M, N]):
    for i in range(M):
        top = -float("inf")
        for j in range(N):
            top = max(top, X[i, j])
        total = 0.0
        for j in range(N):
            total += exp(X[i, j] - top)
        for j in range(N):
            Y[i, j] = exp(X[i, j] - top) / total
"""
RMS_NORM = """
@tilewright.kernel
def kernel(X: {0}[M, N], Y: {0}[M, N], weight: {0}[N]):
    for i in range(M):
        square = 0.0
        for j in range(N):
            x = X[i, j]
            square += x * x
        scale = rsqrt(square / N + 1e-6)
        for j in range(N):
            x = X[i, j] * scale
            Y[i, j] = x * weight[j]
"""
LAYER_NORM = """
@tilewright.kernel
def kernel(X: {0}[M, N], Y: {0}[M, N], weight: {0}[N]):
    for i in range(M):
        eps = 1e-5
        total = 0.0
        for j in range(N):
            total += X[i, j]
        mean = total / N
        spread = 0.0
        for j in range(N):
            spread += (X[i, j] - mean) ** 2
        for j in range(N):
            Y[i, j] = (X[i, j] - mean) / sqrt(spread / N + eps) * weight[j]
"""


def softmax(x, weight):
    e = np.exp(x - x.max(1, keepdims=True, initial=-np.inf))
    return e / e.sum(1, keepdims=True)


def rms_norm(x, weight):
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-6) * weight


def layer_norm(x, weight):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight


NORMS = {"softmax": (SOFTMAX, softmax), "rms_norm": (RMS_NORM, rms_norm), "layer_norm": (LAYER_NORM, layer_norm)}


def make(source: str, *dtypes: str):
    """The kernel of a source text, in a file of its own."""
    text = "from __future__ import annotations\n" + source.format(*dtypes)
    file = f"<rows {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"tilewright": tilewright}
    exec(compile(text, file, "exec"), space)
    return space["kernel"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_normalisations(name, element, target):
    source, reference = NORMS[name]
    kernel = make(source, element)
    generator = np.random.default_rng(3)
    for m, n in ((100, 333), (3, 1), (1, 1000)):
        x = generator.standard_normal((m, n)).astype(dtype_of(element).numpy)
        weight = generator.standard_normal(n).astype(x.dtype)
        arguments = (x,) if name == "softmax" else (x, np.empty_like(x), weight)
        result = kernel(*arguments, target=target)
        found = result if result is not None else arguments[1]
        expected = reference(x.astype(np.float64), weight.astype(np.float64))
        np.testing.assert_allclose(found.astype(float), expected, rtol=3 * EPS[element], atol=3 * EPS[element])
        assert kernel.notes(M=m, N=n) == []


@tilewright.kernel
def row_values(X: float32[M, N], S: float32[M], L: float32[M], H: float32[M], C: int32[M]):
    for i in range(M):
        s = S[i]
        low = 3.0
        high = -3.0
        count = 0
        for j in range(N):
            x = X[i, j] * 2
            s += x
            low = min(x, low)
            high = max(high, x)
            count += x > 0
        S[i] = s
        L[i] = low
        H[i] = high
        C[i] = count


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n", [(77, 333), (1, 1), (5, 0), (0, 4)])
def test_several_reductions_in_one_loop_with_starts_of_their_own(target, m, n):
    generator = np.random.default_rng(0)
    x, s = generator.standard_normal((m, n)).astype(np.float32), generator.standard_normal(m).astype(np.float32)
    found, low, high, count = s.copy(), np.empty(m, np.float32), np.empty(m, np.float32), np.empty(m, np.int32)
    row_values(x, found, low, high, count, target=target)
    np.testing.assert_allclose(found, s + 2 * x.sum(1, dtype=float), rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(low, np.minimum(2 * x.min(1, initial=np.inf), 3))
    np.testing.assert_array_equal(high, np.maximum(2 * x.max(1, initial=-np.inf), -3))
    np.testing.assert_array_equal(count, (x > 0).sum(1))


def test_terms_that_are_used_again_are_computed_once():
    """The exponentials that softmax adds up are those that it divides."""
    function, _ = make(SOFTMAX, "float32").template.build({"M": 64, "N": 100})
    calls = [e for e in walk(function.body) if getattr(e, "name", "") == "exp"]
    assert len(calls) == 1
    assert sum(isinstance(s, Reduce) for s in walk(function.body)) == 2


def test_rows_run_in_vectors_and_are_read_once():
    """The lowered softmax: one load of X and one exponential, both of whole vectors."""
    source = make(SOFTMAX, "float32").compile(M=64, N=1024, target="cpu").get_kernel_source()
    loads = [line for line in source.split("\n") if " = X[" in line]
    assert len(loads) == 1
    assert re.search(r" = X\[.*\+: \d+\]", loads[0])
    assert len(re.findall(r"\bexp\b", source)) == 1


def test_terms_are_computed_again_where_an_operand_changed():
    @tilewright.kernel
    def twice(X: float32[M, N], S: float32[M], Z: float32[M]):
        for i in range(M):
            s = 0.0
            for j in range(N):
                s += X[i, j] * 2
            for j in range(N):
                X[i, j] = X[i, j] + 1
            z = 0.0
            for j in range(N):
                z += X[i, j] * 2
            S[i] = s
            Z[i] = z

    for target in TARGETS:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        s, z = np.empty(3, np.float32), np.empty(3, np.float32)
        twice(x, s, z, target=target)
        np.testing.assert_array_equal(z, s + 8)


@pytest.mark.parametrize("target", TARGETS)
def test_rows_too_long_for_a_tile(target):
    """70001 columns are worked off in chunks, the last of which is cut."""
    kernel = make(SOFTMAX, "float32")
    x = np.random.default_rng(1).standard_normal((2, 70001)).astype(np.float32)
    np.testing.assert_allclose(kernel(x, target=target), softmax(x.astype(float), None), rtol=1e-5)
    assert "chunks" in kernel.explain(M=2, N=70001)


@tilewright.kernel
def total(X: float32[N], S: float64[1], D: float32[N]):
    s = float64(0)
    top = X[0]
    for i in range(N):
        s += X[i]
        top = max(top, X[i])
    S[0] = s
    for i in range(N):
        D[i] = X[i] - top


@pytest.mark.parametrize("target", TARGETS)
def test_full_reduction(target):
    x = np.random.default_rng(1).standard_normal(5000).astype(np.float32)
    s, d = total(x, target=target)
    np.testing.assert_allclose(s, [x.sum(dtype=float)], rtol=1e-12)
    np.testing.assert_array_equal(d, x - x.max())
    assert len(total.notes(N=5000)) == 1
    assert "a reduction of 5000 to s (sum), top (max)" in total.explain(N=5000)


@tilewright.kernel
def sum_into_element(X: int32[N], S: int32[1]):
    for i in range(N):
        S[0] += X[i]


@tilewright.kernel
def halves_into_integer(X: int32[N], S: int32[1]):
    for i in range(N):
        S[0] += X[i] * 0.5


@pytest.mark.parametrize("target", TARGETS)
def test_sums_into_an_element(target):
    x, s = np.arange(9, dtype=np.int32), np.full(1, 5, np.int32)
    sum_into_element(x, s, target=target)
    assert s[0] == 41
    s[0] = 0
    halves_into_integer(x, s, target=target)
    expected = 0
    for value in range(9):
        expected = int(expected + value * 0.5)
    assert s[0] == expected != 18


@pytest.mark.parametrize("target", TARGETS)
def test_narrow_integers_are_added_up_wide(target):
    @tilewright.kernel
    def widths(X: uint8[M, N], S: int32[M], D: int32[M]):
        for i in range(M):
            s = 0
            d = 0
            for j in range(N):
                s += X[i, j]
                d += X[i, 0] - X[i, j]
            S[i] = s
            D[i] = d

    x = np.random.default_rng(0).integers(0, 256, (9, 300)).astype(np.uint8)
    s, d = widths(x, target=target)
    np.testing.assert_array_equal(s, x.sum(1, dtype=int))
    np.testing.assert_array_equal(d, (x[:, :1].astype(int) - x).sum(1))


@pytest.mark.parametrize("target", TARGETS)
def test_a_local_of_a_loop_that_is_read_after_it(target):
    """`last` outlives the loop, so the loop is no reduction; its value is that of the last round."""

    @tilewright.kernel
    def last_value(X: float32[M, N], S: float32[M], L: float32[M]):
        for i in range(M):
            s = 0.0
            last = -1.0
            for j in range(N):
                last = X[i, j]
                s += last
            S[i] = s
            L[i] = last

    x = np.random.default_rng(0).standard_normal((5, 7)).astype(np.float32)
    s, last = last_value(x, target=target)
    np.testing.assert_array_equal(last, x[:, -1])
    np.testing.assert_allclose(s, x.sum(1), rtol=1e-5)
    assert len(last_value.notes(M=5, N=7)) == 1


@pytest.mark.parametrize("target", TARGETS)
def test_argmax_runs_as_plain_loops(target):
    @tilewright.kernel
    def argmax(X: float16[M, N], P: int32[M]):
        for i in range(M):
            best = X[i, 0]
            place = 0
            for j in range(1, N):
                if X[i, j] > best:
                    best = X[i, j]
                    place = j
            P[i] = place

    x = np.random.default_rng(0).standard_normal((50, 77)).astype(np.float16)
    np.testing.assert_array_equal(argmax(x, target=target), x.argmax(1))
    (note,) = argmax.notes(M=50, N=77)
    assert "no known pattern" in note


@pytest.mark.parametrize("target", TARGETS)
def test_a_condition_around_the_sum(target):
    @tilewright.kernel
    def lower(X: float32[M, N], S: float32[M], C: int32[M]):
        for i in range(M):
            s = 1.0
            count = 0
            for j in range(N):
                if j <= i and X[i, j] != 0:
                    s += 1 / X[i, j]
                    count += 1
            S[i] = s
            C[i] = count

    x = np.random.default_rng(0).integers(-2, 3, (60, 70)).astype(np.float32)
    s, count = lower(x, target=target)
    seen = (np.tri(60, 70) > 0) & (x != 0)
    np.testing.assert_array_equal(count, seen.sum(1))
    np.testing.assert_allclose(s, 1 + np.divide(1, x, out=np.zeros_like(x), where=seen).sum(1), atol=1e-4)
    assert lower.notes(M=60, N=70) == []


@pytest.mark.parametrize("target", TARGETS)
def test_terms_whose_names_mean_something_else_are_computed_again(target):
    """The same text with a local of its own, and after a store in the same iteration."""

    @tilewright.kernel
    def shadowed(X: float32[M, N], S: float32[M], Y: float32[M, N], Z: float32[M, N]):
        for i in range(M):
            t = 2.0
            s = 0.0
            for j in range(N):
                s += X[i, j] * t
            for j in range(N):
                t = s
                Y[i, j] = X[i, j] * t
            t = 2.0
            for j in range(N):
                X[i, j] = 1.0
                Z[i, j] = X[i, j] * t
            S[i] = s

    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    before = x.copy()
    s, y, z = np.empty(3, np.float32), np.empty_like(x), np.empty_like(x)
    shadowed(x, s, y, z, target=target)
    np.testing.assert_array_equal(s, 2 * before.sum(1))
    np.testing.assert_array_equal(y, before * s[:, None])
    np.testing.assert_array_equal(z, np.full_like(x, 2))


@pytest.mark.parametrize("target", TARGETS)
def test_terms_of_another_dtype_are_computed_again(target):
    """A wrapped int32 product added up in int64, a comparison that is counted."""

    @tilewright.kernel
    def widths(X: int32[M, N], S: int64[M], Y: float64[M, N], C: int32[M, N]):
        for i in range(M):
            s = int64(0)
            count = 0
            for j in range(N):
                s += X[i, j] * X[i, j]
                count += X[i, j] > 7
            for j in range(N):
                Y[i, j] = X[i, j] * X[i, j]
                C[i, j] = count if X[i, j] > 7 and j > 0 else -(X[i, j] > 7)
            S[i] = s

    x = np.array([[65536, 3, 70000, 8]], np.int32)
    s, y, c = widths(x, target=target)
    squares = np.array([0, 9, 70000**2 - 2**32, 64])
    np.testing.assert_array_equal(s, [squares.sum()])
    np.testing.assert_array_equal(y, [squares])
    np.testing.assert_array_equal(c, [[-1, 0, 3, 3]])
