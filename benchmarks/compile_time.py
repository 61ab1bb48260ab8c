"""How long importing and compiling take: the quick start's 128x128x32 float32 matrix product, in fresh processes.

    python benchmarks/compile_time.py [--rounds 5] [--target cpu]

Every number is the median over fresh processes.  `first compile` is what a user waits for: decorating the function,
all passes, machine code, and loading it, with the on-disk cache off.  Its Python part is what is not LLVM.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

BUDGETS = {"import tilewright": 0.25, "Python part": 0.1, "first compile": 0.6}


def child(target: str) -> None:
    """Measure once in this process and write the seconds of each stage as JSON."""
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    import tilewright

    seconds["import tilewright"] = time.perf_counter() - start
    start = time.perf_counter()
    assert tilewright.compile  # imports the runtime on first use
    seconds["import the runtime, with NumPy"] = time.perf_counter() - start
    from cpu_gemm import explicit_matmul

    from tilewright.compiler import build
    from tilewright.ir.kernel import PrimFunc
    from tilewright.options import CompileOptions
    from tilewright.targets.registry import resolve_target

    start = time.perf_counter()
    func: PrimFunc = explicit_matmul(1024, (128, 128, 32), "float32", "float32")
    seconds["front-end"] = time.perf_counter() - start
    start = time.perf_counter()
    chip = resolve_target(target)
    import llvmlite.binding

    seconds["detect the CPU, load LLVM"] = time.perf_counter() - start
    start = time.perf_counter()
    from tilewright.passes.default import lower_cpu

    seconds["import the passes"] = time.perf_counter() - start
    passes: dict[str, float] = {}
    lowered = lower_cpu(func, chip, CompileOptions(), passes)
    seconds["passes"] = sum(passes.values())
    inside_llvm = _count_llvm(llvmlite.binding)
    start = time.perf_counter()
    build(lowered, chip, CompileOptions())
    whole = time.perf_counter() - start
    seconds["LLVM"] = inside_llvm[0]
    seconds["write LLVM IR"] = whole - inside_llvm[0]
    print(json.dumps({"seconds": seconds, "passes": passes}))


def _count_llvm(llvm: object) -> list[float]:
    """Add the seconds spent in the calls of LLVM that do the work to the list's only element."""
    total = [0.0]
    import llvmlite.binding as binding

    def counted(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def timed(*args: object, **kwargs: object) -> object:
            start = time.perf_counter()
            try:
                return original(*args, **kwargs)
            finally:
                total[0] += time.perf_counter() - start

        setattr(owner, name, timed)

    counted(binding, "parse_assembly")
    counted(binding.ModuleRef, "verify")
    counted(binding.TargetMachine, "emit_object")
    counted(binding.newpassmanagers.ModulePassManager, "run")
    return total


def whole(target: str) -> None:
    """Measure one compile as a user does it, import excluded."""
    from cpu_gemm import explicit_matmul

    import tilewright

    start = time.perf_counter()
    import numpy as np

    func = explicit_matmul(1024, (128, 128, 32), "float32", "float32")
    kernel = tilewright.compile(func, target=target)
    compiled = time.perf_counter() - start
    arrays = [np.ones((1024, 1024), np.float32) for _ in range(3)]
    kernel(*arrays)
    first = time.perf_counter() - start
    print(json.dumps({"first compile": compiled, "first compile and call": first}))


def run(mode: str, target: str) -> dict[str, object]:
    environment = {**os.environ, "TILEWRIGHT_CACHE": "0"}
    command = [sys.executable, __file__, "--child", mode, "--target", target]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--child", choices=("stages", "whole"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.target) if options.child == "stages" else whole(options.target)
        return
    from rich.console import Console
    from rich.table import Table

    stages = [run("stages", options.target) for _ in range(options.rounds)]
    wholes = [run("whole", options.target) for _ in range(options.rounds)]

    def middle(group: str, name: str) -> float:
        return median(r[group][name] for r in stages)  # type: ignore[index, call-overload]

    names = list(stages[0]["seconds"])  # type: ignore[call-overload]
    seconds = {name: middle("seconds", name) for name in names}
    python = ("front-end", "passes", "write LLVM IR")
    seconds["Python part"] = sum(seconds[name] for name in python)
    for name in wholes[0]:
        seconds[name] = median(float(r[name]) for r in wholes)  # type: ignore[arg-type]
    table = Table(title="128x128x32 matrix product, seconds")
    table.add_column("stage")
    table.add_column("median", justify="right")
    table.add_column("budget", justify="right")
    for name, value in seconds.items():
        budget = BUDGETS.get(name)
        table.add_row(name, f"{value:.4f}", "" if budget is None else f"{budget:.2f}")
        if name == "passes":
            for step in stages[0]["passes"]:  # type: ignore[attr-defined]
                table.add_row(f"  {step}", f"{middle('passes', step):.4f}", "")
    Console(width=80).print(table)


if __name__ == "__main__":
    main()
