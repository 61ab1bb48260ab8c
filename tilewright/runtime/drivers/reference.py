"""The reference driver: Tile IR executed by the NumPy evaluator, on the caller's memory."""

from __future__ import annotations

from typing import Any

from tilewright.ir.expr import Buffer
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime import arrays, dlpack, scalars
from tilewright.runtime.binding import Bound
from tilewright.simulator.reference import run
from tilewright.targets.registry import Artifact


class ReferenceProgram:
    """The meaning of a function."""

    def launch(self, func: PrimFunc, bound: Bound) -> None:
        """Evaluate the function.  Raises DeviceAssertError when an assert failed."""
        values: list[Any] = []
        for index, (param, argument) in enumerate(zip(func.params, bound.arguments, strict=True)):
            if isinstance(param, Buffer):
                values.append(dlpack.as_numpy(arrays.view(argument)))
            else:
                values.append(scalars.decode(bound.slots[index], param.dtype))
        run(func, values)


class ReferenceDriver:
    """Needs no artifact beyond the function itself."""

    def load(self, artifact: Artifact) -> ReferenceProgram:
        return ReferenceProgram()


DRIVER = ReferenceDriver()
