"""`@jit`: both forms, specialisation, one compilation a key."""

import threading

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright import ArraySpec, errors
from tilewright.ir.dtype import dtype


@pytest.fixture(autouse=True)
def fresh(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TILEWRIGHT_TARGET", "reference")


def lazy(**options):
    @tilewright.jit(out_idx=-1, **options)
    def scale(size, factor=2.0, element="float32"):
        @T.prim_func
        def main(X: T.Tensor((size,), element), Y: T.Tensor((size,), element)):
            with T.Kernel(1, threads=32):
                for i in T.Parallel(size):
                    Y[i] = X[i] * factor

        return main

    return scale


def eager():
    @tilewright.jit
    def add(X, Y, bias: float = 0.0):
        M, N = T.const("M, N")
        X: T.Tensor((M, N), "float32")
        Y: T.Tensor((M, N), "float32")
        Z = T.empty((M, N), "float32")
        with T.Kernel(M, threads=32) as bx:
            for j in T.Parallel(N):
                Z[bx, j] = X[bx, j] + Y[bx, j] + bias
        return Z

    return add


def test_lazy_calls_give_kernels_once():
    scale = lazy()
    assert scale.form == "lazy" and scale.name == "scale" and scale.__name__ == "scale"
    kernel = scale(8)
    np.testing.assert_array_equal(kernel(np.arange(8, dtype=np.float32)), np.arange(8) * 2)
    assert scale(8) is kernel and scale(size=8, factor=2.0) is kernel
    assert scale(8, 3.0) is not kernel and scale(9) is not kernel
    assert scale.cache == tilewright.runtime.jit.CacheInfo(hits=2, misses=3, size=3)
    scale.clear_cache()
    assert scale.cache.size == 0


def test_values_that_are_equal_but_differ_get_their_own_kernels():
    scale = lazy()
    kernels = {id(scale(4, factor)) for factor in (1, 1.0, True, 0.0, -0.0)}
    assert len(kernels) == 5
    assert scale(4, float("nan")) is scale(4, float("nan"))


def test_eager_calls_run():
    add = eager()
    assert add.form == "eager"
    x, y = np.ones((3, 5), np.float32), np.full((3, 5), 2, np.float32)
    np.testing.assert_array_equal(add(x, y), x + y)
    np.testing.assert_array_equal(add(x, y, bias=0.5), x + y + 0.5)
    np.testing.assert_array_equal(add(x, Y=y), x + y)
    assert (add.cache.hits, add.cache.misses) == (1, 2)
    np.testing.assert_array_equal(add(x[:2], y[:2]), x[:2] + y[:2])
    assert add.cache.misses == 3


def test_eager_kernels_can_be_compiled_from_descriptions():
    add = eager()
    spec = ArraySpec((3, 5), dtype("float32"))
    kernel = add.compile(spec, spec)
    x = np.ones((3, 5), np.float32)
    np.testing.assert_array_equal(kernel(x, x), x + x)
    add(x, x)
    assert (add.cache.hits, add.cache.misses) == (1, 1)
    assert "add" in add.get_kernel_source()


def test_numbers_that_are_declared_do_not_specialise():
    @tilewright.jit
    def scale(X, factor):
        N = T.const("N")
        X: T.Tensor((N,), "float32")
        factor: T.float32
        Y = T.empty((N,), "float32")
        with T.Kernel(1, threads=32):
            for i in T.Parallel(N):
                Y[i] = X[i] * factor
        return Y

    x = np.arange(4, dtype=np.float32)
    for factor in (1.0, 2.5, -3):
        np.testing.assert_array_equal(scale(x, factor), x * np.float32(factor))
    assert scale.cache.misses == 1


def test_wrong_arguments_show_the_call():
    add = eager()
    with pytest.raises(errors.ArgumentCountError, match="add") as caught:
        add(np.ones((2, 2), np.float32))
    assert caught.value.location.file == __file__
    with pytest.raises(errors.ArgumentDTypeError, match=r"kernel 'add', argument 'Y': .* complex64") as caught:
        add(np.ones((2, 2), np.float32), np.ones((2, 2), np.complex64))
    assert caught.value.location.file == __file__
    with pytest.raises(errors.ArgumentTypeError, match="hashable"):
        add(np.ones((2, 2), np.float32), np.ones((2, 2), np.float32), bias={1, 2})
    with pytest.raises(errors.ArgumentDTypeError):
        add(np.ones((2, 2)), np.ones((2, 2)))


def test_results_are_named_one_way():
    with pytest.raises(errors.ArgumentValueError, match="out_idx has no meaning"):

        @tilewright.jit(out_idx=-1)
        def add(X):
            N = T.const("N")
            X: T.Tensor((N,), "float32")
            Y = T.empty((N,), "float32")
            with T.Kernel(1, threads=32):
                T.copy(X, Y)
            return Y


def test_only_functions_can_be_decorated():
    with pytest.raises(errors.TilewrightError):
        tilewright.jit(5)


def test_par_compile():
    scale = lazy()
    kernels = scale.par_compile([{"size": 4}, (5, 3.0), {"size": 4}])
    assert kernels[0] is kernels[2]
    np.testing.assert_array_equal(kernels[1](np.ones(5, np.float32)), [3] * 5)


def test_compile_takes_jit_functions_without_arguments():
    @tilewright.jit
    def one():
        @T.prim_func
        def main(X: T.Tensor((4,), "float32")):
            with T.Kernel(1, threads=32):
                T.fill(X, 1.0)

        return main

    x = np.zeros(4, np.float32)
    tilewright.compile(one)(x)
    assert x.sum() == 4


def test_many_threads_share_one_compilation(monkeypatch):
    add = eager()
    x = np.ones((4, 4), np.float32)
    results = []
    threads = [threading.Thread(target=lambda: results.append(add(x, x))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 8 and all((r == 2).all() for r in results)
    assert add.cache.misses == 1
