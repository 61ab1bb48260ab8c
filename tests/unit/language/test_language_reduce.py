"""Reductions and scans from Python source: every operation, dimension, dtype, NaN, clear, in place."""

from __future__ import annotations

import numpy as np
import pytest
from language_harness import both_targets, near, random, run, same

import tilewright.language as T

OPERATIONS = {
    "sum": (T.reduce_sum, np.sum),
    "max": (T.reduce_max, np.max),
    "min": (T.reduce_min, np.min),
    "abssum": (T.reduce_abssum, lambda x, axis: np.abs(x).sum(axis)),
    "absmax": (T.reduce_absmax, lambda x, axis: np.abs(x).max(axis)),
    "bitand": (T.reduce_bitand, np.bitwise_and.reduce),
    "bitor": (T.reduce_bitor, np.bitwise_or.reduce),
    "bitxor": (T.reduce_bitxor, np.bitwise_xor.reduce),
}
JOINS = {"sum": np.add, "abssum": np.add, "max": np.maximum, "min": np.minimum, "absmax": np.maximum}
SHAPE = (5, 7, 11)


def reduction(function, shape, of, dim, result=None, **options):
    kept = tuple(s for d, s in enumerate(shape) if d != dim % len(shape))

    @T.prim_func
    def main(A: T.Tensor(shape, of), B: T.Tensor(kept, result or of)):
        with T.Kernel(1):
            tile = T.alloc_fragment(shape, of)
            out = T.alloc_fragment(kept, result or of)
            T.copy(A, tile)
            T.copy(B, out)
            function(tile, out, dim=dim, **options)
            T.copy(out, B)

    return main


@both_targets
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_every_operation_over_every_dimension(name, dim, target):
    function, expected = OPERATIONS[name]
    of = "int32" if name.startswith("bit") else "float32"
    a = random(SHAPE, of)
    b = np.full([s for d, s in enumerate(SHAPE) if d != dim % 3], 99, a.dtype)
    run(reduction(function, SHAPE, of, dim), a, b, target=target)
    near(b, expected(a, axis=dim), k=SHAPE[dim] * 2)


@both_targets
@pytest.mark.parametrize("name", JOINS)
def test_the_old_value_joins_in(name, target):
    function, expected = OPERATIONS[name]
    a, b = random((9, 13)), random((9,))
    before = b.copy()
    run(reduction(function, (9, 13), "float32", 1, clear=False), a, b, target=target)
    near(b, JOINS[name](before, expected(a, axis=1)), k=14)


@both_targets
@pytest.mark.parametrize(
    ("of", "result"),
    [
        ("float16", "float16"),
        ("bfloat16", "float32"),
        ("float64", "float64"),
        ("int8", "int32"),
        ("uint8", "uint8"),
        ("bool", "int32"),
    ],
)
def test_dtypes_of_sums(of, result, target):
    a = np.abs(random((6, 40), of)) if of != "bool" else random((6, 40), of)
    b = np.zeros(6, random((1,), result).dtype)
    run(reduction(T.reduce_sum, (6, 40), of, 1, result), a, b, target=target)
    if b.dtype.kind in "iu":
        same(b, a.astype(np.int64).sum(1).astype(b.dtype))
    else:
        near(b, a.astype(np.float64).sum(1), result, k=40)


@both_targets
@pytest.mark.parametrize("name", ["max", "min", "absmax"])
@pytest.mark.parametrize("propagate", [False, True])
def test_nan_is_left_out_unless_it_is_to_spread(name, propagate, target):
    function, _ = OPERATIONS[name]
    a = random((4, 19))
    a[0, 3] = a[1, 0] = a[1, 18] = np.nan
    a[2] = np.nan
    a[3, 5] = -np.inf
    b = np.zeros(4, np.float32)
    run(reduction(function, (4, 19), "float32", 1, nan_propagate=propagate), a, b, target=target)
    values = np.abs(a) if name == "absmax" else a
    with np.errstate(invalid="ignore"), pytest.warns(RuntimeWarning) if not propagate else np.errstate():
        expected = {
            ("max", False): np.nanmax,
            ("min", False): np.nanmin,
            ("absmax", False): np.nanmax,
            ("max", True): np.max,
            ("min", True): np.min,
            ("absmax", True): np.max,
        }[name, propagate](values, axis=1)
    same(b, expected)


@both_targets
def test_reductions_by_name_to_a_variable_and_to_an_element(target):
    @T.prim_func
    def main(A: T.Tensor((33,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            tile = T.alloc_shared((33,), "float32")
            T.copy(A, tile)
            top = T.alloc_var("float32")
            T.reduce(tile, top, "max", 0)
            B[0] = top
            T.reduce(tile, B[1], "min", dim=0, clear=True)
            T.reduce_sum(tile[3:17], B[2], dim=0, batch=1)
            T.reduce_sum(tile[0:0], B[3], dim=0)

    a, b = random((33,)), np.full(4, 9, np.float32)
    run(main, a, b, target=target)
    near(b, [a.max(), a.min(), a[3:17].astype(np.float64).sum(), 0], k=14)


@both_targets
@pytest.mark.parametrize("name", ["cumsum", "cummax"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("of", ["float32", "int32"])
def test_scans(name, reverse, dim, of, target):
    function = getattr(T, name)

    @T.prim_func
    def main(A: T.Tensor((9, 14), of), B: T.Tensor((9, 14), of), C: T.Tensor((9, 14), of)):
        with T.Kernel(1):
            tile = T.alloc_shared((9, 14), of)
            out = T.alloc_fragment((9, 14), of)
            T.copy(A, tile)
            function(tile, out, dim=dim, reverse=reverse)
            T.copy(out, B)
            function(src=tile, dim=dim, reverse=reverse)
            T.copy(tile, C)

    a = random((9, 14), of)
    b, c = np.zeros_like(a), np.zeros_like(a)
    run(main, a, b, c, target=target)
    accumulate = (np.add if name == "cumsum" else np.maximum).accumulate
    expected = accumulate(a.astype(np.float64), axis=dim)
    if reverse:
        expected = np.flip(accumulate(np.flip(a.astype(np.float64), dim), axis=dim), dim)
    near(b, expected, k=14)
    same(c, b)


@both_targets
def test_any_and_all(target):
    @T.prim_func
    def main(A: T.Tensor((3, 5), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(1):
            tile = T.alloc_shared((3, 5), "int32")
            T.copy(A, tile)
            B[0] = T.any_of(tile)
            B[1] = T.all_of(tile)
            if T.any_of(tile[2, :]):
                B[2] = 1
            B[3] = T.all_of(tile[0, 1:3])

    a = np.zeros((3, 5), np.int32)
    a[0, :3] = 7
    b = np.full(4, 5, np.int32)
    run(main, a, b, target=target)
    same(b, [1, 0, 5, 1])


@both_targets
@pytest.mark.parametrize(("op", "join"), [("sum", np.sum), ("max", np.max), ("min", np.min)])
def test_reducers(op, join, target):
    @T.prim_func
    def main(A: T.Tensor((10, 37), "float32"), B: T.Tensor((10,), "float32")):
        with T.Kernel(1):
            r = T.alloc_reducer((10,), "float32", op=op, replication="all")
            T.reducer_init(r)
            for i, j in T.Parallel(10, 37):
                if op == "sum":
                    r[i] += A[i, j]
                elif op == "max":
                    r[i] = T.max(r[i], A[i, j])
                else:
                    T.reducer_update(r[i], A[i, j])
            T.finalize_reducer(r)
            T.copy(r, B)

    a, b = random((10, 37)), np.zeros(10, np.float32)
    run(main, a, b, target=target)
    near(b, join(a.astype(np.float64), axis=1), k=37)
