"""The text of a function reads back to the same function; bad text is refused at its place."""

import math
import re

import numpy as np
import pytest
from example_programs import ARGUMENTS, example_names, fixed_cpu, program
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_cases import CASES, F16, F32, I32, I64, A, H, at, buf, func, launch, num, nums, seq, value_func, var

import tilewright
from tilewright.errors import ParseError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import (
    BINARY_OPS,
    BOOL,
    Binary,
    Broadcast,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Shuffle,
    Unary,
    Var,
    VectorReduce,
    const,
)
from tilewright.ir.intrinsics import INTRINSICS, intrinsic
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.lexer import Lexer
from tilewright.ir.node import REGISTRY
from tilewright.ir.parser import parse_func
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Alloc, For, Launch, Let, Region, Seq, Stmt, Store
from tilewright.ir.structural import difference
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.default import SEQUENTIAL_BLOCK, lower_cpu
from tilewright.source import Location
from tilewright.targets.cpu.emit import emit_module


def round_trip(before: PrimFunc, **how: bool) -> PrimFunc:
    """`before` printed and parsed, both equal."""
    text = print_func(before, **how)
    after = parse_func(text)
    assert difference(before, after) is None, text
    assert print_func(after, **how) == text
    return after


# --- every node ------------------------------------------------------------------------------------------


def node_classes() -> set[str]:
    ours = {name: cls for name, cls in REGISTRY.items() if cls.__module__.startswith("tilewright.")}
    return {name for name, cls in ours.items() if cls not in (Expr, Stmt)}


def test_every_node_class_has_a_case():
    assert node_classes() == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_nodes(name):
    case = CASES[name]
    verify(case)
    assert any(type(item).__name__ == name for item in walk(case))
    verify(round_trip(case))


@pytest.mark.parametrize("name", CASES)
def test_a_case_differs_from_every_other(name):
    others = [other for key, other in CASES.items() if key != name]
    assert all(difference(CASES[name], other) for other in others)


def test_infix_operations_bind_as_the_printer_says():
    infix = [op for op, (symbol, _) in BINARY_OPS.items() if not symbol.isalpha() or op in ("and", "or")]
    integer, truth = Var(I32, "i"), Var(BOOL, "t")

    def operate(op, lhs, rhs):
        kind = BINARY_OPS[op][1]
        return Binary(BOOL if kind in ("compare", "logic") else lhs.dtype, op, lhs, rhs)

    values = []
    for outer in infix:
        for inner in infix:
            leaf = truth if BINARY_OPS[inner][1] == "logic" else integer
            nested = operate(inner, leaf, leaf)
            other = truth if nested.dtype is BOOL else integer
            values += [operate(outer, nested, other), operate(outer, other, nested), operate(outer, nested, nested)]
    round_trip(value_func(*values, params=[integer, truth]))


def test_literals_of_every_dtype():
    names = [
        "int4",
        "int8",
        "int16",
        "int64",
        "uint4",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "bfloat16",
        "float64",
        "tfloat32",
        "handle",
    ]
    values = [const(5, name) for name in names]
    values += [const(v, name) for name in names for v in (dtype(name).int_range() if dtype(name).is_int else ())]
    values += [Const(dtype("float64"), math.pi), Const(dtype("float8_e8m0fnu"), 2.0**-127)]
    round_trip(value_func(*values))


def test_operands_of_different_dtypes_are_told_apart():
    """Such IR is not valid, but its text shows what it is."""
    a, b = const(1), const(1, I64)
    y = Var(I64, "y")
    wrong = [Binary(I32, "add", a, b), Binary(I64, "add", b, a), Binary(I64, "add", y, a), Binary(I32, "add", a, y)]
    round_trip(value_func(*wrong, params=[y]))
    round_trip(func([H], Store(H, nums(0), const(1)), For(var("i", "int64"), a, a, a, seq())))


# --- generated expressions ---------------------------------------------------------------------------------

SCALARS = tuple(dtype(name) for name in ("int32", "int64", "uint8", "float32", "float16", "bool"))
LANES = 4
PLACES = {d: Var(d, f"x_{d}") for d in SCALARS}
TABLES = {d: Buffer(f"t_{d}", nums(8, 8), d) for d in SCALARS}


def literals(of):
    if of.is_bool:
        return st.booleans().map(lambda v: Const(of, v))
    if of.is_int:
        return st.integers(*of.int_range()).map(lambda v: Const(of, v))
    return st.floats(width=16 if of.bits == 16 else 32).map(lambda v: Const(of, v))


@st.composite
def expressions(draw, of, depth):
    """An expression of a scalar dtype or a vector of `LANES`."""
    if depth == 0:
        scalar = draw(st.one_of(literals(of.scalar), st.just(PLACES[of.scalar])))
        return scalar if of.lanes == 1 else Broadcast(of, scalar)
    inner = expressions(of, depth - 1)
    choices = ["binary", "select", "cast", "load", "leaf"]
    choices += ["unary", "compare"] if of.is_bool else ["unary"]
    choices += ["shuffle"] if of.lanes > 1 else ["reduce"]
    choices += ["call"] if of.is_float else []
    kind = draw(st.sampled_from(choices))
    if kind == "binary":
        group = ("logic", "bits") if of.is_bool else ("arith",) if of.is_float else ("arith", "bits")
        op = draw(st.sampled_from([op for op, (_, its) in BINARY_OPS.items() if its in group]))
        return Binary(of, op, draw(inner), draw(inner))
    if kind == "compare":
        other = draw(st.sampled_from(SCALARS)).with_lanes(of.lanes)
        op = draw(st.sampled_from([op for op, (_, its) in BINARY_OPS.items() if its == "compare"]))
        return Binary(of, op, draw(expressions(other, depth - 1)), draw(expressions(other, depth - 1)))
    if kind == "unary":
        return Unary(of, "not" if of.is_bool else "neg", draw(inner))
    if kind == "select":
        return Select(of, draw(expressions(BOOL.with_lanes(of.lanes), depth - 1)), draw(inner), draw(inner))
    if kind == "cast":
        other = draw(st.sampled_from(SCALARS)).with_lanes(of.lanes)
        return Cast(of, draw(expressions(other, depth - 1)), draw(st.sampled_from(["rn", "rz"])), draw(st.booleans()))
    if kind == "load":
        return draw(loads(of, depth - 1))
    if kind == "call":
        name = draw(st.sampled_from([n for n, e in INTRINSICS.items() if e.domain == "float" and e.result == "same"]))
        return intrinsic(name, *[draw(inner) for _ in range(INTRINSICS[name].arity)])
    if kind == "shuffle":
        lanes = draw(st.lists(st.integers(0, 2 * LANES - 1), min_size=LANES, max_size=LANES))
        return Shuffle(of, draw(inner), draw(inner), tuple(lanes))
    if kind == "reduce":
        return VectorReduce(of, "max", draw(expressions(of.with_lanes(LANES), depth - 1)))
    return draw(expressions(of, 0))


@st.composite
def loads(draw, of, depth):
    table = TABLES[of.scalar]
    row, column = draw(expressions(I32, depth)), draw(expressions(I32, depth))
    mask = draw(expressions(BOOL.with_lanes(of.lanes), depth)) if draw(st.booleans()) else None
    if of.lanes > 1:
        column = Ramp(I32.with_lanes(of.lanes), column, draw(st.sampled_from([num(1), num(2)])))
    return Load(of, table, (row, column), mask)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([*SCALARS, *[d.with_lanes(LANES) for d in SCALARS]]).flatmap(lambda d: expressions(d, 3)))
def test_generated_expressions(value):
    after = round_trip(value_func(value, params=[*PLACES.values(), *TABLES.values()], level="lowered"))
    verify(after)


# --- names ---------------------------------------------------------------------------------------------------


def test_equal_names_are_kept_apart_where_both_are_known():
    outer, inner, last = var("i"), var("i"), var("i_1")
    loop = For(inner, num(0), outer, num(1), seq(Let(last, Binary(I32, "add", inner, outer))))
    text = print_func(func([], Let(outer, num(3)), loop))
    assert "for i_1 in serial(i):" in text and "let i_1_1 = i_1 + i" in text
    round_trip(parse_func(text))


def test_a_name_is_free_again_after_its_block():
    loops = [For(var("i"), num(0), num(4), num(1), seq(Alloc(buf("t", (4,), scope="local")))) for _ in range(2)]
    lines = print_func(func([], *loops)).splitlines()
    assert [line.strip() for line in lines[2:]] == ["for i in serial(4):", "alloc t: float32[4] local"] * 2
    round_trip(func([], *loops))


def test_one_variable_may_be_declared_in_two_blocks():
    i = var("i")
    loops = [For(i, num(0), num(4), num(1), seq(Store(H, (i,), const(0, F16)))) for _ in range(2)]
    round_trip(func([H], *loops))


@pytest.mark.parametrize("name", ["inf", "nan", "float32", "int8x4", "lambda", "a b", "2x", "", "ω", "copy", "tile"])
def test_any_name_can_be_printed(name):
    value = Var(F32, name)
    tile = Buffer(name, nums(4), F32, "shared")
    after = round_trip(func([], Alloc(tile), Let(value, at(tile, 0)), Store(tile, nums(0), value)))
    assert not any(v.name == "float32" for v in walk(after) if isinstance(v, Var))


def test_a_function_may_have_any_name():
    assert round_trip(CASES["Let"].replace(name='<lambda> "f"')).name == '<lambda> "f"'


def test_shapes_may_name_scalars_that_come_later():
    n = var("n")
    round_trip(func([Buffer("A", (n, Binary(I32, "add", n, num(1))), F32), n, Buffer("B", (n,), F32)]))


# --- places --------------------------------------------------------------------------------------------------


def test_places_are_kept_when_printed():
    place = Location('dir/"odd" name.py', 12, 5)
    statement = Store(H, nums(0), const(1, F16), loc=place)
    before = func([H], statement).replace(loc=place)
    after = parse_func(print_func(before, locations=True))
    assert difference(before, after) is None
    (found,) = [item for item in walk(after) if isinstance(item, Store)]
    assert found.loc.key() == after.loc.key() == place.key()


def test_without_them_a_node_stands_where_its_text_does():
    after = parse_func(print_func(CASES["While"]), "while.txt")
    loop = next(item for item in walk(after) if type(item).__name__ == "While")
    assert loop.loc.key() == ("while.txt", 5, 9)
    assert loop.loc.render() == "    while counts[0] < 5:\n    ^^^^^^^^^^^^^^^^^^^"
    assert loop.condition.loc.key() == ("while.txt", 5, 15)


def test_comments_and_blank_lines_are_passed_over():
    text = print_func(CASES["While"])
    padded = "\n# a comment\n" + text.replace("\n", "   # one more\n\n        # and this\n")
    assert difference(parse_func(padded), CASES["While"]) is None


# --- the examples --------------------------------------------------------------------------------------------


def test_every_example_is_here():
    assert example_names() == sorted(ARGUMENTS)


@pytest.mark.parametrize("size", [0, 1], ids=["tails", "full"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_examples_after_every_pass(name, size):
    target, options = fixed_cpu(), CompileOptions()
    current = program(name, *ARGUMENTS[name][size])
    round_trip(current)
    round_trip(current, locations=True)
    current = current.replace(level="lowering")
    for step in SEQUENTIAL_BLOCK:
        current = step.run(current, target, options)
        verify(round_trip(current))


def test_the_users_lines_are_comments():
    before = program("softmax", *ARGUMENTS["softmax"][0])
    text = print_func(before, show_source=True)
    assert "# T.reduce_max(x, row_max, dim=1)" in text
    assert difference(before, parse_func(text)) is None


def random_arguments(function: PrimFunc) -> list:
    rng = np.random.default_rng(7)
    shapes = [(p.const_shape(), p.dtype) for p in function.buffers()]
    return [
        rng.uniform(-1, 1, shape).astype(of.numpy) if of.is_float else rng.integers(0, 9, shape).astype(of.numpy)
        for shape, of in shapes
    ]


@pytest.mark.parametrize("name", ARGUMENTS)
def test_a_parsed_example_computes_the_same(name):
    before = program(name, *ARGUMENTS[name][0])
    after = parse_func(print_func(before))
    arguments = random_arguments(before)
    expected, got = [a.copy() for a in arguments], [a.copy() for a in arguments]
    tilewright.compile(before, target="cpu")(*expected)
    tilewright.compile(after, target="cpu")(*got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8))
    changed = [not np.array_equal(a, b, equal_nan=True) for a, b in zip(arguments, got, strict=True)]
    assert any(changed)


@pytest.mark.parametrize("name", ["matmul", "softmax", "flash_attention"])
def test_parsed_lowered_text_gives_the_same_code(name):
    target = fixed_cpu()
    lowered = lower_cpu(program(name, *ARGUMENTS[name][0]), target, CompileOptions())
    codes = [emit_module(f, target)[0] for f in (lowered, parse_func(print_func(lowered)))]
    # What the user calls a thing is part of its LLVM name, and of nothing else.
    first, second = [re.sub(r"\b[A-Za-z_]\w*\.(?=\d)", "", code) for code in codes]
    assert first == second


# --- what is refused -----------------------------------------------------------------------------------------

BODY = """\
func kernel[n: int32](
    A: float32[n, 16],
    h: float16[8],
    x: float32,
) level(tile):
    launch (bx < 4) threads(128):
        {}
"""
LINE = 7


def refused(line: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        parse_func(BODY.format(line), "bad.txt")
    return caught.value


@pytest.mark.parametrize(
    ("line", "column", "message"),
    [
        ("A[0, 0] = y", 11, "'y' is not declared here"),
        ("A[0, 0] = 1.0 +", 16, "expected an expression, found the end of the line"),
        ("A[0, 0 = 1.0", 8, "expected ',', '+:' or ']', found '='"),
        ("A[0, 0] = h", 11, "'h' is a buffer: expected its indices in [ ]"),
        ("x[0] = 1.0", 1, "'x' is a variable, not a buffer"),
        ("y[0] = 1.0", 1, "'y' is neither a statement"),
        ("cpoy A -> A", 1, "'cpoy' is neither a statement (scope, let, alloc"),
        ("copy A => A", 8, "expected '->', found '='"),
        ("copy A -> B", 11, "'B' is not declared here"),
        ("copy A -> x", 11, "'x' is a variable, not a buffer"),
        ("copy A -> A (fast)", 14, "expected a flag (overlap), found 'fast'"),
        ("fill h = 0.5 1", 14, "expected the end of the line, found '1'"),
        ("let x = 1", 5, "'x' is declared already"),
        ("let int8 = 1", 5, "'int8' is no name, it has a meaning of its own"),
        ("let a: floaty = 1.0", 8, "expected a dtype, found 'floaty'"),
        ("let a: int32 = 1.5", 16, "1.5 is not a value of int32"),
        ("let a = int8(300)", 14, "300 does not fit in int8"),
        ("let a = int8(x)", 14, "expected a literal of int8, found 'x'"),
        ("let a = x < 1.0 < 2.0", 17, "'<' does not chain: set brackets"),
        ("let a = x ** x ** x", 16, "'**' does not chain: set brackets"),
        ("let a = foo(x)", 9, "what 'foo' gives is not known: write foo<dtype>(...)"),
        ("let a = min(x)", 9, "'min' takes 2 arguments, not 1"),
        ("let a = (x where x)", 9, "only what is read from a buffer can have a mask"),
        ("let a = cast<float16>(x, up)", 26, "expected a rounding (rn, rz), found 'up'"),
        ("alloc t: float32[4] moon", 21, "expected a memory scope (global, shared,"),
        ("for i in serial(1, 2, 3, 4): pass", 16, "a loop has a start, a stop and a step, not 4 bounds"),
        ("for i in slowly(8): pass", 10, "expected a kind of loop (serial, unroll, vectorized, pipelined)"),
        ("for i in serial(8): break", 21, "expected the end of the line, found 'break'"),
        ("while x < 1.0:", 1, "expected an indented block, found the end of the block"),
        ("else:", 1, "'else' is neither a statement"),
        ("reduce sum A -> h (clear)", 26, "expected (dim=...), found the end of the line"),
        ("reduce mean A -> h (dim=1)", 8, "expected an operation (sum, max,"),
        ("atomic soon add h[0], 1.0", 8, "expected a memory order (relaxed,"),
        ("print x", 7, "expected a text in quotes, found 'x'"),
        ('print "a', 7, "a text without its closing quote has no meaning in IR text"),
        ("let a = x $ x", 11, "'$' has no meaning in IR text"),
        ("7", 1, "expected a statement, found '7'"),
        ("let a = broadcast(x, 0)", 22, "expected the number of lanes, which is at least 1"),
        ("let a = shuffle(x, x, [])", 23, "expected one lane at least"),
        ("gemm A += A @ A (k_pack=two)", 25, "expected an integer, found 'two'"),
        ("launch (b < 2) threads(1) note(\"a\", x):", 37, "expected a text, a number, True, False, None or a list"),
        ("launch (b < 2) threads(1, 2, 3, 4):", 16, "threads have at most three dimensions"),
    ],
)  # fmt: skip
def test_bad_lines(line, column, message):
    error = refused(line)
    first = 8 if line.startswith("while") else LINE  # the block is missed in the line after
    offset = 0 if line.startswith("while") else 8
    assert error.message.startswith(message)
    assert error.location.key() == ("bad.txt", first, column + offset)


def test_the_error_shows_the_line_and_a_caret():
    assert str(refused("A[0, 0] = y + 1.0")) == (
        "bad.txt:7:19: 'y' is not declared here\n    A[0, 0] = y + 1.0\n              ^"
    )


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("", (1, 1), "expected 'func', found the end of the text"),
        ("func f(\n    A: float32[4],\n", (3, 1), "expected a name, found the end of the text"),
        ("func f() level(high):\n    pass\n", (1, 16), "expected a level (tile, lowering, lowered), found 'high'"),
        ("func f() level(tile):\npass\n", (2, 1), "expected an indented block, found 'pass'"),
        ("func f() level(tile):\n    pass\n  pass\n", (3, 1), "this indentation fits no block around it"),
        ("func f() level(tile):\n    pass\n        pass\n", (3, 9), "this line is indented, but opens no block"),
        ("func f() level(tile):\n    pass\nfunc g\n", (3, 1), "expected the end of the text, found 'func'"),
        ("func f(A: float32[4] A: float32[4]) level(tile):\n    pass\n", (1, 22), "expected ',' or ')', found 'A'"),
        ("func f(x: int32, x: int32) level(tile):\n    pass\n", (1, 18), "'x' is declared already"),
    ],
)
def test_bad_texts(text, place, message):
    with pytest.raises(ParseError) as caught:
        parse_func(text)
    assert caught.value.message == message
    assert caught.value.location.key() == ("<ir>", *place)


@pytest.mark.parametrize("name", CASES)
def test_a_text_with_a_wrong_token_is_read_or_refused(name):
    text = print_func(CASES[name])
    tokens = [t for t in Lexer(text, "<ir>").tokens() if t.text]
    starts = np.cumsum([0, *[len(line) + 1 for line in text.split("\n")]])
    for token in tokens:
        begin = int(starts[token.line - 1]) + token.column - 1
        end = begin + len(token.text)
        for change in ("", "0", "("):
            read_or_refused(text[:begin] + change + text[end:])


def read_or_refused(text: str) -> None:
    try:
        parse_func(text)
    except ParseError as error:
        assert error.location.line >= 1


def test_a_name_is_not_known_after_its_block():
    text = BODY.format("for i in serial(8):\n            let t = i\n        A[t, 0] = 1.0")
    with pytest.raises(ParseError, match="'t' is not declared here") as caught:
        parse_func(text)
    assert caught.value.location.line == 9


def test_too_deep_a_text_is_refused():
    with pytest.raises(ParseError, match="the text nests too deep"):
        parse_func(BODY.format(f"let a = {'(' * 3000}x{')' * 3000}"))


# --- the comparison itself -----------------------------------------------------------------------------------


def test_difference_names_the_field():
    before = CASES["Gemm"]
    gemm = before.body.stmts[0].body.stmts[0]

    def changed(**fields):
        (block,) = before.body.stmts
        body = Seq((gemm.replace(**fields), *block.body.stmts[1:]))
        return difference(before, before.replace(body=Seq((block.replace(body=body),))))

    assert changed() is None
    assert changed(k_pack=2) == "func.body.stmts[0].body.stmts[0].k_pack: 1 and 2"
    assert changed(a=gemm.c) == "func.body.stmts[0].body.stmts[0].a.buffer: A and C are not the same"
    assert changed(a=Region(gemm.a.buffer, nums(0, 1), gemm.a.extents)).endswith("a.starts[1].value: 0 and 1")


def test_functions_are_alike_up_to_variables():
    def made(name, use_first):
        a, b = Var(I32, name), Var(I32, name)
        return func([], Let(a, num(1)), Let(b, num(2)), Let(Var(I32, "c"), a if use_first else b))

    assert difference(made("a", True), made("other", True)) is None
    assert "are not the same" in difference(made("a", True), made("a", False))


@pytest.mark.parametrize(
    "change", [{"dtype": F16}, {"scope": "local"}, {"shape": nums(5)}, {"strides": nums(2)}, {"safe_value": const(1.0)}]
)
def test_buffers_are_compared_by_what_they_are(change):
    fields = {"name": "t", "shape": nums(4), "dtype": F32, "scope": "shared"}
    first, second = Buffer(**fields), Buffer(**{**fields, **change})
    assert difference(func([], Alloc(first)), func([], Alloc(second))).startswith(
        f"func.body.stmts[0].body.stmts[0].buffer.{next(iter(change))}"
    )


def test_zeros_and_nans_are_told_apart():
    def made(value):
        return value_func(const(value), params=[A])

    assert difference(made(0.0), made(-0.0)) is not None
    assert difference(made(math.nan), made(math.nan)) is None
    assert isinstance(launch(), Launch)
