"""`@tilewright.kernel`: calling declarative kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.errors import ArgumentCountError, ArgumentOverlapError, ArgumentTypeError
from tilewright.frontend.declarative import DeclarativeTemplate, make_schedule
from tilewright.frontend.declarative.aliasing import may_share
from tilewright.frontend.declarative.findings import Finding
from tilewright.frontend.declarative.program import Schedule
from tilewright.ir.printer import print_func
from tilewright.language.tracebacks import shows_the_user
from tilewright.runtime.compile import compile as compile_function
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.locks import new_lock


class DeclarativeKernel:
    """A declarative kernel: compiled for the sizes of a call when first called with them.

    Call it with all tensors, then results are written in place; or without the tensors that it only
    writes, then they are allocated and returned.  `target=` chooses the target.
    """

    def __init__(self, function: Callable[..., Any], schedule: Schedule, target: str | None = None) -> None:
        self.template = DeclarativeTemplate(function)
        self.schedule = schedule
        self.target = target
        self.__name__ = self.template.name
        self.__doc__ = function.__doc__
        self._kernels: dict[Any, Kernel] = {}
        self._lock = new_lock()

    @shows_the_user
    def __call__(self, *args: Any, target: str | None = None, **kwargs: Any) -> Any:
        """Run on arrays and scalars, given in the order of the parameters or by name."""
        values = self._bind(args, kwargs)
        shapes = {
            p.name: tuple(int(s) for s in values[p.name].shape)
            for p in self.template.parameters
            if p.dims is not None and hasattr(values.get(p.name), "shape")
        }
        self._check_shared(values)
        outputs = tuple(p.name for p in self.template.parameters if p.name not in values)
        kernel = self._kernel(self.template.bind_sizes(shapes), outputs, target)
        return kernel(*(values[p.name] for p in self.template.parameters if p.name in values))

    @shows_the_user
    def compile(self, *, target: str | None = None, returns: bool = False, **sizes: int) -> Kernel:
        """The kernel for given sizes (`M=1024, ...`).  returns: allocate and return what is only written."""
        outputs = tuple(self.template.results) if returns else ()
        return self._kernel(self.template.check_sizes(sizes), outputs, target)

    @shows_the_user
    def explain(self, **sizes: int) -> str:
        """What every loop becomes for given sizes, a line each in the order of the program."""
        return "\n".join(str(finding) for finding in self._findings(sizes))

    @shows_the_user
    def get_tile_source(self, **sizes: int) -> str:
        """The tile program that the loops become for given sizes, as text."""
        return print_func(self.template.build(self.template.check_sizes(sizes), self.schedule)[0])

    @shows_the_user
    def notes(self, **sizes: int) -> list[str]:
        """What is compiled as plain code because no pattern was recognised, a line each."""
        return [str(finding) for finding in self._findings(sizes) if finding.plain]

    def _findings(self, sizes: dict[str, int]) -> list[Finding]:
        return self.template.build(self.template.check_sizes(sizes), self.schedule)[1]

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = [p.name for p in self.template.parameters]
        inputs = [name for name in names if name not in self.template.results]
        positional = inputs if len(args) + len(kwargs) == len(inputs) else names
        if len(args) > len(positional):
            raise ArgumentCountError(
                f"{self.__name__} takes {len(names)} arguments ({', '.join(names)}), or {len(inputs)} without its "
                f"results, got {len(args) + len(kwargs)}"
            )
        values = dict(zip(positional, args, strict=False))
        for name, value in kwargs.items():
            if name not in names or name in values:
                problem = "twice" if name in values else "but has no such parameter"
                raise ArgumentTypeError(
                    f"{self.__name__} got {name!r} {problem}", hint=f"parameters: {', '.join(names)}"
                )
            values[name] = value
        missing = [name for name in inputs if name not in values]
        if missing:
            raise ArgumentCountError(
                f"{self.__name__} is missing {', '.join(missing)}", hint=f"it takes {', '.join(names)}"
            )
        return values

    def _check_shared(self, values: dict[str, Any]) -> None:
        """Refuse one array for two tensors where that would change what the loops mean."""
        addresses = {name: _address(value) for name, value in values.items()}
        for written in self.template.written:
            for name, address in addresses.items():
                if name == written or address is None or address != addresses.get(written):
                    continue
                if not may_share(self.template.program, written, name):
                    raise ArgumentOverlapError(
                        f"{self.__name__}: {name} and {written} are the same array, but {written} is written while "
                        f"other elements of {name} are still to be read",
                        hint="pass a copy for one of them",
                    )

    def _kernel(self, sizes: dict[str, int], outputs: tuple[str, ...], target: str | None) -> Kernel:
        target = target or self.target
        key = (tuple(sorted(sizes.items())), outputs, target)
        found = self._kernels.get(key)
        if found is None:
            with self._lock:
                found = self._kernels.get(key)
                if found is None:
                    func, _ = self.template.build(sizes, self.schedule, outputs)
                    found = self._kernels[key] = compile_function(func, target=target)
        return found


def _address(value: Any) -> int | None:
    """Where an array's elements begin, None for what has none."""
    if isinstance(value, np.ndarray):
        return value.ctypes.data if value.size else None
    pointer = getattr(value, "data_ptr", None)
    return pointer() or None if callable(pointer) else None


@shows_the_user
def kernel(function: Callable[..., Any] | None = None, *, target: str | None = None, **hints: Any) -> Any:
    """Make a declarative kernel of a function of plain loops.

    hints: `block=(128, 128)`, `block_k=32`, `stages=3`, `threads=128`.
    Raises LanguageError and its kinds with the place in the function.
    """
    schedule = make_schedule(**hints)
    if function is not None:
        return DeclarativeKernel(function, schedule, target)
    return shows_the_user(lambda decorated: DeclarativeKernel(decorated, schedule, target))
