"""Masks, gathers, scatters, shuffles, guarded loads, atomics, prints and asserts."""

import ctypes
import threading

import numpy as np
import pytest
from cpu_harness import (
    BOOL,
    F32,
    HOST,
    I32,
    RUNNABLE,
    Loaded,
    buf,
    kernel,
    let,
    load,
    loop,
    num,
    point,
    ramp,
    resolve,
    run_both,
    same_bits,
    seq,
    splat,
    store,
    var,
)

from tilewright.errors import UnsupportedOnTargetError, VerificationError
from tilewright.ir.dtype import FORMATS, dtype
from tilewright.ir.expr import Binary, Broadcast, Call, Cast, Ramp, Select, Shuffle, binary, const
from tilewright.ir.stmt import Alloc, Assert, Atomic, Prefetch, Print, Region
from tilewright.source import Location

DTYPES = [name for name in FORMATS if name != "handle"]


def data(name, shape, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 2 if name == "bool" else 7, shape)
    return values.astype(np.float32).astype(dtype(name).numpy)


def check(func, *args, level="host"):
    mine, theirs = run_both(func, *args, target=resolve(level))
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, np.ndarray):
            same_bits(a, b, level)
    return mine


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("lanes", [3, 8, 16, 32])
def test_masked_vectors_of_every_width(lanes, level):
    names = ["float32", "float64", "int8", "bfloat16", "bool", "int64", "float8_e4m3fn"]
    n, i = var("n"), var("i")
    given, outs = [buf(f"a_{t}", (50,), t) for t in names], [buf(f"o_{t}", (50,), t) for t in names]
    mask = ramp(i, lanes) < splat(n, lanes)
    body = [
        store(o, (ramp(i, lanes),), load(a, ramp(i, lanes), mask=mask), mask) for a, o in zip(given, outs, strict=True)
    ]
    func = kernel([*given, *outs, n], loop(i, n, *body, step=lanes))
    loaded_arrays = [data(t, 50) for t in names]
    for extent in (0, 1, lanes, lanes + 1, 50):
        # the evaluator checks the range of masked lanes only, as the hardware does
        check(func, *loaded_arrays, *[data(t, 50, 1) for t in names], extent, level=level)


def test_a_mask_that_ends_at_the_end_of_the_memory_reads_no_further():
    """The last page of a mapping: a load beyond it would fault."""
    import mmap

    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    whole = np.frombuffer(memory, np.uint8)
    libc = ctypes.CDLL(None)
    if libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page), ctypes.c_size_t(page), 0):
        raise OSError("mprotect failed")
    for name in ("float32", "int8", "float64"):
        a, out, n, i = buf("A", (64,), name), buf("out", (64,), name), var("n"), var("i")
        mask = ramp(i, 16) < splat(n, 16)
        body = store(out, (ramp(i, 16),), load(a, ramp(i, 16), mask=mask), mask)
        size = dtype(name).numpy.itemsize
        start = whole[page - 5 * size : page].view(dtype(name).numpy)
        start[:] = data(name, 5)
        result = np.zeros(64, dtype(name).numpy)
        Loaded(kernel([a, out, n], loop(i, n, body, step=16)))(start, result, 5)
        same_bits(result[:5], start)


@pytest.mark.parametrize("level", RUNNABLE)
@pytest.mark.parametrize("name", ["float32", "float64", "int8", "int16", "float16", "int4", "bool"])
def test_gather_and_scatter(name, level):
    a, out, which, i = buf("A", (8, 16), name), buf("out", (128,), name), buf("which", (128,), "int32"), var("i")
    index = load(which, ramp(i, 16))
    some = Binary(dtype("boolx16"), "gt", index, splat(20, 16))
    rows = Binary(index.dtype, "floordiv", index, splat(16, 16))
    columns = Binary(index.dtype, "floormod", index, splat(16, 16))
    func = kernel(
        [a, out, which],
        loop(i, 64, store(out, (index,), load(a, rows, columns)), step=16),
        loop(i, 128, store(out, (index,), load(a, rows, columns, mask=some), some), start=64, step=16),
        store(out, (ramp(3, 8, 7),), load(a, ramp(num(0), 8), num(5))),
        store(out, (ramp(60, 4, -2),), load(a, num(2), ramp(num(3), 4, 3))),
    )
    order = np.random.default_rng(1).permutation(128).astype(np.int32)
    check(func, data(name, (8, 16)), data(name, 128, 2), order, level=level)


def test_a_shuffle_may_pick_one_lane():
    a, out = buf("A", (16,)), buf("out", (2,))
    first, second = load(a, ramp(0, 8)), load(a, ramp(8, 8))
    func = kernel(
        [a, out], *[store(out, (num(k),), Shuffle(F32, first, second, (lane,))) for k, lane in ((0, 3), (1, 9))]
    )
    result = np.zeros(2, np.float32)
    Loaded(func)(np.arange(16, dtype=np.float32), result)
    assert result.tolist() == [3, 9]


def test_scatter_to_one_place_keeps_the_last_lane():
    out = buf("out", (4,), "int32")
    func = kernel([out], store(out, (splat(num(1), 8),), ramp(num(10), 8)))
    assert check(func, np.zeros(4, np.int32))[0].tolist() == [0, 17, 0, 0]


def test_scalar_loads_and_stores_under_masks():
    a, out, i = buf("A", (8,)), buf("out", (12,)), var("i")
    inside = binary("lt", i, num(8))
    func = kernel(
        [a, out],
        loop(
            i,
            12,
            store(out, (i,), load(a, i, mask=inside) + const(1.0, F32)),
            store(out, (i,), const(7.0, F32), binary("eq", i, num(3))),
        ),
    )
    check(func, data("float32", 8), np.zeros(12, np.float32))


def test_the_side_of_a_select_that_does_not_count_reads_nothing():
    a, which, out, i = buf("A", (8,)), buf("which", (12,), "int32"), buf("out", (12,)), var("i")
    far = load(which, i) * const(1 << 24, I32)
    value = Select(F32, binary("lt", i, num(8)), load(a, i), load(a, num(0)))
    guarded = Select(F32, binary("eq", far, num(0)), load(a, far), const(-1.0, F32))
    both = binary("and", binary("eq", far, num(0)), binary("gt", load(a, far), const(-100.0, F32)))
    either = binary("or", binary("ne", far, num(0)), binary("lt", load(a, far), const(100.0, F32)))
    func = kernel(
        [a, which, out],
        loop(
            i,
            12,
            store(out, (i,), value + guarded),
            store(out, (i,), load(out, i) + const(1.0, F32), both),
            store(out, (i,), load(out, i) + const(3.0, F32), either),
        ),
    )
    zeros = np.zeros(12, np.int32)
    zeros[[2, 5, 11]] = 100
    check(func, data("float32", 8), zeros, np.zeros(12, np.float32))


def test_the_lanes_of_a_vector_select_that_do_not_count_read_nothing():
    a, out, i = buf("A", (40,)), buf("out", (48,)), var("i")
    index = ramp(i, 16)
    inside = index < splat(40, 16)
    far = index * splat(const(1, I32), 16)
    value = Select(dtype("float32x16"), inside, load(a, far), splat(const(5.0, F32), 16))
    scalar = Select(dtype("float32x16"), inside, Broadcast(dtype("float32x16"), load(a, i)), splat(const(2.0, F32), 16))
    func = kernel([a, out], loop(i, 48, store(out, (index,), value + scalar), step=16))
    check(func, data("float32", 40), np.zeros(48, np.float32))


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int8", "bool", "float64"])
def test_shuffles(name):
    a, out, i = buf("A", (64,), name), buf("out", (64,), name), var("i")
    first, second = load(a, ramp(i, 8)), load(a, ramp(i + num(8), 8))
    few = load(a, ramp(i, 4))
    of = dtype(name)
    func = kernel(
        [a, out],
        store(
            out,
            (ramp(0, 16),),
            Shuffle(of.with_lanes(16), first, second, tuple(k // 2 + 8 * (k % 2) for k in range(16))),
        ),
        store(out, (ramp(16, 8),), Shuffle(of.with_lanes(8), first, few, (0, 8, 1, 9, 2, 10, 3, 11))),
        store(out, (ramp(25, 2),), Shuffle(of.with_lanes(2), load(a, i), load(a, i + num(1)), (1, 0))),
        store(out, (ramp(27, 4),), Shuffle(of.with_lanes(4), first, load(a, i + num(30)), (8, 0, 8, 7))),
    )
    names = kernel([a, out], loop(i, 4, *func.body.stmts[0].body.stmts))
    check(names, data(name, 64), np.zeros(64, of.numpy))


@pytest.mark.parametrize("lanes", [4, 8, 16, 5])
@pytest.mark.parametrize("level", [*RUNNABLE, "host"])
def test_bfloat16_pair_products(lanes, level):
    a, b, out = buf("A", (64,), "bfloat16"), buf("B", (64,), "bfloat16"), buf("out", (32,))
    index = ramp(num(0), lanes)
    value = Call(
        dtype("float32").with_lanes(lanes),
        "dot2_bf16",
        (load(out, index), load(a, ramp(num(0), 2 * lanes)), load(b, ramp(num(8), 2 * lanes))),
    )
    result = check(
        kernel([a, b, out], store(out, (index,), value)),
        data("bfloat16", 64),
        data("bfloat16", 64, 1),
        data("float32", 32),
        level=level,
    )
    assert result[2][:lanes].any()


# --- atomics --------------------------------------------------------------------------------------------

ATOMIC_DTYPES = {
    "add": [n for n in DTYPES if n not in ("bool", "float8_e8m0fnu")],
    "max": [n for n in DTYPES if n != "float8_e8m0fnu"],
    "min": [n for n in DTYPES if n != "float8_e8m0fnu"],
    "or": [n for n in DTYPES if not dtype(n).is_float],
    "and": [n for n in DTYPES if not dtype(n).is_float],
    "xor": [n for n in DTYPES if not dtype(n).is_float],
    "load": DTYPES,
    "store": DTYPES,
    "exchange": DTYPES,
}


@pytest.mark.parametrize("scope", ["global", "shared"])
@pytest.mark.parametrize("op", list(ATOMIC_DTYPES))
def test_atomics_on_every_dtype(op, scope):
    params, arrays, body, i = [], [], [], var("i")
    for name in ATOMIC_DTYPES[op]:
        given, target, olds = (buf(f"{w}_{name}", (16,), name) for w in ("given", "target", "olds"))
        params += [given, target, olds]
        arrays += [data(name, 16), data(name, 16, 1), np.zeros(16, dtype(name).numpy)]
        where = target
        if scope == "shared":
            where = buf(f"chip_{name}", (16,), name, "shared")
            body += [Alloc(where), loop(i, 16, store(where, (i,), load(target, i)))]
        old = var(f"old_{name}", name)
        result = None if op == "store" else old
        update = Atomic(op, point(where, i), None if op == "load" else load(given, i), None, "acq_rel", result)
        body.append(loop(i, 16, update, *([store(olds, (i,), old)] if result is not None else [])))
        if scope == "shared":
            body.append(loop(i, 16, store(target, (i,), load(where, i))))
    check(kernel(params, *body), *arrays)


@pytest.mark.parametrize("order", ["relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst"])
def test_every_memory_order_is_accepted(order):
    out, f = buf("out", (4,), "int32"), buf("f", (1,))
    old = var("old")
    body = [Atomic(op, point(out, 0), num(3), None, order) for op in ("add", "store", "exchange", "max")]
    body += [Atomic("load", point(out, 0), None, None, order, old), store(out, (num(1),), old)]
    check(
        kernel([out, f], *body, Atomic("max", point(f, 0), const(2.0, F32), None, order)),
        data("int32", 4),
        data("float32", 1),
    )


@pytest.mark.parametrize("name", ["float32", "float16", "int8", "float64", "int32", "uint4"])
def test_atomics_of_concurrent_blocks_lose_nothing(name):
    total, i = buf("total", (2,), name), var("i")
    rounds = {"float16": 500, "int8": 10000, "uint4": 10001}.get(name, 20000)
    func = kernel([total], loop(i, rounds, Atomic("add", point(total, 1), const(1, dtype(name)))), grid=(4,))
    loaded = Loaded(func)
    result = np.zeros(2, dtype(name).numpy)
    args = (ctypes.c_int64 * 1)(result.ctypes.data)
    counter, status = ctypes.c_int64(0), (ctypes.c_int64 * 8)()
    entry = loaded.function(
        loaded.metadata["launches"][0]["entry"], None, *[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2
    )
    work = (ctypes.addressof(args), ctypes.addressof(counter), 4, None, ctypes.addressof(status))
    threads = [threading.Thread(target=entry, args=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = np.int64(4 * rounds)
    if dtype(name).is_int and dtype(name).bits < 32:
        expected = expected.astype(np.int8) if name == "int8" else expected % 16
    assert float(result[1]) == float(expected) and float(result[0]) == 0


def test_atomics_that_make_no_sense_are_refused():
    flags, wide = buf("flags", (4,), "bool"), buf("wide", (4,), "float32x4")
    with pytest.raises(VerificationError, match="'atomic add' is not defined on bool"):
        Loaded(kernel([flags], Atomic("add", point(flags, 0), const(True, BOOL))))
    with pytest.raises(UnsupportedOnTargetError, match="more than one element of wide"):
        Loaded(kernel([wide], Atomic("load", point(wide, 0))))


# --- prints and asserts -----------------------------------------------------------------------------------


def test_prints_pack_values_and_regions():
    a, tile, i = buf("A", (3, 4), "bfloat16"), buf("tile", (2, 2), "int4", "fragment"), var("i")
    part = Region(a, (num(1), num(2)), (num(2), num(3)))
    whole = Region(tile, (num(0), num(0)), (num(2), num(2)))
    func = kernel(
        [a],
        Alloc(tile),
        loop(
            i, 2, store(tile, (i, num(0)), const(-1, dtype("int4"))), store(tile, (i, num(1)), Cast(dtype("int4"), i))
        ),
        Print("here", (num(5), Cast(dtype("float64"), load(a, num(0), num(1))), ramp(num(1), 4)), (part, whole)),
        Print("done"),
    )
    loaded = Loaded(func)
    given = np.arange(12).reshape(3, 4).astype(dtype("bfloat16").numpy)
    loaded(given)
    first, second = loaded.metadata["prints"]
    assert (first["message"], second["message"]) == ("here", "done")
    assert first["dtypes"] == ["int32", "float64", "int32", "bfloat16", "int4"]
    assert first["shapes"] == [None, None, [4], [2, 3], [2, 2]] and first["names"] == ["", "", "", "A", "tile"]
    bf16, int4 = dtype("bfloat16").numpy, dtype("int4").numpy
    region = np.array([[6, 7, 0], [10, 11, 0]]).astype(bf16)
    parts = [
        np.int32(5),
        np.float64(1),
        np.arange(1, 5, dtype=np.int32),
        region,
        np.array([[-1, 0], [-1, 1]]).astype(int4),
    ]
    assert loaded.printed == [(0, b"".join(p.tobytes() for p in parts)), (1, b"")]


def test_prints_of_unknown_size_are_refused():
    n = var("n")
    a = buf("A", (n,))
    with pytest.raises(UnsupportedOnTargetError, match="printed part of A"):
        Loaded(kernel([a], Print("x", (), (Region(a, (num(0),), (n,)),)), sizes=(n,)))


def test_the_first_failed_assert_stops_the_kernel():
    out, limit = buf("out", (8,), "int32"), var("limit")
    b = var("b")
    place = Location("kernel.py", 7, 5, 7, 20)
    func = kernel(
        [out, limit],
        Assert(binary("ge", limit, num(0)), "limit"),
        Assert(binary("lt", b, limit), "too many", loc=place),
        store(out, (b,), num(1)),
        Assert(splat(b, 4) < splat(6, 4), "lanes"),
        grid=(8,),
        block_vars=(b,),
    )
    loaded = Loaded(func)
    assert loaded.metadata["asserts"][1] == {"message": "too many", "location": ["kernel.py", 7, 5, 20]}
    for bound, failed, block, done in ((3, 2, 3, 3), (100, 3, 6, 7), (-1, 1, 0, 0)):
        result = np.zeros(8, np.int32)
        status = loaded(result, bound)
        assert status[0] == failed and status[2] == block and result.sum() == done


def test_a_stopped_kernel_takes_no_more_blocks():
    out = buf("out", (4,), "int32")
    loaded = Loaded(kernel([out], store(out, (num(0),), load(out, 0) + num(1)), grid=(4,)))
    result, counter, status = np.zeros(4, np.int32), ctypes.c_int64(0), (ctypes.c_int64 * 8)(1 << 62)
    args = (ctypes.c_int64 * 1)(result.ctypes.data)
    entry = loaded.function(
        loaded.metadata["launches"][0]["entry"], None, *[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2
    )
    entry(ctypes.addressof(args), ctypes.addressof(counter), 4, None, ctypes.addressof(status))
    assert not result.any()


def test_prefetch_may_leave_its_buffer():
    a, i = buf("A", (8,)), var("i")
    loaded = Loaded(kernel([a], loop(i, 8, Prefetch(point(a, i * const(1 << 20, I32))))))
    assert "llvm.prefetch" in loaded.text
    assert loaded(data("float32", 8))[0] == 0


def test_register_of_bool_vectors_and_mixed_lets():
    out, i = buf("out", (32,), "int32"), var("i")
    flags, x = buf("flags", (2,), "boolx16", "register"), var("x", "int32x16")
    func = kernel(
        [out],
        Alloc(flags),
        let(x, load(out, ramp(0, 16))),
        store(flags, (num(1),), Binary(dtype("boolx16"), "gt", x, splat(3, 16))),
        store(out, (ramp(16, 16),), x, load(flags, 1)),
    )
    check(func, data("int32", 32))
    assert HOST.vector_bits >= 128 and isinstance(ramp(i, 4), Ramp) and seq().stmts == ()
