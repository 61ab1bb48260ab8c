"""Programs that nest deeper, or are larger, than the compiler can take are refused; none crashes it."""

import threading

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright.errors import UnsupportedSyntaxError
from tilewright.ir.nesting import MOST_LEVELS


def program(tree):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(64):
                B[i] = tree(A[i])

    return main


def sum_of(count):
    def tree(x):
        for k in range(count):
            x = x + float(k)
        return x

    return tree


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_deep_expressions_compile_within_the_limit(target):
    count = MOST_LEVELS - 10
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    tilewright.compile(program(sum_of(count)), target=target)(x, y)
    assert (y == 1 + count * (count - 1) // 2).all()


def test_deeper_ones_are_refused_where_they_are_written():
    with pytest.raises(UnsupportedSyntaxError, match=f"more than {MOST_LEVELS} levels deep") as caught:
        program(sum_of(3000))
    assert caught.value.location.line == sum_of.__code__.co_firstlineno + 3
    assert "names inside the kernel" in caught.value.hint


def test_parts_used_twice_count_twice():
    def tree(x):
        for _ in range(64):
            x = x + x
        return x

    with pytest.raises(UnsupportedSyntaxError, match="more than 2000000 operations"):
        program(tree)


def test_long_sums_of_names_compile_also_on_a_small_stack():
    @T.prim_func
    def main(A: T.Tensor((16,), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=32):
            for i in T.Parallel(16):
                x = A[i]
                for c in [float(k) for k in range(1000)]:
                    x = x + c
                B[i] = x

    results = []

    def work():
        x, y = np.zeros(16, np.float32), np.zeros(16, np.float32)
        tilewright.compile(main, target="cpu")(x, y)
        results.append(y)

    before = threading.stack_size(512 << 10)  # what macOS gives to threads
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert (results[0] == 499500).all()


def test_a_deep_call_stack_is_no_internal_error():
    """A program within the limit, compiled where Python's own stack is nearly used up."""
    func = program(sum_of(MOST_LEVELS - 10))

    def deeper(levels):
        return tilewright.compile(func, target="cpu") if levels == 0 else deeper(levels - 1)

    with pytest.raises(UnsupportedSyntaxError, match="the program nests too deep"):
        deeper(800)
