"""Running passes in order, with hooks: verify, dump, time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tilewright.ir.kernel import PrimFunc
from tilewright.ir.printer import print_func
from tilewright.options import CompileOptions
from tilewright.target import Target

PassFunction = Callable[[PrimFunc, Target, CompileOptions], PrimFunc]
Verifier = Callable[[PrimFunc], None]


class Pass(NamedTuple):
    """A named rewriting of a function; valid IR in, valid IR out."""

    name: str
    run: PassFunction


def run_passes(
    func: PrimFunc,
    passes: Sequence[Pass],
    target: Target,
    options: CompileOptions,
    verifier: Verifier | None = None,
    times: dict[str, float] | None = None,
) -> PrimFunc:
    """`func` after all passes.

    verifier: called after every pass when `options.verify`.  options.dump: a directory that gets the text
    after every pass.  times: seconds of each pass by name are added to it.
    """
    if options.dump:
        _dump(func, options.dump, 0, "input")
    for number, step in enumerate(passes, 1):
        start = time.perf_counter()
        func = step.run(func, target, options)
        if times is not None:
            times[step.name] = times.get(step.name, 0.0) + time.perf_counter() - start
        if options.dump:
            _dump(func, options.dump, number, step.name)
        if options.verify and verifier is not None:
            verifier(func)
    return func


def _dump(func: PrimFunc, directory: str, number: int, name: str) -> None:
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{func.name}.{number:02}.{name}.txt").write_text(print_func(func), encoding="utf-8")
