"""What a program reads and writes."""

import dataclasses

from tilewright.analysis.effects import REGION_FIELDS, effects, storage
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Load, const
from tilewright.ir.node import REGISTRY
from tilewright.ir.stmt import Atomic, Copy, Fill, Gemm, Print, Reduce, Region, Scan, Seq, Store

F32 = dtype("float32")


def buffer(name, view_of=None):
    return Buffer(name, (const(4), const(4)), F32, view_of=view_of)


def whole(b):
    return Region(b, (const(0), const(0)), (const(4), const(4)))


A, B, C = buffer("A"), buffer("B"), buffer("C")
ZERO = (const(0), const(0))


def names(stmt):
    found = effects(stmt)
    return "".join(b.name for b in found.reads), "".join(b.name for b in found.writes)


def test_each_statement():
    assert names(Copy(whole(A), whole(B))) == ("A", "B")
    assert names(Fill(whole(A), const(0.0))) == ("", "A")
    assert names(Gemm(whole(A), whole(B), whole(C))) == ("ABC", "C")
    assert names(Gemm(whole(A), whole(B), whole(C), clear_accum=True)) == ("AB", "C")
    assert names(Reduce("sum", whole(A), whole(B), 0)) == ("A", "B")
    assert names(Reduce("sum", whole(A), whole(B), 0, clear=False)) == ("AB", "B")
    assert names(Scan("sum", whole(A), whole(B), 0)) == ("A", "B")
    assert names(Atomic("add", whole(A), source=whole(B))) == ("AB", "A")
    assert names(Atomic("load", whole(A))) == ("A", "")
    assert names(Atomic("store", whole(A), value=const(1.0))) == ("", "A")
    assert names(Print("", regions=(whole(A),))) == ("A", "")
    assert names(Store(A, ZERO, Load(F32, B, ZERO))) == ("B", "A")


def test_views_count_as_what_they_show():
    view = buffer("V", view_of=buffer("W", view_of=A))
    assert storage(view) is A
    found = effects(Seq((Fill(whole(view), const(0.0)), Copy(whole(B), whole(C)))))
    assert found.is_written(A) and found.is_written(view) and not found.is_written(B)


def test_no_statement_with_regions_is_forgotten():
    hints = {"Prefetch"}
    with_regions = {
        name
        for name, cls in REGISTRY.items()
        if any("Region" in str(f.type) for f in dataclasses.fields(cls)) and name != "Region"
    }
    assert with_regions - hints == {cls.__name__ for cls in REGION_FIELDS}
