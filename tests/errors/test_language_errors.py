"""Mistakes in the use of the language: class, line, columns and text of the error, and a traceback without our frames."""

from __future__ import annotations

import linecache

import numpy as np
import pytest
from test_frontend_errors import check, ours, run, span

import tilewright
import tilewright.language as T
from tilewright import errors
from tilewright.errors import (
    ArgumentValueError,
    DTypeError,
    KernelStructureError,
    ScopeError,
    ShapeError,
    UnknownNameError,
    UnsupportedOnTargetError,
    UnsupportedSyntaxError,
)

HEAD = [
    "import numpy as np",
    "@T.prim_func",
    'def main(A: T.Tensor((8, 8), "int32"), F: T.Tensor((8,), "float32"), H: T.Tensor((8, 8), "float16"), n: T.int32):',
    "    with T.Kernel(8) as bx:",
    '        s = T.alloc_shared((8, 8), "float16")',
    '        w = T.alloc_shared((8, 8), "float32")',
    '        c = T.alloc_fragment((8, 8), "float32")',
    '        r = T.alloc_fragment((8,), "float32")',
]


def program(*lines: str) -> str:
    """A kernel with tensors A, F, H, a number n, and tiles s, w, c, r around `lines`; `«»` enclose the expected place."""
    source = list(HEAD)
    for line in lines:
        text = "        " + line
        start, end = text.find("«"), text.find("»") - 1
        source.append(text.replace("«", "").replace("»", ""))
        if start >= 0:
            source.append(" " * start + "^" * (end - start))
    return "\n".join(source)


# Each: lines of the kernel, class, part of the message, part of the hint.
INSIDE_PARALLEL = [
    "T.copy(H, s)",
    "T.copy(H[i, 0:8], s[i, 0:8])",
    "T.copy(F[0], r)",
    "T.async_copy(H, s)",
    "T.transpose(H, s)",
    "T.fill(s, 1)",
    "T.fill(s[i, :], 1)",
    "T.clear(c)",
    "T.gemm(s, s, c)",
    "T.reduce_sum(w, r)",
    "T.reduce_max(w, r, dim=0)",
    "T.reduce(w, r, 'min', 1)",
    "T.cumsum(w, dim=1)",
    "T.cummax(w)",
    "T.any_of(w)",
    "T.all_of(F)",
    "T.atomic_add(F, r)",
    "T.atomic_add(F[0:4], F[4:8])",
    "T.c2d_im2col(H, s, 0, 0, 3, 1, 1, 1)",
    "T.alloc_shared((8,), 'float32')",
    "T.alloc_fragment((8,), 'float32')",
    "T.alloc_reducer((8,), 'float32')",
]


@pytest.mark.parametrize("call", INSIDE_PARALLEL)
def test_operations_of_the_block_inside_parallel(call):
    name = call.split("(")[0].removeprefix("T.")
    check(program("for i in T.Parallel(8):", f"    «{call}»"), KernelStructureError, f"{name}", "before")
    error, _ = run(program("for i in T.Parallel(8):", f"    «{call}»"))
    assert "inside a T.Parallel loop (line 9)" in error.message


@pytest.mark.parametrize("around", ["if n > 3:", "for k in T.serial(4):", "for k in T.Parallel(4):", "while n < 3:"])
def test_operations_of_the_block_deeper_inside_parallel(around):
    check(
        program("for i in T.Parallel(8):", f"    {around}", "        «T.copy(H, s)»"),
        KernelStructureError,
        "T.copy inside a T.Parallel loop",
    )


def test_slice_stores_inside_parallel():
    check(
        program("for i in T.Parallel(8):", "    «s[i, 0:8]» = 1"),
        KernelStructureError,
        "a store to a slice of s inside a T.Parallel loop",
    )


@pytest.mark.parametrize(
    "call",
    [
        "T.copy(A[i, 0], F[i])",
        "T.atomic_add(F[i], 1)",
        "T.atomic_addx2(F[0], F[2])",
        "T.print(F[i])",
        "x = T.alloc_local((4,), 'float32')\n    T.clear(x)\n    F[i] = x[0]",
        "x = T.alloc_var('float32', 0)\n    F[i] = x",
    ],
)
def test_what_an_iteration_may_do(call):
    source = program("for i in T.Parallel(8):", *("    " + line.strip() for line in call.split("\n")))
    file = "<allowed>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"T": T}
    exec(compile(source, file, "exec"), scope)
    kernel = tilewright.compile(scope["main"], target="reference")
    kernel(np.ones((8, 8), np.int32), np.ones(8, np.float32), np.ones((8, 8), np.float16), 1)


CASES = [
    # extents and shapes
    (("«T.copy(A[0:4, 0:8], s)»",), ShapeError, "extents differ: A (4, 8) int32 global and s (8, 8) float16 shared", "slice one"),
    (("«T.copy(H, r)»",), ShapeError, "extents differ: H (8, 8) float16 global and r (8) float32 fragment", ""),
    (("T.copy(«A[0, 0, 0]», s)",), ShapeError, "3 indices for A, which has 2 dimensions", ""),
    (("«T.copy(A[bx : bx + 4, :], A[bx + 1 : bx + 5, :])»",), ArgumentValueError, "source and destination overlap in A", "another tile"),
    (("«T.transpose(H[0:4, :], s[0:4, :])»",), ShapeError, "are no transposed pair", ""),
    (("«T.transpose(s, s)»",), ArgumentValueError, "cannot write to s, which it reads", "another tile"),
    (("«T.gemm(s, s, c[:, 0:4])»",), ShapeError, "N is 8 by B but 4 by C", "transpose_A"),
    (("«T.gemm(s[:, 0:4], s, c)»",), ShapeError, "K is 4 by A but 8 by B", ""),
    (("«T.gemm(s, s, r)»",), ShapeError, "operand C of T.gemm must be a matrix, got r (8)", ""),
    (("«T.reduce_sum(w, c)»",), ShapeError, "w (8, 8) float32 shared without dimension 1 does not fit c (8, 8)", ""),
    (("«T.cumsum(w, r, dim=0)»",), ShapeError, "extents differ", ""),
    (("«T.reshape(A, (4, 4))»",), ShapeError, "(8, 8) of int32 and (4, 4) of int32 differ in size (256 and 64 bytes)", ""),
    (("«T.view(A, (8, 8), 'int64')»",), ShapeError, "differ in size", ""),
    (("«T.alloc_shared((n, 8), 'int32')»",), ShapeError, "needs a shape that is known while compiling", "fixed tile size"),
    (("«T.alloc_shared((-8, 8), 'int32')»",), ArgumentValueError, "the negative size -8", ""),
    (("«T.alloc_fragment((0, 8), 'int32')»",), ArgumentValueError, "has no elements", ""),
    (("«A[0, 0]» = A",), ShapeError, "one element of A cannot take a whole tensor", "T.copy"),
    (("«A[0:3, 0]» = F[0:3]",), ShapeError, "a slice takes a scalar", "T.copy"),
    (("«T.atomic_add(F[0:4], F[0:3])»",), ShapeError, "extents differ", ""),
    (("«T.atomic_add(F, 1, return_prev=True)»",), ShapeError, "the old value of one element, not of F (8)", ""),
    # indices
    (("F[0] = «F[-9]»",), ShapeError, "index -9 lies before the start of a dimension of size 8", "counts from the end"),
    (("T.copy(«A[-9:-1, :]», A)",), ShapeError, "index -9 lies before the start", ""),
    (("F[0] = «F[1.5]»",), DTypeError, "an index must be an integer, not float", ""),
    (("F[0] = «F[F[0]]»",), DTypeError, "an index must be an integer, not float32", "T.cast it to int32"),
    (("F[0] = «F['a']»",), DTypeError, "an index must be an integer, not str", ""),
    (("F[0] = «F[None]»",), DTypeError, "an index must be an integer, not NoneType", ""),
    (("F[0] = «F[True]»",), DTypeError, "an index must be an integer, not bool", ""),
    (("T.fill(«F[0:4:2]», 0)",), ArgumentValueError, "a slice of a tensor has no step", ""),
    (("T.fill(«F[4:2]», 0)",), ShapeError, "the negative length -2", ""),
    # dtypes
    (("«T.gemm(s, w, c)»",), DTypeError, "A is float16 and B is float32", "T.copy casts"),
    (("«T.gemm(w, w, s)»",), DTypeError, "float32 operands cannot be summed in float16", "make C float32"),
    (("«T.reduce_bitor(w, r)»",), DTypeError, "needs integers, got float32", ""),
    (("«T.reduce_sum(A, r)»",), DTypeError, "source is int32, destination is float32", "T.copy casts"),
    (("«T.view(A, (512,), 'int4')»",), DTypeError, "a view of 4-bit elements keeps their width", "shifts and masks"),
    (("x = T.alloc_shared((8, 8), 'int4')", "«T.view(x, (32,), 'int8')»"), DTypeError, "a view of 4-bit elements", ""),
    (("«T.alloc_shared((8, 8), 'int33')»",), DTypeError, "unknown dtype 'int33'", "known dtypes"),
    (("«T.alloc_shared((8, 1.5), 'int32')»",), DTypeError, "a shape consists of integers, got 1.5", ""),
    (("«F[0]» = T.float32x4(1.0)",), DTypeError, "an element of F is a float32, and the value a float32x4", "lanes"),
    (("«F[0]» = 'x'",), DTypeError, "not str 'x'", ""),
    (("«T.atomic_or(F[0], 1)»",), DTypeError, "T.atomic_or has no meaning on F", ""),
    (("F[0] = «T.reinterpret(F[0], 'float16')»",), DTypeError, "float32 and float16 differ in width", ""),
    (("F[0] = «T.infinity('int32')»",), DTypeError, "int32 has no infinity", "T.max_value"),
    (("F[0] = «F[0] & 3»",), DTypeError, "& needs integers", "T.reinterpret"),
    (("F[0] = «T.exp(F)»",), DTypeError, "not the tensor F", "as in F[i]"),
    (("F[0] = «T.popcount(F[0])»",), DTypeError, "popcount needs an integer", ""),
    (("F[0] = «T.int8(300)»",), DTypeError, "300 does not fit in int8", ""),
    # scopes
    (("«T.gemm(H, s, c)»",), ScopeError, "operand A of T.gemm is H (8, 8) float16 global", "T.alloc_shared"),
    (("«T.gemm(s, s, s)»",), ScopeError, "cannot write to a tensor that it reads", ""),
    (("«T.copy(A, 3)»",), ScopeError, "the operand of T.copy must be a tensor, a slice of one or an element of one, not int 3", ""),
    (("«T.fill(3, F)»",), ScopeError, "the target of T.fill must be a tensor", ""),
    (("«T.view(A[0:4, :], (32,))»",), ScopeError, "view needs a whole tensor", ""),
    (("«T.finalize_reducer(F)»",), ScopeError, "needs a tensor from T.alloc_reducer", ""),
    (("F[0] = «A + 1»",), ScopeError, "arithmetic on A, which is a tensor", "index it"),
    (("«T.annotate_layout(3)»",), ScopeError, "takes a dictionary from tensors", ""),
    (("«T.annotate_restrict_buffers(3)»",), ScopeError, "takes tensors that are parameters, got 3", ""),
    # values of arguments
    (("«T.reduce_sum(w, r, dim=2)»",), ArgumentValueError, "dim 2 is no dimension of w (8, 8)", "dimensions are 0 to 1"),
    (("«T.reduce_max(w, r, dim=n)»",), ArgumentValueError, "is no dimension of w", ""),
    (("«T.cummax(w, dim=-3)»",), ArgumentValueError, "dim -3 is no dimension of w", ""),
    (("«T.reduce(w, r, 'prod', 1)»",), ArgumentValueError, "unknown reduction 'prod'", "known: sum, max"),
    (("«T.gemm(s, s, c, policy=[1])»",), ArgumentValueError, "unknown gemm policy [1]", "T.GemmWarpPolicy"),
    (("«T.gemm(s, s, c, k_pack='2')»",), ArgumentValueError, "k_pack must be a positive integer", ""),
    (("«T.alloc_shared((8,), 'int32', scope='local')»",), ArgumentValueError, "has no scope 'local'", "scopes: shared"),
    (("«T.alloc_reducer((8,), 'float32', 'prod')»",), ArgumentValueError, "unknown reducer operation 'prod'", "sum, max, min"),
    (("«T.atomic_add(F[0], 1, memory_order='strict')»",), ArgumentValueError, "cannot be 'strict'", "'relaxed'"),
    (("F[0] = «T.cast(F[0], 'float16', round='up')»",), ArgumentValueError, "unknown rounding 'up'", '"rn"'),
    (("F[0] = «T.float32('x')»",), ArgumentValueError, "'x' is no number", '"inf"'),
    (("F[0] = «T.ceildiv(7, 0)»",), ArgumentValueError, "the divisor is 0", ""),
    (("F[0] = «T.max()»",), ArgumentValueError, "T.max needs at least one value", ""),
    (("«T.use_swizzle('x')»",), ArgumentValueError, "panel_size must be a positive integer", ""),
    (("«T.annotate_layout({H: lambda i: i})»",), ArgumentValueError, "called with 2 indices, and failed: it takes 1", ""),
    (("«T.annotate_safe_value({F: F[0]})»",), ArgumentValueError, "known while compiling", ""),
    (("«T.annotate_l2_hit_ratio({F: 'x'})»",), ArgumentValueError, "must be a number from 0 to 1", ""),
    (("«T.annotate_min_blocks_per_sm(0)»",), ArgumentValueError, "a positive integer, got 0", ""),
    (("«T.annotate_pass_configs(3)»",), ArgumentValueError, "a dictionary from names to values", ""),
    (("for k in «T.Pipelined(4, num_stages=-1)»:", "    pass"), ArgumentValueError, "num_stages must be 0 or a positive integer", ""),
    (("for k in «T.Pipelined(4, order=3)»:", "    pass"), ArgumentValueError, "order of T.Pipelined is a list of integers", ""),
    (("for k in «T.unroll(n)»:", "    pass"), ArgumentValueError, "bounds that are known while compiling", "T.serial"),
    (("for k in «T.serial(0, 8, 0)»:", "    pass"), ArgumentValueError, "the step is 0", ""),
    (("for k in «T.serial(1.5)»:", "    pass"), ArgumentValueError, "needs integer bounds, got float32", ""),
    (("for k in «T.Parallel()»:", "    pass"), ArgumentValueError, "at least one extent", ""),
    # calls that do not fit a signature
    (("«T.copy(A)»",), ArgumentValueError, "T.copy() missing 1 required positional argument: 'dst'", "T.copy(src, dst"),
    (("«T.copy(A, A, foo=3)»",), ArgumentValueError, "T.copy() got an unexpected keyword argument 'foo'", ""),
    (("«T.alloc_shared((8, 8))»",), ArgumentValueError, "T.alloc_shared() missing", "shape, dtype"),
    (("F[0] = «T.exp(1, 2)»",), ArgumentValueError, "T.exp() takes 1 positional argument but 2 were given", "T.exp(x)"),
    (("«T.reduce_sum(w)»",), ArgumentValueError, "T.reduce_sum() missing", "buffer, out, dim=-1, clear=True"),
    (("for k in «T.serial()»:", "    pass"), ArgumentValueError, "T.serial() missing", "start, stop=None"),
    # names
    (("F[0] = «T.exq»(3)",), UnknownNameError, "the tile language has no 'exq'", "T.exp"),
    (("F[0] = «F.sum»()",), UnknownNameError, "F, a tensor, has no attribute 'sum'", "T.reduce_sum"),
    # Python on tensors and run-time values
    (("if «F»:", "    pass"), UnsupportedSyntaxError, "F is a tensor, which is neither true nor false", "T.any_of"),
    (("x = «len(F)»",), UnsupportedSyntaxError, "len() of F", ".shape[0]"),
    (("«s.shape» = (3, 3)",), UnsupportedSyntaxError, "'shape' of a tensor cannot be set", ""),
    (("F[0] = «round(F[0])»",), UnsupportedSyntaxError, "Python's round()", "T.round"),
    (("F[0] = «np.exp(F[0])»",), UnsupportedSyntaxError, "NumPy works on arrays, not on a run-time value", "T.exp"),
    (("F[0] = «np.maximum(F[0], 0)»",), UnsupportedSyntaxError, "NumPy works on arrays", "T.max"),
    (("F[0] = «np.sum(F)»",), UnsupportedSyntaxError, "NumPy works on arrays, not on F", ""),
    (("F[0] = «np.array([1, 2]) * F[0]»",), UnsupportedSyntaxError, "NumPy works on arrays", ""),
    (("F[0] = «float(F[0])»",), UnsupportedSyntaxError, "a Python float is needed here", "T.cast"),
    (("for i in «3»:", "    pass"), UnsupportedSyntaxError, "cannot go over int 3", "range(n)"),
    (("x = {1: 2}", "F[0] = «x[bx]»"), UnsupportedSyntaxError, "cannot be the key of a dictionary", ""),
    (("for «i, j» in T.Parallel(8):", "    pass"), UnsupportedSyntaxError, "cannot be unpacked to 2 names", "one variable"),
    (("for «i, j, k» in T.Parallel(8, 8):", "    pass"), UnsupportedSyntaxError, "2 values cannot be unpacked to 3 names", ""),
    # structure
    (("«T.Kernel(3)»",), KernelStructureError, "T.Kernel(...) has no effect by itself", "with T.Kernel"),
    (("with «T.Kernel(3)» as z:", "    pass"), KernelStructureError, "a kernel inside another kernel", ""),
    (("for i in T.Parallel(8):", "    «break»"), KernelStructureError, "`break` inside T.Parallel", "use `if`"),
    (("x = «T.const('x')»",), KernelStructureError, "belongs in an eager kernel", "T.dynamic"),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "kind", "message", "hint"), CASES, ids=[case[0][-1] for case in CASES])
def test_mistakes(lines, kind, message, hint):
    check(program(*lines), kind, message, hint)


GPU = ["get_thread_binding(0)", "sync_threads()", "alloc_barrier(1)", "tma_copy(H, s)", "wgmma_gemm(s, s, c)", "shfl_xor(n, 1)"]  # fmt: skip


@pytest.mark.parametrize("call", GPU)
def test_operations_of_a_gpu(call):
    name = call.split("(")[0]
    check(program(f"«T.{call}»"), UnsupportedOnTargetError, f"T.{name} is not supported on the targets of this version")


OUTSIDE = [
    ("T.copy(1, 2)", "T.copy can only be used while a kernel is being built"),
    ("T.alloc_shared((8,), 'float32')", "alloc_shared can only be used while a kernel is being built"),
    ("T.const('M')", "T.const belongs in an eager kernel"),
]


@pytest.mark.parametrize(("call", "message"), OUTSIDE)
def test_use_outside_of_a_kernel(call, message):
    error, place = run(f"{call}\n{'^' * len(call)}")
    assert type(error) is KernelStructureError and message in error.message and error.hint
    assert span(error.location)[0] == place[0]


def test_statements_before_the_kernel_opens():
    source = '@T.prim_func\ndef main(A: T.Tensor((8,), "int32")):\n    T.clear(A)\n    ^^^^^^^^^^'
    check(source, KernelStructureError, "T.clear must stand inside `with T.Kernel(...)`")


def test_a_tile_is_no_parameter_of_a_kernel():
    source = (
        '@T.prim_func\ndef main(A: T.SharedBuffer((8,), "int32")):\n         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n    pass'
    )
    check(source, errors.AnnotationError, "no tensor type and no scalar dtype: SharedBuffer((8), int32)", "T.Tensor")


def test_names_are_looked_up_as_python_does():
    assert not hasattr(T, "nonsense")
    assert getattr(T, "nonsense", 3) == 3
    with pytest.raises(AttributeError):
        _ = T.nonsense


def test_numbers_of_numpy_are_numbers():
    @T.prim_func
    def main(A: T.Tensor((4,), "float32"), B: T.Tensor((4,), "float32")):
        with T.Kernel(1):
            for i in T.Parallel(4):
                if np.int32(0) <= i:
                    B[i] = np.float32(2) * A[i] + np.float64(1) - A[i] / np.float32(4)

    a, b = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    tilewright.compile(main, target="reference")(a, b)
    np.testing.assert_array_equal(b, 2 * a + 1 - a / 4)


def test_errors_of_eager_kernels_have_their_place():
    @tilewright.jit(target="reference")
    def double(A):
        N = T.const("N")
        A: T.Tensor((N,), "float32")
        B = T.empty((N,), "float32")
        with T.Kernel(1):
            for _ in T.Parallel(N):
                T.copy(A, B)
        return B

    with pytest.raises(KernelStructureError, match=r"T\.copy inside a T\.Parallel loop") as info:
        double(np.zeros(3, np.float32))
    assert "T.copy(A, B)" in str(info.value) and not ours(info.value)


def test_errors_of_macros_have_the_place_in_the_macro():
    @T.macro
    def load(src, dst):
        T.copy(src, dst[0:4])

    with pytest.raises(ShapeError, match="extents differ") as info:

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                tile = T.alloc_shared((8,), "float32")
                load(A, tile)

    assert "T.copy(src, dst[0:4])" in str(info.value) and not ours(info.value)
    assert isinstance(info.value, errors.TilewrightError)


def test_calls_of_macros_that_do_not_fit():
    source = """
    @T.macro
    def load(src, dst):
        T.copy(src, dst)

    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1):
            load(A)
            ^^^^^^^
    """
    check(source, ArgumentValueError, "macro load: missing a required argument: 'dst'", "load(src, dst)")


def test_annotations_that_name_nothing():
    source = '@T.prim_func\ndef main(A: "Nothing"):\n            ^^^^^^^^^\n    pass'
    check(
        source,
        errors.AnnotationError,
        "the annotation of 'A' cannot be evaluated: name 'Nothing' is not defined",
        "T.Tensor",
    )


def test_arguments_of_eager_kernels_that_are_not_declared():
    @tilewright.jit(target="reference")
    def wipe(A):
        with T.Kernel(1):
            T.clear(A)

    with pytest.raises(ScopeError, match=r"the target of T\.clear is an argument that is not declared"):
        wipe(np.zeros(3, np.float32))


def test_a_function_of_the_user_keeps_its_own_errors():
    def copy(a, b):
        return a, b

    with pytest.raises(TypeError, match="missing 1 required positional argument") as info:

        @T.prim_func
        def main(A: T.Tensor((8,), "float32")):
            with T.Kernel(1):
                copy(A)

    assert type(info.value) is TypeError
