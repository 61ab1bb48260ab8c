"""Architectures, code generation, listings, and the quality of the code."""

import re
import time

import numpy as np
import pytest
from cpu_harness import (
    F32,
    HOST,
    RUNNABLE,
    Loaded,
    buf,
    kernel,
    load,
    loop,
    num,
    ramp,
    run_both,
    same_bits,
    splat,
    store,
    var,
)

from tilewright.errors import ArgumentValueError, CompileError, TargetError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Broadcast, Call, Cast, const
from tilewright.ir.stmt import Alloc
from tilewright.options import CompileOptions
from tilewright.targets.cpu import arch, codegen
from tilewright.targets.cpu.backend import BACKEND
from tilewright.targets.cpu.emit import emit_module
from tilewright.targets.registry import resolve_target

MAGIC = {"x86_64": (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\x64\x86"), "aarch64": (b"\x7fELF", b"\xcf\xfa\xed\xfe")}


def copy_kernel(lanes=16):
    a, out, i = buf("A", (64,)), buf("out", (64,)), var("i")
    value = load(a, ramp(i, lanes)) * splat(const(3.0, F32), lanes)
    return kernel([a, out], loop(i, 64, store(out, (ramp(i, lanes),), value), step=lanes))


# --- architectures ------------------------------------------------------------------------------------


def test_host_is_what_llvm_detects():
    target = resolve_target("cpu")
    assert target is resolve_target("cpu:host") is HOST and target.kind == "cpu"
    present = {f[1:] for f in target.features.split(",") if f.startswith("+")}
    wide = {"avx512f", "avx512bw", "avx512dq", "avx512vl"} <= present
    assert target.vector_bits == (512 if wide else 256 if {"avx2", "fma"} <= present else 128)
    assert target.dot_bf16 == ("avx512bf16" in present)
    first, second, last = target.cache_bytes
    assert 8 << 10 <= first <= second <= last


@pytest.mark.parametrize(
    ("name", "bits", "registers", "fma"),
    [("sse2", 128, 16, False), ("avx2", 256, 16, True), ("avx512", 512, 32, True), ("neon", 128, 32, True)],
)
def test_tables_of_named_architectures(name, bits, registers, fma):
    target = arch.resolve(name)
    assert (target.arch, target.vector_bits, target.vector_registers) == (name, bits, registers)
    assert dict(target.extras)["fma"] is fma and not target.dot_bf16
    assert arch.resolve("x86-64") is arch.resolve("sse2") and arch.resolve("avx512bf16").dot_bf16


def test_the_environment_overrides_the_host(monkeypatch):
    monkeypatch.setenv("TILEWRIGHT_CPU_FEATURES", "avx2")
    assert arch.resolve("host") is arch.resolve("avx2")
    monkeypatch.setenv("TILEWRIGHT_CPU_FEATURES", "mmx")
    with pytest.raises(TargetError, match="TILEWRIGHT_CPU_FEATURES='mmx' is unknown"):
        arch.resolve("host")
    assert arch.resolve("avx512").vector_bits == 512


def test_unknown_architectures_are_refused(monkeypatch):
    with pytest.raises(TargetError, match="unknown CPU architecture 'itanium'"):
        resolve_target("cpu:itanium")
    with pytest.raises(TargetError, match="no CPU back-end for riscv64"):
        arch._best_level("riscv64", set())
    assert arch._best_level("x86_64", {"avx2", "avx", "fma"}) == "sse2"  # without F16C it is not the psABI's level
    assert arch._best_level("aarch64", set()) == "neon"


@pytest.mark.parametrize("name", list(arch.LEVELS))
def test_code_for_every_architecture_is_made_here(name):
    target = arch.resolve(name)
    artifact = BACKEND.build(copy_kernel(), target, CompileOptions())
    assert artifact.binary.startswith(MAGIC[arch.LEVELS[name].machine])
    listing = BACKEND.listing(artifact, "asm")
    register = {"sse2": "xmm", "avx2": "ymm", "neon": "fmul\tv"}.get(name, "zmm")
    assert register in listing


# --- artifacts ----------------------------------------------------------------------------------------


def test_artifact_and_listings():
    func = copy_kernel()
    artifact = BACKEND.build(func, HOST, CompileOptions())
    assert artifact.metadata["abi"] == 1 and artifact.metadata["scratch_bytes"] == 0
    assert "kernel" in artifact.source and artifact.target is HOST
    assert BACKEND.listing(artifact, "llvm") == emit_module(func, HOST)[0]
    assert "kernel_entry" in BACKEND.listing(artifact, "asm")
    with pytest.raises(ArgumentValueError, match="no listing 'ptx'"):
        BACKEND.listing(artifact, "ptx")


def test_the_text_is_the_same_every_time():
    assert emit_module(copy_kernel(), HOST) == emit_module(copy_kernel(), HOST)
    first, second = (BACKEND.build(copy_kernel(), HOST, CompileOptions()) for _ in range(2))
    assert first.binary == second.binary and first.source == second.source


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_every_optimisation_level_gives_the_same_values(level):
    a, out = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    Loaded(copy_kernel(), level=level)(a, out)
    assert (out == 3 * a).all()


@pytest.mark.parametrize(
    "text", ["define void @f( {", "define i32 @f() { ret i64 0 }", "define void @f() {\nentry:\n}"]
)
def test_invalid_llvm_ir_is_an_error_not_a_crash(text):
    with pytest.raises(CompileError, match="the emitted LLVM IR is not valid"):
        codegen.object_code(text, HOST, 3)


def test_libraries_functions_are_listed_for_the_loader():
    a, out = buf("A", (8,)), buf("out", (8,))
    func = kernel([a, out], store(out, (ramp(0, 8),), Call(dtype("float32x8"), "atan", (load(a, ramp(0, 8)),))))
    assert BACKEND.build(func, HOST, CompileOptions()).metadata["externals"] == ["atanf"]


# --- quality of the code --------------------------------------------------------------------------------


def gemm(rows, vectors, lanes, unroll, of="float32", depth=64):
    """The inner loops of a matrix product: an accumulator of rows x vectors registers."""
    width = vectors * lanes
    a, b, c = buf("A", (rows, depth)), buf("B", (depth, width)), buf("C", (rows, width))
    acc = buf("acc", (rows, vectors), f"{of}x{lanes}", "register")
    r, v, k, u = var("r"), var("v"), var("k"), var("u")
    at = ramp(v * num(lanes), lanes)
    left = Broadcast(dtype(of).with_lanes(lanes), load(a, r, k + u))
    step = store(acc, (r, v), Call(left.dtype, "fma", (left, load(b, k + u, at), load(acc, r, v))))

    def unrolled(variable, count, body):
        return loop(variable, count, body, kind="unroll")

    def each(body):
        return unrolled(r, rows, unrolled(v, vectors, body))

    return kernel(
        [a, b, c],
        Alloc(acc),
        each(store(acc, (r, v), load(c, r, at))),
        loop(k, depth, unrolled(u, unroll, each(step)), step=unroll),
        each(store(c, (r, at), load(acc, r, v))),
    )


@pytest.mark.parametrize(
    ("level", "rows", "vectors"),
    [("avx512", 13, 2), ("avx512", 12, 2), ("avx512", 8, 3), ("avx2", 6, 2), ("neon", 7, 3)],
)
def test_accumulators_stay_in_registers(level, rows, vectors):
    target = arch.resolve(level)
    func = gemm(rows, vectors, target.vector_bits // 32, 4)
    listing = codegen.assembly(emit_module(func, target)[0], target, 3)
    stack = re.compile(r"(?:[xyz]mm\d+.*\(%rsp\)|\(%rsp\).*[xyz]mm\d+|\bq\d+.*\[sp)")
    assert not [line for line in listing.splitlines() if stack.search(line)]
    products = re.findall(r"vfmadd\w+ps|fmla\s+v", listing)
    assert len(products) == rows * vectors * 4


@pytest.mark.parametrize("level", RUNNABLE)
def test_accumulators_hold_the_product(level):
    rng = np.random.default_rng(0)
    shapes = ((5, 64), (64, 16), (5, 16))
    a, b, c = (rng.integers(-4, 5, shape).astype(np.float32) for shape in shapes)
    mine, theirs = run_both(gemm(5, 2, 8, 4), a, b, c, target=arch.resolve(level))
    same_bits(mine[2], theirs[2])
    assert (mine[2] == c + a @ b).all()


def test_compiling_a_large_kernel_takes_little_time():
    """The register-blocked loops of a 128x128x32 product took 30 ms here; the bound is for slow machines."""
    text, _ = emit_module(gemm(13, 2, 16, 4), arch.resolve("avx512"))
    codegen.object_code(text, HOST, 3)
    start = time.perf_counter()
    codegen.object_code(text, arch.resolve("avx512"), 3)
    assert time.perf_counter() - start < 0.5


def test_elementwise_loops_have_only_the_instructions_that_they_need():
    a, b, out, n, i = buf("A", (4096,)), buf("B", (4096,)), buf("out", (4096,)), var("n"), var("i")
    value = load(a, ramp(i, 16)) + load(b, ramp(i, 16)) * splat(const(3.0, F32), 16)
    func = kernel([a, b, out, n], loop(i, n, store(out, (ramp(i, 16),), value), step=16))
    target = arch.resolve("avx512")
    listing = codegen.assembly(emit_module(func, target)[0], target, 3)
    inner = listing.split("vmulps")[1].split("\n\tj")[0]
    assert len(inner.splitlines()) <= 6


def test_half_floats_are_converted_by_instructions_where_there_are_any():
    a, out = buf("A", (16,), "float16"), buf("out", (16,), "float16")
    value = load(a, ramp(0, 16)) * splat(const(2.0, dtype("float16")), 16)
    func = kernel([a, out], store(out, (ramp(0, 16),), Cast(dtype("float16x16"), value)))
    for level, instruction in (("avx512", "vcvtph2ps"), ("avx2", "vcvtph2ps"), ("neon", "fcvtl"), ("sse2", "")):
        target = arch.resolve(level)
        listing = codegen.assembly(emit_module(func, target)[0], target, 3)
        assert instruction in listing and "__extend" not in listing and "__trunc" not in listing
