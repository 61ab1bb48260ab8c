"""Which argument determines each size of a function, and what is checked once all are known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilewright.errors import ShapeError
from tilewright.ir.expr import Const, Expr, Var
from tilewright.ir.kernel import PrimFunc
from tilewright.runtime import sizes
from tilewright.runtime.params import ArrayParam, Dim, Param


class Plan:
    """The steps of binding sizes; fills in what each parameter takes and checks.

    variables: id of a scalar parameter or size -> its slot.  solved: (unknown, dimension, parameter, its position)
    for sizes that stand only inside expressions.  Raises ShapeError when no argument determines a size.
    """

    def __init__(self, func: PrimFunc, params: list[Param]) -> None:
        self.variables: dict[int, int] = {}
        known: set[int] = set()
        for index, param in enumerate(func.params):
            if isinstance(param, Var):
                self.variables[id(param)] = index
                known.add(id(param))
        for index, size in enumerate(func.sizes):
            self.variables[id(size)] = len(func.params) + index
        arrays_in = [(p, i) for i, p in enumerate(params) if isinstance(p, ArrayParam)]
        for array_param, _ in arrays_in:
            self._sizes(array_param, known)
        for array_param, _ in arrays_in:
            self._strides(array_param, known)
        self.solved = self._solve(func, arrays_in, known)

    def dims(self, shape: Sequence[Expr], what: str) -> Iterable[Dim]:
        """A Dim for each entry of a shape or of strides."""
        for axis, expr in enumerate(shape):
            name = f"the {what} {sizes.text(expr)}"
            if isinstance(expr, Const):
                yield Dim(axis, name, literal=int(expr.value))
            elif isinstance(expr, Var) and id(expr) in self.variables:
                yield Dim(axis, name, slot=self.variables[id(expr)])
            else:
                yield Dim(axis, name, expr=expr)

    def _sizes(self, param: ArrayParam, known: set[int]) -> None:
        for dim, expr in zip(self.dims(param.buffer.shape, "size"), param.buffer.shape, strict=True):
            if dim.literal is not None:
                param.literal.append((dim.axis, dim.literal))
            elif dim.slot >= 0 and id(expr) not in known:
                known.add(id(expr))
                param.takes.append((dim.axis, dim.slot))
            else:
                param.later.append(dim)

    def _strides(self, param: ArrayParam, known: set[int]) -> None:
        strides = param.buffer.strides or ()
        for dim, expr in zip(self.dims(strides, "stride"), strides, strict=True):
            if dim.slot >= 0 and id(expr) not in known:
                known.add(id(expr))
                param.stride_takes.append((dim.axis, dim.slot))
            else:
                param.stride_later.append(dim)

    def _solve(
        self, func: PrimFunc, arrays_in: list[tuple[ArrayParam, int]], known: set[int]
    ) -> list[tuple[Var, Dim, ArrayParam, int]]:
        """Steps (unknown, dim, parameter, its position) for sizes that stand only inside expressions."""
        steps: list[tuple[Var, Dim, ArrayParam, int]] = []
        progress = True
        while progress:
            progress = False
            for param, position in arrays_in:
                for dim in param.later:
                    if dim.expr is None:
                        continue
                    unknown = [v for v in sizes.variables(dim.expr) if id(v) not in known]
                    if len(unknown) == 1 and id(unknown[0]) in self.variables and sizes.solvable(dim.expr, unknown[0]):
                        known.add(id(unknown[0]))
                        steps.append((unknown[0], dim, param, position))
                        progress = True
        for size in func.sizes:
            if id(size) not in known:
                raise ShapeError(
                    f"kernel {func.name!r}: no argument determines the size {size.name}",
                    location=size.loc,
                    hint=f"use {size.name} alone in the shape of a parameter, or make it a scalar parameter",
                )
        return steps
