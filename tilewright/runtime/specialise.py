"""The kernels of one eager function: which calls share one, and making a new one for those that have none.

A program depends on less than all of its arguments: a size that is known at launch only (`T.dynamic`), or a number
that the body declares, holds for every value.  The front-end says what a program was built from; calls that agree in
that share the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.errors import ArgumentTypeError, LanguageError, LaunchError
from tilewright.frontend.eager import Dependence, JitTemplate
from tilewright.ir.arrayspec import ArraySpec
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime import arrays
from tilewright.runtime.kernel import Kernel
from tilewright.runtime.locks import new_rlock
from tilewright.runtime.once import OnceMap
from tilewright.runtime.params import row_major_strides
from tilewright.source import caller_location

_NDARRAY = np.ndarray

Rules = tuple[tuple[str, "Dependence | None"], ...]
"""What a program depends on: for each argument a part of it, None for all of it."""


@dataclass(frozen=True, slots=True)
class Specialised:
    """An eager kernel and the names of the arguments that it takes, in its own order."""

    kernel: Kernel
    names: tuple[str, ...]


class Specialiser:
    """Kernels of an eager function by what they depend on.  Any number of threads may ask; each is compiled once."""

    def __init__(self, template: JitTemplate, compile_program: Callable[[PrimFunc], Kernel]) -> None:
        self.template = template
        self.kernels: OnceMap[Specialised] = OnceMap()
        self._compile = compile_program
        self._rules: list[Rules] = []
        self._programs: dict[Hashable, tuple[PrimFunc, tuple[str, ...]]] = {}
        self._building = new_rlock()

    def get(self, values: Mapping[str, Any]) -> Specialised:
        """The kernel for these arguments.

        Raises ArgumentTypeError for an argument that cannot tell kernels apart, and what building and compiling raise.
        """
        for rules in self._rules:
            key = _key(rules, values)
            if key is not None:
                found = self.kernels.find(key)
                if found is not None:
                    return found
        specs = self.specs(values)
        if freeze(specs) is None:
            raise ArgumentTypeError(
                f"{self.template.name}: an argument that is no array must be hashable, to tell kernels apart",
                location=caller_location(),
                hint="pass tuples instead of lists of other objects",
            )
        key, func, names = self._program(specs)
        return self.kernels.get(key, lambda: Specialised(self._compile(func), names))

    def specs(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays described, all else as it is.  Raises a LaunchError for an array that no kernel takes."""
        return {name: self._describe(name, value) for name, value in values.items()}

    def clear(self) -> None:
        """Forget all kernels."""
        with self._building:
            self.kernels.clear()
            self._rules.clear()
            self._programs.clear()

    def _program(self, specs: Mapping[str, Any]) -> tuple[Hashable, PrimFunc, tuple[str, ...]]:
        """Key, program and argument names.  One thread at a time, so that what it finds serves those that wait."""
        with self._building:
            for rules in self._rules:
                key = _key(rules, specs)
                if key is not None and key in self._programs:
                    return (key, *self._programs[key])
            func, depends = self.template.specialise(specs)
            names = tuple(p.name for i, p in enumerate(func.params) if i not in func.outputs)
            unknown = [name for name in names if name not in specs]
            if unknown:
                raise LanguageError(
                    f"{self.template.name}: the kernel takes {unknown[0]}, which is no parameter of the function"
                )
            rules = tuple((name, depends.get(name)) for name in specs)
            key = _key(rules, specs)
            assert key is not None, "a program depends on what it was built from"
            if rules not in self._rules:
                self._rules.append(rules)
            self._programs[key] = (func, names)
            return key, func, names

    def _describe(self, name: str, value: Any) -> Any:
        if arrays.kind_of(value) is None or getattr(value, "shape", None) == ():
            return value
        try:
            tensor = arrays.view(value)
        except LaunchError as error:
            message = f"kernel {self.template.name!r}, argument {name!r}: {error.message}"
            raise type(error)(message, location=caller_location(), hint=error.hint) from None
        return ArraySpec(tuple(tensor.shape), tensor.dtype, tensor.strides)


def _key(rules: Rules, values: Mapping[str, Any]) -> Hashable | None:
    """What `values` are in that the rules look at; None when they are of another kind than the rules are about."""
    parts: list[Hashable] = []
    for (_, rule), value in zip(rules, values.values(), strict=True):
        if rule is None:
            whole = _describe_whole(value)
            if not _hashable(whole):
                return None
            parts.append(whole)
        elif rule.rank is None:
            if not _is_number(value):
                return None
        elif not _add_tensor(parts, rule, value):
            return None
    return tuple(parts)


def _is_number(value: Any) -> bool:
    if isinstance(value, ArraySpec):
        return False
    return arrays.kind_of(value) is None or getattr(value, "shape", None) == ()


def _add_tensor(parts: list[Hashable], rule: Dependence, value: Any) -> bool:
    """Append what counts of a tensor; False when `value` is none of that rank."""
    strides: tuple[int, ...] | None
    if type(value) is _NDARRAY:
        shape, element = value.shape, arrays.dtype_of_numpy(value.dtype)
        strides = tuple(s // value.itemsize for s in value.strides) if rule.strides and value.itemsize else None
    else:
        spec = _spec(value)
        if spec is None:
            return False
        shape, element, strides = spec.shape, spec.dtype, spec.strides
    if len(shape) != rule.rank or element is None or not shape:
        return False
    parts.append(element)
    parts += [shape[axis] for axis in rule.shape]
    if rule.strides:
        known = strides or row_major_strides(shape)
        parts += [known[axis] for axis in rule.strides]
    return True


def _spec(value: Any) -> ArraySpec | None:
    """The description of an array, None for what is none, or one that the runtime refuses."""
    if isinstance(value, ArraySpec):
        return value
    if arrays.kind_of(value) is None:
        return None
    try:
        tensor = arrays.view(value)
    except LaunchError:
        return None
    return ArraySpec(tuple(tensor.shape), tensor.dtype, tensor.strides)


def _describe_whole(value: Any) -> Hashable:
    if isinstance(value, ArraySpec) or arrays.kind_of(value) is None or getattr(value, "shape", None) == ():
        return _freeze(value)
    return _freeze(_spec(value))


def freeze(values: Mapping[str, Any]) -> Hashable | None:
    """A hashable key that tells 1, 1.0 and True apart; None when a value cannot be part of one."""
    key = tuple((name, _freeze(value)) for name, value in values.items())
    return key if _hashable(key) else None


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _freeze(value: Any) -> Hashable:
    if isinstance(value, (list, tuple)):
        return (type(value), tuple(_freeze(item) for item in value))
    if isinstance(value, dict):
        return (dict, tuple((name, _freeze(item)) for name, item in value.items()))
    if isinstance(value, float):
        return (float, value.hex())  # tells 0.0 and -0.0 apart, and finds NaN again
    return (type(value), value)
