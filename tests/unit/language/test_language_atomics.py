"""Atomics in element, slice and tile form, prints and asserts, from Python source."""

from __future__ import annotations

import numpy as np
import pytest
from language_harness import both_targets, near, random, run, same

import tilewright.language as T
from tilewright.errors import DeviceAssertError


@both_targets
@pytest.mark.parametrize(
    ("name", "of", "join"),
    [
        ("atomic_add", "float32", np.add),
        ("atomic_add", "int32", np.add),
        ("atomic_add", "float64", np.add),
        ("atomic_add", "float16", np.add),
        ("atomic_add", "bfloat16", np.add),
        ("atomic_max", "float32", np.maximum),
        ("atomic_max", "int32", np.maximum),
        ("atomic_min", "float16", np.minimum),
        ("atomic_min", "int8", np.minimum),
        ("atomic_or", "int32", np.bitwise_or),
        ("atomic_or", "uint8", np.bitwise_or),
    ],
)
def test_elements_slices_and_tiles(name, of, join, target):
    function = getattr(T, name)

    @T.prim_func
    def main(A: T.Tensor((6, 9), of), B: T.Tensor((3, 9), of), C: T.Tensor((8, 12), of), D: T.Tensor((9,), of)):
        with T.Kernel(6) as row:
            tile = T.alloc_shared((1, 9), of)
            T.copy(A[row, 0], tile)
            for j in T.Parallel(9):
                function(B[row % 3, j], A[row, j])
            function(C[row, 1:10], tile)
            function(C[row, 5], tile, memory_order="relaxed")
            function(D, A[row, :])

    a = np.abs(random((6, 9), of))
    b, c, d = np.ones((3, 9), a.dtype), np.ones((8, 12), a.dtype), np.ones(9, a.dtype)
    run(main, a, b, c, d, target=target)
    expected = [np.ones((3, 9), a.dtype), np.ones((8, 12), a.dtype), np.ones(9, a.dtype)]
    if join is np.add:
        expected = [e.astype(np.float64) for e in expected]
    x = a.astype(expected[0].dtype)
    for row in range(6):
        expected[0][row % 3] = join(expected[0][row % 3], x[row])
        expected[1][row, 1:10] = join(expected[1][row, 1:10], x[row])
        expected[1][row, 5:12] = join(expected[1][row, 5:12], x[row, :7])
        expected[2] = join(expected[2], x[row])
    for actual, wanted in zip((b, c, d), expected, strict=True):
        if of in ("float16", "bfloat16") and join is np.add:  # rounded after each of the six sums
            rtol = 7 * (2.0**-11 if of == "float16" else 2.0**-8)
            np.testing.assert_allclose(actual.astype(np.float64), wanted, rtol=rtol)
        else:
            near(actual, wanted, of, k=7)


@both_targets
def test_the_old_value_and_scalars_on_whole_tensors(target):
    @T.prim_func
    def main(
        A: T.Tensor((5,), "int32"), B: T.Tensor((5,), "int32"), C: T.Tensor((1,), "int32"), D: T.Tensor((64,), "int32")
    ):
        with T.Kernel(64) as block:
            ticket = T.atomic_add(C[0], 1, return_prev=True)
            D[ticket] = block + 1
        with T.Kernel(1):
            for i in T.Parallel(5):
                B[i] = T.atomic_max(A[i], 2, return_prev=True)
            T.atomic_add(A, 10)
            T.atomic_store(A[0], T.atomic_load(A[1]) + 100)

    a, b, c, d = np.arange(5, dtype=np.int32), np.zeros(5, np.int32), np.zeros(1, np.int32), np.zeros(64, np.int32)
    run(main, a, b, c, d, target=target)
    same(b, np.arange(5))
    same(a, [112, 12, 12, 13, 14])
    assert c[0] == 64 and sorted(d) == list(range(1, 65))


@both_targets
def test_pairs_fours_and_what_lies_outside(target):
    @T.prim_func
    def main(A: T.Tensor((10,), "float32"), B: T.Tensor((10,), "float32")):
        with T.Kernel(3):
            for i in T.Parallel(2):
                T.atomic_addx2(B[i * 2], A[i * 2])
            T.atomic_addx4(B[4:8], A[4:8])
            T.atomic_add(B[8], 1.0)
            for i in T.Parallel(4):
                T.atomic_add(B[9 + i], 1.0)

    a, b = random((10,)), np.zeros(10, np.float32)
    run(main, a, b, target=target)
    near(b, [*(3 * a[:8].astype(np.float64)), 3, 3], k=3)


@both_targets
def test_prints(target, capfd):
    @T.prim_func
    def main(A: T.Tensor((2, 3), "float32"), n: T.int32):
        with T.Kernel(1):
            tile = T.alloc_shared((2, 3), "float32")
            T.copy(A, tile)
            T.print(n * 2, msg="twice")
            T.print(tile, "tile")
            T.print(A[1, 2])
            T.print(msg="only text")

    run(main, np.arange(6, dtype=np.float32).reshape(2, 3), 21, target=target)
    lines = capfd.readouterr().out.splitlines()
    assert (
        lines[0] == "twice: 42"
        and lines[1].startswith("tile: tile = ")
        and lines[2] == "5.0"
        and lines[3] == "only text"
    )


@both_targets
@pytest.mark.parametrize("form", ["call", "statement"])
def test_asserts(form, target):
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            if form == "call":
                T.device_assert(A[i] >= 0, "negative input")
            else:
                assert A[i] >= 0, "negative input"

    run(main, np.zeros(8, np.int32), target=target)
    with pytest.raises(DeviceAssertError, match="negative input") as info:
        run(main, np.array([0, 1, 2, -3, 4, 5, 6, 7], np.int32), target=target)
    assert info.value.location.line and "A[i] >= 0" in str(info.value)
