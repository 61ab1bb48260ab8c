"""Mistakes in declarative kernels: the class of the error, its place, its text and remedy, and no frame of ours."""

from __future__ import annotations

import linecache
import os
import sys
import textwrap
import traceback

import numpy as np
import pytest

import tilewright
from tilewright import errors, language

PACKAGE = os.path.dirname(tilewright.__file__)
HEAD = """
@tilewright.kernel
def program(A: float32[M, N], B: float32[N], C: float32[M, N], H: int32[N], n: int32):
"""
counter = 0


def execute(source: str) -> tuple[object, tuple[int, int, int]]:
    """The kernel that a source defines, or the error; and the place that a line of carets marks, which is taken out."""
    global counter
    counter += 1
    lines = source.strip("\n").split("\n")
    mark = next(n for n, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    place = (mark, lines[mark].index("^") + 1, lines[mark].rindex("^") + 2)
    del lines[mark]
    text = "from __future__ import annotations\n" + "\n".join(lines) + "\n"
    file = f"<declarative error {counter}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names = {name: getattr(language, name) for name in ("float32", "int32", "float16", "uint8")}
    space = {"tilewright": tilewright, **names}
    with pytest.raises(errors.TilewrightError) as info:
        exec(compile(text, file, "exec", dont_inherit=True), space)
        space["program"].notes(M=4, N=3)
    return info.value, (place[0] + 1, *place[1:])


def check(source: str, kind: type, message: str, hint: str) -> None:
    error, place = execute(source)
    assert type(error) is kind, f"{type(error).__name__}: {error}"
    assert message in error.message, error.message
    assert error.hint
    assert hint in error.hint, error.hint
    found = error.location
    assert (found.line, found.column, found.end_column) == place, str(error)
    assert "^" in str(error)
    if sys.version_info >= (3, 11):  # before, a bare `raise` brings the whole traceback back
        frames = [f.filename for f in traceback.extract_tb(error.__traceback__)]
        assert not any(f.startswith(PACKAGE) for f in frames), frames


def body(*lines: str) -> str:
    return HEAD + "\n".join("    " + line for line in lines)


LOOP = "for i in range(M):"
REFUSED = {
    # Names
    "index after its loop": (
        (LOOP, "    for j in range(N):", "        C[i, j] = 0", "    C[i, 0] = j", "              ^"),
        errors.LanguageError, "'j' is read outside of its loop", "last = j",
    ),
    "no value on every path": (
        (LOOP, "    if B[0] > 0:", "        x = 1.0", "    C[i, 0] = x", "              ^"),
        errors.LanguageError, "'x' may have no value here", "x = 0.0",
    ),
    "value of a loop that may not run": (
        (LOOP, "    for j in range(N):", "        x = B[j]", "    C[i, 0] = x", "              ^"),
        errors.LanguageError, "'x' may have no value here", "assign it before",
    ),
    "update before a value": (
        (LOOP, "    for j in range(N):", "        s += B[j]", "        ^", "    C[i, 0] = 1.0"),
        errors.LanguageError, "'s' may have no value here", "s = 0.0",
    ),
    "unknown name": (
        (LOOP, "    C[i, 0] = scale * 2", "              ^^^^^"),
        errors.LanguageError, "name 'scale' is not defined", "sizes",
    ),
    "whole tensor": (
        (LOOP, "    C[i, 0] = B", "              ^"),
        errors.LanguageError, "'B' is a tensor, and stands here without indices", "B[...]",
    ),
    "size assigned": (
        (LOOP, "    N = 3", "    ^", "    C[i, 0] = N"),
        errors.NameRebindingError, "'N' is a size", "another name",
    ),
    "tensor assigned": (
        (LOOP, "    B = 3.0", "    ^", "    C[i, 0] = 1"),
        errors.NameRebindingError, "'B' is a tensor", "another name",
    ),
    "parameter assigned": (
        (LOOP, "    n += 1", "    ^", "    C[i, 0] = n"),
        errors.NameRebindingError, "'n' is a scalar parameter", "another name",
    ),
    "index assigned": (
        (LOOP, "    C[i, 0] = 1", "    i = i + 1", "    ^"),
        errors.NameRebindingError, "'i' is the index of a loop", "another name",
    ),
    "index named like a size": (
        ("for N in range(M):", "    ^", "    C[N, 0] = 1"),
        errors.NameRebindingError, "'N' is a size", "another name",
    ),
    "index of an outer loop": (
        (LOOP, "    for i in range(N):", "        ^", "        C[i, 0] = 1"),
        errors.NameRebindingError, "the index of a loop around this one", "another name",
    ),
    "bound of a grid that uses its index": (
        ("for i, j in grid(M, i + 1):", "                    ^", "    C[i, j] = 0"),
        errors.LanguageError, "'i' is read outside of its loop", "",
    ),
    # Statements
    "while": (
        (LOOP, "    while C[i, 0] > 0:", "    ^^^^^^^^^^^^^^^^^^", "        C[i, 0] = 0"),
        errors.UnsupportedSyntaxError, "While", "",
    ),
    "tuple assignment": (
        (LOOP, "    x, y = 1, 2", "    ^^^^", "    C[i, 0] = x"),
        errors.UnsupportedSyntaxError, "assign to a name", "",
    ),
    "loop else": (
        (LOOP, "    C[i, 0] = 0", "else:", "    C[0, 0] = 1", "    ^^^^^^^^^^^"),
        errors.UnsupportedSyntaxError, "no `else`", "after the loop",
    ),
    "other iterable": (
        ("for i in [1, 2]:", "         ^^^^^^", "    C[i, 0] = 0"),
        errors.UnsupportedSyntaxError, "range(...) or grid(...)", "",
    ),
    "expression statement": (
        (LOOP, "    abs(C[i, 0])", "    ^^^^^^^^^^^^"),
        errors.UnsupportedSyntaxError, "alone does nothing", "",
    ),
    "annotation of a local": (
        (LOOP, "    x: real = 1.0", "       ^^^^", "    C[i, 0] = x"),
        errors.AnnotationError, "annotation of 'x' is no dtype", "",
    ),
    "step of zero": (
        ("for i in range(0, M, 0):", "                     ^", "    C[i, 0] = 0"),
        errors.ArgumentValueError, "step of a loop cannot be 0", "",
    ),
    "float bound": (
        (LOOP, "    for j in range(N / 2):", "                   ^^^^^", "        C[i, j] = 0"),
        errors.LanguageError, "must be an integer, not float32", "//",
    ),
    # Expressions
    "or as a value": (
        (LOOP, "    C[i, 0] = H[i] or 5", "              ^^^^"),
        errors.UnsupportedSyntaxError, "give one of their operands", "a if condition else b",
    ),
    "unknown function": (
        (LOOP, "    C[i, 0] = gelu(B[i])", "              ^^^^^^^^^^"),
        errors.LanguageError, "function gelu is not known", "known:",
    ),
    "matrix product": (
        (LOOP, "    C[i, 0] = B[i] @ B[i]", "              ^^^^^^^^^^^"),
        errors.UnsupportedSyntaxError, "operator MatMult", "",
    ),
    "slice": (
        (LOOP, "    C[i, 0:2] = 1", "    ^^^^^^^^^"),
        errors.UnsupportedSyntaxError, "slices", "write the loop",
    ),
    "rank": (
        (LOOP, "    C[i] = 1", "    ^^^^"),
        errors.ShapeError, "C has 2 dimensions but 1 indices", "",
    ),
    "two brackets": (
        (LOOP, "    C[i][0] = 1", "    ^^^^^^^"),
        errors.UnsupportedSyntaxError, "only tensors can be indexed", "",
    ),
    "float index": (
        (LOOP, "    C[i, 0] = B[i / 2]", "                ^^^^^"),
        errors.LanguageError, "an index must be an integer", "",
    ),
    "literal index out of range": (
        (LOOP, "    C[i, 3] = 1", "         ^"),
        errors.ShapeError, "index 3 is outside of dimension 1 of C, which has size 3", "",
    ),
    "no tensor": (
        (LOOP, "    C[i, 0] = X[i]", "              ^^^^"),
        errors.LanguageError, "'X' is not a tensor parameter", "",
    ),
    "integer power": (
        (LOOP, "    C[i, 0] = H[i] ** n", "              ^^^^^^^^^"),
        errors.ArgumentValueError, "literal exponent", "float32(x) ** y",
    ),
    "division by zero": (
        (LOOP, "    C[i, 0] = 1 / (N - 3)", "              ^^^^^^^^^^^"),
        errors.ArgumentValueError, "division by zero", "known while compiling",
    ),
    "keyword": (
        (LOOP, "    C[i, 0] = max(B[i], key=abs)", "              ^^^^^^^^^^^^^^^^^^"),
        errors.UnsupportedSyntaxError, "positional", "",
    ),
    "arity": (
        (LOOP, "    C[i, 0] = exp(B[i], 2)", "              ^^^^^^^^^^^^"),
        errors.LanguageError, "exp takes 1 argument, got 2", "",
    ),
    "shift of floats": (
        (LOOP, "    C[i, 0] = B[i] << 2", "              ^^^^^^^^^"),
        errors.DTypeError, "needs integers", "cast",
    ),
    # Blocks and staging
    "block size that is not set": (
        ("for i in range(block_size[0]):", "               ^^^^^^^^^^^^^", "    C[i, 0] = 0"),
        errors.ArgumentValueError, "block_size has 0 entries", "block_size(...)",
    ),
    "start of a block": (
        ("block_size(2)", "for i in range(1, block_size[0]):", "                  ^^^^^^^^^^^^^", "    C[i, 0] = 0"),
        errors.UnsupportedSyntaxError, "from 0 in steps of 1", "",
    ),
    "no store by the block's index": (
        ("block_size(2)", "for i in range(block_size[0]):", "         ^^^^^^^^^^^^^^^^^^^^", "    C[0, 0] = 0"),
        errors.LanguageError, "runs over a block", "range(size)",
    ),
    "staging of nothing": (
        ("shared_X = shared_memory(float32, [M, N])", "^^^^^^^^", LOOP, "    C[i, 0] = 0"),
        errors.LanguageError, "stages no tensor", "shared_<tensor>",
    ),
    "staging of another rank": (
        ("shared_A = shared_memory(float32, [M])", "                                  ^^^", LOOP, "    C[i, 0] = 0"),
        errors.LanguageError, "must have 2 sizes", "",
    ),
    "staging of what is written": (
        ("shared_C = shared_memory(float32, [M, N])", "^^^^^^^^", LOOP, "    C[i, 0] = shared_C[i, 1]"),
        errors.LanguageError, "C is written", "read C itself",
    ),
    "extents of a staged tile": (
        ("block_size(2, 2)", "shared_A = shared_memory(float32, [64, N])", "                                   ^^", LOOP,
         "    C[i, 0] = shared_A[i, 0]"),
        errors.ArgumentValueError, "64", "block_size[d]",
    ),
    "nothing to do": (("pass", "^^^^"), errors.LanguageError, "no statement that computes", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    lines, kind, message, hint = REFUSED[name]
    check(body(*lines), kind, message, hint)


SIGNATURES = {
    "no annotation": ("def program(A):", "            ^", errors.AnnotationError, "no annotation", "float16[M, K]"),
    "no dtype": ("def program(A: array[M]):", "            ^^^^^^^^^^^", errors.AnnotationError, "start with a dtype", "int32"),
    "default": ("def program(A: float32[M], n: int32 = 3):", "                                      ^",
                errors.UnsupportedSyntaxError, "no defaults", ""),
    "stars": ("def program(*A: float32[M]):", "             ^^^^^^^^^^^^^", errors.UnsupportedSyntaxError, "*args", ""),
    "keywords": ("def program(*, A: float32[M]):", "               ^^^^^^^^^^^^^", errors.UnsupportedSyntaxError, "plain", "`*`"),
    "slice": ("def program(A: float32[1:M]):", "            ^^^^^^^^^^^^^^^", errors.AnnotationError, "slice", "float16[M, K]"),
    "scalar named like a size": ("def program(A: float32[n], n: int32):", "                           ^^^^^^^^",
                                 errors.NameRebindingError, "'n' is a scalar parameter and the name of a size", "rename"),
}  # fmt: skip


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    line, mark, kind, message, hint = SIGNATURES[name]
    check(f"@tilewright.kernel\n{line}\n{mark}\n    for i in range(M):\n        A[i] = 0", kind, message, hint)


def test_functions_of_the_program_are_not_mistaken_for_ours():
    source = """
    def relu(x):
        return x if x > 0 else 0.1 * x
    @tilewright.kernel
    def program(A: float32[M, N]):
        for i in range(M):
            A[i, 0] = relu(A[i, 0])
                      ^^^^^^^^^^^^^
    """
    check(textwrap.dedent(source), errors.UnsupportedSyntaxError, "relu is a function of", "write its expression")


def test_a_local_shadows_a_name_of_the_module():
    """`k` is an index here, so the module's k is not meant, as in Python."""
    source = """
    k = 7
    @tilewright.kernel
    def program(A: float32[M, N]):
        for i in range(M):
            for k in range(N):
                A[i, k] = 0
            A[i, 0] = k
                      ^
    """
    check(textwrap.dedent(source), errors.LanguageError, "'k' is read outside of its loop", "last = k")


def test_not_a_function():
    with pytest.raises(errors.LanguageError, match="goes on a Python function"):
        tilewright.kernel(np.sin)


def test_no_source():
    space = {"tilewright": tilewright, "float32": language.float32, "M": tilewright.sizes("M")}
    with pytest.raises(errors.SourceUnavailableError, match="cannot be read"):
        exec("@tilewright.kernel\ndef program(A: float32[M]):\n    for i in range(M):\n        A[i] = 0", space)
