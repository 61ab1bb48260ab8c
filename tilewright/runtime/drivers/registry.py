"""The drivers: what loads and runs an artifact, by target kind."""

from __future__ import annotations

import importlib
from typing import Protocol

from tilewright.errors import UnsupportedOnTargetError
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime.binding import Bound
from tilewright.target import Target
from tilewright.targets.registry import Artifact


class Program(Protocol):
    """An artifact that is loaded and can run."""

    def launch(self, func: PrimFunc, bound: Bound) -> None:
        """Run all launches of the function, in order.  Raises DeviceAssertError when an assert failed."""


class Driver(Protocol):
    """Loads artifacts of one target kind."""

    def load(self, artifact: Artifact) -> Program:
        """The artifact, ready to run.  Raises TargetError when this machine cannot run it."""


# kind -> module with a `DRIVER`; imported when first asked for.
DRIVERS: dict[str, str] = {
    "cpu": "tilewright.runtime.drivers.cpu",
    "reference": "tilewright.runtime.drivers.reference",
}


def driver(target: Target) -> Driver:
    """The driver of a target.  Raises UnsupportedOnTargetError when this version has none."""
    module = DRIVERS.get(target.kind)
    if module is None:
        raise UnsupportedOnTargetError(
            f"kernels for target {target.name} can be compiled but not run: there is no driver for {target.kind!r}",
            hint=f"get_kernel_source() and export_sources() work; targets that run: {', '.join(sorted(DRIVERS))}",
        )
    found: Driver = importlib.import_module(module).DRIVER
    return found
