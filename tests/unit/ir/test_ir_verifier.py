"""Each rule of the verifier, broken once: in text where text can say it, else with nodes."""

import ast
import inspect

import pytest
from ir_cases import CASES, F32, I32, A, C, buf, func, launch, num, nums, seq, var

from tilewright.errors import VerificationError
from tilewright.ir import verifier
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Buffer, Const, Expr, Load, Ramp, Unary, Var
from tilewright.ir.parser import parse_func
from tilewright.ir.stmt import Alias, Atomic, Copy, Let, Parallel, Reduce, Region, Seq, Stmt, Store
from tilewright.ir.verifier import verify

TEXT = """\
func f[n: int32](
    A: float32[16, 32],
    T: float32[4, 4, 4],
    counts: int32[8],
    x: float32,
) level({level}):
    launch (bx < 4) threads(128):
        {line}
"""
LINE = 8

TILE = [
    ("let a: int64 = n", "Let: 'a' is int64, its value int32"),
    ("alloc t: float32[4] register", "Alloc: scope 'register' is unknown at this level"),
    ("alloc t: float32[n] shared", "Alloc: on-chip buffer 't' has a size known at launch only"),
    ("alloc t: float32[4] var", "Alloc: a var has no dimensions"),
    ("alloc t: float32[] var = n", "Alloc: the first value is int32, not float32"),
    ("alloc t: float32[x] global", "Alloc: a size or index is float32"),
    ("alloc t: float32[4, 4] shared strides(4)", "Alloc: 't' has 2 dimensions but 1 strides"),
    ("A[0] = 1.0", "Store: 1 indices for 'A' of 2 dimensions"),
    ("A[x, 0] = 1.0", "Store: an index of 'A' is float32"),
    ("A[0, 0] = n", "Store: the value is int32, not float32"),
    ("A[0, 0] = 1.0 where True", "Store: a mask belongs into lowered IR"),
    ("for i: int64 in serial(n):\n            pass", "For: a bound is int32, not int64"),
    ("for i in serial(0, 8, 0):\n            pass", "For: the step is 0"),
    ("for i in unroll(n):\n            pass", "For: an unrolled loop needs literal bounds"),
    ("while n:\n            pass", "While: the condition is int32, not bool"),
    ("if n:\n            pass", "If: the condition is int32, not bool"),
    ("break", "Break: stands in no loop"),
    ("continue", "Continue: stands in no loop"),
    ('assert n, ""', "Assert: the condition is int32, not bool"),
    ("parallel (i < x):\n            pass", "Parallel: a size or index is float32"),
    ("fill A[0 +: 4] = 0.0", "Region: the box of 'A' has another rank than its buffer"),
    ("copy A -> A[0 +: 16, 0 +: 16]", "Copy: extents of 'A' and 'A' differ"),
    ("fill A = n", "Fill: the value is int32, not float32"),
    ("gemm A += T @ A", "Gemm: 'T' is no matrix"),
    ("reduce sum A -> counts (dim=2)", "Reduce: dimension 2 of 2"),
    ("reduce sum A -> counts (dim=0)", "Reduce: the destination's extents are not the source's without the dimension"),
    ("scan sum A -> A (dim=2)", "Scan: operation 'sum' over dimension 2"),
    ("atomic relaxed add counts[0], x", "Atomic: the value is float32, not int32"),
    ("atomic relaxed add counts[0], 1 -> old: int64", "Atomic: the old value has another dtype than the buffer"),
    ("launch (by < 2) threads(128):\n            pass", "Launch: stands inside another launch"),
    ("let a = ramp(0, 1, 4)", "Ramp: int32x4 belongs into lowered IR"),
    ("let a = -True", "Unary: 'neg' has no meaning on bool"),
    ("let a = not n", "Unary: 'not' has no meaning on int32"),
    ("let a = ~x", "Unary: 'bitnot' has no meaning on float32"),
    ("let a = n + x", "Binary: the right operand is float32, not int32"),
    ("let a = n and n", "Binary: 'and' needs conditions, not int32"),
    ("let a = cast<float16x2>(x)", "Cast: from float32 to float16x2, rounding 'rn'"),
    ("let a = reinterpret<int16>(x)", "Reinterpret: float32 and int16 differ in width"),
    ("let a = select(n, x, x)", "Select: the condition is int32"),
    ("let a = select(True, x, n)", "Select: the value if false is int32, not float32"),
    ("let a = foo<float32>(x)", "Call: intrinsic 'foo' is unknown at this level"),
    ("let a = dot2_bf16<float32>(x, x, x)", "Call: intrinsic 'dot2_bf16' is unknown at this level"),
    ("let a = exp(x, x)", "Call: 'exp' takes 1 arguments, not 2"),
]  # fmt: skip

LOWERED = [
    ("fill A = 0.0", "Fill: does not belong into lowered IR"),
    ("for i in pipelined(8):\n            pass", "For: kind 'pipelined' is unknown at this level"),
    ("A[0 +: 4, 0 +: 8] = x", "Store: indices with different lanes: [1, 4, 8]"),
    ("A[0, 0 +: 4] = broadcast(x, 4) where True", "Store: the mask is bool, not boolx4"),
    ("atomic relaxed add counts, 1", "Atomic: lowered IR has atomics on single elements only"),
    ("let a = ramp(0, x, 4)", "Ramp: the stride is float32, not int32"),
    ("let a = ramp(x, x, 4)", "Ramp: a size or index is float32"),
    ("let a = shuffle(broadcast(x, 2), broadcast(x, 2), [0, 4])", "Shuffle: lanes (0, 4) of 4"),
    ("let a = shuffle(broadcast(x, 2), broadcast(x, 4), [0, 4])", "Shuffle: the second vector is float32x4, not float32x2"),
    ("let a = reduce_mean(broadcast(x, 2))", "VectorReduce: 'mean' of float32x2 to float32"),
]  # fmt: skip


def broken_nodes():
    """(function, message) of rules that text cannot break."""
    other, v, x = buf("other", (4,)), var("v"), Var(F32, "x")
    yield func([A]).replace(level="high"), "level 'high' is unknown"
    yield func([A, A]), "PrimFunc: 'A' is declared twice"
    yield func([], Let(v, num(1)), Let(v, num(1))), "Let: 'v' is declared twice"
    yield func([buf("S", (4,), scope="shared")]), "PrimFunc: parameter 'S' has scope 'shared'"
    yield func([A], outputs=(1,)), "PrimFunc: output 1 is no buffer parameter"
    yield func([x], outputs=(0,)), "PrimFunc: output 0 is no buffer parameter"
    yield func([], Stmt()), "Stmt: is no statement"
    yield func([], Alias(Buffer("view", nums(4), F32, view_of=other))), "Alias: 'view' views no known buffer"
    yield func([], Alias(other)), "Alias: 'other' views no known buffer"
    yield func([], Store(other, nums(0), x)), "Store: buffer 'other' is not known here"
    yield func([], Parallel((), (), seq())), "Parallel: 0 variables for 0 extents"
    whole = Region(other, nums(0), nums(4))
    yield func([], Copy(whole, whole)), "Region: buffer 'other' is not known here"
    a, c = (Region(b, nums(0, 0), b.shape) for b in (A, C))
    yield func([A, C], Reduce("mean", a, c, 0)), "Reduce: operation 'mean' is unknown"
    yield func([A], Atomic("nand", a)), "Atomic: operation 'nand' is unknown"
    four = launch().replace(grid=nums(1, 1, 1, 1), block_vars=(v, *[var("w") for _ in range(3)]))
    yield func([]).replace(body=seq(four)), "Launch: 4 block variables for a grid of 4"
    yield func([], Let(x, Expr(F32))), "Expr: is no expression"
    yield func([], Let(x, Const(F32, 3))), "Const: 3 is no value of float32"
    yield func([], Let(x, Var(F32, "y"))), "Var: 'y' is not known here"
    yield func([], Let(v, Unary(I32, "sqrt", num(1)))), "Unary: 'sqrt' has no meaning on int32"
    yield func([], Let(v, Binary(I32, "cross", num(1), num(2)))), "Binary: operation 'cross' is unknown"
    yield func([], Let(v, Binary(I32, "lt", num(1), num(2)))), "Binary: 'lt' on int32 gives bool, not int32"
    yield func([A], Let(v, Load(I32, A, nums(0, 0)))), "Load: 'A' gives float32, not int32"
    ramp = Ramp(dtype("float32x4"), num(0), num(1))
    yield func([], Let(Var(ramp.dtype, "r"), ramp), level="lowered"), "Ramp: a ramp of int32 cannot be float32x4"
    inner = Let(Var(F32, "t"), x)
    yield func([x], seq(inner), Let(Var(F32, "u"), inner.var)), "Var: 't' is not known here"


BROKEN = [(parse_func(TEXT.format(level="tile", line=line), "text"), message) for line, message in TILE]
BROKEN += [(parse_func(TEXT.format(level="lowered", line=line), "text"), message) for line, message in LOWERED]
BROKEN += list(broken_nodes())


def refused(function) -> pytest.ExceptionInfo:
    with pytest.raises(VerificationError) as caught:
        verify(function)
    return caught


@pytest.mark.parametrize(("function", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_broken_rule_is_refused(function, message):
    assert refused(function).value.message == message


@pytest.mark.parametrize("line", [line for line, _ in TILE])
def test_the_place_is_named(line):
    location = refused(parse_func(TEXT.format(level="tile", line=line), "text")).value.location
    assert location.file == "text" and location.line == LINE


def rules() -> set[int]:
    """The lines of the verifier that refuse something."""
    lines = set()
    for item in ast.walk(ast.parse(inspect.getsource(verifier))):
        if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "fail":
            lines.add(item.lineno)
    return lines


def test_every_rule_is_broken_somewhere():
    lines = rules()
    broken = set()
    for function, _ in BROKEN:
        broken |= {entry.lineno + 1 for entry in refused(function).traceback} & lines
    assert len(lines) > 50 and broken == lines


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_passes_between_the_passes_too(name):
    verify(CASES[name].replace(level="lowering"))


def test_names_end_with_their_block():
    v = var("v")
    verify(func([], seq(Let(v, num(1))), seq(Let(v, num(2)))))
    assert isinstance(Seq(()).stmts, tuple)
