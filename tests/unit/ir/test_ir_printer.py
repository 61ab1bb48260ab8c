"""The form of the text: what is written, and what goes without saying."""

import math

import pytest
from ir_cases import F16, F32, I64, A, C, at, box, buf, func, launch, num, nums, seq, var

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Buffer, Cast, Const, Load, Ramp, Select, Unary, Var, const
from tilewright.ir.printer import print_expr, print_func, print_stmt
from tilewright.ir.stmt import Atomic, Copy, Fill, For, Gemm, If, Let, Parallel, Reduce, Region, Seq, Store
from tilewright.source import Location

X, Y, H = Var(F32, "x"), Var(I64, "y"), Var(F16, "h")


def binary(op, lhs, rhs):
    return Binary(lhs.dtype, op, lhs, rhs)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (const(3), "3"),
        (const(1.0), "1.0"),
        (const(0.1), "0.1"),
        (const(True), "True"),
        (const(-math.inf), "-inf"),
        (const(3, "int64"), "int64(3)"),
        (const(3, "float16"), "float16(3.0)"),
        (binary("add", Y, const(3, "int64")), "y + 3"),
        (binary("sub", const(3, "int64"), Y), "3 - y"),
        (binary("add", const(1, "int64"), const(2, "int64")), "int64(1) + 2"),
        (Select(F16, const(True), H, const(0, "float16")), "select(True, h, 0.0)"),
        (Cast(F16, X, "rz", True), "cast<float16>(x, rz, saturate)"),
        (binary("mul", binary("add", X, X), X), "(x + x) * x"),
        (binary("add", binary("mul", X, X), X), "x * x + x"),
        (binary("sub", X, binary("sub", X, X)), "x - (x - x)"),
        (binary("sub", binary("sub", X, X), X), "x - x - x"),
        (Unary(F32, "neg", binary("mul", X, X)), "-(x * x)"),
        (binary("mul", Unary(F32, "neg", X), X), "-x * x"),
        (binary("min", X, const(2.0)), "min(x, 2.0)"),
    ],
)
def test_expressions(value, text):
    assert print_expr(value) == text


@pytest.mark.parametrize(
    ("starts", "extents", "text"),
    [
        ((0, 0), (16, 32), "A"),
        ((0, 8), (16, 8), "A[0 +: 16, 8 +: 8]"),
        ((3, 0), (1, 32), "A[3, 0 +: 32]"),
        ((3, 4), (1, 1), "A[3, 4]"),
    ],
)
def test_regions(starts, extents, text):
    assert print_stmt(Fill(Region(A, nums(*starts), nums(*extents)), const(0.0))) == f"fill {text} = 0.0"


def test_a_box_that_starts_at_a_wide_zero_is_not_the_whole_buffer():
    starts = (const(0, "int64"), num(0))
    assert print_stmt(Fill(Region(A, starts, A.shape), const(0.0))) == "fill A[int64(0) +: 16, 0 +: 32] = 0.0"


@pytest.mark.parametrize(
    ("of", "bounds", "text"),
    [
        ("int32", (0, 8, 1), "for i in serial(8):"),
        ("int32", (1, 8, 1), "for i in serial(1, 8):"),
        ("int32", (0, 8, 2), "for i in serial(0, 8, 2):"),
        ("int64", (0, 8, 1), "for i: int64 in serial(8):"),
    ],
)
def test_bounds_are_those_of_pythons_range(of, bounds, text):
    loop = For(var("i", of), *[const(b, of) for b in bounds], seq())
    assert print_stmt(loop).splitlines() == [text, "    pass"]


@pytest.mark.parametrize(
    ("stmt", "text"),
    [
        (Gemm(box(A), box(A), box(C)), "gemm C += A @ A"),
        (Gemm(box(A), box(A), box(C), False, True, True), "gemm C = A @ A (transpose_b)"),
        (Reduce("sum", box(A), box(A), 1, False, True), "reduce sum A -> A (dim=1, nan_propagate)"),
        (Copy(box(A), box(C), True), "copy A -> C (overlap)"),
        (Atomic("add", box(C, [0, 1], [1, 1]), const(1.0), None, "relaxed", X), "atomic relaxed add C[0, 1], 1.0 -> x"),
        (Store(A, (num(0), Ramp(dtype("int32x4"), num(8), num(1))), X, None, True), "A[0, 8 +: 4] = x nontemporal"),
        (Let(Var(F32, "y"), X), "let y = x"),
        (Let(Var(F16, "y"), X), "let y: float16 = x"),
    ],
)
def test_statements(stmt, text):
    assert print_stmt(stmt) == text


def test_a_function():
    n = var("n")
    x = Buffer("X", (n, num(4)), F32, strides=nums(8, 1), safe_value=const(-1.0))
    y = Buffer("Y", (n,), F16)
    i = var("i")
    inner = Parallel((i,), nums(4), seq(If(const(True), seq(Store(y, (i,), const(1, F16))), seq())))
    text = print_func(func([x, var("scale", "float32"), y], inner, sizes=[n], outputs=(2,), swizzle=(4, "row")))
    assert text == (
        "func kernel[n: int32](\n"
        "    X: float32[n, 4] strides(8, 1) safe(-1.0),\n"
        "    scale: float32,\n"
        "    Y: float16[n],\n"
        ") level(tile) outputs(2):\n"
        "    launch (bx < 4) threads(128) swizzle(4, row):\n"
        "        parallel (i < 4):\n"
        "            if True:\n"
        "                Y[i] = 1.0\n"
        "            else:\n"
        "                pass\n"
    )


def test_a_function_without_parameters():
    assert print_func(func([]).replace(body=seq())) == "func kernel() level(tile):\n    pass\n"


def test_names_are_apart_where_both_are_known_and_free_again_afterwards():
    outer, first, second = var("i"), var("i"), var("i")
    loops = [For(v, num(0), num(2), num(1), seq(Let(var("t"), v))) for v in (first, second)]
    lines = print_func(func([], Let(outer, num(3)), *loops)).splitlines()[2:]
    assert [line.strip() for line in lines] == [
        "let i = 3",
        "for i_1 in serial(2):",
        "let t = i_1",
        "for i_1 in serial(2):",
        "let t = i_1",
    ]


def test_what_is_declared_nowhere_has_one_name_everywhere():
    free = Var(F32, "x")
    stmts = Seq((seq(Let(Var(F32, "x"), free)), Let(Var(F32, "y"), free)))
    assert print_stmt(stmts).splitlines() == ["scope:", "    let x_1 = x", "let y = x"]


def test_places_and_the_users_lines(tmp_path):
    file = tmp_path / "kernel.py"
    file.write_text("first = 1\n    second = 2\n", encoding="utf-8")
    one, two = (Location(str(file), line, 5) for line in (1, 2))
    stmts = [Fill(box(A), const(0.0), loc=loc) for loc in (one, one, two)]
    lines = print_func(func([A], *stmts), show_source=True).splitlines()[4:]
    fill = "fill A = 0.0"
    assert [line.strip() for line in lines] == ["# first = 1", fill, fill, "# second = 2", fill]
    lines = print_func(func([A], *stmts), locations=True).splitlines()[4:]
    assert lines[-1] == f'        {fill} @ "{file}":2:5'


def test_printing_is_a_function_of_the_program():
    texts = {print_func(func([A], Store(A, nums(0, 0), at(A, 1, 1)))) for _ in range(3)}
    assert len(texts) == 1


def test_masks():
    mask = Var(dtype("bool"), "m")
    load = Load(F32, A, nums(0, 0), mask)
    assert print_stmt(Store(A, nums(0, 0), binary("add", load, X), mask)) == "A[0, 0] = (A[0, 0] where m) + x where m"


def test_what_is_not_valid_can_still_be_looked_at():
    assert print_expr(Binary(F32, "add", const(1), const(1, "int64"))) == "int32(1) + int64(1)"
    assert print_expr(Const(F32, 3)) == "3.0"
    twice = buf("t", (4,))
    assert print_func(func([twice, twice])).count("t: float32[4]") == 2
    assert print_stmt(launch()).startswith("launch (bx < 4)")
