"""`compile`: from a tile program to a kernel that can be called, through both caches."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from tilewright.compiler import compile_func
from tilewright.errors import ArgumentTypeError, ArgumentValueError, OptionError, TilewrightError
from tilewright.ir.expr import Buffer
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.nesting import too_deep
from tilewright.language.tracebacks import hide_frames, shows_the_user
from tilewright.options import CompileOptions, env_threads
from tilewright.runtime.cache import DiskCache, cache_key, default_directory
from tilewright.runtime.kernel import Kernel, Loaded
from tilewright.runtime.once import OnceMap
from tilewright.source import caller_location
from tilewright.target import Target
from tilewright.targets.registry import resolve_target

# Names of ways to launch that scripts in this dialect give; here there is one, which takes arrays of all kinds.
EXECUTION_BACKENDS = ("auto", "dlpack", "ctypes", "cython", "torch", "nvrtc", "tvm_ffi")
KEYWORDS = ("out_idx", "target", "execution_backend", "pass_configs", "compile_flags", "verbose")
# Keywords that scripts in this dialect give and that have no counterpart here.
IGNORED_KEYWORDS = ("target_host",)

MEMORY: OnceMap[Loaded] = OnceMap()
"""cache key -> artifact and program, for the life of the process."""


def compile(
    func: Any,
    out_idx: int | Sequence[int] | None = None,
    target: str | Target | None = None,
    execution_backend: str | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    verbose: bool = False,
    **extra: Any,
) -> Kernel:
    """A kernel compiled from `func`, a prim_func or a function decorated with `jit` that needs no arguments.

    out_idx: positions of the parameters that a call allocates and returns, negative ones from the end.
    target: as in "cpu", "reference", "hip:gfx942"; default: the environment's TILEWRIGHT_TARGET, else the CPU.
    Raises ArgumentTypeError when `func` is something else, ArgumentValueError on a bad out_idx, OptionError on an
    unknown option, TargetError on an unknown target, and what the stages of the compiler raise.
    """
    try:
        check_keywords({"execution_backend": execution_backend, **extra})
        chosen = default_target() if target is None else resolve_target(target)
        options = make_options(pass_configs, compile_flags)
        program = with_outputs(as_prim_func(func), out_idx)
        loaded = load(program, chosen, options)
        kernel = Kernel(program, loaded, options)
    except RecursionError:  # of a program within the limit, compiled from deep inside the user's own calls
        raise too_deep() from None
    except Exception as error:  # show the user's call, not our frames
        hide_frames(error)
        if sys.version_info < (3, 11):  # where a bare raise brings the frames back
            raise error
        raise
    if verbose:
        print(f"tilewright: {kernel!r}, {loaded.origin}")
    return kernel


def load(func: PrimFunc, target: Target, options: CompileOptions) -> Loaded:
    """The artifact of `func` from memory, from the disk, or compiled now.

    A compilation that dumps or verifies its passes is always done.
    """
    if options.dump or options.verify:
        return Loaded(compile_func(func, target, options), "compiled")
    key = cache_key(func, target, options)
    return MEMORY.get(key, lambda: _load_or_compile(key, func, target, options))


def _load_or_compile(key: str, func: PrimFunc, target: Target, options: CompileOptions) -> Loaded:
    directory = default_directory()
    disk = DiskCache(directory) if directory is not None else None
    artifact = disk.load(key, target) if disk is not None else None
    if artifact is not None:
        return Loaded(artifact, "from the disk cache")
    artifact = compile_func(func, target, options)
    if disk is not None:
        disk.store(key, artifact)
    return Loaded(artifact, "compiled")


@shows_the_user
def par_compile(funcs: Iterable[Any], num_workers: int | None = None, **options: Any) -> list[Kernel]:
    """`compile` of several functions at once, in order; options as there.  The first error of them is raised."""
    return in_parallel(lambda func: compile(func, **options), funcs, num_workers, "par_compile() takes functions")


Item = TypeVar("Item")


def in_parallel(
    make: Callable[[Item], Kernel], items: Iterable[Item], num_workers: int | None, expected: str
) -> list[Kernel]:
    """`make` of each item, on several threads, in order.

    Raises ArgumentTypeError, beginning with `expected`, when `items` cannot be iterated, ArgumentValueError on a bad
    number of workers, and the first error of the items.
    """
    try:
        pending = list(items)
    except TypeError:
        raise ArgumentTypeError(
            f"{expected}, in a list, not {type(items).__name__}", location=caller_location()
        ) from None
    if num_workers is not None and (not isinstance(num_workers, int) or num_workers < 1):
        raise ArgumentValueError(
            f"num_workers is a number of threads, at least 1, got {num_workers!r}", location=caller_location()
        )
    workers = max(1, min(len(pending), num_workers or env_threads()))
    try:
        with ThreadPoolExecutor(workers, thread_name_prefix="tilewright-compile") as executor:
            return list(executor.map(make, pending))
    except TilewrightError as error:  # a worker has no caller of its own
        error.at(caller_location())
        raise


def clear_cache() -> None:
    """Forget all kernels in memory and remove those on the disk."""
    MEMORY.clear()
    directory = default_directory()
    if directory is not None:
        DiskCache(directory).clear()


# --- the arguments of compile -----------------------------------------------------------------------


def check_keywords(options: Mapping[str, Any]) -> None:
    """Raise OptionError on what `compile` does not know."""
    for name in options:
        if name not in KEYWORDS and name not in IGNORED_KEYWORDS:
            raise OptionError(
                f"compile() has no option {name!r}", location=caller_location(), hint=f"known: {', '.join(KEYWORDS)}"
            )
    execution_backend = options.get("execution_backend")
    if execution_backend not in (None, *EXECUTION_BACKENDS):
        raise OptionError(
            f"unknown execution_backend {execution_backend!r}",
            location=caller_location(),
            hint=f"known: {', '.join(EXECUTION_BACKENDS)}; all mean the same here",
        )


def default_target() -> Target:
    """The target that TILEWRIGHT_TARGET names, else the CPU."""
    return resolve_target(os.environ.get("TILEWRIGHT_TARGET") or "cpu")


def make_options(pass_configs: Mapping[Any, Any] | None, compile_flags: str | Sequence[str] | None) -> CompileOptions:
    """Options from what `compile` and `jit` take.  Raises OptionError on a flag of the wrong type, or a bad variable."""
    configs = {getattr(key, "value", key): value for key, value in (pass_configs or {}).items()}
    values: dict[str, Any] = {}
    flags = compile_flags.split() if isinstance(compile_flags, str) else list(compile_flags or ())
    for flag in flags:
        if not isinstance(flag, str):
            raise OptionError(f"compile_flags must be strings, got {flag!r}", location=caller_location())
        if flag in ("-O0", "-O1", "-O2", "-O3"):
            values["opt_level"] = int(flag[2])
        else:
            warnings.warn(f"the compile flag {flag!r} has no meaning for this target", stacklevel=3)
    options = CompileOptions.make(configs, **values)
    if options.dump:
        try:
            os.makedirs(options.dump, exist_ok=True)
        except OSError as error:
            raise OptionError(
                f"the IR cannot be written to {options.dump!r}: {error.strerror}",
                hint="TILEWRIGHT_DUMP names a directory, which is made when it is not there",
            ) from None
    return options


def as_prim_func(func: Any) -> PrimFunc:
    """The tile program that `func` is or stands for.  Raises ArgumentTypeError when there is none."""
    if isinstance(func, PrimFunc):
        return func
    get = getattr(func, "get_prim_func", None)
    if get is not None:
        found: PrimFunc = get()
        return found
    raise ArgumentTypeError(
        f"compile() takes a prim_func or a jit function, not {type(func).__name__}",
        location=caller_location(),
        hint="decorate the function with @T.prim_func; a function that returns a prim_func has to be called first",
    )


def with_outputs(func: PrimFunc, out_idx: int | Sequence[int] | None) -> PrimFunc:
    """`func` with its results named by `out_idx`.  Raises ArgumentValueError when that does not name buffers of it."""
    if out_idx is None:
        return func
    asked = [out_idx] if isinstance(out_idx, int) else list(out_idx)
    count = len(func.params)
    outputs: list[int] = []
    for index in asked:
        problem = ""
        if not isinstance(index, int) or isinstance(index, bool):
            problem = "is not an integer"
        elif not -count <= index < count:
            problem = f"is out of range: {func.name} has {count} parameters"
        elif not isinstance(func.params[index], Buffer):
            problem = f"names {func.params[index].name}, which is a scalar"
        elif index % count in outputs:
            problem = "names a parameter twice"
        if problem:
            raise ArgumentValueError(
                f"out_idx {index!r} {problem}",
                location=caller_location(),
                hint="out_idx holds positions of tensor parameters, negative ones from the end",
            )
        outputs.append(index % count)
    if func.outputs and tuple(outputs) != func.outputs:
        raise ArgumentValueError(
            f"{func.name} returns the tensors that it made by T.empty, so out_idx has no meaning",
            location=caller_location(),
        )
    result: PrimFunc = func.replace(outputs=tuple(outputs))
    return result
