"""Declarative kernels from outside: how annotations are read, how sizes are bound, what a call takes and returns."""

# ruff: noqa: F821

from __future__ import annotations

import linecache

import numpy as np
import pytest

import tilewright
from tilewright import errors, grid
from tilewright.language import float32, int32

LISTING = """
import tilewright
from tilewright import block_size, shared_memory
from tilewright.language import float16
{sizes}
@tilewright.kernel
def matmul_kernel(A: float16[B, K], B: float16[K, N], C: float16[B, N]):
    block_size(128, 128)
    shared_A = shared_memory(float16, [block_size[0], K])
    shared_B = shared_memory(float16, [K, block_size[1]])
    for i in range(block_size[0]):
        for j in range(block_size[1]):
            acc = 0.0
            for k in range(K):
                acc += shared_A[i, k] * shared_B[k, j]
            C[i, j] = acc
"""


def execute(text: str) -> dict[str, object]:
    """The names of a source text that was executed as a file of its own."""
    file = f"<calls {hash(text)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space: dict[str, object] = {}
    exec(compile(text, file, "exec", dont_inherit=True), space)
    return space


@pytest.mark.parametrize(
    "text",
    [
        "from __future__ import annotations\n" + LISTING.format(sizes=""),
        LISTING.format(sizes='B, K, N = tilewright.sizes("B K N")'),
        LISTING.format(sizes='B, K, N = tilewright.sizes("B, K, N")'),
        LISTING.format(sizes="B, K, N = 3, 4, 5  # what a size is called elsewhere does not matter"),
    ],
    ids=["deferred", "sizes", "commas", "numbers"],
)
def test_the_listing_as_written(text):
    kernel = execute(text)["matmul_kernel"]
    a, b = np.eye(7, 9, dtype=np.float16), np.arange(63, dtype=np.float16).reshape(9, 7)
    np.testing.assert_array_equal(kernel(a, b), b[:7])
    np.testing.assert_array_equal(kernel(a, b, target="reference"), b[:7])


def test_annotations_are_not_evaluated():
    """Under PEP 563 and 649 the names of sizes exist nowhere."""
    source = "from __future__ import annotations\n" + LISTING.format(sizes="")
    kernel = execute(source)["matmul_kernel"]
    assert kernel.template.program.size_names == {"B", "K", "N"}
    assert [str(p.dtype) for p in kernel.template.parameters] == ["float16"] * 3


def test_sizes_checks_its_names():
    assert tilewright.sizes("M").name == "M"
    for text in ("M 2", "", "M-1"):
        with pytest.raises(errors.AnnotationError):
            tilewright.sizes(text)


WIDTH = 4


@tilewright.kernel
def axpy(X: float32[M, 4], Y: float32[M, 4], out: float32[2 * M], n: int32, alpha: float32):
    for i in range(M):
        out[2 * i] = alpha * X[i, 0] + Y[i, WIDTH - 1]
        out[2 * i + 1] = n


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_sizes_that_are_numbers_and_expressions(target):
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((3, 4), np.float32)
    expected = [1, 9, 9, 9, 17, 9]
    np.testing.assert_array_equal(axpy(x, y, 9, 2.0, target=target), expected)
    out = np.empty(6, np.float32)
    assert axpy(x, y, out, 9, 2.0, target=target) is None
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(axpy(x, alpha=2.0, n=9, Y=y, target=target), expected)
    with pytest.raises(errors.ArgumentShapeError):
        axpy(x, y, np.empty(5, np.float32), 9, 2.0, target=target)


@tilewright.kernel
def scale(X: float32[M, N], Y: float32[M, N]):
    """Twice X."""
    for i, j in grid(M, N):
        Y[i, j] = X[i, j] * 2


@pytest.mark.parametrize(
    "arguments, kind, text",
    [
        ((np.ones((2, 3), np.float32), np.ones((2, 4), np.float32)), errors.ArgumentShapeError, "size N is 3 by"),
        ((np.ones(3, np.float32),), errors.ArgumentShapeError, "2 dimensions (M, N)"),
        ((np.ones((2, 3), np.float64),), errors.ArgumentDTypeError, "float32"),
        ((), errors.ArgumentCountError, "missing X"),
        ((np.ones((2, 3), np.float32),) * 3, errors.ArgumentCountError, "takes 2 arguments"),
    ],
    ids=["sizes", "rank", "dtype", "none", "many"],
)
def test_wrong_arguments(arguments, kind, text):
    with pytest.raises(kind) as info:
        scale(*arguments)
    assert text in str(info.value)


def test_keywords():
    x = np.ones((2, 3), np.float32)
    with pytest.raises(errors.ArgumentTypeError, match="'Z'"):
        scale(x, Z=x)
    with pytest.raises(errors.ArgumentTypeError, match="twice"):
        scale(x, x, X=x)
    assert scale.__doc__ == "Twice X."
    assert scale.__name__ == "scale"


def test_compile_by_sizes():
    kernel = scale.compile(M=5, N=7, returns=True)
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    np.testing.assert_array_equal(kernel(x), 2 * x)
    assert scale.compile(M=5, N=7, returns=True) is kernel
    for sizes, text in (
        ({"M": 5}, "'N' is missing"),
        ({"M": 5, "N": 7, "K": 1}, "no size 'K'"),
        ({"M": -1, "N": 7}, "M"),
    ):
        with pytest.raises(errors.ArgumentValueError, match=text):
            scale.compile(**sizes)


def test_one_array_for_two_tensors():
    """In place where each element is read before it is written; refused where the loops would read what they wrote."""

    @tilewright.kernel
    def reverse(X: float32[N], Y: float32[N]):
        for i in range(N):
            Y[i] = X[N - 1 - i]

    @tilewright.kernel
    def read_again(X: float32[N], Y: float32[N]):
        for i in range(N):
            Y[i] = X[i] + 1
        for i in range(N):
            Y[i] = X[i] + 1

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    scale(x, x)
    np.testing.assert_array_equal(x, 2 * np.arange(6).reshape(2, 3))
    for kernel in (reverse, read_again):
        flat = np.arange(6, dtype=np.float32)
        with pytest.raises(errors.ArgumentOverlapError):
            kernel(flat, flat)
        np.testing.assert_array_equal(flat, np.arange(6))


def test_an_output_without_a_known_shape():
    @tilewright.kernel
    def widen(X: float32[M], Y: float32[M, N]):
        for i, j in grid(M, N):
            Y[i, j] = X[i]

    with pytest.raises(errors.LanguageError, match="size N of Y"):
        widen(np.ones(3, np.float32))


@pytest.mark.parametrize(
    "hints", [{"block": 0}, {"block": (2.5, 1)}, {"blocks": 3}, {"threads": "all"}, {"stages": -1}]
)
def test_hints_are_checked(hints):
    with pytest.raises(errors.LanguageError, match="hint"):
        tilewright.kernel(**hints)(scale)


def test_words_of_kernels_outside_of_one():
    for use in (lambda: grid(3, 4), lambda: tilewright.block_size[0], lambda: tilewright.shared_memory(float32, [1])):
        with pytest.raises(errors.KernelStructureError, match="only has a meaning inside"):
            use()


def test_int_sizes_bind_nothing():
    @tilewright.kernel
    def first(X: int32[8], Y: int32[1]):
        for i in range(1):
            Y[i] = X[-1]

    assert first(np.arange(8, dtype=np.int32))[0] == 7
    with pytest.raises(errors.ArgumentShapeError):
        first(np.arange(9, dtype=np.int32))
