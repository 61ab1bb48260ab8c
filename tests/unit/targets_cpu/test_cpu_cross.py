"""Kernels of every example for every CPU: they assemble, and their inner loops are vector code.

llvmlite's wheels have LLVM's AArch64 and X86 code generators, so code for either machine is made on any host.
"""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import attention_mask
import batched_matmul
import conv2d
import elementwise
import flash_attention
import gemv
import histogram
import layer_norm
import matmul
import rms_norm
import softmax

from tilewright.options import CompileOptions
from tilewright.passes.default import lower_cpu
from tilewright.targets.cpu import arch, codegen
from tilewright.targets.cpu.emit import emit_module

# ELF machine numbers (System V ABI, AArch64 and x86-64 supplements); hosts without ELF have their own format for x86.
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
VECTOR_REGISTER = {
    "sse2": r"%xmm\d",
    "avx2": r"%ymm\d",
    "avx512": r"%zmm\d",
    "avx512bf16": r"%zmm\d",
    "neon": r"\bv\d+\.|\bq\d+\b",
}
PROGRAMS = {
    "matmul": lambda: matmul.matmul(256, 256, 256),
    "matmul float16, odd": lambda: matmul.matmul(100, 77, 333, dtype="float16"),
    "matmul bfloat16": lambda: matmul.matmul(128, 128, 128, dtype="bfloat16"),
    "matmul int8": lambda: matmul.matmul(128, 128, 128, dtype="int8", accum_dtype="int32"),
    "batched_matmul": lambda: batched_matmul.batched_matmul(2, 64, 96, 64, True, True),
    "softmax": lambda: softmax.softmax(64, 4096),
    "softmax bfloat16, odd": lambda: softmax.softmax(64, 333, dtype="bfloat16"),
    "rms_norm": lambda: rms_norm.rms_norm(64, 4096),
    "layer_norm": lambda: layer_norm.layer_norm(64, 4096),
    "elementwise": lambda: elementwise.gelu_bias_residual(64, 4096),
    "attention_mask": lambda: attention_mask.attention_mask(1, 2, 128, 128),
    "flash_attention": lambda: flash_attention.flash_attention(1, 2, 128, 128, 64, causal=True),
    "gemv": lambda: gemv.gemv(64, 1024),
    "histogram": lambda: histogram.histogram(1 << 17, 256),
    "conv2d": lambda: conv2d.conv2d(1, 14, 14, 16, 32),
}
SCALAR = {"histogram"}  # atomic updates of single elements


def compiled(name, level):
    target = arch.resolve(level)
    text, metadata = emit_module(lower_cpu(PROGRAMS[name](), target, CompileOptions()), target)
    return text, metadata, target


def inner_loops(listing):
    """The instructions of every loop that has no loop inside, from a label to the jump back to it.

    Stores that go lane by lane jump back and forth too, but on tested bits: among several blocks only a jump in a block
    with a comparison counts.
    """
    lines, at, spans = listing.splitlines(), {}, {}
    for number, line in enumerate(lines):
        label = re.match(r"\.?L?BB\d+_\d+(?=:)", line)
        if label:
            at[label[0]] = last = number
        jump = re.match(r"\s+(?:j|b\.|cb)[a-z]+\s.*?(\.?L?BB\d+_\d+)$", line)
        if jump and jump[1] in at:
            compared = any(re.match(r"\s+(cmp|sub|add|inc|dec)", before) for before in lines[last:number])
            if at[jump[1]] == last or compared:
                spans[at[jump[1]]] = number
    inner = [
        (a, b) for a, b in spans.items() if not any(a <= c and d <= b for c, d in spans.items() if (c, d) != (a, b))
    ]
    return [[line.strip() for line in lines[a:b] if re.match(r"\s+[a-z]", line)] for a, b in inner]


@pytest.mark.parametrize("level", ["neon", "sse2", "avx2", "avx512"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_examples_assemble_with_vectors_in_their_inner_loops(name, level):
    text, metadata, target = compiled(name, level)
    code = codegen.object_code(text, target, 3)
    if code[:4] == b"\x7fELF":
        assert int.from_bytes(code[18:20], "little") == ELF_MACHINE[arch.LEVELS[level].machine]
    for launch in metadata["launches"]:
        assert launch["entry"].encode() in code and launch["blocks"].encode() in code
    if name not in SCALAR:
        loops = inner_loops(codegen.assembly(text, target, 3))
        with_vectors = [loop for loop in loops if any(re.search(VECTOR_REGISTER[level], line) for line in loop)]
        assert with_vectors and len(with_vectors) >= len(loops) / 2


@pytest.mark.parametrize("level", ["neon", "avx2", "avx512"])
def test_multiply_adds_are_single_instructions(level):
    text, _, target = compiled("matmul", level)
    listing = codegen.assembly(text, target, 3)
    assert len(re.findall(r"vfmadd\w+ps.*%[yz]mm" if level != "neon" else r"fmla\s+v\d+\.4s", listing)) >= 16
