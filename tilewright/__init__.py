"""Tilewright: a tile language and compiler for GPU and CPU kernels.

What is exported here is imported when it is first used, so that `import tilewright` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The decorators of the language do what the front-end, a layer above it, installs.
from tilewright import errors, frontend, language

if TYPE_CHECKING:
    from tilewright.frontend.declarative.names import block_size, grid, shared_memory, sizes
    from tilewright.ir.arrayspec import ArraySpec
    from tilewright.language import macro, prim_func
    from tilewright.options import CompileOptions
    from tilewright.profiler import Profiler, TensorSupplyType, do_bench
    from tilewright.runtime.compile import clear_cache, compile, par_compile
    from tilewright.runtime.declarative import kernel
    from tilewright.runtime.jit import jit
    from tilewright.runtime.kernel import Kernel
    from tilewright.target import Target

__version__ = "0.1.0"

# Name -> module that defines it.
EXPORTS: dict[str, str] = {
    "ArraySpec": "tilewright.ir.arrayspec",
    "CompileOptions": "tilewright.options",
    "Kernel": "tilewright.runtime.kernel",
    "Profiler": "tilewright.profiler",
    "Target": "tilewright.target",
    "TensorSupplyType": "tilewright.profiler",
    "block_size": "tilewright.frontend.declarative.names",
    "clear_cache": "tilewright.runtime.compile",
    "compile": "tilewright.runtime.compile",
    "do_bench": "tilewright.profiler",
    "grid": "tilewright.frontend.declarative.names",
    "jit": "tilewright.runtime.jit",
    "kernel": "tilewright.runtime.declarative",
    "macro": "tilewright.language",
    "par_compile": "tilewright.runtime.compile",
    "prim_func": "tilewright.language",
    "shared_memory": "tilewright.frontend.declarative.names",
    "sizes": "tilewright.frontend.declarative.names",
}
SUBMODULES = ("compiler", "ir", "options", "profiler", "runtime", "simulator", "target", "targets")

__all__ = [
    "ArraySpec",
    "CompileOptions",
    "Kernel",
    "Profiler",
    "Target",
    "TensorSupplyType",
    "block_size",
    "clear_cache",
    "compile",
    "do_bench",
    "errors",
    "frontend",
    "grid",
    "jit",
    "kernel",
    "language",
    "macro",
    "par_compile",
    "prim_func",
    "shared_memory",
    "sizes",
]


def __getattr__(name: str) -> Any:
    module = EXPORTS.get(name)
    if module is not None:
        value = getattr(importlib.import_module(module), name)
    elif name in SUBMODULES:
        value = importlib.import_module(f"tilewright.{name}")
    else:
        raise AttributeError(f"module 'tilewright' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *EXPORTS, *SUBMODULES})
