"""The reference evaluator: IR executed with NumPy.  It defines what every operation means.

`expressions` and `operations` say what scalar code computes, `numerics` how it is rounded, `memory` how
elements and regions are read and written, `statements` what control flow does, `parallel` and `updates`
what `Parallel` does, `tile_ops` what the tile operations do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

import numpy as np

from tilewright.ir.kernel import PrimFunc
from tilewright.simulator import parallel, tile_ops
from tilewright.simulator.binding import Binder, declare_parameters
from tilewright.simulator.expressions import STDOUT
from tilewright.simulator.statements import Order, StatementCompiler

STATEMENT_MODULES = (parallel, tile_ops)
"""The modules that register how their statements are compiled."""


def run(func: PrimFunc, args: Sequence[Any], *, order: Order = "forward", stdout: TextIO | None = None) -> None:
    """Execute `func`, of either level, on NumPy arrays (written in place, strided ones too) and numbers.

    args: in the order of `func.params`, outputs included; elements below 8 bits take a byte each.
    order: of the blocks of each launch: "forward", "reverse", or the seed of a shuffle.
    stdout: where `Print` writes; `sys.stdout` by default.

    On-chip memory starts as NaN (floats) or a large odd number (integers), so that reads of what
    was never written show.  In lowered IR an access out of range raises VerificationError.
    Raises ArgumentCountError, ArgumentTypeError, ArgumentDTypeError, ArgumentShapeError,
    ArgumentStrideError, ReadOnlyArgumentError, DeviceAssertError.
    """
    with np.errstate(all="ignore"):
        compiler = StatementCompiler(func.name, order, strict_range=func.level == "lowered")
        declare_parameters(compiler, func)
        body = compiler.statement(func.body)
        binder = Binder(compiler, func)
        env: list[Any] = [None] * compiler.size
        env[STDOUT] = stdout
        binder.bind(env, args)
        body(env)
