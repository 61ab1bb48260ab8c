"""Tilewright: a tile language and compiler for GPU and CPU kernels.

What is exported here is imported when it is first used, so that `import tilewright` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# The decorators of the language do what the front-end, a layer above it, installs.
from tilewright import errors, frontend, language

if TYPE_CHECKING:
    from tilewright.dialect import (
        AutoTuner,
        PassConfigKey,
        autotune,
        cdiv,
        disable_cache,
        enable_cache,
        is_cache_enabled,
        next_power_of_2,
        set_log_level,
    )
    from tilewright.frontend.declarative.names import block_size, grid, shared_memory, sizes
    from tilewright.ir.arrayspec import ArraySpec
    from tilewright.language import macro, prim_func
    from tilewright.language.layouts import Fragment, Layout
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
    "AutoTuner": "tilewright.dialect",
    "CompileOptions": "tilewright.options",
    "Fragment": "tilewright.language.layouts",
    "Kernel": "tilewright.runtime.kernel",
    "Layout": "tilewright.language.layouts",
    "PassConfigKey": "tilewright.dialect",
    "Profiler": "tilewright.profiler",
    "Target": "tilewright.target",
    "TensorSupplyType": "tilewright.profiler",
    "autotune": "tilewright.dialect",
    "block_size": "tilewright.frontend.declarative.names",
    "cdiv": "tilewright.dialect",
    "clear_cache": "tilewright.runtime.compile",
    "compile": "tilewright.runtime.compile",
    "disable_cache": "tilewright.dialect",
    "do_bench": "tilewright.profiler",
    "enable_cache": "tilewright.dialect",
    "grid": "tilewright.frontend.declarative.names",
    "is_cache_enabled": "tilewright.dialect",
    "jit": "tilewright.runtime.jit",
    "kernel": "tilewright.runtime.declarative",
    "macro": "tilewright.language",
    "next_power_of_2": "tilewright.dialect",
    "par_compile": "tilewright.runtime.compile",
    "prim_func": "tilewright.language",
    "set_log_level": "tilewright.dialect",
    "shared_memory": "tilewright.frontend.declarative.names",
    "sizes": "tilewright.frontend.declarative.names",
}
SUBMODULES = ("compiler", "dialect", "ir", "layout", "options", "profiler", "runtime", "simulator", "target", "targets")

__all__ = [
    "ArraySpec",
    "AutoTuner",
    "CompileOptions",
    "Fragment",
    "Kernel",
    "Layout",
    "PassConfigKey",
    "Profiler",
    "Target",
    "TensorSupplyType",
    "autotune",
    "block_size",
    "cdiv",
    "clear_cache",
    "compile",
    "disable_cache",
    "do_bench",
    "enable_cache",
    "errors",
    "frontend",
    "grid",
    "is_cache_enabled",
    "jit",
    "kernel",
    "language",
    "macro",
    "next_power_of_2",
    "par_compile",
    "prim_func",
    "set_log_level",
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
