"""The tile language: import it as `T`.

Names that are not written out here: vector dtypes (`T.float16x8`), aliases of dtypes (`T.fp16`, `T.bool`),
and the part of the surface that needs a GPU, which says so when it is called.
"""

# ruff: noqa: F403, F405

from __future__ import annotations

from difflib import get_close_matches as _get_close_matches
from typing import Any

from tilewright.errors import DTypeError
from tilewright.errors import UnknownNameError as _UnknownNameError
from tilewright.ir.dtype import dtype as _dtype
from tilewright.language.allocate import *
from tilewright.language.annotations import *
from tilewright.language.atomics import *
from tilewright.language.cast import *
from tilewright.language.copy import *
from tilewright.language.debug import *
from tilewright.language.dtypes import *
from tilewright.language.entry import *
from tilewright.language.gemm import *
from tilewright.language.gpu_only import GPU_ONLY as _GPU_ONLY
from tilewright.language.gpu_only import GpuOnly as _GpuOnly
from tilewright.language.im2col import *
from tilewright.language.kernel import *
from tilewright.language.layouts import *
from tilewright.language.loops import *
from tilewright.language.math import *
from tilewright.language.reduce import *
from tilewright.language.sizes import *
from tilewright.source import caller_location as _caller_location

Buffer = Tensor


def __getattr__(name: str) -> Any:
    if name in _GPU_ONLY:
        return _GpuOnly(name)
    try:
        return _dtype(name)
    except DTypeError:
        pass
    near = _get_close_matches(name, [n for n in globals() if not n.startswith("_")], 3)
    raise _UnknownNameError(
        f"the tile language has no {name!r}",
        location=_caller_location(),
        hint=f"did you mean {' or '.join(f'T.{n}' for n in near)}?" if near else "",
    )
