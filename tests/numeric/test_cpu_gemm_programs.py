"""Programs around matrix products, large enough that steps are joined and copies overlap, against the evaluator.

Values are small integers and sums are exact, so results are equal to the bit.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.ir.dtype import dtype as as_dtype
from tilewright.simulator.reference import run


def integers(shape, dtype, seed=0):
    kind = as_dtype(dtype)
    return np.random.default_rng(seed).integers(0 if kind.kind == "uint" else -2, 3, shape).astype(kind.numpy)


def agree(func, *arrays):
    """Both targets on copies of the arrays; returns the arrays as the CPU left them."""
    expected, got = [x.copy() for x in arrays], [x.copy() for x in arrays]
    run(func, expected)
    tilewright.compile(func, target="cpu")(*got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))
    return got


def test_two_kernels_in_a_function():
    """The second kernel multiplies what the first has written."""
    m, n, k = 130, 77, 333

    @T.prim_func
    def chain(
        A: T.Tensor((m, k), "float32"),
        B: T.Tensor((k, n), "float32"),
        C: T.Tensor((m, n), "float32"),
        D: T.Tensor((m, m), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((64, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 64, step * 32], a)
                T.copy(B[step * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 32])
        with T.Kernel(T.ceildiv(m, 64), T.ceildiv(m, 64), threads=128) as (bx, by):
            left = T.alloc_shared((64, 32), "float32")
            right = T.alloc_shared((64, 32), "float32")
            d = T.alloc_fragment((64, 64), "float32")
            T.clear(d)
            for step in T.Pipelined(T.ceildiv(n, 32), num_stages=2):
                T.copy(C[by * 64, step * 32], left)
                T.copy(C[bx * 64, step * 32], right)
                T.gemm(left, right, d, transpose_B=True)
            T.copy(d, D[by * 64, bx * 64])

    agree(
        chain, integers((m, k), "float32", 1), integers((k, n), "float32", 2), *(np.ones((m, x), "f4") for x in (n, m))
    )


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_one_tensor_is_both_operands(dtype):
    size = 333

    @T.prim_func
    def square(
        A: T.Tensor((size, size), dtype), B: T.Tensor((size, size), dtype), C: T.Tensor((size, size), "float32")
    ):
        with T.Kernel(T.ceildiv(size, 64), T.ceildiv(size, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64), dtype)
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(size, 32), num_stages=2):
                T.copy(A[by * 64, step * 32], a)
                T.copy(A[step * 32, bx * 64], b)
                T.gemm(a, b, c)
                T.copy(B[step * 32, bx * 64], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 64, bx * 64])

    a, c = integers((size, size), dtype), np.zeros((size, size), "f4")
    tilewright.compile(square, target="cpu")(a, a, c)  # one array for both parameters
    np.testing.assert_array_equal(c, 2 * (a.astype(np.float64) @ a.astype(np.float64)))


@pytest.mark.parametrize("padding", [(1, 0, 3), (16, 48, 0), (5, 7, 11)])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_declared_strides(padding, transpose_b):
    m, n, k = 97, 70, 600
    pa, pb, pc = padding
    b_shape = (n, k) if transpose_b else (k, n)

    @T.prim_func
    def product(
        A: T.StridedTensor((m, k), (k + pa, 1), "float32"),
        B: T.StridedTensor(b_shape, (b_shape[1] + pb, 1), "float32"),
        C: T.StridedTensor((m, n), (n + pc, 1), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 32, step * 32], a)
                T.copy(B[bx * 32, step * 32] if transpose_b else B[step * 32, bx * 32], b)
                T.gemm(a, b, c, transpose_B=transpose_b)
            T.copy(c, C[by * 32, bx * 32])

    whole = [integers((r, c + p), "float32", p) for (r, c), p in zip(((m, k), b_shape, (m, n)), padding, strict=True)]
    before = whole[2].copy()
    a, b, c = (x[:, : x.shape[1] - p] for x, p in zip(whole, padding, strict=True))
    tilewright.compile(product, target="cpu")(a, b, c)
    np.testing.assert_array_equal(c, a @ (b.T if transpose_b else b))
    np.testing.assert_array_equal(whole[2][:, n:], before[:, n:])  # what lies between the rows is not touched


def test_strides_of_columns():
    """A tensor whose rows are not consecutive in memory either."""
    m, n, k = 50, 64, 300

    @T.prim_func
    def product(
        A: T.StridedTensor((m, k), (1, m), "float32"),
        B: T.StridedTensor((k, n), (2 * n, 2), "float32"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                T.copy(A[by * 32, step * 32], a)
                T.copy(B[step * 32, bx * 32], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 32, bx * 32])

    a, b = integers((k, m), "float32", 1).T, integers((k, 2 * n), "float32", 2)[:, ::2]
    c = np.zeros((m, n), "f4")
    tilewright.compile(product, target="cpu")(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


@pytest.mark.parametrize("sizes", [(97, 70, 300), (64, 64, 544), (97, 70, 577)])
@pytest.mark.parametrize("transposed", [(False, False), (True, True)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_safe_values(sizes, transposed, dtype):
    """Outside of A lies 1, outside of B 2: steps beyond K count."""
    m, n, k = sizes
    ta, tb = transposed
    result = "float64" if dtype == "float64" else "float32"

    @T.prim_func
    def product(
        A: T.Tensor((k, m) if ta else (m, k), dtype),
        B: T.Tensor((n, k) if tb else (k, n), dtype),
        C: T.Tensor((m, n), result),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            T.annotate_safe_value({A: 1, B: 2})
            a = T.alloc_shared((32, 32), dtype)
            b = T.alloc_shared((32, 32), dtype)
            c = T.alloc_fragment((32, 32), result)
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 32) + 1, num_stages=2):
                T.copy(A[step * 32, by * 32] if ta else A[by * 32, step * 32], a)
                T.copy(B[bx * 32, step * 32] if tb else B[step * 32, bx * 32], b)
                T.gemm(a, b, c, transpose_A=ta, transpose_B=tb)
            T.copy(c, C[by * 32, bx * 32])

    a, b = integers((k, m) if ta else (m, k), dtype, 1), integers((n, k) if tb else (k, n), dtype, 2)
    (*_, c) = agree(product, a, b, np.zeros((m, n), as_dtype(result).numpy))
    left, right = (x.astype(np.float64).T if t else x.astype(np.float64) for x, t in ((a, ta), (b, tb)))
    beyond = (-(-k // 32) + 1) * 32 - k
    np.testing.assert_array_equal(c, left @ right + 2 * beyond)


@pytest.mark.parametrize("k", [640, 333])
@pytest.mark.parametrize("scopes", [("shared", "fragment"), ("fragment", "shared"), ("fragment", "fragment")])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_dequantised_operand(k, scopes, transpose_b):
    """B holds two 4-bit numbers in a byte and gets its scales between copy and product."""
    m, n, block_k = 40, 64, 32

    @T.prim_func
    def product(
        A: T.Tensor((m, k), "float16"),
        B: T.Tensor((n, (k + 1) // 2), "uint8"),
        Scale: T.Tensor((n,), "float16"),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = (
                T.alloc_shared((32, block_k), "float16")
                if scopes[0] == "shared"
                else T.alloc_fragment((32, block_k), "float16")
            )
            packed = T.alloc_shared((32, block_k // 2), "uint8")
            b_shape = (32, block_k) if transpose_b else (block_k, 32)
            b = T.alloc_shared(b_shape, "float16") if scopes[1] == "shared" else T.alloc_fragment(b_shape, "float16")
            c = T.alloc_fragment((32, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, block_k), num_stages=2):
                T.copy(A[by * 32, step * block_k], a)
                T.copy(B[bx * 32, step * (block_k // 2)], packed)
                for i, j in T.Parallel(32, block_k):
                    number = T.cast((packed[i, j // 2] >> (j % 2 * 4)) & 15, "int32") - 8
                    if transpose_b:
                        b[i, j] = T.cast(number, "float16") * Scale[bx * 32 + i]
                    else:
                        b[j, i] = T.cast(number, "float16") * Scale[bx * 32 + i]
                T.gemm(a, b, c, transpose_B=transpose_b)
            T.copy(c, C[by * 32, bx * 32])

    a, scale = integers((m, k), "float16", 1), integers((n,), "float16", 2)
    bits = np.random.default_rng(3).integers(0, 256, (n, (k + 1) // 2)).astype(np.uint8)
    (*_, c) = agree(product, a, bits, scale, np.zeros((m, n), "f4"))
    numbers = np.stack([bits & 15, bits >> 4], axis=2).reshape(n, -1)[:, :k].astype(np.float64) - 8
    np.testing.assert_array_equal(c, a.astype(np.float64) @ (numbers * scale.astype(np.float64)[:, None]).T)


@pytest.mark.parametrize("k", [640, 333])
def test_products_under_conditions_and_in_nested_loops(k):
    """Causal blocks: steps beyond the diagonal are left out; the result is read and rescaled between the loops."""
    m, n = 96, 80

    @T.prim_func
    def program(A: T.Tensor((m, k), "float32"), B: T.Tensor((k, n), "float32"), C: T.Tensor((m, n), "float32")):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 32), threads=128) as (bx, by):
            a = T.alloc_shared((32, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((32, 32), "float32")
            high = T.alloc_fragment((32,), "float32")
            T.copy(C[by * 32, bx * 32], c)
            for outer in T.serial(3):
                for step in T.Pipelined(T.ceildiv(k, 32), num_stages=2):
                    T.copy(A[by * 32, step * 32], a)
                    T.copy(B[step * 32, bx * 32], b)
                    if step * 3 <= by * 20 + outer:
                        T.gemm(a, b, c)
                if outer != 1:
                    for step in T.Pipelined(T.ceildiv(k, 32), num_stages=3):
                        T.copy(A[by * 32, step * 32], a)
                        T.copy(B[step * 32, bx * 32], b)
                        T.gemm(a, b, c)
                T.reduce_max(c, high, dim=1)
                for i, j in T.Parallel(32, 32):
                    c[i, j] = T.max(c[i, j] - high[i], -100)
            T.copy(c, C[by * 32, bx * 32])

    agree(program, integers((m, k), "float32", 1), integers((k, n), "float32", 2), integers((m, n), "float32", 3))


@pytest.mark.parametrize("steps", [T.serial, T.Pipelined], ids=["serial", "pipelined"])
def test_places_that_an_index_tensor_gives(steps):
    """As in paged attention: the tile of a step is found through an index that the step itself has copied."""
    tiles = 5

    @T.prim_func
    def gather(
        Index: T.Tensor((tiles, 1), "int32"),
        A: T.Tensor((16, 32 * tiles), "float32"),
        B: T.Tensor((32 * tiles, 32), "float32"),
        C: T.Tensor((16, 32), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            index = T.alloc_shared((1,), "int32")
            a = T.alloc_shared((16, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in steps(tiles):
                T.copy(Index[step, 0:1], index)
                T.copy(A[0, index[0] * 32], a)
                T.copy(B[index[0] * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    order = np.array([[2], [0], [7], [4], [-1]], np.int32)  # two of them outside
    a, b = integers((16, 32 * tiles), "float32", 1), integers((32 * tiles, 32), "float32", 2)
    agree(gather, order, a, b, np.zeros((16, 32), "f4"))


@pytest.mark.parametrize("steps", [T.serial, T.Pipelined], ids=["serial", "pipelined"])
def test_a_tensor_that_the_loop_itself_writes(steps):
    @T.prim_func
    def program(
        A: T.Tensor((16, 128), "float32"),
        Work: T.Tensor((16, 128), "float32"),
        B: T.Tensor((128, 32), "float32"),
        C: T.Tensor((16, 32), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in steps(4):
                T.copy(A[0:16, step * 32 : step * 32 + 32], Work[0:16, step * 32 : step * 32 + 32])
                T.copy(Work[0, step * 32], a)
                T.copy(B[step * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    shapes = ((16, 128), (16, 128), (128, 32), (16, 32))
    agree(program, *(integers(s, "float32", seed) for seed, s in enumerate(shapes)))


@pytest.mark.parametrize("steps", [T.serial, T.Pipelined], ids=["serial", "pipelined"])
def test_depths_known_in_the_loop_only(steps):
    """A triangular product: step s multiplies its first 4 s + 4 columns."""

    @T.prim_func
    def program(A: T.Tensor((16, 128), "float32"), B: T.Tensor((128, 32), "float32"), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in steps(4):
                T.copy(A[0, step * 32], a)
                T.copy(B[step * 32, 0], b)
                T.gemm(a[0:16, 0 : step * 4 + 4], b[0 : step * 4 + 4, 0:32], c)
            T.copy(c, C)

    agree(program, *(integers(s, "float32", seed) for seed, s in enumerate(((16, 128), (128, 32), (16, 32)))))


def test_strided_results_without_elements():
    """NumPy gives arrays without elements any strides; they are no fault."""

    @T.prim_func
    def product(A: T.Tensor((8, 8), "float32"), C: T.StridedTensor((8, 0), (4, 1), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((8, 8), "float32")
            c = T.alloc_fragment((8, 8), "float32")
            T.copy(A, a)
            T.gemm(a, a, c, clear_accum=True)
            T.copy(c, C[0, 0])

    tilewright.compile(product, target="cpu")(integers((8, 8), "float32"), np.zeros((8, 4), "f4")[:, :0])
