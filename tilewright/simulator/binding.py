"""Arguments of a call bound to a function's parameters and sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.errors import (
    ArgumentCountError,
    ArgumentDTypeError,
    ArgumentShapeError,
    ArgumentStrideError,
    ArgumentTypeError,
    ReadOnlyArgumentError,
)
from tilewright.ir.expr import Binary, Buffer, Cast, Expr, Var
from tilewright.ir.kernel import PrimFunc, size_variables
from tilewright.simulator.access import written
from tilewright.simulator.expressions import Env, ExpressionCompiler
from tilewright.simulator.numerics import constant


def declare_parameters(compiler: ExpressionCompiler, func: PrimFunc) -> None:
    """Give sizes and scalar parameters their places before the body is compiled."""
    for size in func.sizes:
        compiler.declare(size, "index")
    sizes = {id(size) for size in func.sizes}
    for param in func.params:
        if isinstance(param, Buffer):
            compiler.declare_buffer(param)
        elif id(param) not in sizes:
            compiler.declare(param, "typed")


class Binder:
    """Binds the arguments of one call into an environment."""

    def __init__(self, compiler: ExpressionCompiler, func: PrimFunc) -> None:
        self.compiler = compiler
        self.func = func
        self.env: Env = []
        self.known: set[int] = set()
        self.sizes = {id(size) for size in func.sizes}

    def bind(self, env: Env, args: Sequence[Any]) -> None:
        """Fill the environment.  Raises the errors of `reference.run`."""
        func, self.env = self.func, env
        if len(args) != len(func.params):
            raise ArgumentCountError(f"{func.name} takes {len(func.params)} arguments, got {len(args)}")
        equations: list[tuple[Expr, int, str, type[ArgumentShapeError] | type[ArgumentStrideError]]] = []
        for param, arg in zip(func.params, args, strict=True):
            if isinstance(param, Var):
                self._scalar(param, arg)
                continue
            self._array(param, arg)
            equations += [
                (size, arg.shape[d], f"dimension {d} of {param.name}", ArgumentShapeError)
                for d, size in enumerate(param.shape)
            ]
            equations += [
                (step, arg.strides[d] // arg.itemsize, f"stride {d} of {param.name}", ArgumentStrideError)
                for d, step in enumerate(param.strides or ())
                if arg.shape[d] > 1 and arg.size  # NumPy gives arrays without elements any strides
            ]
        self._solve([(expr, value) for expr, value, _, _ in equations])
        self._default_strides(args)
        for size in func.sizes:
            if id(size) not in self.known:
                raise ArgumentShapeError(f"the shapes of the arguments do not say what size {size.name} is")
        for expr, value, what, error in equations:
            expected = self._value(expr)
            if expected != value:
                raise error(f"{what} is {value}, but must be {expected}")

    def _scalar(self, param: Var, arg: Any) -> None:
        if np.ndim(arg) != 0:
            raise ArgumentTypeError(f"parameter {param.name} takes a number of type {param.dtype}, not an array")
        value = np.asarray(arg)[()]
        slot = self.compiler.slot(param)
        self.known.add(id(param))
        if id(param) in self.sizes:
            self.env[slot] = int(value)
        else:
            self.env[slot] = constant(float(value) if param.dtype.is_float else int(value), param.dtype)

    def _array(self, param: Buffer, arg: Any) -> None:
        if not isinstance(arg, np.ndarray):
            raise ArgumentTypeError(f"parameter {param.name} takes an array, got {type(arg).__name__}")
        if arg.dtype != param.dtype.numpy:
            raise ArgumentDTypeError(f"parameter {param.name} takes an array of {param.dtype}, got {arg.dtype}")
        rank = param.ndim + (param.dtype.lanes > 1)
        if arg.ndim != rank:
            raise ArgumentShapeError(f"parameter {param.name} takes an array of {rank} dimensions, got {arg.ndim}")
        if not arg.flags.writeable and self._is_written(param):
            raise ReadOnlyArgumentError(f"{self.func.name} writes to {param.name}, but the array is read-only")
        slot = self.compiler.slot(param)
        self.env[slot], self.env[slot + 1] = arg, None

    def _is_written(self, param: Buffer) -> bool:
        return any(buffer is param for buffer in written(self.func.body))

    def _value(self, expr: Expr) -> int:
        return self.compiler.integer(expr)(self.env)

    def _unknown(self, expr: Expr) -> list[Var]:
        return [var for var in size_variables((expr,)) if id(var) not in self.known]

    def _solve(self, equations: list[tuple[Expr, int]]) -> None:
        """Take sizes from equations with one unknown until none is left."""
        progress = True
        while progress:
            progress = False
            for expr, value in equations:
                if len(self._unknown(expr)) == 1:
                    progress = self._solve_one(expr, value) or progress

    def _solve_one(self, expr: Expr, value: int) -> bool:
        while not isinstance(expr, Var):
            if isinstance(expr, Cast):
                expr = expr.value
                continue
            if not isinstance(expr, Binary) or expr.op not in ("add", "sub", "mul"):
                return False
            on_left = bool(self._unknown(expr.lhs))
            other = self._value(expr.rhs if on_left else expr.lhs)
            if expr.op == "mul":
                if other == 0 or value % other:
                    return False
                value //= other
            elif expr.op == "add":
                value -= other
            else:
                value = value + other if on_left else other - value
            expr = expr.lhs if on_left else expr.rhs
        self.env[self.compiler.slot(expr)] = value
        self.known.add(id(expr))
        return True

    def _default_strides(self, args: Sequence[Any]) -> None:
        """A stride along an extent of at most 1 does not matter; where nothing else says what it is, take the array's."""
        for param, arg in zip(self.func.params, args, strict=True):
            if isinstance(param, Buffer):
                for d, step in enumerate(param.strides or ()):
                    if len(self._unknown(step)) == 1:
                        self._solve_one(step, arg.strides[d] // arg.itemsize)
