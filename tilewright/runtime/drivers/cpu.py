"""The CPU driver: object code loaded into this process, blocks spread over the thread pool.

What the code exports, and the metadata beside it, is the CPU ABI, version 1:
- `int64 blocks(int64* args)` and `void entry(int64* args, int64* counter, int64 total, int8* scratch, int64*
  status)` for each launch; entry takes blocks from `counter` until none is left;
- args: a slot for each parameter, each size, each workspace;
- status: [0] 0, or 1 + the number of the assert that failed; [1] address of the print callback
  `void (int64 print, int8* data, int64 nbytes)`; [2] the block in which the assert failed.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tilewright.errors import CompileError, DeviceAssertError, TargetError
from tilewright.ir.dtype import dtype
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime.binding import Bound
from tilewright.runtime.locks import new_lock
from tilewright.runtime.memory import give_arena, take_arena, workspace
from tilewright.runtime.output import OUTPUT
from tilewright.runtime.pool import pool
from tilewright.simulator.printing import format_print
from tilewright.source import Location
from tilewright.target import Target
from tilewright.targets.registry import Artifact

ABI = 1
STATUS_SLOTS = 8
_STOP = 1 << 62
"""Status that stops the blocks without naming an assert."""

_Pointer = ctypes.c_void_p
_Blocks = ctypes.CFUNCTYPE(ctypes.c_int64, _Pointer)
_Bytes = ctypes.CFUNCTYPE(ctypes.c_int64, _Pointer)
_Entry = ctypes.CFUNCTYPE(None, _Pointer, _Pointer, ctypes.c_int64, _Pointer, _Pointer)
_PrintCallback = ctypes.CFUNCTYPE(None, ctypes.c_int64, _Pointer, ctypes.c_int64)
_Status = ctypes.c_int64 * STATUS_SLOTS

_load_lock = new_lock()


@cache
def _slots_type(count: int) -> Any:
    return ctypes.c_int64 * count


class CpuProgram:
    """Object code in this process.  Any number of threads may launch it at once."""

    def __init__(self, artifact: Artifact) -> None:
        meta = artifact.metadata
        if meta.get("abi") != ABI:
            raise TargetError(
                f"object code with ABI {meta.get('abi')!r}, this version runs {ABI}", hint="compile again"
            )
        self._engine = _load(artifact)
        self.launches: list[tuple[Callable[..., int], Callable[..., None]]] = [
            (_Blocks(self._address(step["blocks"])), _Entry(self._address(step["entry"]))) for step in meta["launches"]
        ]
        self.workspaces = [_Bytes(self._address(w["bytes"])) for w in meta.get("workspaces", ())]
        self.scratch_bytes = int(meta.get("scratch_bytes", 0))
        self.asserts: list[dict[str, Any]] = meta.get("asserts", [])
        self.prints: list[dict[str, Any]] = meta.get("prints", [])

    def _address(self, name: str) -> int:
        address: int = self._engine.get_function_address(name)
        if not address:
            raise CompileError(f"the object code has no function {name!r}")
        return address

    def launch(self, func: PrimFunc, bound: Bound) -> None:
        """Run all launches in order.

        Raises DeviceAssertError with the place of the assert that failed first, and what writing a
        print to the standard output raised.
        """
        count = len(bound.slots)
        args = _slots_type(count + len(self.workspaces))(*bound.slots)
        address = ctypes.addressof(args)
        owners = []
        for index, nbytes in enumerate(self.workspaces):
            owner, args[count + index] = workspace(nbytes(address))
            owners.append(owner)
        status = _Status()
        printer = _Printer(self.prints, status) if self.prints else None
        for blocks, entry in self.launches:
            self._run(entry, address, blocks(address), ctypes.addressof(status))
            if status[0]:
                break
        if printer is not None:
            OUTPUT.flush(printer)
            if printer.error is not None:
                raise printer.error
        if status[0]:
            raise self._assert_error(func, status)

    def _run(self, entry: Callable[..., None], args: int, total: int, status: int) -> None:
        if total <= 0:
            return
        counter = ctypes.c_int64(0)
        position = ctypes.addressof(counter)
        scratch_bytes = self.scratch_bytes
        if not scratch_bytes:
            if total == 1:
                entry(args, position, total, None, status)
                return
            pool().run(lambda: entry(args, position, total, None, status), total)
            return

        def work() -> None:
            arena = take_arena(scratch_bytes)
            try:
                entry(args, position, total, arena.address, status)
            finally:
                give_arena(arena)

        pool().run(work, total)

    def _assert_error(self, func: PrimFunc, status: Any) -> DeviceAssertError:
        index = status[0] - 1
        info = self.asserts[index] if 0 <= index < len(self.asserts) else {}
        place = info.get("location")
        location = Location(place[0], place[1], place[2], place[1], place[3]) if place else None
        message = info.get("message") or "the condition is false"
        return DeviceAssertError(
            f"device_assert failed in kernel {func.name!r}, block {status[2]}: {message}", location=location
        )


class _Printer:
    """The print callback of one call.  What goes wrong in it stops the kernel and is kept in `error`."""

    def __init__(self, prints: list[dict[str, Any]], status: Any) -> None:
        self.prints = prints
        self.status = status
        self.error: BaseException | None = None
        self._callback = _PrintCallback(self._print)
        status[1] = ctypes.cast(self._callback, _Pointer).value

    def _print(self, index: int, data: int, nbytes: int) -> None:
        try:
            entry = self.prints[index]
            raw = ctypes.string_at(data, nbytes) if nbytes else b""
            OUTPUT.write(self, format_print(entry["message"], _unpack_values(entry, raw)))
        except BaseException as error:  # nothing may leave a callback, Ctrl-C included
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        """Stop the kernel, and keep `error` for the caller."""
        self.error = self.error or error
        self.status[0] = _STOP


def _unpack_values(entry: dict[str, Any], raw: bytes) -> list[tuple[str, np.ndarray[Any, Any]]]:
    values = []
    position = 0
    for name, element, shape in zip(entry["names"], entry["dtypes"], entry["shapes"], strict=True):
        found = dtype(element).numpy
        extent = tuple(shape or ())
        count = int(np.prod(extent, dtype=np.int64))
        values.append((name, np.frombuffer(raw, found, count, position).reshape(extent)))
        position += count * found.itemsize
    return values


class CpuDriver:
    """Loads object code of the CPU target."""

    def load(self, artifact: Artifact) -> CpuProgram:
        """The artifact in this process.  Raises TargetError when it was built for another kind of CPU."""
        check_host(artifact.target)
        return CpuProgram(artifact)


DRIVER = CpuDriver()


# --- LLVM ------------------------------------------------------------------------------------------

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


def check_host(target: Target) -> None:
    """Raise TargetError when code for `target` cannot run here."""
    import llvmlite.binding as llvm

    machine = platform.machine().lower()
    built_for = target.triple.partition("-")[0]
    if built_for and _MACHINES.get(built_for, built_for) != _MACHINES.get(machine, machine):
        raise TargetError(f"this kernel was compiled for {built_for}, this machine is {machine}")
    host = llvm.get_host_cpu_features()
    wanted = [f[1:] for f in target.features.split(",") if f.startswith("+")]
    missing = [f for f in wanted if f in host and not host[f]]
    if missing:
        raise TargetError(
            f"this kernel was compiled for a CPU with {', '.join(missing)}, which this one lacks",
            hint="compile it on this machine, or set TILEWRIGHT_CPU_FEATURES to what the machine has",
        )


# How relocatable object files begin: ELF, 64-bit Mach-O, COFF for x86-64 and arm64.
_OBJECT_MAGIC = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\x64\x86", b"\x64\xaa")


def _load(artifact: Artifact) -> Any:
    """An execution engine that holds the object code.  It must live as long as the code may run."""
    import llvmlite.binding as llvm

    if not artifact.binary.startswith(_OBJECT_MAGIC):  # LLVM's loader would crash
        raise CompileError("the object code cannot be loaded: it is no object file")
    with _load_lock:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        for name in artifact.metadata.get("externals", ()):
            if llvm.address_of_symbol(name) is None:
                llvm.add_symbol(name, _external(name))
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        try:
            engine.add_object_file(llvm.ObjectFileRef.from_data(artifact.binary))
            engine.finalize_object()
        except RuntimeError as error:
            raise CompileError(f"the object code cannot be loaded: {error}") from None
        return engine


def _external(name: str) -> int:
    """The address of a C library function that the process does not offer by itself."""
    import ctypes.util

    for library in (None, *map(ctypes.util.find_library, ("m", "c", "ucrtbase", "msvcrt"))):
        try:
            function = getattr(ctypes.CDLL(library), name)
        except (OSError, AttributeError, TypeError):
            continue
        return int(ctypes.cast(function, ctypes.c_void_p).value or 0)
    raise CompileError(f"the C library here has no function {name!r}, which the kernel calls")
