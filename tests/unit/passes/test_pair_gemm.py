"""Gemms on pairs of bfloat16: the lowered programs mean what the tile programs mean, and use the instruction."""

from __future__ import annotations

import re
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from gemm_programs import cpu, matmul

import tilewright
import tilewright.language as T
from tilewright.compiler import compile_func
from tilewright.errors import OptionError
from tilewright.ir.dtype import dtype
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Gemm
from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.passes.gemm_operands import is_paired
from tilewright.passes.pair_gemm import pair_gemm
from tilewright.simulator.reference import run
from tilewright.targets.cpu.arch import resolve
from tilewright.targets.registry import backend

BF16 = "bfloat16"
ALLOWED = CompileOptions(verify=True, pass_configs=(("cpu.bf16_dot", True),))
transposes = pytest.mark.parametrize(
    ("transpose_a", "transpose_b"), [(False, False), (False, True), (True, False), (True, True)]
)


def integers(shape, kind, seed):
    """Small integers: their products and sums are exact, so that any order gives one result."""
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(kind.numpy)


def agree(func, *, target=None, shapes=None, uses=True):
    """The tile program and the lowered one on the same inputs; returns the lowered text."""
    lowered = lower_cpu(func, target or cpu("avx512bf16"), ALLOWED)
    text = print_func(lowered)
    assert ("dot2_bf16" in text) == uses, text
    assert not uses or "fma(" not in text, text
    shapes = shapes or [p.const_shape() for p in func.params]
    inputs = [integers(shape, p.dtype, seed) for seed, (shape, p) in enumerate(zip(shapes, func.params, strict=True))]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(func, expected)
    run(lowered, got)
    for left, right in zip(expected, got, strict=True):
        np.testing.assert_array_equal(left.astype(np.float64), right.astype(np.float64))
    return text


# --- meaning -----------------------------------------------------------------------------------------


@transposes
@pytest.mark.parametrize("sizes", [(19, 45, 21), (32, 32, 16), (25, 20, 37)])
def test_transposes_with_tails(sizes, transpose_a, transpose_b):
    agree(matmul(*sizes, (16, 32, 8), BF16, transpose_a=transpose_a, transpose_b=transpose_b))


@transposes
@pytest.mark.parametrize("block", [(7, 5, 3), (30, 17, 1), (5, 60, 33)])
def test_odd_steps(block, transpose_a, transpose_b):
    """A K of one step, which no other step joins: A gets a column of zeros, B a row of them."""
    agree(matmul(31, 53, block[2], block, BF16, transpose_a=transpose_a, transpose_b=transpose_b))


def test_several_blocks_and_turns():
    text = agree(matmul(16, 40, 540, (8, 24, 30), BF16))
    assert re.search(r"step in serial\([2-9]\)", text), "K is longer than what is staged at a time"


@pytest.mark.parametrize("lanes", [4, 8])
def test_narrower_vectors(lanes):
    target = replace(cpu("avx512bf16"), vector_bits=32 * lanes, vector_registers=16)
    for transposed in (False, True):
        text = agree(matmul(19, 45, 21, (16, 32, 8), BF16, transpose_b=transposed), target=target)
        assert f"dot2_bf16<float32x{lanes}>" in text


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, False), (True, True)])
@pytest.mark.parametrize("sizes", [(16, 32, 32), (9, 35, 31), (6, 1, 1), (20, 40, 0), (0, 40, 16)])
def test_sizes_known_at_launch(sizes, transpose_a, transpose_b):
    m, n, k = T.dynamic("m"), T.dynamic("n"), T.dynamic("k")

    @T.prim_func
    def product(
        A: T.Tensor((k, m) if transpose_a else (m, k), BF16),
        B: T.Tensor((n, k) if transpose_b else (k, n), BF16),
        C: T.Tensor((m, n), "float32"),
    ):
        with T.Kernel(T.ceildiv(n, 32), T.ceildiv(m, 16), threads=128) as (bx, by):
            a = T.alloc_shared((15, 16) if transpose_a else (16, 15), BF16)
            b = T.alloc_shared((32, 15) if transpose_b else (15, 32), BF16)
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(k, 15)):
                if transpose_a:
                    T.copy(A[step * 15, by * 16], a)
                else:
                    T.copy(A[by * 16, step * 15], a)
                if transpose_b:
                    T.copy(B[bx * 32, step * 15], b)
                else:
                    T.copy(B[step * 15, bx * 32], b)
                T.gemm(a, b, c, transpose_A=transpose_a, transpose_B=transpose_b)
            T.copy(c, C[by * 16, bx * 32])

    rows, columns, depth = sizes
    a, b = (rows, depth), (depth, columns)
    agree(product, shapes=[a[:: -1 if transpose_a else 1], b[:: -1 if transpose_b else 1], (rows, columns)])


@pytest.mark.parametrize("transposed", [False, True])
def test_steps_left_over(transposed):
    """Turns of 17 steps of 15 and a last one of fewer, because the tensors do not end with the loop: K is odd or even."""

    @T.prim_func
    def program(
        A: T.Tensor((310, 8) if transposed else (8, 310), BF16),
        B: T.Tensor((16, 310) if transposed else (310, 16), BF16),
        C: T.Tensor((8, 16), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((15, 8) if transposed else (8, 15), BF16)
            b = T.alloc_shared((16, 15) if transposed else (15, 16), BF16)
            c = T.alloc_fragment((8, 16), "float32")
            T.clear(c)
            for step in T.Pipelined(20):
                if transposed:
                    T.copy(A[step * 15, 0], a)
                    T.copy(B[0, step * 15], b)
                else:
                    T.copy(A[0, step * 15], a)
                    T.copy(B[step * 15, 0], b)
                T.gemm(a, b, c, transpose_A=transposed, transpose_B=transposed)
            T.copy(c, C)

    agree(program)


@pytest.mark.parametrize("odd", [0, 1])
def test_regions_and_clear_accum(odd):
    """Operands that are parts of buffers are copied, or read in place where A is rows of an even K."""

    @T.prim_func
    def program(A: T.Tensor((4, 24, 20), BF16), B: T.Tensor((20, 64), BF16), C: T.Tensor((24, 64), "float32")):
        with T.Kernel(2, threads=32) as bx:
            a = T.alloc_shared((4, 24, 20), BF16)
            b = T.alloc_shared((20, 64), BF16)
            c = T.alloc_fragment((24, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            T.gemm(a[2, 4:16, 3 : 19 - odd], b[3 : 19 - odd, 32:64], c[3:15, 0:32])
            T.gemm(a[1, 0:12, 0:20], b[0:20, 0:32], c[12:24, 32:64], clear_accum=True)
            T.gemm(a[0, 1 : 20 - odd, 5:14], b[1 : 20 - odd, 7:24], c[3:12, 11:28], transpose_A=True)
            if bx == 1:
                T.copy(c, C)

    text = agree(program)
    assert ("a_pairs" in text) and "b_pairs" in text


def test_one_buffer_as_both_operands():
    @T.prim_func
    def program(A: T.Tensor((16, 13), BF16), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 13), BF16)
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c, transpose_B=True)
            T.copy(c, C)

    agree(program)


@pytest.mark.parametrize("transposed", [False, True])
def test_values_are_rounded_while_they_are_staged(transposed):
    """From float32 tensors, one of them a slice of four dimensions."""

    @T.prim_func
    def program(
        A: T.Tensor((2, 24, 3, 18), "float32"),
        B: T.Tensor((40, 18) if transposed else (18, 40), "float32"),
        C: T.Tensor((24, 40), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((24, 18), BF16)
            b = T.alloc_shared((40, 18) if transposed else (18, 40), BF16)
            c = T.alloc_fragment((24, 40), "float32")
            T.copy(A[1, 0:24, 2, 0:18], a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c, transpose_B=transposed)
            T.copy(c, C)

    lowered = lower_cpu(program, cpu("avx512bf16"), ALLOWED)
    rng = np.random.default_rng(0)
    inputs = [(rng.integers(-3, 4, p.const_shape()) * (1 + 2.0**-8 + 2.0**-12)).astype("f4") for p in program.params]
    expected, got = [x.copy() for x in inputs], [x.copy() for x in inputs]
    run(program, expected)
    run(lowered, got)
    assert "dot2_bf16" in print_func(lowered)
    exact = inputs[0][1, :, 2, :].astype("f8") @ (inputs[1].T if transposed else inputs[1]).astype("f8")
    np.testing.assert_array_equal(expected[2], got[2])
    assert np.abs(expected[2] - exact).max() > 1e-3, "the rounding shows"


def test_a_result_of_one_gemm_feeds_another():
    """As in attention: K is transposed, and the first result is the second's left operand."""

    @T.prim_func
    def program(
        Q: T.Tensor((16, 8), BF16),
        K: T.Tensor((60, 8), BF16),
        V: T.Tensor((60, 16), BF16),
        Out: T.Tensor((16, 16), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            q = T.alloc_shared((16, 8), BF16)
            k = T.alloc_shared((15, 8), BF16)
            v = T.alloc_shared((15, 16), BF16)
            s = T.alloc_fragment((16, 15), "float32")
            p = T.alloc_fragment((16, 15), BF16)
            o = T.alloc_fragment((16, 16), "float32")
            T.copy(Q, q)
            T.clear(o)
            for step in T.Pipelined(4, num_stages=2):
                T.copy(K[step * 15, 0], k)
                T.clear(s)
                T.gemm(q, k, s, transpose_B=True)
                for i, j in T.Parallel(16, 15):
                    p[i, j] = T.min(T.max(s[i, j], -3.0), 3.0)
                T.copy(V[step * 15, 0], v)
                T.gemm(p, v, o)
            T.copy(o, Out)

    agree(program)


def test_staging_of_an_outer_loop():
    """B is staged once, as pairs, for all steps of the loop."""

    @T.prim_func
    def program(A: T.Tensor((64, 32), BF16), B: T.Tensor((32, 24), BF16), C: T.Tensor((16, 24), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 32), BF16)
            b = T.alloc_shared((32, 24), BF16)
            c = T.alloc_fragment((16, 24), "float32")
            T.copy(B, b)
            T.clear(c)
            for step in T.serial(4):
                T.copy(A[step * 16, 0], a)
                T.gemm(a, b, c)
            T.copy(c, C)

    text = agree(program)
    assert "alloc a: bfloat16[16, 32]" in text and "alloc b: bfloat16x32[16, 2]" in text


def test_staged_elements_that_are_changed():
    """A staging buffer with another use keeps its form; the gemm takes a copy."""

    @T.prim_func
    def program(A: T.Tensor((16, 12), BF16), B: T.Tensor((12, 32), BF16), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 12), BF16)
            b = T.alloc_shared((12, 32), BF16)
            c = T.alloc_fragment((16, 32), "float32")
            T.copy(A, a)
            T.copy(B, b)
            for i, j in T.Parallel(12, 32):
                b[i, j] = b[i, j] + T.cast(i, BF16)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    assert "b_pairs" in agree(program)


def test_not_a_number_and_infinity():
    """Each stays in its row and column, also where zeros fill K up."""
    func = matmul(24, 40, 47, (24, 40, 47), BF16)
    lowered = lower_cpu(func, cpu("avx512bf16"), ALLOWED)
    a, b = (integers(p.const_shape(), p.dtype, seed) for seed, p in enumerate(func.params[:2]))
    a[3, 5], a[7, 46], b[2, 7], b[9, 39], b[46, 0] = np.nan, np.inf, -np.inf, np.nan, np.inf
    expected, got = np.zeros((24, 40), "f4"), np.zeros((24, 40), "f4")
    run(func, [a, b, expected])
    run(lowered, [a, b, got])
    np.testing.assert_array_equal(expected, got)
    assert np.isnan(got).any() and np.isfinite(got).any()


@transposes
@pytest.mark.parametrize("K", [20, 21])
def test_nothing_beyond_k_counts(K, transpose_a, transpose_b):
    """The tensors hold NaN where the program does not read: in what would be the last pair's second element, too."""

    @T.prim_func
    def program(
        A: T.Tensor((40, 16) if transpose_a else (16, 40), BF16),
        B: T.Tensor((24, 40) if transpose_b else (40, 24), BF16),
        C: T.Tensor((16, 24), "float32"),
    ):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((K, 16) if transpose_a else (16, K), BF16)
            b = T.alloc_shared((24, K) if transpose_b else (K, 24), BF16)
            c = T.alloc_fragment((16, 24), "float32")
            T.copy(A[0, 0], a)
            T.copy(B[0, 0], b)
            T.clear(c)
            T.gemm(a, b, c, transpose_A=transpose_a, transpose_B=transpose_b)
            T.copy(c, C)

    lowered = lower_cpu(program, cpu("avx512bf16"), ALLOWED)
    assert "dot2_bf16" in print_func(lowered)
    a, b = (integers(p.const_shape(), p.dtype, seed) for seed, p in enumerate(program.params[:2]))
    (a.T if transpose_a else a)[:, K:] = np.nan
    (b.T if transpose_b else b)[K:] = np.nan
    expected, got = np.zeros((16, 24), "f4"), np.zeros((16, 24), "f4")
    run(program, [a, b, expected])
    run(lowered, [a, b, got])
    assert np.isfinite(got).all()
    np.testing.assert_array_equal(expected, got)


# --- what keeps its form -----------------------------------------------------------------------------


@pytest.mark.parametrize("configs", [(), (("cpu.bf16_dot", False),)])
def test_only_where_the_user_allows_it(configs):
    func = matmul(32, 32, 16, dtype=BF16)
    target = cpu("avx512bf16")
    text = print_func(lower_cpu(func, target, CompileOptions(pass_configs=configs)))
    assert "dot2_bf16" not in text and "fma(" in text


@pytest.mark.parametrize("arch", ["avx512", "avx2", "sse2", "neon"])
def test_other_targets_keep_their_form(arch):
    func = matmul(32, 32, 16, dtype=BF16)
    plain = print_func(lower_cpu(func, cpu(arch), CompileOptions()))
    assert print_func(lower_cpu(func, cpu(arch), ALLOWED)) == plain


@pytest.mark.parametrize(
    ("kind", "accumulator", "rows"),
    [("float16", "float32", 16), ("float32", "float32", 16), (BF16, BF16, 16), (BF16, "float32", 4)],
)
def test_other_gemms_keep_their_form(kind, accumulator, rows):
    agree(matmul(rows, 32, 16, (rows, 32, 16), kind, accumulator), uses=False)


def test_safe_values_keep_the_form():
    """Whatever lies beyond the tensor is read as the safe value, from a staging buffer; the copy is not one of pairs."""

    @T.prim_func
    def program(A: T.Tensor((16, 12), BF16), B: T.Tensor((9, 20), BF16), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=32) as _:
            T.annotate_safe_value({B: 2.0})
            a = T.alloc_shared((16, 12), BF16)
            b = T.alloc_shared((12, 32), BF16)
            c = T.alloc_fragment((16, 32), "float32")
            T.copy(A, a)
            T.copy(B[0:12, 0:32], b)
            T.clear(c)
            T.gemm(a, b, c)
            T.copy(c, C)

    assert "b_pairs" in agree(program)


def test_a_result_out_of_range_keeps_the_form():
    @T.prim_func
    def program(A: T.Tensor((16, 16), BF16), B: T.Tensor((16, 16), BF16), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 16), BF16)
            b = T.alloc_shared((16, 16), BF16)
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.copy(C, c)
            for k in T.serial(4):
                T.gemm(
                    a[k * 3 : k * 3 + 8, 0:16],
                    b[0:16, k * 4 : k * 4 + 8],
                    c[k * 3 : k * 3 + 8, k * 4 : k * 4 + 8],
                )
            T.copy(c, C)

    agree(program, uses=False)


def test_the_pass_marks_gemms():
    func = matmul(32, 32, 16, dtype=BF16).replace(level="lowering")
    before = [g for g in walk(func) if isinstance(g, Gemm)]
    after = [g for g in walk(pair_gemm(func, cpu("avx512bf16"), ALLOWED)) if isinstance(g, Gemm)]
    assert len(before) == len(after) == 1
    assert not is_paired(before[0]) and is_paired(after[0])
    assert after[0].b.buffer.dtype is dtype("bfloat16x32") and after[0].a is before[0].a


# --- settings ----------------------------------------------------------------------------------------


def test_settings_are_checked():
    func = matmul(32, 32, 16, dtype=BF16)
    with pytest.raises(OptionError, match=r"unknown pass setting 'cpu\.bf16dot'") as caught:
        tilewright.compile(func, pass_configs={"cpu.bf16dot": True})
    assert "cpu.bf16_dot" in str(caught.value)
    with pytest.raises(OptionError, match="must be True or False, got 'yes'"):
        tilewright.compile(func, pass_configs={"cpu.bf16_dot": "yes"})
    options = CompileOptions.make({"cpu.bf16_dot": True, "tl.disable_tma_lower": True})
    assert options.config("cpu.bf16_dot") and not CompileOptions.make().config("cpu.bf16_dot")


# --- machine code ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "transposed"), [((128, 128, 32), False), ((256, 256, 64), True), ((64, 64, 32), False)]
)
def test_the_inner_loop_has_the_instruction_and_no_spills(block, transposed):
    func = matmul(1024, 1024, 1024, block, BF16, transpose_a=transposed, transpose_b=transposed)
    target = cpu("avx512bf16")
    lines = backend("cpu").listing(compile_func(func, target, ALLOWED), "asm").splitlines()
    assert sum("vdpbf16ps\t" in line for line in lines) >= 64
    assert not any("vfmadd" in line for line in lines)
    assert [line for line in lines if re.search(r"[yz]mm", line) and "(%rsp)" in line] == []


def without_the_instruction():
    """The host as a target that has the dot product, whose emission is exact float32 arithmetic."""
    host = resolve("host")
    return replace(host, dot_bf16=True, features=host.features.replace("+avx512bf16", "-avx512bf16"))


@transposes
@pytest.mark.parametrize("sizes", [(40, 45, 61), (32, 32, 38)])
def test_compiled_code_on_random_data(sizes, transpose_a, transpose_b):
    m, n, k = sizes
    func = matmul(m, n, k, (32, 32, 19), BF16, transpose_a=transpose_a, transpose_b=transpose_b)
    kernel = tilewright.compile(func, target=without_the_instruction(), pass_configs={"cpu.bf16_dot": True})
    assert "dot2_bf16" in kernel.get_kernel_source()
    rng = np.random.default_rng(5)
    a, b = (rng.standard_normal(p.const_shape()).astype(ml_dtypes.bfloat16) for p in func.params[:2])
    got, expected = np.full((m, n), np.nan, "f4"), np.full((m, n), np.nan, "f4")
    kernel(a, b, got)
    tilewright.compile(func, target="reference")(a, b, expected)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_compiled_code_keeps_subnormal_numbers_without_the_instruction():
    func = matmul(24, 40, 31, (24, 40, 31), BF16)
    kernel = tilewright.compile(func, target=without_the_instruction(), pass_configs={"cpu.bf16_dot": True})
    rng = np.random.default_rng(6)
    a = (rng.integers(1, 9, (24, 31)) * 2.0**-133).astype(ml_dtypes.bfloat16)
    b = (rng.integers(1, 9, (31, 40)) * 2.0**-6).astype(ml_dtypes.bfloat16)
    got, expected = np.zeros((24, 40), "f4"), np.zeros((24, 40), "f4")
    kernel(a, b, got)
    tilewright.compile(func, target="reference")(a, b, expected)
    np.testing.assert_array_equal(got, expected)
    assert (got > 0).all() and (got < np.finfo("f4").tiny).all()
