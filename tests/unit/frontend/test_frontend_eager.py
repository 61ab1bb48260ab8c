"""The two forms of jit functions, and programs built from descriptions of the arguments."""

from __future__ import annotations

import sys

import pytest

import tilewright.frontend
import tilewright.language as T
from tilewright import errors
from tilewright.frontend.eager import JitTemplate
from tilewright.ir.arrayspec import ArraySpec
from tilewright.ir.expr import Const
from tilewright.ir.stmt import Launch

assert tilewright.frontend

COLUMNS = sys.version_info >= (3, 11)  # older code objects know lines only


def spec(*shape, dtype=T.float32, strides=None):
    return ArraySpec(shape, dtype, strides)


def add_one(A, B, scale=2, block=32):
    M, N = T.const("M, N")
    A: T.Tensor((M, N), "float32")
    B: T.Tensor[[M, N], T.float32]
    with T.Kernel(M, threads=block) as i:
        for j in range(N):
            B[i, j] = A[i, j] * scale


def test_forms():
    def lazy(n, dtype="float32"):
        @T.prim_func
        def main(A: T.Tensor((n,), dtype)):
            with T.Kernel(n) as i:
                A[i] = n

        return main

    template = JitTemplate(lazy)
    assert (template.form, list(template.signature.parameters), template.name) == ("lazy", ["n", "dtype"], "lazy")
    func = template.build(4, dtype="int32")
    assert func.params[0].const_shape() == (4,) and func.params[0].dtype is T.int32
    assert JitTemplate(add_one).form == "eager"


def test_sizes_become_literals():
    func = JitTemplate(add_one).build({"A": spec(6, 5), "B": spec(6, 5), "scale": 3})
    assert [(p.name, p.const_shape()) for p in func.params] == [("A", (6, 5)), ("B", (6, 5))]
    (launch,) = func.launches()
    assert launch.grid[0].value == 6 and launch.threads == (32, 1, 1)
    (loop,) = launch.body.stmts
    assert loop.stop.value == 5 and loop.body.stmts[0].value.rhs.value == 3.0
    assert func.sizes == ()


def test_results_dynamic_sizes_and_scalars():
    def scaled(A, factor, dtype=T.float32):
        n = T.dynamic("n")
        K = T.const("K")
        A: T.Tensor((n, K), dtype)
        factor: T.float32
        C = T.empty((n, K), dtype)
        with T.Kernel(n) as i:
            for k in range(K):
                C[i, k] = A[i, k] * factor
        return C

    template = JitTemplate(scaled)
    func = template.build({"A": spec(7, 4), "factor": 2.5})
    assert [p.name for p in func.params] == ["A", "factor", "C"] and func.outputs == (2,)
    assert func.params[1].dtype is T.float32
    assert [s.name for s in func.sizes] == ["n"] and func.params[0].shape[0] is func.sizes[0]
    assert isinstance(func.params[2].shape[1], Const) and func.params[2].shape[1].value == 4


def test_strides_by_const():
    def strided(A, B):
        n, s = T.const("n, s")
        A: T.StridedTensor((n, 4), (s, 1), "int8")
        B: T.Tensor((n,), "int8")
        with T.Kernel(n) as i:
            B[i] = A[i, 0]

    func = JitTemplate(strided).build({"A": spec(3, 4, dtype=T.int8, strides=(9, 1)), "B": spec(3, dtype=T.int8)})
    assert [s.value for s in func.params[0].strides] == [9, 1]
    func = JitTemplate(strided).build({"A": spec(3, 4, dtype=T.int8), "B": spec(3, dtype=T.int8)})
    assert [s.value for s in func.params[0].strides] == [4, 1]


def test_types_in_the_signature_and_several_results():
    def both(A: T.Tensor((8,), "float32"), n: int = 3):
        first, second = T.empty((8,)), T.empty((8,), "int32")
        with T.Kernel(8) as i:
            first[i] = A[i] + n
            second[i] = n
        return second, first

    func = JitTemplate(both).build({"A": spec(8)})
    assert [p.name for p in func.params] == ["A", "second", "first"] and func.outputs == (1, 2)
    assert all(isinstance(s, Launch) for s in func.body.stmts)


def line_of(function, offset):
    return function.__code__.co_firstlineno + offset


def test_arguments_that_do_not_fit():
    template = JitTemplate(add_one)
    with pytest.raises(
        errors.ArgumentShapeError, match=r"B is declared as Tensor\(\(6, 5\), float32\), and \(6, 4\)"
    ) as e:
        template.build({"A": spec(6, 5), "B": spec(6, 4)})
    assert (e.value.location.line, e.value.location.column) == (line_of(add_one, 3), 8 * COLUMNS)
    with pytest.raises(errors.ArgumentDTypeError, match="A is declared as float32, and float16 is given"):
        template.build({"A": spec(6, 5, dtype=T.float16), "B": spec(6, 5)})
    with pytest.raises(errors.ArgumentShapeError, match="A has 1 dimensions"):
        template.build({"A": spec(6), "B": spec(6, 5)})
    with pytest.raises(errors.ArgumentCountError, match="needs a value for 'B'"):
        template.build({"A": spec(6, 5)})
    with pytest.raises(errors.ArgumentCountError, match="no parameter 'D'"):
        template.build({"A": spec(6, 5), "B": spec(6, 5), "D": 1})
    with pytest.raises(errors.ArgumentTypeError, match=r"declared as a tensor, and int is given"):
        template.build({"A": 3, "B": spec(6, 5)})


def test_declarations_that_are_wrong():
    def unknown(A):
        K = T.const("K")
        A: T.Tensor((4, K * 2), "float32")

    with pytest.raises(errors.AnnotationError, match="no tensor parameter is declared with K") as e:
        JitTemplate(unknown).build({"A": spec(4, 4)})
    assert (e.value.location.line, e.value.location.column) == (line_of(unknown, 1), 13 * COLUMNS)

    def undeclared(A, B):
        A: T.Tensor((4,), "float32")

    with pytest.raises(errors.AnnotationError, match="tensor parameter 'B' is not declared") as e:
        JitTemplate(undeclared).build({"A": spec(4), "B": spec(4)})
    assert (e.value.location.line, e.value.location.column) == (line_of(undeclared, 0), 23)

    def foreign(A):
        A: T.Tensor((4,), "float32")
        Z: T.Tensor((4,), "float32")  # noqa: F842

    with pytest.raises(errors.AnnotationError, match="'Z' is no parameter"):
        JitTemplate(foreign).build({"A": spec(4)})

    def wrong(n):
        return n

    with pytest.raises(errors.KernelStructureError, match="wrong returned int"):
        JitTemplate(wrong).build(3)


def test_const_belongs_in_an_eager_kernel():
    with pytest.raises(errors.KernelStructureError, match="eager kernel"):
        T.const("M")


def test_mistakes_show_at_the_definition():
    def wrong(A):
        with T.Kernel(4):
            del A

    with pytest.raises(errors.UnsupportedSyntaxError, match="`del` is not supported"):
        JitTemplate(wrong)

    def several(*arrays):
        with T.Kernel(4):
            pass

    with pytest.raises(errors.AnnotationError, match=r"no \*arrays"):
        JitTemplate(several)
