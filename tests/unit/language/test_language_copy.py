"""Moving tiles: copies in every form, fills, transposes, views, safe values, patches of images."""

from __future__ import annotations

import numpy as np
import pytest
from language_harness import both_targets, random, run, same

import tilewright.language as T


def tiled_copy(m, n, bm, bn, form, source, middle, result, alloc):
    """B = A by tiles, the operands of T.copy written in one of several forms."""

    @T.prim_func
    def main(A: T.Tensor((m, n), source), B: T.Tensor((m, n), result)):
        with T.Kernel(T.ceildiv(n, bn), T.ceildiv(m, bm), threads=128) as (bx, by):
            tile = alloc((bm, bn), middle)
            if form == "heads":
                T.copy(A[by * bm, bx * bn], tile)
                T.copy(tile, B[by * bm, bx * bn])
            elif form == "slices":
                T.copy(A[by * bm : (by + 1) * bm, bx * bn : (bx + 1) * bn], tile)
                T.copy(tile[:, :], B[by * bm : by * bm + bm, bx * bn : bx * bn + bn])
            elif form == "rows":
                for i in range(bm):
                    T.copy(A[by * bm + i, bx * bn], tile[i, :])
                    T.copy(tile[i, 0:bn], B[by * bm + i, bx * bn : bx * bn + bn])
            else:
                T.copy(A[by * bm, bx * bn], tile, coalesced_width=4, disable_tma=True, eviction_policy="evict_first")
                T.async_copy(tile, B[by * bm, bx * bn])
                T.commit_group()
                T.wait_group(0)

    return main


@both_targets
@pytest.mark.parametrize("form", ["heads", "slices", "rows", "hints"])
def test_forms_of_operands(form, target):
    a = random((37, 53))
    same(
        run(
            tiled_copy(37, 53, 16, 32, form, "float32", "float32", "float32", T.alloc_shared),
            a,
            target=target,
            out_idx=1,
        ),
        a,
    )


@both_targets
@pytest.mark.parametrize("alloc", [T.alloc_shared, T.alloc_fragment, T.alloc_local])
@pytest.mark.parametrize(
    ("source", "middle", "result"),
    [
        ("float32", "float16", "float32"),
        ("float16", "float32", "bfloat16"),
        ("int32", "int8", "float32"),
        ("float32", "int32", "int8"),
    ],
)
def test_copies_cast(source, middle, result, alloc, target):
    a = random((19, 21), source) * 3
    a = a.astype(random((1,), source).dtype)
    b = run(tiled_copy(19, 21, 8, 16, "heads", source, middle, result, alloc), a, target=target, out_idx=1)
    expected = a.astype(random((1,), middle).dtype).astype(random((1,), result).dtype)
    assert b.dtype == expected.dtype
    same(b, expected)


@both_targets
def test_reads_beyond_a_tensor_give_the_safe_value_and_writes_are_dropped(target):
    @T.prim_func
    def main(A: T.Tensor((5, 3), "float32"), B: T.Tensor((8, 8), "float32"), C: T.Tensor((5, 3), "float32")):
        with T.Kernel(1):
            T.annotate_safe_value({A: -2.5})
            tile = T.alloc_shared((8, 8), "float32")
            T.copy(A[2, 1], tile)
            T.copy(tile, B)
            T.copy(tile, C[2, 1])

    a, b, c = random((5, 3)), np.zeros((8, 8), np.float32), np.zeros((5, 3), np.float32)
    run(main, a, b, c, target=target)
    expected = np.full((8, 8), -2.5)
    expected[:3, :2] = a[2:, 1:]
    same(b, expected)
    same(c, np.pad(a[2:, 1:], ((2, 0), (1, 0))))


@both_targets
def test_dimensions_of_one_are_left_aside(target):
    @T.prim_func
    def main(A: T.Tensor((3, 4, 5, 6), "float32"), B: T.Tensor((4, 6), "float32")):
        with T.Kernel(1):
            tile = T.alloc_fragment((1, 4, 6), "float32")
            T.copy(A[2, 0:4, 3, 0:6], tile)
            T.copy(tile, B)

    a, b = random((3, 4, 5, 6)), np.zeros((4, 6), np.float32)
    run(main, a, b, target=target)
    same(b, a[2, :, 3, :])


@both_targets
def test_single_elements_negative_indices_and_ellipses(target):
    @T.prim_func
    def main(A: T.Tensor((4, 5), "float32"), B: T.Tensor((4, 5), "float32"), C: T.Tensor((5,), "int32")):
        with T.Kernel(1):
            T.copy(A[1, 2], B[0, 0])
            T.copy(A[-1, -2], B[0, 1])
            for i in T.Parallel(5):
                T.copy(A[2, i], B[3, i])
            T.copy(A[-1, ...], B[1, :])
            T.copy(A[0, 1:4], C[-4:-1])

    a, b, c = random((4, 5)) * 5, np.zeros((4, 5), np.float32), np.zeros(5, np.int32)
    run(main, a, b, c, target=target)
    expected = np.zeros((4, 5))
    expected[0, 0], expected[0, 1], expected[3], expected[1] = a[1, 2], a[3, 3], a[2], a[3]
    same(b, expected)
    same(c, [0, *np.trunc(a[0, 1:4]), 0])


@both_targets
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16", "int32", "int8", "uint8", "float64", "bool"])
def test_fills_clears_and_slice_stores(of, target):
    @T.prim_func
    def main(A: T.Tensor((6, 7), of), B: T.Tensor((6, 7), of)):
        with T.Kernel(1):
            tile = T.alloc_shared((6, 7), of)
            T.fill(tile, 1)
            T.clear(tile[1:3, 2:5])
            tile[4, :] = 0
            T.fill(tile[5, 3], 0)
            T.copy(tile, A)
            T.fill(B, 1.0 if T.dtype(of).is_float else 1)

    a, b = random((6, 7), of), random((6, 7), of)
    run(main, a, b, target=target)
    expected = np.ones((6, 7))
    expected[1:3, 2:5] = expected[4] = expected[5, 3] = 0
    same(a, expected)
    same(b, np.ones((6, 7)))


@both_targets
def test_transposes(target):
    @T.prim_func
    def main(A: T.Tensor((13, 21), "float32"), B: T.Tensor((21, 13), "float16")):
        with T.Kernel(2, 3) as (bx, by):
            tile = T.alloc_shared((8, 8), "float32")
            turned = T.alloc_fragment((8, 8), "float16")
            T.copy(A[bx * 8, by * 8], tile)
            T.transpose(tile, turned)
            T.copy(turned, B[by * 8, bx * 8])

    a, b = random((13, 21)), np.zeros((21, 13), np.float16)
    run(main, a, b, target=target)
    same(b, a.T.astype(np.float16))


@both_targets
def test_views_name_the_same_storage(target):
    @T.prim_func
    def main(A: T.Tensor((4, 6), "float32"), B: T.Tensor((24,), "int32"), C: T.Tensor((2, 3, 8), "uint16")):
        with T.Kernel(1):
            tile = T.alloc_shared((4, 6), "float32")
            T.copy(A, tile)
            flat = T.reshape(tile, (24,))
            bits = T.view(flat, dtype="int32")
            T.copy(bits, B)
            T.copy(T.view(tile, (2, 3, 8), "uint16"), C)
            flat[3] = 7.0
            whole = T.Tensor((24,), "float32", A.data)
            whole[0] = tile[0, 3]

    a, b, c = random((4, 6)), np.zeros(24, np.int32), np.zeros((2, 3, 8), np.uint16)
    before = a.copy()
    run(main, a, b, c, target=target)
    same(b, before.view(np.int32).reshape(-1))
    same(c, before.view(np.uint16).reshape(2, 3, 8))
    assert a[0, 0] == 7.0
    same(a.reshape(-1)[1:], before.reshape(-1)[1:])


@both_targets
@pytest.mark.parametrize(("stride", "dilation", "pad", "channels"), [(1, 1, 1, 3), (2, 1, 0, 4), (2, 2, 2, 1)])
def test_patches_of_images(stride, dilation, pad, channels, target):
    n, h, w, kernel = 2, 7, 9, 3
    reach = dilation * (kernel - 1) + 1
    out_h, out_w = (h + 2 * pad - reach) // stride + 1, (w + 2 * pad - reach) // stride + 1
    rows, columns = n * out_h * out_w, kernel * kernel * channels

    @T.prim_func
    def main(X: T.Tensor((n, h, w, channels), "float16"), P: T.Tensor((rows + 5, columns + 3), "float32")):
        with T.Kernel(T.ceildiv(rows + 5, 16), T.ceildiv(columns + 3, 8)) as (bx, by):
            tile = T.alloc_shared((16, 8), "float32")
            T.c2d_im2col(X, tile, bx, by, kernel, stride, dilation, pad)
            T.copy(tile, P[bx * 16, by * 8])

    x = random((n, h, w, channels), "float16")
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (reach, reach), axis=(1, 2))
    patches = windows[:, ::stride, ::stride, :, ::dilation, ::dilation].transpose(0, 1, 2, 4, 5, 3)
    p = np.full((rows + 5, columns + 3), np.nan, np.float32)
    run(main, x, p, target=target)
    same(p, np.pad(patches.reshape(rows, columns).astype(np.float32), ((0, 5), (0, 3))))
