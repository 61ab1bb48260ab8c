"""A compiled kernel: what `compile` returns and a user calls."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.errors import ArgumentValueError, UnsupportedOnTargetError
from tilewright.ir.kernel import Param, PrimFunc
from tilewright.language.tracebacks import hide_frames, shows_the_user
from tilewright.options import CompileOptions
from tilewright.runtime.binding import Binder
from tilewright.runtime.drivers.registry import Program, driver
from tilewright.runtime.locks import new_lock
from tilewright.runtime.params import ArrayParam
from tilewright.target import Target
from tilewright.targets.registry import Artifact, backend

if TYPE_CHECKING:
    from tilewright.runtime.binding import Bound

# Imported by name when a profiler is asked for: the profiler is built on kernels, not the other way round.
PROFILER_MODULE = "tilewright.profiler"
OBJECT_SUFFIXES = (".o", ".obj", ".so")
# What a program that calls exported object code has to know, see `drivers.cpu`.
INTERFACE_KEYS = ("abi", "launches", "workspaces", "scratch_bytes", "asserts", "prints", "externals")


class Loaded:
    """An artifact and the program that it becomes when it is first run; shared by all kernels with one cache key.

    origin: "compiled", "disk" or "memory": where the artifact came from when it was first asked for.
    """

    def __init__(self, artifact: Artifact, origin: str) -> None:
        self.artifact = artifact
        self.origin = origin
        self._lock = new_lock()
        self._program: Program | None = None

    def program(self) -> Program:
        """The loaded program.  Raises UnsupportedOnTargetError without a driver, TargetError on the wrong machine."""
        if self._program is None:
            with self._lock:
                if self._program is None:
                    self._program = driver(self.artifact.target).load(self.artifact)
        return self._program


class Kernel:
    """A compiled kernel; call it with the arrays and scalars of its parameters, in order or by name.

    Results that `out_idx` or `T.empty` name are allocated by the call, in the library of the first
    argument that is not a NumPy array, and returned: one as it is, several as a tuple.
    """

    def __init__(self, func: PrimFunc, loaded: Loaded, options: CompileOptions) -> None:
        self.prim_func = func
        self.options = options
        self._loaded = loaded
        self._binder = Binder(func)
        self._launch: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the kernel; it has finished when this returns.

        Raises a LaunchError of the kind that fits when an argument does not fit (nothing has run then), and
        DeviceAssertError when an assert of the kernel failed.
        """
        try:
            bound = self._binder(args, kwargs)
            launch = self._launch
            if launch is None:
                launch = self._launch = self._loaded.program().launch
            launch(self.prim_func, bound)
            return bound.results()
        except Exception as error:  # show the user's call, not our frames
            hide_frames(error)
            if sys.version_info < (3, 11):  # where a bare raise brings the frames back
                raise error
            raise

    # --- what it is ----------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The function's name."""
        return self.prim_func.name

    @property
    def artifact(self) -> Artifact:
        """What the back-end made: source, machine code, metadata."""
        return self._loaded.artifact

    @property
    def target(self) -> Target:
        """What it was compiled for."""
        return self._loaded.artifact.target

    @property
    def params(self) -> tuple[Param, ...]:
        """The parameters, results included: buffers with shape and dtype, and scalar variables."""
        return self.prim_func.params

    @property
    def out_idx(self) -> list[int]:
        """Positions in `params` of the results."""
        return list(self.prim_func.outputs)

    @property
    @shows_the_user
    def n_regs(self) -> int:
        """Registers a thread, on targets whose compiler reports them."""
        return self._statistic("n_regs", "registers a thread")

    @property
    @shows_the_user
    def n_spills(self) -> int:
        """Spilled registers a thread, on targets whose compiler reports them."""
        return self._statistic("n_spills", "register spills")

    def _statistic(self, key: str, what: str) -> int:
        value = self.artifact.metadata.get(key)
        if value is None:
            raise UnsupportedOnTargetError(
                f"target {self.target.name} does not report {what}", hint="get_asm() shows the machine code"
            )
        return int(value)

    def __repr__(self) -> str:
        params = ", ".join(p.name for p in self.prim_func.params)
        return f"<tilewright.Kernel {self.name}({params}) for {self.target.name}>"

    # --- what was generated --------------------------------------------------------------------

    def get_kernel_source(self) -> str:
        """The generated kernel as readable text."""
        return self.artifact.source

    def get_host_source(self) -> str:
        """What a call checks and runs before and around the kernel, as readable text."""
        return describe_call(self._binder, self.artifact)

    @shows_the_user
    def get_llvm(self) -> str:
        """LLVM IR.  Raises UnsupportedOnTargetError where the target does not go through LLVM."""
        return self.listing("llvm")

    @shows_the_user
    def get_asm(self) -> str:
        """Assembly text.  Raises UnsupportedOnTargetError where the target has none."""
        return self.listing("asm")

    @shows_the_user
    def listing(self, name: str) -> str:
        """A listing of the back-end by name ("llvm", "asm"), made when asked for."""
        text = self.artifact.texts.get(name)
        if text is not None:
            return text
        try:
            return backend(self.target.kind).listing(self.artifact, name)
        except ArgumentValueError as error:
            raise UnsupportedOnTargetError(f"target {self.target.name} has no listing {name!r}") from error

    @shows_the_user
    def export_sources(self, kernel_path: str | Path | None = None, host_path: str | Path | None = None) -> None:
        """Write `get_kernel_source()` and `get_host_source()` to files.  Raises ArgumentValueError without a path."""
        if kernel_path is None and host_path is None:
            raise ArgumentValueError("export_sources needs kernel_path, host_path, or both")
        for path, text in ((kernel_path, self.get_kernel_source), (host_path, self.get_host_source)):
            if path is not None:
                Path(path).write_text(text(), encoding="utf-8")

    @shows_the_user
    def export_library(self, path: str | Path) -> tuple[Path, Path]:
        """Write the object code to `path` and its interface as JSON beside it (`.json`); returns both paths.

        Raises UnsupportedOnTargetError where the target has no machine code.
        """
        artifact = self.artifact
        if not artifact.binary:
            raise UnsupportedOnTargetError(
                f"target {self.target.name} has no machine code to export", hint="export_sources() writes its text"
            )
        code = Path(path)
        interface = code.with_suffix(".json") if code.suffix in OBJECT_SUFFIXES else Path(f"{code}.json")
        code.write_bytes(artifact.binary)
        description = {
            "kernel": self.name,
            "target": {"name": self.target.name, "triple": self.target.triple, "features": self.target.features},
            "params": [{"name": p.name, "declared": p.expected, "slot": p.slot} for p in self._binder.every_param()],
            "sizes": [size.name for size in self.prim_func.sizes],
            "outputs": list(self.prim_func.outputs),
            "metadata": {key: artifact.metadata[key] for key in INTERFACE_KEYS if key in artifact.metadata},
        }
        interface.write_text(json.dumps(description, indent=2, sort_keys=True), encoding="utf-8")
        return code, interface

    def written_positions(self) -> list[int]:
        """Positions, among the arguments of a call, of the arrays that the kernel writes."""
        return [i for i, p in enumerate(self._binder.params) if isinstance(p, ArrayParam) and p.written]

    @shows_the_user
    def get_profiler(self, tensor_supply_type: Any = None) -> Any:
        """A `tilewright.profiler.Profiler` of this kernel, its inputs made by `tensor_supply_type`."""
        make = importlib.import_module(PROFILER_MODULE).Profiler
        return make(self) if tensor_supply_type is None else make(self, tensor_supply_type)

    @shows_the_user
    def bind(self, *args: Any, **kwargs: Any) -> Bound:
        """The checks of a call without the call: its slots and results.  Raises as the call does."""
        return self._binder(args, kwargs)


def describe_call(binder: Binder, artifact: Artifact) -> str:
    """The host side of a kernel as text."""
    lines = [f"call {binder.name}({', '.join(p.name for p in binder.params)}):"]
    lines += [f"  check {p.name}: {p.expected}" for p in binder.params]
    lines += [f"  size {size.name} from the arguments" for size in binder.func.sizes]
    lines += [f"  allocate {o.param.name}: {o.param.expected}" for o in binder.outputs]
    meta = artifact.metadata
    lines += [f"  workspace of {w['bytes']}(args) bytes" for w in meta.get("workspaces", ())]
    for step in meta.get("launches", ()):
        lines.append(f"  run {step['entry']} over {step['blocks']}(args) blocks on the thread pool")
    if binder.outputs:
        lines.append(f"  return {', '.join(o.param.name for o in binder.outputs)}")
    return "\n".join(lines) + "\n"
