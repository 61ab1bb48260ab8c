"""`@jit`: kernels that are built and compiled when they are first called with new arguments.

A *lazy* function returns a prim_func; calling it gives the compiled kernel for those arguments.  An *eager*
function is the kernel itself; calling it specialises it on the arrays and values, compiles, runs and returns.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from tilewright.errors import (
    ArgumentCountError,
    ArgumentTypeError,
    ArgumentValueError,
    LanguageError,
    LaunchError,
    TilewrightError,
)
from tilewright.frontend.eager import JitTemplate
from tilewright.ir.arrayspec import ArraySpec
from tilewright.ir.kernel import PrimFunc
from tilewright.language.tracebacks import strip
from tilewright.options import env_threads
from tilewright.runtime import arrays
from tilewright.runtime.compile import compile
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.once import OnceMap
from tilewright.source import caller_location

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Calls that found their kernel, calls that had to make one, and kernels held."""

    hits: int
    misses: int
    size: int


class Number:
    """Stands in a key for a number that is known at the call only."""


@dataclass(slots=True)
class _Specialised:
    """An eager kernel and the names of the arguments that it takes, in its own order."""

    kernel: Kernel
    names: tuple[str, ...]


class JitFunction:
    """A function decorated with `jit`.  Any number of threads may call it; each kernel is compiled once."""

    def __init__(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.template = JitTemplate(fn)
        self.options = dict(options)
        self._lazy: OnceMap[Kernel] = OnceMap()
        self._eager: OnceMap[_Specialised] = OnceMap()
        self._declared = _declared_names(self.template) if self.form == "eager" else frozenset()
        functools.update_wrapper(self, fn)
        if self.form == "eager" and self.options.get("out_idx") is not None:
            raise ArgumentValueError(
                f"{self.name} allocates its results itself (T.empty), so out_idx has no meaning",
                location=caller_location(),
            )

    @property
    def name(self) -> str:
        """The function's name."""
        return self.template.name

    @property
    def form(self) -> str:
        """ "lazy" or "eager"."""
        return self.template.form

    def __repr__(self) -> str:
        return f"<tilewright.jit {self.form} function {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Lazy: the kernel for these arguments.  Eager: what the kernel returns on these arguments.

        Raises ArgumentCountError when the arguments do not fit the function, and what building,
        compiling and running raise.
        """
        try:
            if self.form == "lazy":
                return self.compile(*args, **kwargs)
            values = self._bind(args, kwargs)
            made = self._specialise(values)
            return made.kernel(*[values[name] for name in made.names])
        except TilewrightError as error:  # show the user's call, not our frames
            strip(error)
            if sys.version_info < (3, 11):  # where a bare raise brings the frames back
                raise error
            raise

    def compile(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel for these arguments, not run.  Eager: arrays may be given as `ArraySpec`."""
        values = self._bind(args, kwargs)
        if self.form == "eager":
            return self._specialise(values).kernel
        key = _key(values)
        if key is None:
            return self._compile(self.template.build(**_as_call(values, self.template)))
        return self._lazy.get(key, lambda: self._compile(self.template.build(**_as_call(values, self.template))))

    def par_compile(
        self, configs: Iterable[Mapping[str, Any] | Sequence[Any]], num_workers: int | None = None
    ) -> list[Kernel]:
        """The kernels for several sets of arguments (mappings by name, or tuples), in order, compiled at once."""
        pending = list(configs)
        workers = max(1, min(len(pending), num_workers or env_threads()))
        with ThreadPoolExecutor(workers, thread_name_prefix="tilewright-compile") as executor:
            return list(executor.map(self._compile_config, pending))

    def _compile_config(self, config: Mapping[str, Any] | Sequence[Any]) -> Kernel:
        return self.compile(**config) if isinstance(config, Mapping) else self.compile(*config)

    def get_prim_func(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The tile program for these arguments."""
        values = self._bind(args, kwargs)
        if self.form == "eager":
            return self.template.build(self._specs(values))
        return self.template.build(**_as_call(values, self.template))

    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The generated source for these arguments; without arguments, of the only kernel made so far."""
        if not args and not kwargs and self.kernels and self.template.signature.parameters:
            return self.kernels[-1].get_kernel_source()
        return self.compile(*args, **kwargs).get_kernel_source()

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels made so far, in order."""
        return [*self._lazy.values(), *(made.kernel for made in self._eager.values())]

    @property
    def cache(self) -> CacheInfo:
        """How often calls found their kernel."""
        used: OnceMap[Any] = self._lazy if self.form == "lazy" else self._eager
        return CacheInfo(used.hits, used.misses, len(used))

    def clear_cache(self) -> None:
        """Forget the kernels made so far."""
        self._lazy.clear()
        self._eager.clear()

    # --- inside ----------------------------------------------------------------------------------

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        try:
            bound = self.template.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentCountError(
                f"{self.name}{self.template.signature}: {error}", location=caller_location()
            ) from None
        bound.apply_defaults()
        return bound.arguments

    def _specs(self, values: dict[str, Any]) -> dict[str, Any]:
        """Arrays described, all else as it is."""
        return {name: self._describe(name, value) for name, value in values.items()}

    def _describe(self, name: str, value: Any) -> Any:
        if arrays.kind_of(value) is None or getattr(value, "shape", None) == ():
            return value
        try:
            tensor = arrays.view(value)
        except LaunchError as error:
            message = f"kernel {self.name!r}, argument {name!r}: {error.message}"
            raise type(error)(message, location=caller_location(), hint=error.hint) from None
        return ArraySpec(tuple(tensor.shape), tensor.dtype, tensor.strides)

    def _specialise(self, values: dict[str, Any]) -> _Specialised:
        specs = self._specs(values)
        # A number that the body declares (`n: T.int32`) is an argument of the kernel and does not specialise it.
        key = _key({n: Number if n in self._declared and not isinstance(v, ArraySpec) else v for n, v in specs.items()})
        if key is None:
            raise ArgumentTypeError(
                f"{self.name}: an argument that is no array must be hashable, to tell kernels apart",
                location=caller_location(),
                hint="pass tuples instead of lists of other objects",
            )
        return self._eager.get(key, lambda: self._make(specs))

    def _make(self, specs: dict[str, Any]) -> _Specialised:
        func = self.template.build(specs)
        names = tuple(p.name for i, p in enumerate(func.params) if i not in func.outputs)
        unknown = [name for name in names if name not in specs]
        if unknown:
            raise LanguageError(f"{self.name}: the kernel takes {unknown[0]}, which is no parameter of the function")
        return _Specialised(self._compile(func), names)

    def _compile(self, func: PrimFunc) -> Kernel:
        return compile(func, **self.options)


def _declared_names(template: JitTemplate) -> frozenset[str]:
    """The parameters that an eager function declares by statements `name: type` in its body."""
    return frozenset(
        item.target.id
        for item in ast.walk(template.source.tree)
        if isinstance(item, ast.AnnAssign) and item.value is None and isinstance(item.target, ast.Name)
    )


def _as_call(values: dict[str, Any], template: JitTemplate) -> dict[str, Any]:
    """`values` as keyword arguments; a `**kwargs` parameter is spread."""
    spread: dict[str, Any] = {}
    for name, parameter in template.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            spread.update(values.get(name, {}))
        elif name in values:
            spread[name] = values[name]
    return spread


def _key(values: Mapping[str, Any]) -> Hashable | None:
    """A hashable key that tells 1, 1.0 and True apart; None when a value cannot be part of one."""
    key = tuple((name, _freeze(value)) for name, value in values.items())
    try:
        hash(key)
    except TypeError:
        return None
    return key


def _freeze(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_freeze(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((name, _freeze(item)) for name, item in value.items()))
    if isinstance(value, float):
        return (float, value.hex())  # tells 0.0 and -0.0 apart, and finds NaN again
    return (type(value), value)


@overload
def jit(func: Function) -> JitFunction: ...


@overload
def jit(
    func: None = None,
    *,
    out_idx: int | Sequence[int] | None = None,
    target: Any = None,
    execution_backend: str | None = None,
    pass_configs: Mapping[Any, Any] | None = None,
    compile_flags: str | Sequence[str] | None = None,
    verbose: bool = False,
    **extra: Any,
) -> Callable[[Function], JitFunction]: ...


def jit(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a jit function, `@jit` or `@jit(out_idx=..., target=...)`; options as those of `compile`.

    Raises LanguageError when the function is neither a lazy nor an eager kernel.
    """
    if func is not None:
        if not callable(func):
            raise ArgumentTypeError(f"jit decorates a function, not {type(func).__name__}", location=caller_location())
        return JitFunction(func, options)
    return lambda fn: JitFunction(fn, options)
