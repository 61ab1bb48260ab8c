"""Which calls of an eager kernel share one compilation."""

import threading

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.runtime import compile as compile_module


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "reference")


@pytest.fixture
def compiled(monkeypatch):
    """The names of the functions that were compiled, in order."""
    compile_module.MEMORY.clear()
    found = []
    real = compile_module.compile_func

    def counting(func, *rest):
        found.append(func.name)
        return real(func, *rest)

    monkeypatch.setattr(compile_module, "compile_func", counting)
    return found


def make_add():
    @tilewright.jit
    def add(X, Y):
        M = T.dynamic("M")
        N = T.const("N")
        X: T.Tensor((M, N), "float32")
        Y: T.Tensor((M, N), "float32")
        Z = T.empty((M, N), "float32")
        with T.Kernel(M, threads=32) as bx:
            for j in T.Parallel(N):
                Z[bx, j] = X[bx, j] + Y[bx, j]
        return Z

    return add


def test_dynamic_sizes_are_taken_at_the_launch(compiled):
    add = make_add()
    for rows in (3, 5, 1, 0, 70):
        x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
        np.testing.assert_array_equal(add(x, Y=x), x + x)
    assert compiled == ["add"] and len(add.kernels) == 1
    assert (add.cache.hits, add.cache.misses) == (4, 1)
    x = np.ones((3, 9), np.float32)
    np.testing.assert_array_equal(add(x, x), x + x)
    assert compiled == ["add"] * 2
    with pytest.raises(tilewright.errors.ArgumentShapeError, match="dimension 0 is 4, but the size M is 3"):
        add(x, np.ones((4, 9), np.float32))
    assert compiled == ["add"] * 2


def test_a_dynamic_size_in_the_signature(compiled):
    n = T.dynamic("n")

    @tilewright.jit
    def double(X: T.Tensor((n,), "float32")):
        Z = T.empty((n,), "float32")
        with T.Kernel(T.ceildiv(n, 32), threads=32) as bx:
            for j in T.Parallel(32):
                Z[bx * 32 + j] = X[bx * 32 + j] * 2
        return Z

    for size in (3, 40, 32):
        np.testing.assert_array_equal(double(np.full(size, 3, np.float32)), np.full(size, 6))
    assert compiled == ["double"]


def test_dynamic_strides_and_expressions(compiled):
    @tilewright.jit
    def pick(X, Y):
        M, S = T.dynamic("M, S")
        X: T.StridedTensor((M, 4), (S, 1), "float32")
        Y: T.Tensor((M * 2,), "float32")
        with T.Kernel(M, threads=32) as bx:
            Y[bx * 2] = X[bx, 3]

    for rows, pitch in ((3, 4), (3, 6), (5, 9)):
        x = np.arange(rows * pitch, dtype=np.float32).reshape(rows, pitch)[:, :4]
        y = np.zeros(rows * 2, np.float32)
        pick(x, y)
        np.testing.assert_array_equal(y[::2], x[:, 3])
    assert compiled == ["pick"]


def test_constant_strides_specialise(compiled):
    @tilewright.jit
    def first(X):
        M, S = T.const("M, S")
        X: T.StridedTensor((M, 4), (S, 1), "float32")
        Z = T.empty((M,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.serial(M):
                Z[i] = X[i, 0] + S
        return Z

    memory = np.arange(60, dtype=np.float32)
    for pitch in (4, 5, 4):
        x = memory[: 3 * pitch].reshape(3, pitch)[:, :4]
        np.testing.assert_array_equal(first(x), x[:, 0] + pitch)
    assert compiled == ["first"] * 2


def test_a_number_used_before_its_declaration_is_part_of_the_program(compiled):
    @tilewright.jit
    def fill(X, n):
        double = n * 2
        n: T.int32
        X: T.Tensor((4,), "float32")
        with T.Kernel(1, threads=32):
            X[0] = double
            X[1] = n

    x = np.zeros(4, np.float32)
    for n in (1, 5, 1):
        fill(x, n)
        assert x[:2].tolist() == [2 * n, n]
    assert compiled == ["fill"] * 2


def test_a_tensor_described_before_its_declaration_is_part_of_the_program(compiled):
    @tilewright.jit
    def fill(X):
        rows = X.shape[0]
        M = T.dynamic("M")
        X: T.Tensor((M,), "float32")
        with T.Kernel(1, threads=32):
            X[0] = rows

    for rows in (2, 3, 2):
        x = np.zeros(rows, np.float32)
        fill(x)
        assert x[0] == rows
    assert compiled == ["fill"] * 2


def test_a_shape_used_in_its_own_declaration():
    @tilewright.jit
    def fill(X):
        X: T.Tensor(X.shape, "float32")
        with T.Kernel(1, threads=32):
            X[0] = X.shape[0]

    for rows in (2, 3):
        x = np.zeros(rows, np.float32)
        fill(x)
        assert x[0] == rows


def test_a_declaration_in_one_branch_only():
    @tilewright.jit
    def fill(X, n, declared):
        X: T.Tensor((4,), "float32")
        if declared:
            n: T.int32
        with T.Kernel(1, threads=32):
            X[0] = n

    x = np.zeros(4, np.float32)
    for n, declared in ((1, True), (2, True), (3, False), (4, False), (5, True)):
        fill(x, n, declared)
        assert x[0] == n
    assert fill.cache.misses == 3


def test_values_dtypes_and_ranks_specialise():
    @tilewright.jit
    def fill(X, value=1.0):
        M = T.dynamic("M")
        X: T.Tensor((M,), "float32")
        with T.Kernel(1, threads=32):
            X[0] = value

    x = np.zeros(3, np.float32)
    for value in (1.0, 2.0, 2, True):
        fill(x, value)
        assert x[0] == value
    assert fill.cache.misses == 4
    with pytest.raises(tilewright.errors.ArgumentDTypeError):
        fill(np.zeros(3, np.float64))
    with pytest.raises(tilewright.errors.ArgumentShapeError):
        fill(np.zeros((3, 3), np.float32))


def test_descriptions_and_arrays_share_a_kernel(compiled):
    add = make_add()
    spec = tilewright.ArraySpec((100, 8), T.float32)
    kernel = add.compile(spec, spec)
    x = np.ones((3, 8), np.float32)
    add(x, x)
    assert add.compile(x, x) is kernel and compiled == ["add"]


def test_threads_with_different_sizes_share_one_compilation(compiled):
    add = make_add()
    gate = threading.Barrier(6)
    wrong = []

    def work(rows):
        x = np.full((rows, 8), rows, np.float32)
        gate.wait()
        wrong.extend(rows for _ in range(5) if not np.array_equal(add(x, x), x + x))

    threads = [threading.Thread(target=work, args=(rows,)) for rows in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and compiled == ["add"] and add.cache.misses == 1


def test_clear_cache_forgets_everything(compiled):
    add = make_add()
    x = np.ones((3, 8), np.float32)
    add(x, x)
    add.clear_cache()
    assert add.cache.size == 0 and not add.kernels
    np.testing.assert_array_equal(add(x, x), x + x)
    assert add.cache.misses == 1
