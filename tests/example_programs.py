"""The tile programs of examples/, and a CPU target that is the same on every host."""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path

from tilewright.ir.kernel import PrimFunc
from tilewright.target import Target
from tilewright.targets.cpu.arch import resolve

EXAMPLES = Path(__file__).parent.parent / "examples"

# Example -> arguments of its program: sizes that leave tails, then sizes as in its table.
ARGUMENTS: dict[str, tuple[tuple[object, ...], tuple[object, ...]]] = {
    "attention_mask": ((2, 2, 37, 53, True, 9), (2, 8, 1024, 1024)),
    "batched_matmul": ((2, 70, 45, 33, False, True), (8, 512, 512, 512, False, True)),
    "conv2d": ((2, 9, 7, 5, 11), (4, 64, 64, 64, 128)),
    "elementwise": ((33, 77), (1024, 4096)),
    "flash_attention": ((2, 3, 77, 133, 40, True), (2, 4, 1024, 1024, 128)),
    "gemv": ((50, 77), (8192, 4096)),
    "histogram": ((5000, 17), (16_000_000, 256)),
    "layer_norm": ((20, 77), (8192, 4096)),
    "matmul": ((150, 77, 133), (1024, 1024, 1024)),
    "rms_norm": ((20, 77), (8192, 4096)),
    "softmax": ((20, 333), (8192, 4096)),
}
PROGRAMS = {name: {"elementwise": "gelu_bias_residual"}.get(name, name) for name in ARGUMENTS}
"""Example -> the function in it that makes its program."""


def example_names() -> list[str]:
    """The files of examples/ that are examples."""
    return sorted(p.stem for p in EXAMPLES.glob("*.py") if p.stem not in ("harness", "run_all"))


def program(name: str, *arguments: object) -> PrimFunc:
    """The tile program of an example."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    made: PrimFunc = getattr(importlib.import_module(name), PROGRAMS[name])(*arguments)
    return made


def fixed_cpu(arch: str = "avx512") -> Target:
    """A CPU with caches and cores of its own, not the host's."""
    return replace(resolve(arch), cache_bytes=(48 << 10, 1 << 20, 32 << 20), extras=())
