"""Kernels built by the front-end: one small program for each construct, checked node by node."""

from __future__ import annotations

import sys

import pytest

import tilewright.frontend
import tilewright.language as T
from tilewright.ir.expr import Binary, Const, Load, Select, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Alloc, Assert, Break, Continue, Fill, For, If, Launch, Let, Parallel, Stmt, Store, While

assert tilewright.frontend

COLUMNS = sys.version_info >= (3, 11)  # older code objects know lines only


def body(func: PrimFunc) -> tuple[Stmt, ...]:
    """The statements of the only launch."""
    (launch,) = func.launches()
    return launch.body.stmts


def text(expr: object) -> str:
    """An expression in Python's syntax, fully parenthesised."""
    if isinstance(expr, Const):
        return str(expr.value)
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Load):
        return expr.buffer.name + "[" + ", ".join(text(i) for i in expr.indices) + "]"
    if isinstance(expr, Binary):
        return f"({text(expr.lhs)} {expr.op} {text(expr.rhs)})"
    if isinstance(expr, Select):
        return f"({text(expr.on_true)} if {text(expr.condition)} else {text(expr.on_false)})"
    return type(expr).__name__ + "(" + ", ".join(text(c) for c in expr.children()) + ")"  # type: ignore[attr-defined]


def test_parameters_shapes_and_names():
    M, N = 64, 32

    @T.prim_func
    def main(A: T.Tensor((M, N), "float16"), B: T.Tensor[[M, N], T.float32], n: T.int32, p: T.ptr):
        pass

    assert isinstance(main, PrimFunc) and main.name == "main"
    a, b, n, p = main.params
    assert (a.name, a.const_shape(), a.dtype, a.scope, a.strides) == ("A", (64, 32), T.float16, "global", None)
    assert b.dtype is T.float32
    assert isinstance(n, Var) and n.dtype is T.int32
    assert p.dtype is T.handle
    assert main.body.stmts == () and main.sizes == () and main.outputs == ()


def test_strided_and_dynamic_sizes():
    m, stride = T.dynamic("m"), T.dynamic("s", "int64")

    @T.prim_func()
    def main(A: T.StridedTensor((m, 8), (stride, 1), "float32"), B: T.Tensor((m * 2, m), "float32")):
        with T.Kernel(m, threads=32) as i:
            B[i, 0] = A[i, 0]

    assert [id(s) for s in main.sizes] == [id(m), id(stride)] and main.sizes[1].dtype is T.int64
    assert T.dynamic("m") is m
    (launch,) = main.launches()
    assert launch.grid[0] is m and launch.threads == (32, 1, 1)


def test_sizes_keep_their_names():
    size = T.dynamic("m")

    @T.prim_func
    def main(A: T.Tensor((size,), "int32")):
        with T.Kernel(size) as i:
            for m in range(3):
                A[i] = m + size

    (loop,) = body(main)
    assert loop.var.name == "m_1" and text(loop.body.stmts[0].value) == "(m_1 add m)"


def test_kernel_grid_and_several_kernels():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(4) as bx:
            A[bx] = 1
        with T.Kernel(2, 3, 4, threads=(32, 2)) as (bx, by, bz):
            A[bx] = by + bz

    first, second = main.launches()
    assert [v.name for v in first.block_vars] == ["bx"] and first.threads == (128, 1, 1)
    assert [v.name for v in second.block_vars] == ["bx_1", "by", "bz"]
    assert [text(g) for g in second.grid] == ["2", "3", "4"] and second.threads == (32, 2, 1)
    assert text(second.body.stmts[0].value) == "(by add bz)"


def test_lets_and_rebinding_in_a_straight_line():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(8) as i:
            x = A[i] + 1
            x = x * x
            y = i
            A[y] = x

    first, second, store = body(main)
    assert isinstance(first, Let) and first.var.name == "x" and text(first.value) == "(A[i] add 1.0)"
    assert isinstance(second, Let) and second.var.name == "x_1" and text(second.value) == "(x mul x)"
    assert text(store.indices[0]) == "i" and store.value is second.var


def test_loops():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32"), n: T.int32):
        with T.Kernel(1) as _:
            for i in range(4):
                A[i, 0] = 0
            for i in T.serial(1, n, 2):
                for j in T.unroll(8):
                    A[i, j] = 1
            for i, j in T.Parallel(8, n):
                A[i, j] = 2
            for k in T.Pipelined(n, num_stages=3):
                A[k, 0] = 3
            for v in T.vectorized(8):
                A[0, v] = 4
            for i, j in T.grid(2, 3):
                A[i, j] = 5

    plain, serial, parallel, pipelined, vector, grid = body(main)
    assert isinstance(plain, For) and (plain.kind, text(plain.stop)) == ("serial", "4")
    assert (text(serial.start), text(serial.stop), text(serial.step)) == ("1", "n", "2")
    (unroll,) = serial.body.stmts
    assert unroll.kind == "unroll" and unroll.var.dtype is T.int32
    assert isinstance(parallel, Parallel) and [text(e) for e in parallel.extents] == ["8", "n"]
    assert (pipelined.kind, pipelined.num_stages) == ("pipelined", 3)
    assert vector.kind == "vectorized"
    (inner,) = grid.body.stmts
    assert text(grid.stop) == "2" and text(inner.stop) == "3"


def test_branches():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            if i < 2:
                A[i] = 1
            elif i < 4 and i != 3:
                A[i] = 2
            else:
                A[i] = 3

    (branch,) = body(main)
    assert isinstance(branch, If) and text(branch.condition) == "(i lt 2)"
    (nested,) = branch.else_body.stmts
    assert text(nested.condition) == "((i lt 4) and (i ne 3))"
    assert text(nested.else_body.stmts[0].value) == "3"


def test_python_time_branches_and_loops():
    use_bias, offsets = True, [1, 5]

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            total = 0
            for offset in offsets:
                if offset > 4:
                    break
                total += offset
                A[offset] = total
            if use_bias and not offsets[0] > 3:
                A[7] = len(offsets)
            count = 0
            while count < 3:
                count += 1
            A[0] = count if use_bias else undefined_name  # noqa: F821

    assert [(text(s.indices[0]), text(s.value)) for s in body(main)] == [("1", "1"), ("7", "2"), ("0", "3")]


def test_while_break_continue():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            v = T.alloc_var("int32", 0)
            while v < 8:
                v += 1
                if A[v] == 0:
                    continue
                if A[v] > 3:
                    break
            while True:
                break

    alloc, loop, forever = body(main)
    assert isinstance(alloc, Alloc) and text(alloc.init) == "0"
    assert isinstance(loop, While) and text(loop.condition) == "(v[] lt 8)"
    step, first, second = loop.body.stmts
    assert isinstance(step, Store) and step.buffer.name == "v" and text(step.value) == "(v[] add 1)"
    assert isinstance(first.then_body.stmts[0], Continue) and isinstance(second.then_body.stmts[0], Break)
    assert text(forever.condition) == "True"


def test_variables_are_read_where_they_are_used():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            v = T.alloc_var("int32", init=1)
            w = T.alloc_var("int32")
            old = v
            v = 5
            w[0] = old + v
            v, w = w, v
            A[0] = v

    names = [(type(s).__name__, text(s.value)) for s in body(main)[2:]]
    assert names == [
        ("Let", "v[]"),
        ("Store", "5"),
        ("Store", "(old add v[])"),
        ("Let", "w[]"),
        ("Let", "v[]"),
        ("Store", "value"),
        ("Store", "value_1"),
        ("Store", "v[]"),
    ]


def test_swapping_elements_reads_both_first():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            A[0], A[1] = A[1], A[0]
            first = second = A[2]
            A[3] = first + second

    assert [(type(s).__name__, text(s.value)) for s in body(main)] == [
        ("Let", "A[1]"),
        ("Let", "A[0]"),
        ("Store", "value"),
        ("Store", "value_1"),
        ("Let", "A[2]"),
        ("Store", "(value_2 add value_2)"),
    ]


def test_values_in_containers_are_read_when_stored():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(1) as _:
            pair = (A[0], 3)
            kept = []
            kept.append(A[1])
            table = {"x": A[2]}
            A[0] = A[1] = A[2] = 9
            A[3] = pair[0] + kept[0] + table["x"]

    stmts = body(main)
    assert [type(s).__name__ for s in stmts] == ["Let", "Let", "Let", "Store", "Store", "Store", "Store"]
    assert text(stmts[-1].value) == "((pair add value) add table)"


def test_logic_ternary_and_chains():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), n: T.int32):
        with T.Kernel(8) as i:
            A[0] = 1 if i < n else 2
            A[1] = 0 <= i < n <= 8
            A[2] = not (i == 0 or False)
            A[3] = min(i, n, 3)
            A[4] = True and i

    values = [text(s.value) for s in body(main)]
    assert values == [
        "(1 if (i lt n) else 2)",
        "Cast((((i ge 0) and (i lt n)) and (n le 8)))",
        "Cast(Unary((i eq 0)))",
        "((i min n) min 3)",
        "i",
    ]


def test_subscripts_negative_indices_and_slices():
    @T.prim_func
    def main(A: T.Tensor((8, 16), "int32"), m: T.int32):
        with T.Kernel(1) as i:
            A[-1, -2] = A[0][3]
            A[2] = 7
            A[i * 4 : (i + 1) * 4, :] = 0
            A[-2:, m : m + 3] = 1
            A[0, 0] += 5

    store, row, box, corner, added = body(main)
    assert [text(x) for x in store.indices] == ["7", "14"] and text(store.value) == "A[0, 3]"
    assert isinstance(row, Fill) and row.dst.const_extents == (1, 16)
    assert box.dst.const_extents == (4, 16) and text(box.dst.starts[0]) == "(i mul 4)"
    assert corner.dst.const_extents == (2, 3) and text(corner.dst.starts[0]) == "6"
    assert text(added.value) == "(A[0, 0] add 5)"


def test_shape_is_plain_numbers():
    seen = []

    @T.prim_func
    def main(A: T.Tensor((8, 16), "int32"), B: T.Tensor((T.dynamic("m"),), "int32")):
        with T.Kernel(1) as _:
            rows, columns = A.shape
            seen.extend([rows, columns, A.ndim, A[0:3, :].shape])
            for c in T.serial(B.shape[0]):
                B[c] = columns

    assert seen == [8, 16, 2, (3, 16)] and type(seen[0]) is int
    assert text(body(main)[0].stop) == "m"


def test_macros():
    @T.macro
    def add(x, y=2):
        total = x + y
        return total  # noqa: RET504

    @T.macro
    def bump(target: T.Ref, by):
        target += by

    @T.macro
    def twice(target: T.Ref, depth):
        bump(target, 1)
        if depth > 0:
            twice(target, depth - 1)

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            v = T.alloc_var("int32", 0)
            A[i] = add(add(A[0]), y=i)
            bump(v, A[1])
            bump(A[v], 3)
            twice(v, 1)

    stmts = body(main)[1:]
    assert [(s.var.name if isinstance(s, Let) else s.buffer.name, text(s.value)) for s in stmts] == [
        ("x", "A[0]"),
        ("total", "(x add 2)"),
        ("total_1", "(total add i)"),
        ("A", "total_1"),
        ("by", "A[1]"),
        ("v", "(v[] add by)"),
        ("index", "v[]"),
        ("A", "(A[index] add 3)"),
        ("v", "(v[] add 1)"),
        ("v", "(v[] add 1)"),
    ]


def test_macro_as_method_and_private_names():
    class Stage:
        def __init__(self, factor):
            self.__factor = factor

        @T.macro
        def scale(self, buffer, i):
            buffer[i] = buffer[i] * self.__factor

    stage = Stage(3)

    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            stage.scale(A, i)

    assert text(body(main)[0].value) == "(A[i] mul 3)"


def test_closures_defaults_helpers_and_comprehensions():
    factor = 4

    def helper(x):
        return x * factor + 10

    @T.macro
    def increase(x):
        return x + later

    later = 1

    @T.prim_func
    def main(A: T.Tensor((8,), "int32"), block=2):
        with T.Kernel(8) as i:

            def local(x):
                return x + block

            values = [A[j] + helper(j) for j in range(2)]
            f = lambda x: x + 1 if i > 3 else x  # noqa: E731
            A[i] = increase(local(values[0])) + values[1] + f(i)
            A[0] = len(f"{block}{factor}")

    assert len(main.params) == 1
    first, second, store, length = body(main)
    assert "((values add 2) add 1)" in text(store.value)
    assert text(first.value) == "(A[0] add 10)" and text(second.value) == "(A[1] add 14)"
    assert text(store.value).endswith("((i add 1) if (i gt 3) else i))") and text(length.value) == "2"


def test_asserts():
    @T.prim_func
    def main(A: T.Tensor((8,), "int32")):
        with T.Kernel(8) as i:
            assert A.shape[0] == 8
            assert i < 8, f"block {1 + 1}"

    (check,) = body(main)
    assert isinstance(check, Assert) and check.message == "block 2" and text(check.condition) == "(i lt 8)"
    with pytest.raises(AssertionError, match="too small"):

        @T.prim_func
        def fails(A: T.Tensor((8,), "int32")):
            assert A.shape[0] > 8, "too small"


def test_allocations_take_the_variables_names():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float16")):
        scratch = T.alloc_global((4, 4), "float32")
        with T.Kernel(1) as _:
            tile = T.alloc_shared((8, 8), "float16", scope="shared")
            acc = T.alloc_fragment((8, 8), T.float32)
            small = [T.alloc_local((2,), "int8") for _ in range(2)]
            T.alloc_shared((1,), "int32")
            flat = T.reshape(tile, (64,))
            bits = T.view(acc, dtype="int32")
            A[0, 0] = flat[0] + small[1][0] + bits[0, 0] + scratch[0, 0]

    (workspace, launch) = main.body.stmts
    assert isinstance(workspace, Alloc) and isinstance(launch, Launch)
    buffers = [s.buffer for s in launch.body.stmts if not isinstance(s, Store)]
    assert [(b.name, b.scope) for b in buffers] == [
        ("tile", "shared"),
        ("acc", "fragment"),
        ("small", "local"),
        ("small_1", "local"),
        ("shared", "shared"),
        ("flat", "shared"),
        ("bits", "fragment"),
    ]
    assert buffers[5].view_of is buffers[0] and buffers[6].dtype is T.int32


def test_outputs():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        out = T.empty((8,), "float32")
        unused = T.empty((2,), "float32")
        with T.Kernel(8) as i:
            out[i] = A[i]
            unused[0] = 1
        return out

    assert [p.name for p in main.params] == ["A", "out"] and main.outputs == (1,)
    assert [s.buffer.name for s in main.body.stmts if isinstance(s, Alloc)] == ["unused"]


def test_persistent_covers_every_tile():
    @T.prim_func
    def main(A: T.Tensor((6, 10), "int32")):
        with T.Kernel(4) as block:
            for x, y in T.Persistent((6, 10), 4, block, group_size=4):
                A[x, y] = 1

    (loop,) = body(main)
    x, y, guard = loop.body.stmts
    assert (text(loop.start), text(loop.stop), text(loop.step)) == ("block", "72", "4")
    visited = []
    for tile in range(72):
        names = {"tile": tile}
        values = [evaluate(stmt.value, names) for stmt in (x, y)]
        names["y"] = values[1]
        if evaluate(guard.condition, names):
            visited.append(tuple(values))
    assert sorted(visited) == [(i, j) for i in range(6) for j in range(10)]


def evaluate(expr, names):
    if isinstance(expr, Const):
        return expr.value
    if isinstance(expr, Var):
        return names[expr.name]
    a, b = evaluate(expr.lhs, names), evaluate(expr.rhs, names)
    return {
        "add": lambda: a + b,
        "mul": lambda: a * b,
        "floordiv": lambda: a // b,
        "floormod": lambda: a % b,
        "lt": lambda: a < b,
    }[expr.op]()


def test_hints():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(8) as i:
            T.use_swizzle(10, order="col")
            T.annotate_safe_value({A: 1.5})
            T.annotate_l2_hit_ratio({A: 0.5})
            A[i] = 0

    (launch,) = main.launches()
    assert launch.swizzle == (10, "column") and launch.annotations == (("l2_hit_ratio", (("A", 0.5),)),)
    assert main.params[0].safe_value.value == 1.5


def test_layouts():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(8):
            tile = T.alloc_shared((4, 8), "float32")
            acc = T.alloc_fragment((4, 8), "float32")
            T.annotate_layout({tile: lambda i, j: (i, j ^ i)})
            T.annotate_layout({acc: T.Fragment((4, 8), lambda i, j: (i * 8 + j, 0))})
            A[0] = tile[0, 0] + acc[0, 0]

    (launch,) = main.launches()
    ((name, layouts),) = launch.annotations
    assert name == "layout"
    assert str(layouts[0]) == "('tile', Layout((4, 8) -> i0, i1 ^ i0))"
    assert str(layouts[1]) == "('acc', Fragment((4, 8) -> thread i0 * 8 + i1, index 0, replicate 1))"


def test_reducer():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float32")):
        with T.Kernel(1) as _:
            r = T.alloc_reducer((8,), "float32", op="max")
            T.reducer_init(r)
            for i, j in T.Parallel(8, 8):
                T.reducer_update(r[i], A[i, j])
            T.finalize_reducer(r)

    alloc, init, loop = body(main)
    assert alloc.buffer.reducer == "max" and alloc.buffer.scope == "fragment"
    assert init.value.value == float("-inf")
    assert text(loop.body.stmts[0].value) == "(r[i] max A[i, j])"


def test_annotated_assignment_casts():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1) as _:
            x: T.float16 = A[0]
            n: int = 3
            A[1] = x * n

    let, store = body(main)
    assert let.var.dtype is T.float16 and text(store.value) == "Cast((x mul 3.0))"


def test_locations_have_columns():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(8) as i:
            A[i] = A[i] + 1.0

    (store,) = body(main)
    line = test_locations_have_columns.__code__.co_firstlineno + 4
    assert store.loc.line == store.value.loc.line == line
    if COLUMNS:
        assert (store.loc.column, store.loc.end_column) == (13, 17)
        assert (store.value.loc.column, store.value.loc.end_column) == (20, 30)
    assert main.loc.line == line - 2


def test_parsing_is_done_once(monkeypatch):
    import ast

    def make(n):
        @T.prim_func
        def main(A: T.Tensor((n,), "float32")):
            with T.Kernel(n) as i:
                A[i] = n

        return main

    make(3)
    monkeypatch.setattr(ast, "parse", None)
    assert text(body(make(5))[0].value) == "5.0"
