"""Joined steps of K loops."""

from __future__ import annotations

import pytest
from gemm_programs import cpu, matmul

import tilewright.language as T
from tilewright.ir.printer import print_func
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.chunk_gemm import chunk_gemm


def chunked(func):
    result = chunk_gemm(func, cpu(), CompileOptions())
    verify(result)
    return print_func(result)


def test_the_quick_start_program():
    text = chunked(matmul(1024, 1024, 1024, (128, 128, 32)))
    assert [line.strip() for line in text.splitlines()[5:]] == [
        "launch (bx < 8, by < 8) threads(128):",
        "alloc C_local: float32[128, 128] fragment",
        "alloc A_shared: float32[128, 256] shared strides(272, 1)",
        "alloc B_shared: float32[256, 128] shared strides(144, 1)",
        "for step in serial(4):",
        "copy A[by * 128 +: 128, step * 256 +: 256] -> A_shared",
        "copy B[step * 256 +: 256, bx * 128 +: 128] -> B_shared",
        "prefetch A[by * 128 +: 128, min(step + 1, 3) * 256 +: 256]",
        "prefetch B[min(step + 1, 3) * 256 +: 256, bx * 128 +: 128]",
        "if step == 0:",
        "gemm C_local = A_shared @ B_shared",
        "else:",
        "gemm C_local += A_shared @ B_shared",
        "copy C_local -> C[by * 128 +: 128, bx * 128 +: 128]",
    ]


def kernel_with(body):
    """A K loop of 4 steps whose statements `body(A, a, c, step)` adds; B is staged and multiplied first or last."""

    @T.prim_func
    def program(A: T.Tensor((16, 128), "float32"), B: T.Tensor((128, 32), "float32"), C: T.Tensor((16, 32), "float32")):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(4):
                T.copy(B[step * 32, 0], b)
                body(A, C, a, b, c, step)
            T.copy(c, C)

    return program


def plain(A, C, a, b, c, step):
    T.copy(A[0, step * 32], a)
    T.gemm(a, b, c)


def a_is_not_moving(A, C, a, b, c, step):
    T.copy(A[0, 0], a)
    T.gemm(a, b, c)


def a_moves_by_another_amount(A, C, a, b, c, step):
    T.copy(A[0, step * 16], a)
    T.gemm(a, b, c)


def a_moves_in_rows(A, C, a, b, c, step):
    T.copy(A[step, step * 32], a)
    T.gemm(a, b, c)


def only_a_part_is_staged(A, C, a, b, c, step):
    T.copy(A[0:16, step * 32 : step * 32 + 16], a[0:16, 0:16])
    T.gemm(a, b, c)


def the_tile_is_changed(A, C, a, b, c, step):
    T.copy(A[0, step * 32], a)
    a[0, 0] = 1.0
    T.gemm(a, b, c)


def the_tile_is_read_elsewhere(A, C, a, b, c, step):
    T.copy(A[0, step * 32], a)
    T.gemm(a, b, c)
    T.copy(a, C)


def each_step_starts_anew(A, C, a, b, c, step):
    T.copy(A[0, step * 32], a)
    T.gemm(a, b, c, clear_accum=True)


def test_steps_are_joined():
    assert "a: float32[16, 128]" in chunked(kernel_with(plain))


@pytest.mark.parametrize(
    "body",
    [
        a_is_not_moving,
        a_moves_by_another_amount,
        a_moves_in_rows,
        only_a_part_is_staged,
        the_tile_is_changed,
        the_tile_is_read_elsewhere,
        each_step_starts_anew,
    ],
    ids=lambda body: body.__name__,
)
def test_steps_stay_apart(body):
    program = kernel_with(body)
    assert chunked(program) == print_func(program)


def test_the_clear_stays_where_no_step_may_run():
    steps = T.dynamic("steps")

    @T.prim_func
    def program(
        A: T.Tensor((16, steps), "float32"), B: T.Tensor((steps, 32), "float32"), C: T.Tensor((16, 32), "float32")
    ):
        with T.Kernel(1, threads=32) as _:
            a = T.alloc_shared((16, 32), "float32")
            b = T.alloc_shared((32, 32), "float32")
            c = T.alloc_fragment((16, 32), "float32")
            T.clear(c)
            for step in T.Pipelined(T.ceildiv(steps, 32)):
                T.copy(A[0, step * 32], a)
                T.copy(B[step * 32, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    text = chunked(program)
    assert "a: float32[16, 256]" in text and "fill c = 0.0" in text and "if " not in text
