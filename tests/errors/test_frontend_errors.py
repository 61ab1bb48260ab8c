"""Mistakes in kernel functions: the class of the error, its place, its text, and a traceback without our frames."""

from __future__ import annotations

import linecache
import os
import sys
import textwrap
import traceback

import pytest

import tilewright
import tilewright.frontend
import tilewright.language as T
from tilewright import errors

PACKAGE = os.path.dirname(tilewright.__file__)
assert tilewright.frontend

# Before 3.11 code objects know lines only, and a bare `raise` brings the whole traceback back.
MODERN = sys.version_info >= (3, 11)
counter = 0


def run(source: str):
    """Execute `source` as a file of its own; return the error that it raises, and where `#!` points to.

    The expected span is marked by a line of carets under it, which is taken out.
    """
    global counter
    counter += 1
    lines = textwrap.dedent(source).strip("\n").split("\n")
    mark = next(n for n, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    place = (mark, lines[mark].index("^") + 1, lines[mark].rindex("^") + 2)
    del lines[mark]
    text = "\n".join(lines) + "\n"
    file = f"<kernel {counter}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    with pytest.raises(Exception) as info:
        exec(compile(text, file, "exec"), {"T": T, "tilewright": tilewright})
    return info.value, place


def check(source: str, kind: type, message: str, hint: str = "") -> None:
    error, place = run(source)
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    assert message in error.message
    assert hint in error.hint
    found = error.location
    assert span(found) == (place if MODERN else place[:1]), str(error)
    assert "^" in str(error) or not MODERN
    assert not ours(error)


def span(location) -> tuple[int, ...]:
    """Line, first and last column; the line alone where Python knows no more."""
    return (location.line, location.column, location.end_column) if MODERN else (location.line,)


def ours(error: BaseException) -> list[str]:
    """Frames of the package in the error's traceback."""
    if not MODERN:
        return []
    return [f.filename for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(PACKAGE)]


def kernel(*lines: str) -> str:
    """A prim_func around `lines`, which stand inside of a kernel; parameters A (int32 8×8), F (float32 8), n."""
    head = [
        "@T.prim_func",
        'def main(A: T.Tensor((8, 8), "int32"), F: T.Tensor((8,), "float32"), n: T.int32):',
        "    with T.Kernel(8) as bx:",
    ]
    return "\n".join([*head, *("        " + line for line in lines)])


SYNTAX = [
    (("try:", "^^^^", "    pass", "except ValueError:", "    pass"), "`try`"),
    (("for i in range(3):", "    pass", "else:", "    pass", "    ^^^^"), "`else` of a `for` loop"),
    (("while n < 3:", "    pass", "else:", "    pass", "    ^^^^"), "`else` of a `while` loop"),
    (("x = [(yield 1)]", "      ^^^^^^^"), "`yield`"),
    (("del n", "^^^^^"), "`del`"),
    (("global n2", "^^^^^^^^^"), "`global`"),
    (("if (y := n) > 3:", "    ^^^^^^", "    pass"), "`:=`"),
    (("class C:", "^^^^^^^^", "    pass"), "a class definition"),
    (("import os", "^^^^^^^^^"), "`import`"),
    (("from os import path", "^^^^^^^^^^^^^^^^^^^"), "`import`"),
    (("def f():", "    nonlocal n", "    ^^^^^^^^^^"), "`nonlocal`"),
]


@pytest.mark.parametrize(("lines", "what"), SYNTAX)
def test_refused_syntax(lines, what):
    source = kernel(*lines)
    error, place = run(source)
    assert type(error) is errors.UnsupportedSyntaxError
    assert what in error.message and error.hint
    assert (error.location.line, error.location.column) == place[:2]
    assert not ours(error)


UNSUPPORTED = [
    (("if n is F[0]:", "   ^^^^^^^^^", "    pass"), "`is` has no meaning"),
    (("if n in (1, 2):", "   ^^^^^^^^^^^", "    pass"), "`in` has no meaning"),
    (("if 3 not in A:", "   ^^^^^^^^^^", "    pass"), "`in` has no meaning"),
    (("if n > 3:", "    return", "    ^^^^^^"), "`return` inside a run-time `if`"),
    (("for i in range(n):", "    return", "    ^^^^^^"), "`return` inside a T.serial loop"),
    (("if n > 3:", "    raise ValueError", "    ^^^^^^^^^^^^^^^^"), "`raise` inside a run-time `if`"),
    (("a, *b = A[0, 0], n", "^^^^^"), "a starred target cannot take run-time values"),
    (("a, b = n", "^^^^"), "cannot be unpacked"),
    (("match n:", "      ^", "    case 1:", "        pass"), "`match` on a run-time value"),
    (("x = 'a' if n > 1 else 'b'", "    ^^^^^^^^^^^^^^^^^^^^^"), "cannot choose between Python values (str)"),
    (("x = [0, 1][n]", "    ^^^^^^^^^"), "a Python integer is needed here"),
    (("x = [i for i in range(n)]", "                ^^^^^^^^"), "a Python integer is needed here"),
    (("x = list(T.serial(3))", "    ^^^^^^^^^^^^^^^^^"), "T.serial is a loop of the kernel"),
    (("loop = T.serial(3)", "^^^^"), "stands directly in a `for` statement"),
    (("for x in A:", "         ^", "    pass"), "tensor A cannot be iterated over"),
    (("for x in n:", "         ^", "    pass"), "cannot be iterated over"),
    (("x = n[0]", "    ^^^^"), "a scalar value cannot be indexed"),
]


@pytest.mark.parametrize(("lines", "what"), UNSUPPORTED)
def test_constructs_on_run_time_values(lines, what):
    check(kernel(*lines), errors.UnsupportedSyntaxError, what)


REBINDING = [
    (("x = 0", "if n > 3:", "    x = 1", "    ^"), "'x', bound before (line 4), is bound again inside a run-time `if`"),
    (("x = A[0, 0]", "for i in range(4):", "    x += 1", "    ^^^^^^"), "is bound again inside a T.serial loop"),
    (("x = 0", "while n > 3:", "    x = 1", "    ^"), "is bound again inside a run-time `while`"),
    (("x = 0", "if n > 3:", "    pass", "else:", "    x = 1", "    ^"), "is bound again inside a run-time `if`"),
    (("if n > 3:", "    x = 1", "F[0] = x", "       ^"), "'x' was assigned inside a run-time `if` (line 5)"),
    (
        ("if n > 3:", "    x = 1", "else:", "    x = 2", "y = x + 1", "    ^"),
        "'x' was assigned inside a run-time `if`",
    ),
    (("for i in range(4):", "    pass", "F[i] = 0", "  ^"), "'i' was assigned inside a T.serial loop (line 4)"),
    (("for i in T.Parallel(4):", "    y = i", "x = -y", "     ^"), "'y' was assigned inside a T.Parallel loop"),
    (("i = 0", "for k in range(4):", "    F[i] = 0", "    for i in range(2):", "        ^", "        pass"), "'i'"),
    (
        ("d = {}", "for k in range(4):", "    d['x'] = 1", "    ^^^^^^"),
        "an assignment to an element of a Python object",
    ),
]


@pytest.mark.parametrize(("lines", "what"), REBINDING)
def test_names_and_run_time_control_flow(lines, what):
    check(kernel(*lines), errors.NameRebindingError, what, "T.alloc_var")


def test_state_kept_in_objects_by_a_macro():
    check(
        """
        class Ring:
            stage = 0

            @T.macro
            def step(self, F):
                self.tile = T.alloc_local((2,), "float32")
                self.stage = 1 - self.stage
                ^^^^^^^^^^
                F[self.stage] = self.tile[0]

        ring = Ring()

        @T.prim_func
        def main(F: T.Tensor((8,), "float32")):
            with T.Kernel(8) as bx:
                ring.step(F)
                for k in range(4):
                    ring.step(F)
        """,
        errors.NameRebindingError,
        "inside run-time control flow (line 16) would be done once",
    )


def test_the_remedy_fits_the_value():
    for lines, hint in (
        (("x = 0.5", "if n > 3:", "    x = 1.0", "    ^"), 'x = T.alloc_var("float32", 0.5) before the block'),
        (("x = F[0]", "if n > 3:", "    x = 1.0", "    ^"), 'x = T.alloc_var("float32") before the block'),
        (("if n > 3:", "    x = n > 5", "F[0] = x", "       ^"), 'x = T.alloc_var("bool") before the block'),
        (("if n > 3:", "    x = T.alloc_local((2,), 'int8')", "x[0] = 1", "^"), "allocate x before the block"),
        (("if n > 3:", "    x = T.alloc_var('int8')", "F[0] = x", "       ^"), "allocate x before the block"),
        (("x = 'a'", "if n > 3:", "    x = 'b'", "    ^"), "T.alloc_var or a local buffer"),
    ):
        check(kernel(*lines), errors.NameRebindingError, "'x'", hint)


def test_a_name_of_a_kernel_after_it():
    check(
        """
        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(8) as bx:
                x = A[bx]
            with T.Kernel(8) as by:
                A[by] = x
                        ^
        """,
        errors.NameRebindingError,
        "'x' was assigned inside a kernel (line 4)",
    )


def test_values_that_leave_their_block_through_an_object():
    check(
        kernel("kept = []", "for i in range(4):", "    kept.append(i + 1)", "F[kept[0]] = 1", "^^^^^^^^^^"),
        errors.NameRebindingError,
        "the value 'i' is used outside of the block that computes it (line 5)",
    )
    check(
        kernel(
            "kept = []",
            "for i in range(4):",
            "    kept.append(T.alloc_local((2,), 'float32'))",
            "kept[0][1] = 1",
            "^^^^^^^^^^",
        ),
        errors.ScopeError,
        "is used outside of the block that allocates it (line 6)",
    )


STRUCTURE = [
    (("for i in T.Parallel(4):", "    break", "    ^^^^^"), "`break` inside T.Parallel"),
    (
        ("for i in T.Parallel(4):", "    if i > 3:", "        continue", "        ^^^^^^^^"),
        "`continue` inside T.Parallel",
    ),
    (("for i, j in T.grid(4, 4):", "    break", "    ^^^^^"), "`break` inside T.grid"),
    (
        ("for x in [1, 2]:", "    if n > 3:", "        break", "        ^^^^^"),
        "`break` of a loop over Python values depends on a run-time `if`",
    ),
    (
        ("for i in range(3):", "    with T.Kernel(3) as y:", "         ^^^^^^^^^^^", "        pass"),
        "a kernel inside another kernel (opened in line 3)",
    ),
    (("with T.Kernel(3) as y:", "     ^^^^^^^^^^^", "    pass"), "a kernel inside another kernel (opened in line 3)"),
]


@pytest.mark.parametrize(("lines", "what"), STRUCTURE)
def test_structure(lines, what):
    check(kernel(*lines), errors.KernelStructureError, what)


OUTSIDE = [
    ("x = T.alloc_shared((8,), 'int32')", "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^", "alloc_shared must stand inside"),
    ("A[0] = 1", "^^^^", "a store to A must stand inside"),
    ("for i in range(3): pass", "         ^^^^^^^^", "T.serial must stand inside"),
    ("if n > 3: pass", "   ^^^^^", "an `if` on a run-time value must stand inside"),
    ("while n > 3: pass", "      ^^^^^", "a `while` on a run-time value must stand inside"),
    ("T.use_swizzle(4)", "^^^^^^^^^^^^^^^^", "T.use_swizzle must stand inside"),
    ("T.view(A, (2, 4))", "^^^^^^^^^^^^^^^^^", "view must stand inside"),
]


@pytest.mark.parametrize(("line", "carets", "what"), OUTSIDE)
def test_statements_outside_of_a_kernel(line, carets, what):
    source = "\n".join(
        ["@T.prim_func", 'def main(A: T.Tensor((8,), "int32"), n: T.int32):', "    " + line, "    " + carets]
    )
    check(source, errors.KernelStructureError, what)


ARGUMENTS = [
    (
        "x = T.alloc_shared((n, 4), 'int32')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.ShapeError,
        "known while compiling",
    ),
    (
        "x = T.alloc_shared((0, 4), 'int32')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.ArgumentValueError,
        "no elements",
    ),
    (
        "x = T.alloc_local((-1,), 'int32')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.ArgumentValueError,
        "negative size -1",
    ),
    (
        "x = T.alloc_local((2.5,), 'int32')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.DTypeError,
        "consists of integers",
    ),
    (
        "x = T.alloc_shared((4,), 'int33')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.DTypeError,
        "unknown dtype 'int33'",
    ),
    (
        "x = T.alloc_shared((4,), 'int32', scope='local')",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.ArgumentValueError,
        "alloc_shared has no scope 'local'",
    ),
    ("A[0, 0, 0] = 1", "^^^^^^^^^^", errors.ShapeError, "3 indices for A, which has 2 dimensions"),
    ("A[F[0], 0] = 1", "^^^^^^^^^^", errors.DTypeError, "an index must be an integer, not float32"),
    ("F[1:7:2] = 1", "^^^^^^^^", errors.ArgumentValueError, "a slice of a tensor has no step"),
    ("F[5:2] = 1", "^^^^^^", errors.ShapeError, "negative length -3"),
    ("F[0] = F", "^^^^", errors.ShapeError, "cannot take a whole tensor"),
    ("F[0:4] = F[4:8]", "^^^^^^", errors.ShapeError, "a slice takes a scalar"),
    ("x = F[0] & 1", "    ^^^^^^^^", errors.DTypeError, "& needs integers"),
    ("for i in T.serial(0, 4, 0): pass", "         ^^^^^^^^^^^^^^^^^", errors.ArgumentValueError, "the step is 0"),
    ("for i in T.unroll(n): pass", "         ^^^^^^^^^^^", errors.ArgumentValueError, "known while compiling"),
    (
        "for i in range(F[0]): pass",
        "         ^^^^^^^^^^^",
        errors.ArgumentValueError,
        "needs integer bounds, got float32",
    ),
    (
        "for i in T.Pipelined(4, num_stages=-1): pass",
        "         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        errors.ArgumentValueError,
        "num_stages must be 0 or a positive integer",
    ),
    ("x = T.reshape(A, (8, 7))", "    ^^^^^^^^^^^^^^^^^^^^", errors.ShapeError, "256 and 224 bytes"),
    ("T.annotate_layout({A: T.Layout((4, 4), lambda i, j: i)})", "^" * 56, errors.ShapeError, "does not fit A"),
    ("T.annotate_layout({A: 3})", "^" * 25, errors.ArgumentValueError, "3 is no layout"),
    ("T.Layout((4,), lambda i: i / 2)", "^" * 31, errors.ArgumentValueError, "must be integers"),
    ("T.Fragment((4,))", "^" * 16, errors.ArgumentValueError, "needs forward"),
    ("T.use_swizzle(0)", "^^^^^^^^^^^^^^^^", errors.ArgumentValueError, "panel_size must be a positive integer"),
    ("T.reducer_init(F)", "^^^^^^^^^^^^^^^^^", errors.ScopeError, "needs a tensor from T.alloc_reducer"),
    (
        "T.get_thread_binding()",
        "^^^^^^^^^^^^^^^^^^^^^^",
        errors.UnsupportedOnTargetError,
        "T.get_thread_binding is not supported",
    ),
    ("x = T.alloc_barrier(128)", "    ^^^^^^^^^^^^^^^^^^^^", errors.UnsupportedOnTargetError, "T.alloc_barrier"),
    ("v = T.alloc_var('float32', A)", "    ^^^^^^^^^^^^^^^^^^^^^^^^^", errors.DTypeError, "not the tensor A"),
]


@pytest.mark.parametrize(("line", "carets", "kind", "what"), ARGUMENTS)
def test_arguments(line, carets, kind, what):
    check(kernel(line, carets), kind, what)


PARAMETERS = [
    ("A", "^", "parameter 'A' has no annotation"),
    ("A: 3.5", "^^^^^^", "is no tensor type and no scalar dtype: 3.5"),
    ("A: T.Tensor", "^^^^^^^^^^^", "is no tensor type and no scalar dtype: T.Tensor"),
    ("A: T.float32x4", "^^^^^^^^^^^^^^", "is no tensor type and no scalar dtype: float32x4"),
    ("*A", " ^", "no *A"),
    ("**A", "  ^", "no *A"),
    ("A: T.Tensor((T.dynamic('u') * 2,), 'int8')", "^" * 42, "occurs only inside of expressions"),
]


@pytest.mark.parametrize(("parameter", "carets", "what"), PARAMETERS)
def test_annotations(parameter, carets, what):
    source = f"@T.prim_func\ndef main({parameter}):\n         {carets}\n    pass"
    check(source, errors.AnnotationError, what)
    check("from __future__ import annotations\n" + source, errors.AnnotationError, what)


def test_errors_inside_an_annotation():
    text = "@T.prim_func\ndef main(A: T.Tensor((4,), 'floaty')):\n            ^^^^^^^^^^^^^^^^^^^^^^^^\n    pass"
    check("from __future__ import annotations\n" + text, errors.DTypeError, "unknown dtype 'floaty'")


def test_kernel_arguments():
    for call, what in (
        ("T.Kernel()", "one to three grid sizes, got 0"),
        ("T.Kernel(1, 2, 3, 4)", "one to three grid sizes, got 4"),
        ("T.Kernel(-1)", "not negative, got -1"),
        ("T.Kernel(1, threads=0)", "one to three positive integers, got 0"),
        ("T.Kernel(1, threads=(64, 32))", "at most 1024 threads, got 2048"),
    ):
        source = f"@T.prim_func\ndef main():\n    with {call}:\n         {'^' * len(call)}\n        pass"
        check(source, errors.ArgumentValueError, what)


def test_unbound_size():
    check(
        kernel("F[0] = T.dynamic('free')", "^^^^"),
        errors.NameRebindingError,
        "the size 'free' is in the shape of no parameter",
    )


def test_returned_values():
    error, _ = run("@T.prim_func\ndef main(A: T.Tensor((4,), 'int32')):\n^\n    return A")
    assert type(error) is errors.KernelStructureError and "this is A, a tensor of scope global" in error.message
    assert error.location.line == 2 and not ours(error)


def test_macro_references():
    check(
        """
        @T.macro
        def bump(x: T.Ref):
            x += 1

        @T.prim_func
        def main(A: T.Tensor((8,), "int32"), n: T.int32):
            with T.Kernel(8) as bx:
                bump(n)
                ^^^^^^^
        """,
        errors.ScopeError,
        "it takes a T.alloc_var variable or an element of a tensor, not a run-time value",
    )


def test_errors_inside_macros_point_into_them():
    error, place = run(
        """
        @T.macro
        def inner(A):
            A[0, 0] = 1
            ^^^^^^^

        @T.prim_func
        def main(A: T.Tensor((8,), "int32")):
            with T.Kernel(8) as bx:
                inner(A)
        """
    )
    assert type(error) is errors.ShapeError
    assert span(error.location) == (place if MODERN else place[:1])
    names = [f.name for f in traceback.extract_tb(error.__traceback__)]
    assert not ours(error) and (names[-2:] == ["main", "inner"] or not MODERN)


def test_endless_macro():
    check(
        """
        @T.macro
        def again(n):
            again(n)
            ^^^^^^^^

        @T.prim_func
        def main():
            with T.Kernel(8) as bx:
                again(1)
        """,
        errors.KernelStructureError,
        "calls itself without end",
    )


def test_macro_outside_of_a_kernel_function():
    @T.macro
    def m():
        pass

    with pytest.raises(errors.KernelStructureError, match="macro m can only be used while a kernel is being built"):
        m()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("x = 1 // 0", ZeroDivisionError),
        ("x = missing", NameError),
        ("x = [][3]", IndexError),
        ("raise KeyError", KeyError),
    ],
)
def test_python_errors_keep_their_type(line, kind):
    error, _ = run(kernel(line, "^"))
    assert type(error) is kind
    frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].lineno == 4 and frames[-1].name == "main"
    assert not ours(error)


def test_operands_with_statements_under_a_condition():
    check(
        """
        @T.macro
        def count(v: T.Ref):
            v += 1
            return v

        @T.prim_func
        def main(n: T.int32):
            with T.Kernel(8) as bx:
                v = T.alloc_var("int32", 0)
                if n > 3 and count(v) > 2:
                   ^^^^^^^^^^^^^^^^^^^^^^
                    pass
        """,
        errors.UnsupportedSyntaxError,
        "an operand of `and` that is evaluated under a run-time condition contains statements",
    )


def test_statements_inside_a_foreign_context():
    check(
        kernel("import_free = memoryview(b'')", "with import_free:", "     ^^^^^^^^^^^", "    F[0] = 1"),
        errors.UnsupportedSyntaxError,
        "`with` on memoryview has no effect",
    )


def test_source_that_is_not_there():
    namespace = {"T": T}
    exec("def main(A: T.int32):\n    pass\n", namespace)
    with pytest.raises(errors.SourceUnavailableError, match="the source of function 'main' is not available") as info:
        T.prim_func(namespace["main"])
    assert not ours(info.value)
    for what in (lambda x: x, 3, int):
        with pytest.raises(errors.LanguageError, match="decorates a function written with `def`"):
            T.prim_func(what)


def test_the_message_shows_line_and_caret():
    error, _ = run(kernel("x = F[0] & 1", "    ^"))
    lines = str(error).split("\n")
    carets = ["        ^^^^^^^^"] if MODERN else []
    assert lines[0].endswith(f">:4{':13' if MODERN else ''}: & needs integers, got float32 and float32")
    assert lines[1:-1] == ["    x = F[0] & 1", *carets]
    assert lines[-1].startswith("  hint: cast to an integer")


def test_columns_count_characters():
    error, _ = run(kernel("é = 'ü'; x = F[0] & 1", "             ^"))
    assert error.location.column == (22 if MODERN else 0)
