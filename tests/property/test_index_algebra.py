"""Index algebra against brute force: every point of a small box."""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.analysis.index import IndexContext
from tilewright.ir.expr import INT32, Binary, Cast, Const, Expr, Select, Unary, Var, binary, const, select, unary

A, B, C, D = (Var(INT32, name) for name in "abcd")
BOX = {A: range(6), B: range(-3, 3), C: range(4, 10), D: range(-8, 9, 4)}
OPS = ("add", "sub", "mul", "floordiv", "floormod", "min", "max")


def evaluate(item: Expr, at: dict[int, int]) -> int:
    if isinstance(item, Const):
        return int(item.value)
    if isinstance(item, Var):
        return at[id(item)]
    if isinstance(item, Cast):
        return evaluate(item.value, at)
    if isinstance(item, Unary):
        value = evaluate(item.operand, at)
        return -value if item.op == "neg" else int(not value)
    if isinstance(item, Select):
        return evaluate(item.on_true if evaluate(item.condition, at) else item.on_false, at)
    assert isinstance(item, Binary)
    x, y = evaluate(item.lhs, at), evaluate(item.rhs, at)
    return {
        "add": lambda: x + y,
        "sub": lambda: x - y,
        "mul": lambda: x * y,
        "floordiv": lambda: x // y if y else 0,
        "floormod": lambda: x % y if y else 0,
        "min": lambda: min(x, y),
        "max": lambda: max(x, y),
        "lt": lambda: int(x < y),
        "le": lambda: int(x <= y),
        "gt": lambda: int(x > y),
        "ge": lambda: int(x >= y),
        "eq": lambda: int(x == y),
        "ne": lambda: int(x != y),
        "and": lambda: int(bool(x and y)),
        "or": lambda: int(bool(x or y)),
    }[item.op]()


def points():
    names = list(BOX)
    for values in itertools.product(*BOX.values()):
        yield {id(name): value for name, value in zip(names, values, strict=True)}


def context() -> IndexContext:
    made = IndexContext()
    for variable, values in BOX.items():
        made.bind(variable, values[0], values[-1], values.step)
    return made


def conditions(of: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.builds(lambda op, x, y: binary(op, x, y), st.sampled_from(("lt", "le", "gt", "ge", "eq", "ne")), of, of)


leaves = st.one_of(st.sampled_from([A, B, C, D]), st.integers(-20, 20).map(const))
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda op, x, y: binary(op, x, y), st.sampled_from(OPS), inner, inner),
        st.builds(lambda x, d: binary("floordiv", x, d), inner, st.integers(1, 16)),
        st.builds(lambda x, d: binary("floormod", x, d), inner, st.integers(1, 16)),
        st.builds(lambda x, f: binary("mul", x, f), inner, st.integers(-16, 16)),
        inner.map(lambda x: unary("neg", x)),
        st.builds(lambda c, x, y: select(c, x, y), conditions(inner), inner, inner),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_simplify_bounds_and_divisibility_hold_at_every_point(item):
    known = context()
    simplified = known.simplify(item)
    lo, hi = known.bounds(item)
    modulus, residue = known.modular(item)
    for at in points():
        value = evaluate(item, at)
        assert evaluate(simplified, at) == value
        assert lo is None or lo <= value
        assert hi is None or value <= hi
        assert value == residue if modulus == 0 else value % modulus == residue


@settings(max_examples=150, deadline=None)
@given(conditions(expressions), conditions(expressions))
def test_proofs_never_lie(assumed, condition):
    known = context()
    assert not known.prove(condition) or all(evaluate(condition, at) for at in points())
    with known.assuming(assumed):
        if known.prove(condition):
            assert all(evaluate(condition, at) for at in points() if evaluate(assumed, at))
    with known.assuming(assumed, holds=False):
        if known.prove(condition):
            assert all(evaluate(condition, at) for at in points() if not evaluate(assumed, at))
