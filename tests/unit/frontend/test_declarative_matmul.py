"""Contractions of declarative kernels: values on both targets, and the tile gemm that they become."""

# ruff: noqa: F821

from __future__ import annotations

import linecache
import re

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright import block_size, grid, shared_memory
from tilewright.ir.dtype import dtype as dtype_of
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Gemm
from tilewright.language import float16, float32, int8, int32, uint8

TARGETS = ("cpu", "reference")
EPS = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53, "int32": 0, "int8": 0}


def random(shape, name: str, seed: int) -> np.ndarray:
    source = np.random.default_rng(seed)
    element = dtype_of(name)
    values = source.integers(-4, 5, shape) if element.is_int else source.standard_normal(shape)
    return values.astype(element.numpy)


def close(found: np.ndarray, expected: np.ndarray, name: str, k: int) -> None:
    """`found` within the rounding of k products in float32 (float64) and one of the result."""
    accumulated = 2**-53 if name == "float64" else 2**-24
    bound = np.abs(expected).max(initial=1.0) * (EPS[name] + 2 * accumulated * k)
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=EPS[name], atol=bound)


@tilewright.kernel
def listing(A: float16[B, K], B: float16[K, N], C: float16[B, N]):
    block_size(128, 128)
    shared_A = shared_memory(float16, [block_size[0], K])
    shared_B = shared_memory(float16, [K, block_size[1]])
    for i in range(block_size[0]):
        for j in range(block_size[1]):
            acc = 0.0
            for k in range(K):
                acc += shared_A[i, k] * shared_B[k, j]
            C[i, j] = acc


SIZES = [(1000, 77, 333), (128, 128, 32), (1, 1, 1), (5, 200, 130), (129, 1, 33)]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", SIZES)
def test_listing_of_the_article(target, size):
    m, n, k = size
    a, b, c = random((m, k), "float16", 1), random((k, n), "float16", 2), np.full((m, n), np.nan, np.float16)
    listing(a, b, c, target=target)
    close(c, a.astype(float) @ b.astype(float), "float16", k)
    result = listing(a, b, target=target)
    assert result.dtype == np.float16
    np.testing.assert_array_equal(result, c)


@tilewright.kernel
def hint_free(A: float16[M, K], B: float16[K, N], C: float16[M, N]):
    for i, j in grid(M, N):
        acc = float32(0)
        for k in range(K):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc


HINT_FREE = """
@tilewright.kernel
def matmul(A: {0}[M, K], B: {0}[K, N], C: {1}[M, N]):
    for i, j in grid(M, N):
        acc = {1}(0)
        for k in range(K):
            acc += A[i, k] * B[k, j]
        C[i, j] = acc
"""


def of_dtype(name: str, accumulate: str):
    """The hint-free matmul of other dtypes, in a file of its own."""
    text = "from __future__ import annotations\n" + HINT_FREE.format(name, accumulate)
    file = f"<matmul {name} {accumulate}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"tilewright": tilewright}
    exec(compile(text, file, "exec"), space)
    return space["matmul"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "name, accumulate",
    [
        ("float16", "float32"),
        ("bfloat16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int32", "int32"),
        ("int8", "int32"),
        ("float32", "float64"),
        ("float8_e4m3fn", "float32"),
    ],
)
def test_dtypes(target, name, accumulate):
    m, n, k = 200, 77, 133
    kernel = of_dtype(name, accumulate)
    a, b = random((m, k), name, 1), random((k, n), name, 2)
    close(kernel(a, b, target=target), a.astype(float) @ b.astype(float), accumulate, k)
    assert kernel.notes(M=m, N=n, K=k) == []


@tilewright.kernel
def all_transposed(A: float32[K, M], B: float32[N, K], C: float32[M, N]):
    for i, j in grid(M, N):
        acc = 0.0
        for k in range(K):
            acc += A[k, i] * B[j, k]
        C[i, j] = acc


@tilewright.kernel
def columns_first(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
    for j in range(N):
        for i in range(M):
            acc = 0.0
            for k in range(K):
                acc = B[k, j] * A[i, k] + acc
            C[i, j] = acc


@tilewright.kernel
def batched(A: float32[B, M, K], X: float32[B, K, N], C: float32[B, M, N]):
    for b in range(B):
        for i, j in grid(M, N):
            acc = 0.0
            for k in range(K):
                acc += A[b, i, k] * X[b, k, j]
            C[b, i, j] = acc


@tilewright.kernel
def heads_inside(Q: float32[M, H, K], X: float32[N, H, K], S: float32[H, M, N]):
    for h, i, j in grid(H, M, N):
        acc = 0.0
        for k in range(K):
            acc += Q[i, h, k] * X[j, h, k]
        S[h, i, j] = acc


@tilewright.kernel
def gram(A: float32[M, K], C: float32[M, M]):
    for i, j in grid(M, M):
        acc = 0.0
        for k in range(K):
            acc += A[i, k] * A[j, k]
        C[i, j] = acc


@tilewright.kernel
def in_place(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
    for i, j in grid(M, N):
        for k in range(K):
            C[i, j] += A[i, k] * B[k, j]


@tilewright.kernel
def from_bias(A: float32[M, K], B: float32[K, N], bias: float32[N], C: float32[M, N]):
    for i, j in grid(M, N):
        acc = bias[j]
        for k in range(K):
            acc += A[i, k] * B[k, j]
        C[i, j] = relu(acc) * 0.5


@tilewright.kernel
def two_sums(A: float32[M, K], B: float32[K, N], G: float32[K, N], C: float32[M, N], D: float32[M, N]):
    for i, j in grid(M, N):
        up = 0.0
        gate = 0.0
        for k in range(K):
            up += A[i, k] * B[k, j]
            gate += A[i, k] * G[k, j]
        C[i, j] = up * sigmoid(gate)
        D[i, j] = up + gate


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("size", [(130, 77, 45), (16, 16, 16), (1, 9, 3)])
def test_forms(target, size):
    m, n, k = size
    a, b, g = random((m, k), "float32", 1), random((k, n), "float32", 2), random((k, n), "float32", 3)
    wide = [x.astype(np.float64) for x in (a, b, g)]
    product = wide[0] @ wide[1]
    close(all_transposed(a.T.copy(), b.T.copy(), target=target), product, "float32", k)
    close(columns_first(a, b, target=target), product, "float32", k)
    close(gram(a, target=target), wide[0] @ wide[0].T, "float32", k)
    bias = random((n,), "float32", 4)
    close(from_bias(a, b, bias, target=target), np.maximum(product + bias, 0) * 0.5, "float32", k)
    c = random((m, n), "float32", 5)
    expected = c + product
    in_place(a, b, c, target=target)
    close(c, expected, "float32", k)
    c, d = two_sums(a, b, g, target=target)
    gate = wide[0] @ wide[2]
    close(c, product / (1 + np.exp(-gate)), "float32", 8 * k)
    close(d, product + gate, "float32", 2 * k)
    stack = random((3, m, k), "float32", 6), random((3, k, n), "float32", 7)
    close(batched(*stack, target=target), stack[0].astype(float) @ stack[1].astype(float), "float32", k)
    q, x = random((m, 3, k), "float32", 8), random((n, 3, k), "float32", 9)
    close(heads_inside(q, x, target=target), np.einsum("ihk,jhk->hij", q.astype(float), x.astype(float)), "float32", k)
    sizes = {"M": m, "N": n, "K": k}
    for kernel in (all_transposed, columns_first, from_bias, in_place, two_sums):
        assert kernel.notes(**sizes) == []
        assert any(isinstance(s, Gemm) for s in walk(kernel.template.build(sizes)[0].body))


@pytest.mark.parametrize("target", TARGETS)
def test_attention_scores_with_a_mask(target):
    @tilewright.kernel
    def scores(Q: float16[M, K], X: float16[N, K], S: float32[M, N], window: int32):
        for i, j in grid(M, N):
            acc = 0.0
            for k in range(K):
                acc += Q[i, k] * X[j, k]
            S[i, j] = acc / sqrt(K) if j <= i and i - j < window else -float("inf")

    q, x = random((70, 40), "float16", 1), random((90, 40), "float16", 2)
    s = np.empty((70, 90), np.float32)
    scores(q, x, s, 9, target=target)
    i, j = np.mgrid[:70, :90]
    seen = (j <= i) & (i - j < 9)
    assert np.isneginf(s[~seen]).all()
    close(s[seen], (q.astype(float) @ x.astype(float).T / np.sqrt(40))[seen], "float32", 40)
    assert scores.notes(M=70, N=90, K=40) == []


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("m, n, k", [(0, 5, 3), (5, 0, 3), (5, 3, 0)])
def test_empty_sizes(target, m, n, k):
    """No points: nothing is computed; no terms: the sum's first value."""
    c = hint_free(np.ones((m, k), np.float16), np.ones((k, n), np.float16), target=target)
    assert c.shape == (m, n)
    assert not c.any()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("hints", [{"block": (32, 48), "block_k": 16}, {"block": 20, "stages": 0}, {"block_k": 1}])
def test_a_schedule_changes_the_speed_alone(target, hints):
    def matmul(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        for i, j in grid(M, N):
            acc = 0.0
            for k in range(K):
                acc += A[i, k] * B[k, j]
            C[i, j] = acc

    kernel = tilewright.kernel(matmul, **hints)
    a, b = random((70, 37), "float32", 1), random((37, 101), "float32", 2)
    close(kernel(a, b, target=target), a.astype(float) @ b.astype(float), "float32", 37)


def explicit(M, N, K, dtype="float32"):
    @T.prim_func
    def hint_free(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, 128), T.ceildiv(M, 128), threads=128) as (bx, by):
            A_shared = T.alloc_shared((128, 32), dtype)
            B_shared = T.alloc_shared((32, 128), dtype)
            acc = T.alloc_fragment((128, 128), "float32")
            T.clear(acc)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=3):
                T.copy(A[by * 128, k * 32], A_shared)
                T.copy(B[k * 32, bx * 128], B_shared)
                T.gemm(A_shared, B_shared, acc)
            T.copy(acc, C[by * 128, bx * 128])

    return hint_free


def renamed(source: str) -> str:
    """A listing with its names numbered in the order of their first use."""
    numbers: dict[str, str] = {}
    return re.sub(r"\b[A-Za-z_]\w*", lambda m: numbers.setdefault(m[0], f"n{len(numbers)}"), source)


@pytest.mark.parametrize("size", [(256, 384, 96), (1000, 77, 333)])
@pytest.mark.parametrize("kernel", [hint_free, listing])
def test_declarative_is_the_explicit_kernel(kernel, size):
    """The lowered code of both forms is the same."""
    m, n, k = size
    first = "M" if kernel is hint_free else "B"
    declared = kernel.compile(target="cpu", **{first: m, "N": n, "K": k}).get_kernel_source()
    written = tilewright.compile(explicit(m, n, k, "float16"), target="cpu").get_kernel_source()
    assert renamed(declared) == renamed(written)


def test_small_float32_kernel_is_the_explicit_one():
    declared = of_dtype("float32", "float32").compile(M=128, N=128, K=32, target="cpu").get_kernel_source()
    written = tilewright.compile(explicit(128, 128, 32), target="cpu").get_kernel_source()
    assert renamed(declared) == renamed(written)


def test_what_is_no_tile_gemm_is_still_right():
    """Products whose tile gemm would compute something else: mixed signs, wide sums of wrapped products, masks in the sum."""

    @tilewright.kernel
    def mixed(A: uint8[M, K], B: int8[K, N], C: int32[M, N]):
        for i, j in grid(M, N):
            acc = 0
            for k in range(K):
                acc += A[i, k] * B[k, j]
            C[i, j] = acc

    a = np.random.default_rng(0).integers(0, 256, (9, 20)).astype(np.uint8)
    b = random((20, 7), "int8", 1)
    for target in TARGETS:
        np.testing.assert_array_equal(mixed(a, b, target=target), a.astype(int) @ b.astype(int))

    @tilewright.kernel
    def triangular(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        for i, j in grid(M, N):
            acc = 0.0
            for k in range(min(i + 1, K)):
                acc += A[i, k] * B[k, j]
            C[i, j] = acc

    a, b = random((30, 30), "float32", 1), random((30, 11), "float32", 2)
    for target in TARGETS:
        close(triangular(a, b, target=target), np.tril(a.astype(float)) @ b, "float32", 30)
    assert len(triangular.notes(M=30, N=11, K=30)) == 1
