"""Scopes, names and the current builder of a Python thread."""

import threading

import pytest

from tilewright.errors import KernelStructureError
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.stmt import Break, Let, Seq

I32 = dtype("int32")


def test_statements_go_into_the_innermost_scope():
    builder = Builder("f")
    first, second, third = (Let(Var(I32, "v"), const(n)) for n in range(3))
    builder.emit(first)
    with builder.scope("serial") as frame:
        builder.emit(second)
    builder.emit(third)
    assert frame.seq().stmts == (second,) and isinstance(frame.seq(), Seq)
    assert builder.frames[0].stmts == [first, third]


def test_a_scope_is_closed_by_an_exception_and_closes_those_within():
    builder = Builder("f")
    with pytest.raises(ZeroDivisionError), builder.scope("launch"), builder.scope("if"):
        raise ZeroDivisionError
    assert [frame.kind for frame in builder.frames] == ["function"]
    with builder.scope("launch"):
        builder.scope("serial").__enter__()
    assert [frame.kind for frame in builder.frames] == ["function"]


def test_the_innermost_scope_of_a_kind():
    builder = Builder("f")
    assert not builder.in_launch and builder.innermost("serial", "while") is None
    with builder.scope("launch"), builder.scope("serial"), builder.scope("while") as inner, builder.scope("if"):
        assert builder.in_launch and builder.innermost("serial", "while") is inner


def test_what_needs_a_launch_says_so():
    builder = Builder("f")
    with pytest.raises(KernelStructureError, match=r"T.copy must stand inside `with T.Kernel\(...\)`") as caught:
        builder.require_launch("T.copy")
    assert caught.value.location.file == __file__
    with builder.scope("launch"):
        builder.require_launch("T.copy")


def test_the_current_builder():
    assert Builder.active() is None
    with pytest.raises(KernelStructureError, match=r"T.fill can only be used while a kernel is being built") as caught:
        Builder.current("T.fill")
    assert caught.value.location.file == __file__ and "@T.prim_func" in caught.value.hint
    outer, inner = Builder("outer"), Builder("inner")
    with outer.activate():
        with inner.activate():
            assert Builder.current() is Builder.active() is inner
        assert Builder.current() is outer
    assert Builder.active() is None


def test_each_python_thread_has_its_own():
    seen = []
    with Builder("f").activate():
        thread = threading.Thread(target=lambda: seen.append(Builder.active()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_names_are_unique():
    builder = Builder("f")
    assert [builder.unique_name(base) for base in ("i", "i", "i_1", "i", "a b", "2x", "")] == [
        "i", "i_1", "i_1_1", "i_2", "a_b", "v2x", "v",
    ]  # fmt: skip
    builder.reserve("k")
    assert builder.fresh_var("k", I32).name == "k_1"


def test_a_buffer_is_named_once():
    builder = Builder("f")
    buffer = Buffer("", (), I32, "var")
    builder.declare(buffer, "var")
    assert buffer.name == "var"
    builder.name_buffer(buffer, "total")
    builder.name_buffer(buffer, "other")
    assert buffer.name == "total"


def test_lets_are_found_again():
    builder = Builder("f")
    let = Let(Var(I32, "v"), const(3))
    builder.emit(let)
    builder.emit(Break())
    assert builder.let_value(let.var) is let.value and builder.let_value(Var(I32, "v")) is None
