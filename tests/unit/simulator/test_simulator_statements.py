"""Statements of the evaluator: scope, control flow, memory, printing, asserts; and vectorised Parallel loops."""

import io

import ml_dtypes
import numpy as np
import pytest
from simulator_ir import F32, buffer, evaluate, kernel, loop, num, parallel, region, seq, var

from tilewright.errors import DeviceAssertError, VerificationError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Load, binary, cast, const, select
from tilewright.ir.intrinsics import intrinsic
from tilewright.ir.stmt import (
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    Copy,
    Fill,
    If,
    Let,
    Print,
    Reduce,
    Store,
    While,
)
from tilewright.simulator.printing import format_print
from tilewright.simulator.reference import run
from tilewright.source import Location


def load(of, *indices):
    return Load(of.dtype, of, tuple(num(i) for i in indices))


def put(of, value, *indices):
    return Store(of, tuple(num(i) for i in indices), value)


def ints(*shape):
    return np.zeros(shape, np.int32)


# --- scalar control flow ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 4, 1), (1, 8, 3), (5, -1, -2), (3, 3, 1), (4, 0, 1), (-3, 1, 2)]
)
@pytest.mark.parametrize("kind", ["serial", "unroll", "vectorized", "pipelined"])
def test_for_ranges(start, stop, step, kind):
    out, i, count = buffer("out", (8,), "int32"), var("i"), buffer("n", (), "int32", "var")
    result = ints(8)
    evaluate(
        [out],
        [result],
        Alloc(count, num(0)),
        loop(i, stop, put(out, i, load(count)), put(count, load(count) + 1), start=start, step=step, kind=kind),
    )
    expected = list(range(start, stop, step))
    assert result.tolist() == expected + [0] * (8 - len(expected))


def test_a_loop_step_of_zero_is_refused():
    with pytest.raises(VerificationError, match="step of loop i is 0"):
        evaluate([], [], loop(var("i"), 3, Print("never"), step=0))


def test_break_and_continue_leave_the_innermost_loop():
    out, i, j = buffer("out", (3, 5), "int32"), var("i"), var("j")
    result = ints(3, 5)
    body = loop(i, 3, loop(j, 5, If(j.__eq__(1), seq(Continue())), If(j > i + 1, seq(Break())), put(out, num(1), i, j)))
    evaluate([out], [result], body)
    assert result.tolist() == [[1, 0, 0, 0, 0], [1, 0, 1, 0, 0], [1, 0, 1, 1, 0]]


def test_while_and_else():
    n, out = buffer("n", (), "int32", "var"), buffer("out", (2,), "int32")
    result = ints(2)
    step = If((load(n) % 2).__eq__(0), seq(put(n, load(n) // 2)), seq(put(n, load(n) * 3 + 1)))
    evaluate([out], [result], Alloc(n, num(27)), While(load(n) > 1, seq(step, put(out, load(out, 0) + 1, 0))))
    assert result.tolist() == [111, 0]
    evaluate([out], [result], Alloc(n, num(27)), While(load(n) > 1, seq(put(n, num(0)), Break())), put(out, load(n), 1))
    assert result.tolist() == [111, 0]


def test_unwritten_memory_is_poison():
    out, whole = buffer("out", (2,)), buffer("whole", (2,), "int32")
    tile, counts = buffer("tile", (2,), scope="shared"), buffer("counts", (2,), "int32", "local")
    result, number = np.zeros(2, np.float32), ints(2)
    evaluate(
        [out, whole],
        [result, number],
        Alloc(tile),
        Alloc(counts),
        Copy(region(tile), region(out)),
        Copy(region(counts), region(whole)),
    )
    assert np.all(np.isnan(result)) and number.tolist() == [0x6D6D6D6D] * 2


def test_every_block_gets_fresh_memory():
    out, tile, bx = buffer("out", (3,)), buffer("tile", (1,), scope="shared"), var("bx")
    result = np.zeros(3, np.float32)
    body = (Alloc(tile), put(out, load(tile, 0), bx), put(tile, const(1.0), 0))
    run(kernel([out], *body, grid=(3,), block_vars=(bx,)), [result])
    assert np.all(np.isnan(result))


# --- views ---------------------------------------------------------------------------------------------------


def test_views_share_storage_with_other_shapes_and_dtypes():
    tile = buffer("tile", (2, 4), scope="shared")
    flat = buffer("flat", (8,), scope="shared", view_of=tile)
    bits = buffer("bits", (2, 2), "uint16", scope="shared", view_of=flat)
    out, raw = buffer("out", (8,)), buffer("raw", (2, 2), "uint16")
    result, patterns = np.zeros(8, np.float32), np.zeros((2, 2), np.uint16)
    evaluate(
        [out, raw],
        [result, patterns],
        Alloc(tile),
        Alias(flat),
        Alias(bits),
        Fill(region(tile), const(2.0)),
        put(flat, const(1.5), 1),
        put(bits, const(0x3F80, "uint16"), 1, 1),
        Copy(region(flat), region(out)),
        Copy(region(bits), region(raw)),
    )
    words = np.float32([2, 1.5]).view(np.uint16)
    words[3] = 0x3F80
    assert patterns.ravel().tolist() == words.tolist()
    assert result.tolist() == [2.0, *words.view(np.float32)[1:].tolist(), 2, 2, 2, 2, 2, 2]


def test_views_of_parameters_write_through():
    x = buffer("x", (2, 3))
    flat = buffer("flat", (6,), view_of=x)
    array = np.zeros((2, 3), np.float32)
    evaluate([x], [array], Alias(flat), put(flat, const(4.0), 4))
    assert array.tolist() == [[0, 0, 0], [0, 4, 0]]
    with pytest.raises(VerificationError, match="x is not contiguous"):
        evaluate([x], [np.zeros((3, 2), np.float32).T], Alias(flat))
    with pytest.raises(VerificationError, match="big is larger than x"):
        evaluate([x], [array], Alias(buffer("big", (7,), view_of=x)))
    with pytest.raises(VerificationError, match="cannot be viewed as uint4"):
        evaluate([x], [array], Alias(buffer("nibbles", (7,), "uint4", view_of=x)))


def test_padded_pitch():
    tile = buffer("tile", (3, 4), scope="shared", strides=(num(6), num(1)))
    flat = buffer("flat", (16,), scope="shared", view_of=tile)
    out = buffer("out", (16,))
    result = np.zeros(16, np.float32)
    evaluate([out], [result], Alloc(tile), Fill(region(tile), const(1.0)), Alias(flat), Copy(region(flat), region(out)))
    padding = [n for n in range(16) if n % 6 >= 4]
    assert np.all(np.isnan(result[padding])) and np.all(np.delete(result, padding) == 1)


def test_global_workspace_between_launches():
    out, work = buffer("out", (4,)), buffer("work", (4,))
    i, j = var("i"), var("j")
    first = kernel([out], put(work, cast(i, F32), i), grid=(4,), block_vars=(i,)).body
    second = kernel([out], put(out, load(work, num(3) - j) * 2.0, j), grid=(4,), block_vars=(j,)).body
    func = kernel([out]).replace(body=seq(Alloc(work), first, second))
    result = np.zeros(4, np.float32)
    run(func, [result])
    assert result.tolist() == [6, 4, 2, 0]


# --- print and assert ------------------------------------------------------------------------------------------


def test_print():
    x, half, text = buffer("x", (2, 2)), buffer("h", (1,), "bfloat16", "shared"), io.StringIO()
    array = np.float32([[0.1, 2], [-0.0, np.inf]])
    body = (
        Alloc(half),
        Fill(region(half), const(0.1)),
        Print("values", (load(x, 0, 0), num(7), num(7) > 3), (region(x), region(half))),
    )
    evaluate([x], [array], *body, Print("", (num(-1),)), Print("only text"), stdout=text)
    assert text.getvalue().splitlines() == [
        "values: 0.1",
        "values: 7",
        "values: True",
        "values: x = [[0.1, 2.0], [-0.0, inf]]",
        "values: h = [0.100098]",
        "-1",
        "only text",
    ]


def test_print_goes_to_the_standard_output(capsys):
    evaluate([], [], Print("hello", (num(1),)))
    assert capsys.readouterr().out == "hello: 1\n"


def test_print_format_of_dtypes():
    values = [
        np.array(3, np.int8),
        np.array(True),
        np.array([1.5, np.nan], ml_dtypes.float8_e5m2),
        np.array([7], ml_dtypes.int4),
    ]
    text = format_print("m", [("", values[0]), ("flag", values[1]), ("f", values[2]), ("i", values[3])])
    assert text == "m: 3\nm: flag = True\nm: f = [1.5, nan]\nm: i = [7]\n"


def test_assert_tells_place_block_and_message():
    place, bx = Location("user.py", 12, 3), var("bx")
    func = kernel([], Assert(bx < 4, "bx is small", loc=place), grid=(3, 2), block_vars=(var("b0"), bx))
    run(func, [])
    failing = kernel([], Assert(binary("lt", bx, 1), "bx is small", loc=place), grid=(3, 2), block_vars=(var("b0"), bx))
    with pytest.raises(DeviceAssertError, match="kernel 'kernel', block 3: bx is small") as caught:
        run(failing, [])
    assert caught.value.location is place


def test_assert_in_a_vectorised_parallel_respects_the_mask():
    x, i = buffer("x", (4,), "int32"), var("i")
    array = np.int32([1, 2, -3, 4])
    body = parallel((i,), (4,), If(i.__ne__(2), seq(Assert(load(x, i) > 0))))
    evaluate([x], [array], body)
    array[0] = 0
    with pytest.raises(DeviceAssertError, match="the condition is false"):
        evaluate([x], [array], body)


# --- Parallel ------------------------------------------------------------------------------------------------


def test_parallel_if_else_masks():
    out, i, j = buffer("out", (3, 4), "int32"), var("i"), var("j")
    result = ints(3, 4)
    nested = If(j > 1, seq(put(out, num(1), i, j), If(i > 0, seq(put(out, num(2), i, j)))), seq(put(out, -i, i, j)))
    evaluate([out], [result], parallel((i, j), (3, 4), nested))
    assert result.tolist() == [[0, 0, 1, 1], [-1, -1, 2, 2], [-2, -2, 2, 2]]


def test_parallel_with_scalar_condition_from_outside():
    out, i, k = buffer("out", (2,), "int32"), var("i"), var("k")
    result = ints(2)
    evaluate(
        [out],
        [result],
        loop(k, 2, parallel((i,), (2,), If(k.__eq__(1), seq(put(out, k * 5, i)), seq(put(out, num(1), i))))),
    )
    assert result.tolist() == [5, 5]


def test_parallel_inner_loops_with_bounds_of_their_own():
    out, i, j = buffer("out", (5,), "int32"), var("i"), var("j")
    total = buffer("total", (), "int32", "var")
    result = ints(5)
    body = (Alloc(total, num(0)), loop(j, i + 1, put(total, load(total) + j)), put(out, load(total), i))
    evaluate([out], [result], parallel((i,), (5,), *body))
    assert result.tolist() == [0, 1, 3, 6, 10]
    backwards = (
        Alloc(total, num(0)),
        loop(j, i, put(total, load(total) * 10 + j), start=4, step=-2),
        put(out, load(total), i),
    )
    evaluate([out], [result], parallel((i,), (5,), *backwards))
    assert result.tolist() == [42, 42, 4, 4, 0]


def test_parallel_break_continue_and_while():
    x, out, i, j = buffer("x", (4, 6), "int32"), buffer("out", (4,), "int32"), var("i"), var("j")
    total, n = buffer("total", (), "int32", "var"), buffer("n", (), "int32", "var")
    array = np.random.default_rng(0).integers(0, 10, (4, 6), np.int32)
    result = ints(4)
    value = load(x, i, j)
    inner = loop(
        j, 6, If(value > 7, seq(Break())), If((value % 2).__eq__(0), seq(Continue())), put(total, load(total) + value)
    )
    evaluate([x, out], [array, result], parallel((i,), (4,), Alloc(total, num(0)), inner, put(out, load(total), i)))
    expected = []
    for row in array.tolist():
        kept = row[: next((n for n, v in enumerate(row) if v > 7), 6)]
        expected.append(sum(v for v in kept if v % 2))
    assert result.tolist() == expected and len(set(expected)) > 1
    collatz = While(
        load(n) > 1,
        seq(
            put(total, load(total) + 1),
            If((load(n) % 2).__eq__(0), seq(put(n, load(n) // 2), Continue())),
            put(n, load(n) * 3 + 1),
        ),
    )
    evaluate(
        [out], [result], parallel((i,), (4,), Alloc(total, num(0)), Alloc(n, i + 6), collatz, put(out, load(total), i))
    )
    assert result.tolist() == [8, 16, 3, 19]
    leaving = While(load(n) >= 0, seq(put(n, load(n) + 1), If(load(n) > i * 2, seq(Break()))))
    evaluate([out], [result], parallel((i,), (4,), Alloc(n, num(0)), leaving, put(out, load(n), i)))
    assert result.tolist() == [1, 3, 5, 7]


def test_parallel_break_of_everyone_and_uniform_breaks():
    out, i, j = buffer("out", (3,), "int32"), var("i"), var("j")
    result = ints(3)
    evaluate([out], [result], parallel((i,), (3,), loop(j, 9, If(j.__eq__(2), seq(Break())), put(out, j + i, i))))
    assert result.tolist() == [1, 2, 3]
    evaluate([out], [result], parallel((i,), (3,), loop(j, 2, put(out, num(7), i), Continue(), put(out, num(8), i))))
    assert result.tolist() == [7, 7, 7]


def test_parallel_gives_each_iteration_its_own_local_memory():
    out, local, i, j = buffer("out", (4, 3)), buffer("mine", (3,), scope="local"), var("i"), var("j")
    result = np.zeros((4, 3), np.float32)
    after = buffer("after", (3,))
    last = np.zeros(3, np.float32)
    body = parallel(
        (i,),
        (4,),
        loop(j, 3, put(local, load(local, j) + cast(i * 10 + j, F32), j)),
        put(local, const(-1.0), (i + 1) % 4),
        loop(j, 3, put(out, load(local, j), i, j)),
    )
    evaluate(
        [out, after],
        [result, last],
        Alloc(local),
        Fill(region(local), const(0.5)),
        body,
        Copy(region(local), region(after)),
    )
    expected = [[i * 10 + j + 0.5 for j in range(3)] for i in range(4)]
    for i_value in range(4):
        if (i_value + 1) % 4 < 3:
            expected[i_value][(i_value + 1) % 4] = -1
    assert result.tolist() == expected
    assert np.all(np.isnan(last))


def test_private_memory_under_a_mask_and_out_of_range():
    out, local, i = buffer("out", (4, 2)), buffer("mine", (2,), scope="local"), var("i")
    result = np.zeros((4, 2), np.float32)
    body = (
        Alloc(local),
        put(local, const(1.0), 0),
        put(local, const(2.0), 1),
        If(i > 1, seq(put(local, cast(i, F32), 0), put(local, const(9.0), i - 1))),
        put(out, load(local, i), i, 0),
        put(out, load(local, 5) + load(local, 1), i, 1),
    )
    evaluate([out], [result], parallel((i,), (4,), *body))
    assert result.tolist() == [[1, 2], [2, 2], [0, 9], [0, 2]]


def test_both_ways_of_running_a_parallel_agree():
    rng = np.random.default_rng(3)
    x = rng.integers(-50, 50, (6, 5)).astype(np.int32)
    results = []
    for one_by_one in (False, True):
        source, out, mine, acc = (
            buffer("x", (6, 5), "int32"),
            buffer("out", (6, 5), "int32"),
            buffer("mine", (2,), "int32", "local"),
            buffer("acc", (), "int32", "var"),
        )
        i, j, k, v = var("i"), var("j"), var("k"), var("v")
        value = load(source, i, (j + i) % 7)
        body = [
            Let(v, value * 3 - i),
            put(acc, select(v > 0, v, load(acc) + 1)),
            loop(k, j, If(k > i, seq(Break())), put(mine, load(acc) + k, k % 2), put(acc, load(acc) + 1)),
            If(j > 0, seq(put(out, load(acc) * 100 + load(mine, 0) - load(mine, j % 3), i, j)), seq(put(out, v, i, j))),
        ]
        if one_by_one:
            body.append(Print("x"))
        result = ints(6, 5)
        evaluate(
            [source, out],
            [x, result],
            Alloc(mine),
            Fill(region(mine), num(11)),
            Alloc(acc, num(4)),
            parallel((i, j), (6, 5), *body),
            stdout=io.StringIO(),
        )
        results.append(result)
    assert np.array_equal(*results) and len(np.unique(results[0])) > 10


def test_tile_operations_inside_a_parallel_loop():
    x, out, tile, i = buffer("x", (3, 4)), buffer("out", (3,)), buffer("t", (4,), scope="shared"), var("i")
    array, result = np.arange(12, dtype=np.float32).reshape(3, 4), np.zeros(3, np.float32)
    body = (
        Alloc(tile),
        Copy(region(x, (i, 0), (1, 4)), region(tile)),
        Reduce("sum", region(tile), region(out, (i,), (1,)), 0),
    )
    evaluate([x, out], [array, result], parallel((i,), (3,), *body))
    assert result.tolist() == [6, 22, 38]


def test_nested_parallel():
    out, i, j = buffer("out", (3, 2), "int32"), var("i"), var("j")
    result = ints(3, 2)
    evaluate([out], [result], parallel((i,), (3,), parallel((j,), (2,), put(out, i * 10 + j, i, j))))
    assert result.tolist() == [[0, 1], [10, 11], [20, 21]]


def test_empty_parallel_does_nothing():
    out, i, j = buffer("out", (1,), "int32"), var("i"), var("j")
    result = ints(1)
    evaluate([out], [result], parallel((i, j), (3, 0), put(out, num(5), 0)))
    evaluate([out], [result], parallel((i, j), (3, 0), put(out, num(5), 0), Print("never")))
    assert result.tolist() == [0]


def test_one_iteration_writes_for_all():
    out, i, flag = buffer("out", (2,), "int32"), var("i"), buffer("flag", (), "int32", "shared")
    result = ints(2)
    body = parallel((i,), (5,), If(i.__eq__(3), seq(put(out, i * 7, 1), put(flag, i))))
    evaluate([out], [result], Alloc(flag), body, put(out, load(flag), 0))
    assert result.tolist() == [3, 21]


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int32", "int8", "int4"])
@pytest.mark.parametrize("reducer", ["sum", "max", "min"])
def test_reducers_combine(name, reducer):
    x, out, i, j = buffer("x", (5, 3), name), buffer("out", (3,), name), var("i"), var("j")
    acc = buffer("acc", (3,), name, "fragment", reducer=reducer)
    array = np.random.default_rng(1).integers(-3, 4, (5, 3)).astype(dtype(name).numpy)
    result = np.zeros(3, dtype(name).numpy)
    update = binary({"sum": "add"}.get(reducer, reducer), load(x, i, j), load(acc, j))
    body = parallel((i, j), (5, 3), If(i.__ne__(2), seq(put(acc, update, j))))
    evaluate([x, out], [array, result], Alloc(acc), Fill(region(acc), num(1)), body, Copy(region(acc), region(out)))
    kept = np.delete(array.astype(int), 2, axis=0)
    expected = {"sum": 1 + kept.sum(0), "max": np.maximum(1, kept.max(0)), "min": np.minimum(1, kept.min(0))}[reducer]
    if name == "int4":
        expected = (expected + 8) % 16 - 8
    assert result.astype(int).tolist() == expected.tolist()


def test_a_reducer_without_dimensions_counts_every_iteration():
    out, i, j = buffer("out", (1,)), var("i"), var("j")
    acc = buffer("acc", (), "float32", "local", reducer="sum")
    result = np.zeros(1, np.float32)
    evaluate(
        [out],
        [result],
        Alloc(acc),
        put(acc, const(0.0)),
        parallel((i, j), (5, 3), put(acc, load(acc) + const(0.5))),
        put(out, load(acc), 0),
    )
    assert result.tolist() == [7.5]


def test_reducer_sums_are_rounded_once():
    x, out, i = buffer("x", (3,), "bfloat16"), buffer("out", (1,), "bfloat16"), var("i")
    acc = buffer("acc", (1,), "bfloat16", "fragment", reducer="sum")
    array, result = np.array([256, 1, 1], ml_dtypes.bfloat16), np.zeros(1, ml_dtypes.bfloat16)
    evaluate(
        [x, out],
        [array, result],
        Alloc(acc),
        Fill(region(acc), const(0.0)),
        parallel((i,), (3,), put(acc, load(acc, 0) + load(x, i), 0)),
        Copy(region(acc), region(out)),
    )
    assert float(result[0]) == 258


# --- atomics ---------------------------------------------------------------------------------------------------


def at(of, *indices):
    return region(of, [num(i) for i in indices], [1] * len(indices))


@pytest.mark.parametrize("name", ["int32", "uint8", "float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["add", "max", "min"])
@pytest.mark.parametrize("wide", [True, False])
def test_atomic_updates(name, op, wide):
    x, out, i = buffer("x", (20,), name), buffer("out", (4,), name), var("i")
    array = np.random.default_rng(2).integers(0, 9, 20).astype(dtype(name).numpy)
    result = np.full(4, 3).astype(dtype(name).numpy)
    update = Atomic(op, at(out, i % 5), load(x, i))
    if wide:
        evaluate([x, out], [array, result], parallel((i,), (20,), update))
    else:
        evaluate([x, out], [array, result], update, grid=(20,), block_vars=(i,), order=5)
    groups = [[3, *array.astype(int)[n::5].tolist()] for n in range(4)]
    assert result.astype(int).tolist() == [{"add": sum, "max": max, "min": min}[op](g) for g in groups]


@pytest.mark.parametrize(
    ("op", "expected"), [("or", 0b1111), ("and", 0), ("xor", 0b1001), ("store", 8), ("exchange", 8)]
)
def test_atomic_bits_and_stores(op, expected):
    for name in ("int32", "uint64"):
        out, i = buffer("out", (1,), name), var("i")
        result = np.array([6], dtype(name).numpy)
        evaluate([out], [result], parallel((i,), (4,), Atomic(op, at(out, 0), cast(binary("shl", num(1), i), name))))
        assert result.tolist() == [expected]


def test_atomic_results_are_the_old_values():
    out, seen, old, i = buffer("out", (2,), "int32"), buffer("seen", (6,), "int32"), var("old"), var("i")
    for wide in (True, False):
        result, order = ints(2), ints(6)
        body = (Atomic("add", at(out, i // 3), num(10), result=old), put(seen, old, i))
        if wide:
            evaluate([out, seen], [result, order], parallel((i,), (6,), *body))
        else:
            evaluate([out, seen], [result, order], *body, grid=(6,), block_vars=(i,))
        assert result.tolist() == [30, 30] and order.tolist() == [0, 10, 20] * 2


def test_atomic_load_exchange_and_out_of_range():
    out, seen, old, i = buffer("out", (3,), "float16"), buffer("seen", (5,), "float16"), var("old", "float16"), var("i")
    result, values = np.array([1, 2, 3], np.float16), np.zeros(5, np.float16)
    evaluate(
        [out, seen],
        [result, values],
        parallel((i,), (5,), Atomic("load", at(out, i - 1), result=old), put(seen, old + old, i)),
    )
    assert values.tolist() == [0, 2, 4, 6, 0] and result.tolist() == [1, 2, 3]
    evaluate(
        [out, seen],
        [result, values],
        Atomic("exchange", at(out, 1), const(7.0, "float16"), result=old),
        put(seen, old, 0),
    )
    evaluate(
        [out, seen], [result, values], Atomic("add", at(out, 3), const(7.0, "float16"), result=old), put(seen, old, 1)
    )
    assert values[:2].tolist() == [2, 0] and result.tolist() == [1, 7, 3]


def test_atomic_regions():
    x, out = buffer("x", (1, 4)), buffer("out", (5,), "float16")
    array, result = np.float32([[1, 2, 3, 4]]), np.ones(5, np.float16)
    evaluate([x, out], [array, result], Atomic("add", region(out, (2,), (4,)), source=region(x)))
    assert result.tolist() == [1, 1, 2, 3, 4]
    evaluate([x, out], [array, result], Atomic("max", region(out, (0,), (5,)), const(2.5)))
    assert result.tolist() == [2.5, 2.5, 2.5, 3, 4]


def test_atomic_max_leaves_nan_out():
    out, i = buffer("out", (1,)), var("i")
    result = np.float32([np.nan])
    evaluate(
        [out],
        [result],
        parallel((i,), (3,), Atomic("max", at(out, 0), select(i > 1, const(float("nan")), cast(i, F32)))),
    )
    assert result.tolist() == [1]


def test_intrinsics_see_typed_values_of_loop_variables():
    out, i = buffer("out", (4,), "int32"), var("i")
    result = ints(4)
    evaluate([out], [result], parallel((i,), (4,), put(out, intrinsic("popcount", i) + intrinsic("clz", i), i)))
    assert result.tolist() == [32, 32, 31, 32]
