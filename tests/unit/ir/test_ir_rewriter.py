"""Rewriting keeps what it does not change, splices sequences, and replaces variables and buffers."""

import dataclasses

import pytest
from ir_cases import CASES, F32, A, at, box, buf, func, num, nums, seq, value_func, var

from tilewright.ir.expr import Binary, Const, Var, const
from tilewright.ir.node import REGISTRY, Node
from tilewright.ir.printer import print_stmt
from tilewright.ir.rewriter import Rewriter, substitute, walk
from tilewright.ir.stmt import Alloc, Copy, Fill, For, Let, Seq, Store


class Nothing(Rewriter):
    """Changes nothing."""


class Increment(Rewriter):
    """Adds one to every int32 literal."""

    def rewrite_Const(self, item: Const) -> Const:
        return item.replace(value=item.value + 1) if item.dtype.name == "int32" else item


@pytest.mark.parametrize("name", CASES)
def test_the_same_object_comes_back_unchanged(name):
    assert Nothing().rewrite(CASES[name]) is CASES[name]


@pytest.mark.parametrize("name", CASES)
def test_children_are_all_nodes_that_fields_own(name):
    for item in walk(CASES[name]):
        owned = []
        for field in dataclasses.fields(item):
            value = getattr(item, field.name)
            if not field.metadata.get("reference"):
                owned += [v for v in (value if isinstance(value, tuple) else (value,)) if isinstance(v, Node)]
        assert list(map(id, item.children())) == list(map(id, owned))


@pytest.mark.parametrize("name", [name for name in CASES if name != "Seq"])  # one within another is spliced
def test_a_rewritten_node_keeps_everything_else(name):
    before = list(walk(CASES[name]))
    after = list(walk(Increment().rewrite(CASES[name])))
    assert [type(n) for n in before] == [type(n) for n in after]
    for old, new in zip(before, after, strict=True):
        children = {child for child, _ in old.child_fields}
        for field in dataclasses.fields(old):
            if field.name not in children and not (type(old) is Const and field.name == "value"):
                assert getattr(old, field.name) is getattr(new, field.name)


def test_only_the_path_to_a_change_is_rebuilt():
    kept = Store(A, nums(0, 0), const(1.0))
    changed = Fill(box(A), const(2.0))

    class Wipe(Rewriter):
        def rewrite_Fill(self, stmt: Fill) -> Fill:
            return stmt.replace(value=const(0.0))

    after = Wipe().rewrite(seq(kept, changed))
    assert after.stmts[0] is kept and after.stmts[1].dst is changed.dst and after.stmts[1].value.value == 0.0


def test_a_sequence_is_spliced():
    class Twice(Rewriter):
        def rewrite_Fill(self, stmt: Fill) -> Seq:
            return seq(stmt, stmt)

    class Never(Rewriter):
        def rewrite_Fill(self, stmt: Fill) -> Seq:
            return seq()

    fill, store = Fill(box(A), const(0.0)), Store(A, nums(0, 0), const(1.0))
    assert Twice().rewrite(seq(fill, store)).stmts == (fill, fill, store)
    assert Never().rewrite(seq(fill, store)).stmts == (store,)


def test_a_subclass_inherits_and_overrides():
    class Down(Increment):
        def rewrite_Const(self, item: Const) -> Const:
            return item.replace(value=item.value - 1)

    class Same(Increment):
        pass

    assert [r().rewrite(num(5)).value for r in (Increment, Down, Same)] == [6, 4, 6]


def test_methods_are_of_known_nodes():
    assert {"Const", "Gemm", "PrimFunc"} <= set(REGISTRY)
    assert Increment._table == {Const: Increment.rewrite_Const, Seq: Rewriter.rewrite_Seq}


def test_variables_are_substituted():
    i, j = var("i"), var("j")
    stmt = Store(A, (i, j), Binary(F32, "add", at(A, i, num(0)), const(1.0)))
    after = substitute(stmt, {i: num(3), j: Binary(i.dtype, "mul", i, num(2))})
    assert print_stmt(after) == "A[3, i * 2] = A[3, 0] + 1.0"
    assert substitute(stmt, {var("i"): num(3)}) is stmt


def test_buffers_are_substituted_wherever_they_are_used():
    old, new = buf("old", (4,), scope="shared"), buf("new", (4,), scope="shared")
    body = seq(
        Alloc(old),
        Store(old, nums(0), at(old, 1)),
        Copy(box(old), box(old)),
        For(var("i"), num(0), num(4), num(1), seq(Fill(box(old), const(0.0)))),
    )
    text = print_stmt(substitute(body, {}, {old: new}))
    assert "old" not in text and text.count("new") == 6


def test_walk_goes_in_source_order():
    first, second = Let(var("a"), Binary(num(1).dtype, "add", num(1), num(2))), Let(var("b"), num(3))
    found = [item.value for item in walk(func([], first, second)) if isinstance(item, Const) and item.value != 4]
    assert found == [1, 2, 3]
    assert next(walk(first)) is first


def test_shared_parts_are_rewritten_everywhere():
    part = Binary(F32, "add", Var(F32, "x"), const(1.0))
    after = substitute(value_func(part, part), {part.lhs: const(2.0)})
    assert sum(isinstance(n, Var) for n in walk(after)) == 0
