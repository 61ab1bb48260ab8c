"""A small valid function for every node class, written with the constructors of the nodes."""

from __future__ import annotations

import math

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import (
    Binary,
    Broadcast,
    Buffer,
    Call,
    Cast,
    Const,
    Load,
    Ramp,
    Reinterpret,
    Select,
    Shuffle,
    Unary,
    Var,
    VectorReduce,
    as_expr,
    const,
)
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import (
    Alias,
    Alloc,
    Assert,
    Atomic,
    Break,
    Continue,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Let,
    Parallel,
    Prefetch,
    Print,
    Reduce,
    Region,
    Scan,
    Seq,
    Store,
    Transpose,
    While,
)

I32, I64, F16, F32, BOOL = (dtype(name) for name in ("int32", "int64", "float16", "float32", "bool"))
F32x8, I32x8, BOOLx8 = (dtype(name) for name in ("float32x8", "int32x8", "boolx8"))


def num(value):
    return as_expr(value, I32)


def nums(*values):
    return tuple(num(v) for v in values)


def buf(name, shape, of="float32", scope="global", **more):
    return Buffer(name, nums(*shape), dtype(of), scope, **more)


def var(name, of="int32"):
    return Var(dtype(of), name)


def box(of, starts=None, extents=None):
    return Region(of, nums(*(starts or [0] * of.ndim)), of.shape if extents is None else nums(*extents))


def seq(*stmts):
    return Seq(tuple(stmts))


def at(of, *indices):
    return Load(of.dtype, of, nums(*indices))


def splat(value, lanes=8):
    return Broadcast(value.dtype.with_lanes(lanes), value)


def launch(*body, grid=(4,), **more):
    names = tuple(var(f"b{axis}") for axis in "xyz"[: len(grid)])
    return Launch(nums(*grid), names, seq(*body), **more)


def func(params, *body, level="tile", sizes=(), outputs=(), **more):
    return PrimFunc("kernel", tuple(params), seq(launch(*body, **more)), tuple(sizes), tuple(outputs), level)


def value_func(*values, params=(), level="tile", before=()):
    """Values, each under a name of its own."""
    lets = [Let(Var(v.dtype, f"v{i}"), v) for i, v in enumerate(values)]
    return func(params, *before, *lets, level=level)


A = buf("A", (16, 32))
B = buf("B", (32, 16))
C = buf("C", (16, 16))
ROW = buf("row", (16,))
H = buf("h", (64,), "float16")
COUNTS = buf("counts", (8,), "int32")
N = var("n")
X = var("x", "float32")
Y = var("y", "int64")


def _expressions():
    x, y, i = X, Y, var("i", "int64")
    half = at(H, 3)
    mask = Binary(BOOLx8, "lt", Ramp(I32x8, num(0), num(1)), splat(num(5)))
    vector = Load(F32x8, ROW, (Ramp(I32x8, num(0), num(1)),))
    gathered = Load(F32x8, ROW, (Ramp(I32x8, num(1), num(2)),), mask)
    yield (
        "Const",
        value_func(
            const(3), const(-3), const(1.5), const(-0.0), const(math.inf), const(-math.inf), const(math.nan), const(1e20),
            const(1e-7), const(True), const(3, "int64"), const(-1, "int8"), const(2, "float16"), Const(F32x8, 1.0),
            Const(BOOLx8, False), const(5, "handle"), const(-math.inf, "bfloat16"),
        ),
    )  # fmt: skip
    yield "Var", func([x, y, H], Store(H, nums(0), Cast(F16, x)), Assert(Binary(BOOL, "lt", y, const(3, I64)), ""))
    yield (
        "Unary",
        value_func(
            Unary(F32, "neg", x),
            Unary(F32, "neg", const(3.0)),
            Unary(I32, "neg", const(-3)),
            Unary(F32, "neg", Unary(F32, "neg", x)),
            Unary(F32, "neg", Binary(F32, "pow", x, x)),
            Unary(BOOL, "not", Binary(BOOL, "lt", x, const(0.0))),
            Unary(I64, "bitnot", y),
            Binary(F32, "pow", Unary(F32, "neg", x), const(-2.0)),
            params=[x, y],
        ),
    )
    yield (
        "Binary",
        value_func(
            *[Binary(F32, op, x, const(2.0)) for op in ("add", "sub", "mul", "div", "min", "max", "pow", "truncmod")],
            *[Binary(I64, op, const(7, I64), y) for op in ("floordiv", "floormod", "truncdiv", "shl", "shr", "bitand")],
            *[Binary(BOOL, op, half, const(1, F16)) for op in ("lt", "le", "gt", "ge", "eq", "ne")],
            Binary(I32, "sub", num(1), Binary(I32, "sub", num(2), num(3))),
            Binary(I32, "sub", Binary(I32, "sub", num(1), num(2)), num(3)),
            Binary(F16, "add", const(1, F16), const(2, F16)),
            Binary(BOOL, "and", Binary(BOOL, "or", const(True), const(False)), Binary(BOOL, "bitxor", const(True), const(True))),
            Binary(I64, "bitor", Binary(I64, "bitxor", y, const(1, I64)), Binary(I64, "mul", y, Binary(I64, "add", y, y))),
            params=[x, y, H],
        ),
    )  # fmt: skip
    yield (
        "Cast",
        value_func(
            Cast(F16, x),
            Cast(F16, x, "rz"),
            Cast(dtype("float8_e4m3fn"), x, "rn", True),
            Cast(F32, const(3)),
            Cast(F16, const(3.0), "rz", True),
            params=[x],
        ),
    )
    yield "Reinterpret", value_func(Reinterpret(I32, x), Reinterpret(dtype("int16"), half), params=[x, H])
    yield (
        "Select",
        value_func(
            Select(F32, Binary(BOOL, "lt", x, const(0.0)), const(0.0), x),
            Select(F16, const(True), half, const(0, F16)),
            Select(F16, const(True), const(1, F16), const(0, F16)),
            Select(F32x8, mask, vector, splat(const(0.0))),
            params=[x, H, ROW],
            level="lowered",
        ),
    )
    yield "Load", value_func(at(A, 0, 3), vector, gathered, params=[A, ROW], level="lowered")
    yield (
        "Call",
        value_func(
            Call(F32, "exp", (x,)),
            Call(BOOL, "isnan", (half,)),
            Call(I32, "clz", (y,)),
            Call(F16, "fma", (half, const(2, F16), const(1, F16))),
            Call(F32x8, "dot2_bf16", (vector, splat(const(0.0)), vector)),
            params=[x, y, H, ROW],
            level="lowered",
        ),
    )
    yield (
        "Ramp",
        func(
            [Y, A],
            Let(var("wide", "int64x8"), Ramp(dtype("int64x8"), y, const(1, I64))),
            Store(A, (num(0), Ramp(I32x8, num(8), num(3))), splat(const(1.0))),
            Store(A, (num(1), Ramp(I32x8, num(8), num(1))), Const(F32x8, 0.0)),
            level="lowered",
        ),
    )
    yield "Broadcast", value_func(splat(x), splat(const(1, F16)), splat(y, 3), params=[x, y], level="lowered")
    yield (
        "Shuffle",
        value_func(Shuffle(dtype("float32x4"), vector, vector, (0, 8, 1, 15)), params=[ROW], level="lowered"),
    )
    yield (
        "VectorReduce",
        value_func(*[VectorReduce(F32, op, vector) for op in ("add", "max", "min_nan")], params=[ROW], level="lowered"),
    )
    loop = For(i, const(0, I64), y, const(2, I64), seq(Store(H, (i,), const(0, F16))))
    yield "For", func([y, H, N], loop, *_loops())


def _loops():
    body = seq(Copy(box(H, [0], [4]), box(H, [8], [4])))
    for kind in ("serial", "unroll", "vectorized"):
        yield For(var("i"), num(0), num(8), num(1), body, kind)
    yield For(var("i"), num(1), num(8), num(1), seq(), "serial")
    yield For(var("k"), num(8), num(0), num(-1), body, "pipelined", 3, (0, 1), (0, -1))
    yield For(var("k"), num(0), N, num(4), body, "pipelined", 0, (2,))


def _tile_operations():
    fragment = buf("tile", (16, 32), scope="fragment")
    yield (
        "Region",
        func([A], Copy(box(A, [0, 8], [1, 4]), box(A, [1, 0], [1, 4])), Fill(box(A, [0, 0], [16, 32]), const(0.0))),
    )
    i, j = var("i"), var("j", "int64")
    inner = Store(A, (i, Cast(I32, j)), const(1.0))
    yield "Parallel", func([A], Parallel((i, j), (num(16), const(32, I64)), seq(inner)))
    yield "Copy", func([A], Alloc(fragment), Copy(box(A), box(fragment)), Copy(box(fragment), box(A), True))
    yield "Transpose", func([A, B], Transpose(box(A), box(B)))
    yield "Fill", func([A, H], Fill(box(A), const(math.inf)), Fill(box(H, [4], [8]), const(1, F16)))
    yield (
        "Gemm",
        func(
            [A, B, C],
            Gemm(box(A), box(B), box(C)),
            Gemm(box(B), box(A), box(C), True, True, True, "full_row", 2),
        ),
    )
    yield (
        "Reduce",
        func(
            [A, ROW],
            *[
                Reduce(op, box(A), box(ROW), 1, clear, nan)
                for op, clear, nan in (("sum", True, False), ("max", False, True))
            ],
        ),
    )
    yield "Scan", func([A], Scan("sum", box(A), box(A), 1), Scan("max", box(A), box(A), 0, True))


def _statements():
    cell = buf("cell", (), scope="var")
    yield "Seq", func([A], seq(Let(var("t"), num(1)), seq()), Let(var("t"), num(2)))
    yield "Let", func([A], Let(var("t"), num(1)), Let(var("t", "float16"), const(1, F16)), Let(var("u"), N), sizes=[N])
    yield (
        "Alloc",
        func(
            [],
            Alloc(cell, const(1.0)),
            Alloc(buf("s", (4, 4), scope="shared", strides=nums(8, 1))),
            Alloc(buf("r", (4,), "float16", "fragment", reducer="max", safe_value=const(-1, F16))),
            Alloc(buf("scratch", (N, 4), "int8")),
            sizes=[N],
        ),
    )
    wide = buf("wide", (8, 64))
    yield "Alias", func([wide], Alias(buf("flat", (512,), "int32", view_of=wide)))
    edge = Binary(BOOLx8, "lt", Ramp(I32x8, num(0), num(1)), splat(num(5)))
    eight = (Ramp(I32x8, num(0), num(1)),)
    yield (
        "Store",
        func(
            [H, ROW],
            Store(H, nums(1), const(1, F16)),
            Store(ROW, eight, splat(const(1.0)), edge),
            Store(ROW, eight, splat(const(1.0)), None, True),
            Store(ROW, eight, splat(const(1.0)), edge, True),
            level="lowered",
        ),
    )
    going = Binary(BOOL, "lt", at(COUNTS, 0), num(5))
    yield "While", func([COUNTS], While(going, seq(Break())))
    yield (
        "If",
        func([COUNTS], If(going, seq(), seq(If(going, seq(Store(COUNTS, nums(0), num(1)))))), If(going, seq(), seq())),
    )
    yield "Break", func([COUNTS], While(going, seq(If(going, seq(Break())))))
    yield "Continue", func([COUNTS], While(going, seq(Continue())))
    yield (
        "Print",
        func(
            [A, COUNTS],
            Print("only\ntext \"quoted\" # and 'so' on"),
            Print("", (at(A, 0, 1), num(3)), (box(A), box(A, [1, 0], [1, 8]))),
        ),
    )
    yield "Assert", func([COUNTS], Assert(going, "too many: \\ ☃"), Assert(going))
    yield "Prefetch", func([A], Prefetch(box(A, [3, 0], [1, 16])), Prefetch(box(A, [3, 4], [1, 1])))
    old = var("old")
    yield (
        "Atomic",
        func(
            [COUNTS, A, C],
            Atomic("add", box(COUNTS, [3], [1]), num(1)),
            Atomic("load", box(COUNTS, [3], [1]), None, None, "acquire", old),
            Atomic("exchange", box(COUNTS, [3], [1]), old, None, "acq_rel", var("older")),
            Atomic("max", box(C), None, box(A, [0, 0], [16, 16])),
            Atomic("max", box(C, [0, 0], [1, 1]), const(0.5)),
        ),
    )
    hints = (("depth", 3), ("name", "x"), ("sizes", (1, -2.5, True, None, ("in",))))
    yield (
        "Launch",
        PrimFunc(
            "kernel",
            (A,),
            seq(
                launch(seq(), grid=(1, 2, 3), threads=(32, 4, 1), swizzle=(4, "column"), annotations=hints),
                launch(grid=(N,)),
            ),
            (N,),
        ),
    )
    n = var("n")
    strided = buf("s", (n, 4), strides=nums(n, 2), safe_value=const(-1.0))
    yield "PrimFunc", func([strided, X, n, COUNTS], outputs=(0, 3), sizes=[var("m", "int64")], level="lowering")


CASES: dict[str, PrimFunc] = dict([*_expressions(), *_tile_operations(), *_statements()])
