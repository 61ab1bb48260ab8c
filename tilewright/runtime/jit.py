"""`@jit`: kernels that are built and compiled when they are first called with new arguments.

A *lazy* function returns a prim_func; calling it gives the compiled kernel for those arguments.  An *eager*
function is the kernel itself; calling it specialises it on the arrays and values, compiles, runs and returns.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from tilewright.errors import ArgumentCountError, ArgumentTypeError, ArgumentValueError
from tilewright.frontend.eager import JitTemplate
from tilewright.ir.kernel import PrimFunc
from tilewright.language.tracebacks import hide_frames, shows_the_user
from tilewright.runtime.compile import check_keywords, compile, in_parallel
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.once import OnceMap
from tilewright.runtime.specialise import Specialiser, freeze
from tilewright.source import caller_location

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """Calls that found their kernel, calls that had to make one, and kernels held."""

    hits: int
    misses: int
    size: int


class JitFunction:
    """A function decorated with `jit`.  Any number of threads may call it; each kernel is compiled once."""

    def __init__(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> None:
        self.template = JitTemplate(fn)
        self.options = dict(options)
        self._lazy: OnceMap[Kernel] = OnceMap()
        self._eager = Specialiser(self.template, self._compile)
        self._positional = _positional_names(self.template)
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
                return self._kernel(args, kwargs)
            values = self._bind(args, kwargs)
            made = self._eager.get(values)
            return made.kernel(*[values[name] for name in made.names])
        except Exception as error:  # show the user's call, not our frames
            hide_frames(error)
            if sys.version_info < (3, 11):  # where a bare raise brings the frames back
                raise error
            raise

    @shows_the_user
    def compile(self, *args: Any, **kwargs: Any) -> Kernel:
        """The kernel for these arguments, not run.  Eager: arrays may be given as `ArraySpec`."""
        return self._kernel(args, kwargs)

    @shows_the_user
    def par_compile(
        self, configs: Iterable[Mapping[str, Any] | Sequence[Any]], num_workers: int | None = None
    ) -> list[Kernel]:
        """The kernels for several sets of arguments (mappings by name, or tuples), in order, compiled at once.

        Raises ArgumentTypeError for what is no set of arguments; else the first error of them.
        """
        return in_parallel(self._compile_config, configs, num_workers, "par_compile() takes sets of arguments")

    def _compile_config(self, config: Mapping[str, Any] | Sequence[Any]) -> Kernel:
        if isinstance(config, Mapping):
            return self._kernel((), dict(config))
        if isinstance(config, (tuple, list)):
            return self._kernel(tuple(config), {})
        raise ArgumentTypeError(
            f"par_compile() takes sets of arguments, not {type(config).__name__}",
            hint="give a mapping by name, or a tuple, for each kernel",
        )

    @shows_the_user
    def get_prim_func(self, *args: Any, **kwargs: Any) -> PrimFunc:
        """The tile program for these arguments."""
        values = self._bind(args, kwargs)
        if self.form == "eager":
            return self.template.build(self._eager.specs(values))
        return self.template.build(**_as_call(values, self.template))

    @shows_the_user
    def get_kernel_source(self, *args: Any, **kwargs: Any) -> str:
        """The generated source for these arguments; without arguments, of the kernel made last."""
        if not args and not kwargs and self.kernels and self.template.signature.parameters:
            return self.kernels[-1].get_kernel_source()
        return self._kernel(args, kwargs).get_kernel_source()

    @property
    def kernels(self) -> list[Kernel]:
        """The kernels made so far, in order."""
        return [*self._lazy.values(), *(made.kernel for made in self._eager.kernels.values())]

    @property
    def cache(self) -> CacheInfo:
        """How often calls found their kernel."""
        used: OnceMap[Any] = self._lazy if self.form == "lazy" else self._eager.kernels
        return CacheInfo(used.hits, used.misses, len(used))

    def clear_cache(self) -> None:
        """Forget the kernels made so far."""
        self._lazy.clear()
        self._eager.clear()

    # --- inside ----------------------------------------------------------------------------------

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        names = self._positional
        if not kwargs and names is not None and len(args) == len(names):
            return dict(zip(names, args, strict=True))
        try:
            bound = self.template.signature.bind(*args, **kwargs)
        except TypeError as error:
            raise ArgumentCountError(
                f"{self.name}{self.template.signature}: {error}", location=caller_location()
            ) from None
        bound.apply_defaults()
        return bound.arguments

    def _kernel(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Kernel:
        values = self._bind(args, kwargs)
        if self.form == "eager":
            return self._eager.get(values).kernel
        key = freeze(values)
        if key is None:
            return self._compile(self.template.build(**_as_call(values, self.template)))
        return self._lazy.get(key, lambda: self._compile(self.template.build(**_as_call(values, self.template))))

    def _compile(self, func: PrimFunc) -> Kernel:
        return compile(func, **self.options)


def _positional_names(template: JitTemplate) -> tuple[str, ...] | None:
    """The parameters, where all of them may be given by position and none takes a variable number."""
    found = template.signature.parameters.values()
    simple = all(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in found)
    return tuple(p.name for p in found) if simple else None


def _as_call(values: dict[str, Any], template: JitTemplate) -> dict[str, Any]:
    """`values` as keyword arguments; a `**kwargs` parameter is spread."""
    spread: dict[str, Any] = {}
    for name, parameter in template.signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            spread.update(values.get(name, {}))
        elif name in values:
            spread[name] = values[name]
    return spread


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


@shows_the_user
def jit(func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a jit function, `@jit` or `@jit(out_idx=..., target=...)`; options as those of `compile`.

    Raises LanguageError when the function is neither a lazy nor an eager kernel, OptionError on an unknown option.
    """
    check_keywords(options)
    return _decorate(options) if func is None else _decorate(options)(func)


def _decorate(options: Mapping[str, Any]) -> Callable[[Any], JitFunction]:
    def decorate(func: Any) -> JitFunction:
        if not callable(func):
            raise ArgumentTypeError(f"jit decorates a function, not {type(func).__name__}", location=caller_location())
        return JitFunction(func, options)

    return shows_the_user(decorate)
