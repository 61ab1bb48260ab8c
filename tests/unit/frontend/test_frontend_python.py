"""Python around and inside of kernels: how functions may be written, and what stays Python."""

import math
import sys

import tilewright.frontend
import tilewright.language as T
from tilewright.ir.expr import Binary, Const, Load, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Alloc, Fill, For, If, Let, Store

assert tilewright.frontend


def body(func):
    (launch,) = func.launches()
    return launch.body.stmts


def text(expr):
    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Load):
        return expr.buffer.name + "[" + ", ".join(text(i) for i in expr.indices) + "]"
    if isinstance(expr, Binary):
        return f"({text(expr.lhs)} {expr.op} {text(expr.rhs)})"
    return type(expr).__name__ + "(" + ", ".join(text(c) for c in expr.children()) + ")"


# fmt: off
def test_definitions_of_every_shape():
    if True:
        @T.prim_func
        # a comment between
        def spread(
            A: T.Tensor(
                (8,),
                "int32",
            ),  # and here
            n: T.int32
        ):
            """A text
that goes back to the margin
"""
            with T.Kernel(
                8,
            ) as i:
                # dedented comment
# here
                A[i] = (
    n
)
                name = """
inner
"""
                A[0] = len(name)

    first, second = body(spread)
    assert text(first.value) == "n" and text(second.value) == "7"
    assert first.loc.column == (17 if sys.version_info >= (3, 11) else 0)

    @T.prim_func
    def one_line(A: T.Tensor((8,), "int32")): pass

    assert one_line.body.stmts == ()
# fmt: on


class Config:
    """Kernels made by methods and in class bodies."""

    size = 8

    @T.prim_func
    def in_class(A: T.Tensor((size,), "int32")):
        with T.Kernel(1) as i:
            A[i] = 1

    def make(self):
        @T.prim_func
        def main(A: T.Tensor((self.size,), "int32")):
            with T.Kernel(1) as i:
                A[i] = self.size

        return main


def test_classes():
    assert isinstance(Config.in_class, PrimFunc)
    assert text(body(Config().make())[0].value) == "8"


def test_text_annotations_see_the_functions_around():
    rows = 4

    def inner():
        @T.prim_func
        def main(A: "T.Tensor((rows, rows), 'int8')", n: "int64", m: "T.int16"):  # noqa: F821
            pass

        return main

    a, n, m = inner().params
    assert a.const_shape() == (4, 4) and n.dtype is T.int64 and m.dtype is T.int16


def test_keyword_and_positional_only_parameters():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), /, B: T.Tensor((8,), "int32"), *, n: T.int32, depth=3):
        with T.Kernel(1) as i:
            A[i] = B[i] + n + depth

    assert [p.name for p in main.params] == ["A", "B", "n"]
    assert text(body(main)[0].value) == "((B[i] add n) add 3)"


def test_macro_with_variable_arguments():
    @T.macro
    def total(*parts, scale: int = 1, **extra):
        result = parts[0]
        for part in parts[1:]:
            result = result + part
        return result * scale + extra["bias"]

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as i:
            A[0] = total(i, i + 1, A[2], scale=2, bias=5)

    stmts = body(main)
    assert [type(s) for s in stmts] == [Let, Let, Let, Let, Store]
    assert [text(s.value) for s in stmts] == [
        "A[2]",
        "(i add 1)",
        "(i add part)",
        "(result add parts)",
        "((result_1 mul 2) add 5)",
    ]


def test_macros_take_tensors_slices_and_functions():
    @T.macro
    def apply(function, source, target, n):
        for i in range(n):
            target[i] = function(source[i])

    @T.prim_func
    def main(A: T.Tensor((8, 4), "int32"), B: T.Tensor((4,), "int32")):
        with T.Kernel(8) as r:
            apply(lambda x: x * x, A[r], B, 4)
            apply(lambda x: x if x > 0 else -x, A[r, :], T.alloc_local((4,), "int32"), n=A.shape[1])

    first, alloc, second = body(main)
    assert isinstance(first, For) and text(first.body.stmts[0].value) == "(A[r, i] mul A[r, i])"
    assert isinstance(alloc, Alloc) and alloc.buffer.name == "target"
    assert text(second.stop) == "4"


def test_python_control_flow_inside_run_time_loops():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1) as _:
            for k in range(n):
                for step in (1, 2, 3):
                    if step == 2:
                        continue
                    x = A[k + step]
                    A[k] = x
                if len(A.shape) == 1:
                    y = k * 2
                else:
                    y = k * 3
                A[y] = 0

    (loop,) = body(main)
    assert [type(s) for s in loop.body.stmts] == [Let, Store, Let, Store, Let, Store]
    assert text(loop.body.stmts[-1].indices[0]) == "y"


def test_same_names_in_blocks_one_after_the_other():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1) as _:
            for i in range(4):
                x = A[i]
                A[i] = x + 1
            for i in range(4):
                x = A[i]
                A[i] = x + 2
            if n > 1:
                x = 3
                A[0] = x
            else:
                x = 4
                A[1] = x
            x = 5
            A[2] = x

    first, second, branch, last = body(main)
    assert first.var.name == "i" and second.var.name == "i_1"
    assert text(second.body.stmts[1].value) == "(x_1 add 2)"
    assert text(branch.else_body.stmts[0].value) == "4" and text(last.value) == "5"


def test_variables_in_lists_and_attributes_are_places():
    class State:
        pass

    state = State()

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1) as _:
            sums = [T.alloc_var("int32", 0) for _ in range(2)]
            state.best = T.alloc_var("int32", 7)
            for k in range(n):
                sums[0] += A[k]
                sums[1] = sums[0] * 2
                state.best = k
            A[0] = sums[1] + state.best

    stmts = body(main)
    loop = stmts[3]
    assert [s.buffer.name for s in stmts[:3]] == ["sums", "sums_1", "best"]
    assert [(s.buffer.name, text(s.value)) for s in loop.body.stmts] == [
        ("sums", "(sums[] add A[k])"),
        ("sums_1", "(sums[] mul 2)"),
        ("best", "k"),
    ]
    assert text(stmts[-1].value) == "(sums_1[] add best[])"


def test_match_on_python_values():
    mode = ("scale", 3)

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            match mode:
                case ("scale", factor) if factor > 2:
                    A[i] = A[i] * factor
                case _:
                    A[i] = 0

    assert text(body(main)[0].value) == "(A[i] mul 3)"


def test_literals_are_numbers_to_python():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as i:
            two = T.ceildiv(8, 4)
            names = ["zero", "one", f"{two}"]
            if two == 2 and math.sqrt(two * 8) == 4.0:
                A[i] = len(names[two]) + [10, 20, 30][two]

    assert text(body(main)[0].value) == "31"


def test_slices_of_slices_and_rows():
    @T.prim_func
    def main(A: T.Tensor((8, 6, 4), "int32")):
        with T.Kernel(1):
            rows = A[2:6]
            rows[1, 2, 3] = 1
            rows[-1][0] = 2
            A[..., 1] = 3
            A[1, ..., 0:2] = 4
            A[:] = 5

    element, row, column, part, whole = body(main)
    assert isinstance(element, Store) and [text(x) for x in element.indices] == ["3", "2", "3"]
    assert [text(x) for x in row.dst.starts] == ["5", "0", "0"] and row.dst.const_extents == (1, 1, 4)
    assert column.dst.const_extents == (8, 6, 1) and part.dst.const_extents == (1, 6, 2)
    assert isinstance(whole, Fill) and whole.dst.const_extents == (8, 6, 4)


def test_lengths_of_slices_are_found():
    m = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((m, m), "int32"), n: T.int32):
        with T.Kernel(4) as b:
            A[b * 16 + n : n + (b + 1) * 16, 3 : 3 + n] = 0
            A[(b + n) * 4 : (b + n + 2) * 4, n * b : b * n + 8] = 0
            A[0 : m - n, b : 2 * b] = 0
            A[b // 2 : b // 2 + 5, A[0, b] : A[0, b] + 1] = 0

    extents = [[text(e) for e in s.dst.extents] for s in body(main)]
    assert extents == [["16", "n"], ["8", "8"], ["(m sub n)", "b"], ["5", "1"]]


def test_nested_run_time_blocks():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(1) as _:
            v = T.alloc_var("int32", 0)
            while v < n:
                for k in range(v):
                    if A[k] == v or k == 3:
                        v += 1
                        break
                    elif not A[k]:  # noqa: RET508
                        continue
                v += 2

    loop = body(main)[1]
    inner, step = loop.body.stmts
    branch = inner.body.stmts[0]
    assert isinstance(branch, If) and text(branch.condition) == "((A[k] eq v[]) or (k eq 3))"
    assert text(step.value) == "(v[] add 2)"


def test_helpers_that_emit_statements():
    def zero(buffer, count):
        for i in range(count):
            buffer[i] = 0

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            zero(A, 2)

    assert [text(s.indices[0]) for s in body(main)] == ["0", "1"]


def test_wide_loops_and_index_dtypes():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int64):
        with T.Kernel(n):
            for i in range(n):
                for j in T.Parallel(n, 4):
                    A[j[0]] = i

    (launch,) = main.launches()
    (loop,) = launch.body.stmts
    assert launch.block_vars[0].dtype is T.int64 and loop.var.dtype is T.int64
    assert [v.dtype for v in loop.body.stmts[0].vars] == [T.int64, T.int32]
