"""Control flow, buffers, blocks and the ABI."""

import numpy as np
import pytest
from cpu_harness import (
    BOOL,
    F32,
    I32,
    I64,
    Loaded,
    buf,
    kernel,
    let,
    load,
    loop,
    num,
    ramp,
    run_both,
    same_bits,
    seq,
    splat,
    store,
    var,
)

from tilewright.errors import UnsupportedOnTargetError, VerificationError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Cast, Select, binary, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Alias, Alloc, Break, Continue, If, Launch, Let, While


def floats(n, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)


def check(func, *args, sizes=()):
    mine, theirs = run_both(func, *args, sizes=sizes)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(a, np.ndarray):
            same_bits(a, b)
    return mine


def test_serial_loop_with_symbolic_bounds_and_sizes():
    n = var("n")
    a, b, i = buf("A", (n,)), buf("B", (n,)), var("i")
    func = kernel([a, b], loop(i, n, store(b, (i,), load(a, i) + const(1.5, F32)), start=0, step=1), sizes=(n,))
    for size in (0, 1, 7):
        check(func, floats(size), np.zeros(size, np.float32), sizes=(size,))


def test_loop_steps_of_both_signs_known_and_not():
    out, i, step = buf("out", (10,), "int32"), var("i"), var("step")
    body = store(out, (i,), load(out, i) * num(2) + i)
    up, down = loop(i, 10, body, start=1, step=3), loop(i, 0, body, start=9, step=-4)
    either = loop(i, Select(I32, binary("gt", step, num(0)), num(10), num(-1)), body, start=5, step=step)
    for given in (2, -3):
        check(kernel([out, step], up, down, either), np.arange(10, dtype=np.int32), given)


def test_loop_variable_is_exact_beyond_32_bits():
    out, i = buf("out", (2,), "int64"), var("i")
    product = binary("mul", i, const(1 << 30, I32))
    wide = Cast(I64, product)
    func = kernel([out], loop(i, 10, store(out, (num(0),), wide * i), store(out, (num(1),), product), start=8))
    result = check(func, np.zeros(2, np.int64))
    assert result[0].tolist() == [81 << 30, 1 << 30]


def test_break_and_continue_in_serial_unrolled_and_while_loops():
    out, i, j = buf("out", (20,), "int32"), var("i"), var("j")
    count = buf("count", (), "int32", "var")

    def body(variable, base):
        skip = If(binary("eq", binary("floormod", variable, num(3)), num(1)), seq(Continue()))
        stop = If(binary("gt", variable, load(out, num(19))), seq(Break()))
        return (skip, stop, store(out, (variable + num(base),), variable * num(7)))

    serial = loop(i, 8, *body(i, 0))
    unrolled = loop(j, 8, *body(j, 8), kind="unroll")
    more = While(
        binary("lt", load(count), num(5)),
        seq(
            store(count, (), load(count) + num(1)),
            If(binary("eq", load(count), num(2)), seq(Continue())),
            If(binary("eq", load(count), num(4)), seq(Break())),
            store(out, (load(count) + num(14),), num(99)),
        ),
    )
    func = kernel([out], serial, unrolled, Alloc(count, num(0)), more)
    for last in (100, 4):
        start = np.full(20, -1, np.int32)
        start[19] = last
        check(func, start)


def test_if_else_and_nested_scopes():
    out, i = buf("out", (16,), "int32"), var("i")
    odd = binary("eq", binary("floormod", i, num(2)), num(1))
    inner = If(binary("gt", i, num(7)), seq(store(out, (i,), num(1))), seq(store(out, (i,), i * i)))
    check(kernel([out], loop(i, 16, If(odd, seq(inner), seq(store(out, (i,), -i))))), np.zeros(16, np.int32))


@pytest.mark.parametrize("grid", [(3,), (3, 2), (2, 3, 4), (1, 5)])
def test_blocks_are_numbered_with_the_first_index_fastest(grid):
    out = buf("out", tuple(reversed(grid)), "int32")
    names = tuple(var(n) for n in ("bx", "by", "bz")[: len(grid)])
    value = num(1)
    for name in names:
        value = value * num(10) + name
    func = kernel([out], store(out, tuple(reversed(names)), value), grid=grid, block_vars=names)
    check(func, np.zeros(tuple(reversed(grid)), np.int32))


@pytest.mark.parametrize("order", ["row", "column"])
@pytest.mark.parametrize("grid", [(3, 7), (7, 3), (4, 4), (1, 5), (5, 2, 3)])
@pytest.mark.parametrize("panel", [1, 2, 3, 10])
def test_swizzled_blocks_all_run_once(order, grid, panel):
    out = buf("out", grid, "int32")
    names = tuple(var(n) for n in ("bx", "by", "bz")[: len(grid)])
    launch = Launch(
        tuple(num(g) for g in grid), names, seq(store(out, names, load(out, *names) + num(1))), swizzle=(panel, order)
    )
    result = np.zeros(grid, np.int32)
    Loaded(PrimFunc("swizzled", (out,), seq(launch), (), (), "lowered"))(result)
    assert (result == 1).all()


def test_no_blocks_when_an_extent_is_not_positive():
    out, n = buf("out", (4,), "int32"), var("n", "int64")
    func = kernel([out, n], store(out, (num(0),), num(1)), grid=(n, 2))
    for extent in (0, -3):
        result = np.zeros(4, np.int32)
        Loaded(func)(result, extent)
        assert not result.any()


def test_scalar_parameters_of_every_kind():
    kinds = {"int8": -5, "uint8": 250, "int16": -300, "int32": -70000, "uint32": 4000000000, "int64": -(1 << 40)}
    kinds |= {"uint64": (1 << 64) - 3, "bool": True, "float16": 1.5, "bfloat16": -2.5, "float32": 0.1, "float64": 0.1}
    kinds |= {"float8_e4m3fn": 3.5, "int4": -3}
    params, outs, body = [], [], []
    for name in kinds:
        params.append(var(f"p_{name}", name))
        outs.append(buf(f"o_{name}", (1,), name))
        body.append(store(outs[-1], (num(0),), params[-1]))
    arrays = [np.zeros(1, dtype(name).numpy) for name in kinds]
    check(kernel(params + outs, *body), *kinds.values(), *arrays)


def test_arena_buffers_in_separate_scopes_share_memory_and_keep_their_contents():
    out, i, j = buf("out", (64,)), var("i"), var("j")
    first, second, third = (buf(n, (64,), scope="shared") for n in ("first", "second", "third"))

    def through(of, base):
        fill = loop(i, 64, store(of, (i,), load(out, i) + const(base, F32)))
        return seq(Alloc(of), fill, loop(j, 64, store(out, (num(63) - j,), load(of, j) * const(0.5, F32))))

    func = kernel(
        [out],
        Alloc(first),
        loop(i, 64, store(first, (i,), load(out, i))),
        through(second, 1.0),
        through(third, 2.0),
        loop(i, 64, store(out, (i,), load(out, i) + load(first, i))),
    )
    loaded = Loaded(func)
    assert loaded.metadata["scratch_bytes"] == 2 * 64 * 4
    check(func, floats(64))


def test_padded_pitch_and_vector_elements():
    out, i, j = buf("out", (5, 32)), var("i"), var("j")
    tile = buf("tile", (5, 32), scope="shared", strides=(48, 1))
    wide = buf("wide", (5, 2), "float32x16", "fragment")
    func = kernel(
        [out],
        Alloc(tile),
        Alloc(wide),
        loop(i, 5, loop(j, 2, store(tile, (i, ramp(j * num(16), 16)), load(out, i, ramp(j * num(16), 16))))),
        loop(i, 5, loop(j, 2, store(wide, (i, j), load(tile, num(4) - i, ramp(j * num(16), 16))))),
        loop(i, 5, loop(j, 2, store(out, (i, ramp(num(16) - j * num(16), 16)), load(wide, i, j)))),
    )
    check(func, floats(160).reshape(5, 32))


def test_register_buffers_accumulate_over_a_loop():
    a, out = buf("A", (64, 32)), buf("out", (2, 32))
    acc = buf("acc", (2, 2), "float32x16", "register")
    r, c, k = var("r"), var("c"), var("k")

    def each(body):
        return loop(r, 2, loop(c, 2, body, kind="unroll"), kind="unroll")

    columns = ramp(c * num(16), 16)
    func = kernel(
        [a, out],
        Alloc(acc),
        each(store(acc, (r, c), splat(const(0.0, F32), 16))),
        loop(k, 32, each(store(acc, (r, c), load(acc, r, c) + load(a, k * num(2) + r, columns)))),
        each(store(out, (r, columns), load(acc, r, c))),
    )
    check(func, floats(64 * 32).reshape(64, 32), np.zeros((2, 32), np.float32))


def test_alias_views_storage_with_another_shape_and_dtype():
    a, out, i = buf("A", (4, 4)), buf("out", (16,), "int32"), var("i")
    view = buf("view", (16,), "int32", view_of=a)
    func = kernel(
        [a, out],
        Alias(view),
        loop(i, 16, store(out, (i,), load(view, i) + num(1))),
        store(view, (num(3),), num(0x40490FDB)),
    )
    result = check(func, floats(16).reshape(4, 4), np.zeros(16, np.int32))
    assert result[0][0, 3] == np.float32(np.pi)


def test_workspaces_and_two_launches():
    n = var("n")
    a, out, i = buf("A", (n,)), buf("out", (n,)), var("i")
    work = buf("work", (n, 2))
    twice, bx, by = var("twice"), var("bx"), var("by")
    first = Launch(
        (n,), (bx,), seq(store(work, (bx, num(0)), load(a, bx)), store(work, (bx, num(1)), load(a, bx) * load(a, bx)))
    )
    second = Launch((num(1),), (by,), seq(loop(i, n, store(out, (i,), load(work, i, num(1)) - load(work, i, num(0))))))
    func = PrimFunc("two", (a, out), seq(Let(twice, n * num(2)), Alloc(work), first, second), (n,), (), "lowered")
    loaded = Loaded(func)
    assert [set(entry) for entry in loaded.metadata["launches"]] == [{"entry", "blocks"}] * 2
    check(func, floats(9), np.zeros(9, np.float32), sizes=(9,))


def test_lets_of_the_function_level_are_seen_in_launches():
    n, half = var("n"), var("half")
    out, i = buf("out", (n,), "int32"), var("i")
    launch = Launch((half,), (i,), seq(store(out, (i + half,), i + half)))
    func = PrimFunc("lets", (out,), seq(Let(half, binary("floordiv", n, num(2))), launch), (n,), (), "lowered")
    check(func, np.zeros(10, np.int32), sizes=(10,))


def test_streaming_stores_whatever_the_alignment():
    a, out, i = buf("A", (128,)), buf("out", (128,)), var("i")
    body = store(out, (ramp(i, 16),), load(a, ramp(i, 16)), nontemporal=True)
    func = kernel([a, out], loop(i, 113, body, step=16), loop(i, 113, body, start=8, step=16))
    memory = np.zeros(128 + 16, np.float32)
    for skip in (0, 1, 5, 16):
        start = floats(128)
        mine = memory[skip : skip + 128]
        Loaded(func)(start, mine)
        assert (mine == start).all()
    assert "nontemporal" in Loaded(func).text and "sfence" in Loaded(func).text


def test_strided_parameters_use_their_strides():
    stride = var("stride", "int64")
    a = buf("A", (4, 6), strides=(stride, 1))
    out, i = buf("out", (4,)), var("i")
    func = kernel([a, out], loop(i, 4, store(out, (i,), load(a, i, num(5)))), sizes=(stride,))
    wide = floats(40).reshape(4, 10)
    result = np.zeros(4, np.float32)
    Loaded(func)(wide[:, :6], result, sizes=(10,))
    assert (result == wide[:, 5]).all()


def test_no_loads_or_sums_are_left_to_hoist_in_an_inner_loop():
    n = var("n")
    a, out, i, k = buf("A", (n, n)), buf("out", (n,)), var("i"), var("k")
    func = kernel([a, out], loop(i, n, loop(k, n, store(out, (i,), load(out, i) + load(a, i + num(3), k)))), sizes=(n,))
    inner = Loaded(func).text.split("\nloop_k")[1].split("\nlatch")[0]
    assert " mul " not in inner and inner.count("getelementptr") == 1


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda out: store(out, (var("free"),), num(1)), VerificationError, "free is used outside of its scope"),
        (
            lambda out: store(buf("lost", (1,), "int32", "shared"), (num(0),), num(1)),
            VerificationError,
            "lost is used outside",
        ),
        (lambda out: store(out, (num(0), num(0)), num(1)), VerificationError, "has 1 dimensions, but 2 indices"),
        (
            lambda out: Alloc(buf("big", (var("n"),), scope="shared")),
            UnsupportedOnTargetError,
            "the size of big is not known",
        ),
        (lambda out: Break(), VerificationError, "break outside of a loop"),
        (
            lambda out: let(var("x"), Binary(BOOL, "add", const(True, BOOL), const(True, BOOL))),
            VerificationError,
            "'add' is not defined on bool",
        ),
    ],
)
def test_what_is_not_lowered_code_is_refused(make, error, text):
    out = buf("out", (1,), "int32")
    with pytest.raises(error, match=text):
        Loaded(kernel([out], make(out)))
