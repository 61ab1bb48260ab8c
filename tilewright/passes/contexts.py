"""A rewriter that knows the ranges of variables at each place of a function."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tilewright.analysis.index import IndexContext
from tilewright.ir.expr import Expr, Var, binary, const_int
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.rewriter import Rewriter
from tilewright.ir.stmt import For, If, Launch, Let, Parallel, Seq, Stmt


class ContextRewriter(Rewriter):
    """Keeps `self.context` in step while rewriting: bounds of sizes, block and loop variables, conditions of ifs."""

    def __init__(self) -> None:
        self.context = IndexContext()

    def rewrite_PrimFunc(self, func: PrimFunc) -> PrimFunc:
        for size in func.sizes:
            self.context.bind(size, 0, None)
        result: PrimFunc = self.generic(func)
        return result

    def rewrite_Let(self, stmt: Let) -> Stmt:
        if stmt.var.dtype.is_int and stmt.var.dtype.lanes == 1:
            self.context.bind(stmt.var, *self.context.bounds(stmt.value))
        result: Stmt = self.generic(stmt)
        return result

    def enter_range(
        self, stack: ExitStack, variable: Var, stop: Expr, start: Expr | None = None, step: int = 1
    ) -> None:
        """From here on `start <= variable < stop`, in steps of `step` (at least 1) from the start."""
        low = 0 if start is None else self.context.bounds(start)[0]
        high = self.context.bounds(stop)[1]
        last = None if high is None else high - 1
        from_zero = start is None or self.context.divisible(start, step)
        if last is not None and from_zero:
            last = last // step * step
        stack.enter_context(self.context.bound(variable, low, last, step if from_zero else 1))
        if const_int(stop) is None:
            stack.enter_context(self.context.assuming(binary("lt", variable, stop)))
        if start is not None and const_int(start) is None:
            stack.enter_context(self.context.assuming(binary("ge", variable, start)))

    def rewrite_Launch(self, stmt: Launch) -> Stmt:
        with ExitStack() as stack:
            for variable, count in zip(stmt.block_vars, stmt.grid, strict=True):
                self.enter_range(stack, variable, count)
            result: Stmt = self.generic(stmt)
            return result

    def rewrite_Parallel(self, stmt: Parallel) -> Stmt:
        with ExitStack() as stack:
            for variable, extent in zip(stmt.vars, stmt.extents, strict=True):
                self.enter_range(stack, variable, extent)
            return self.inside_parallel(stmt)

    def inside_parallel(self, stmt: Parallel) -> Stmt:
        """`stmt` rewritten, with its variables bound."""
        result: Stmt = self.generic(stmt)
        return result

    def rewrite_For(self, stmt: For) -> Stmt:
        with ExitStack() as stack:
            step = const_int(stmt.step)
            if step is not None and step > 0:
                self.enter_range(stack, stmt.var, stmt.stop, stmt.start, step)
            elif step is not None:
                high, low = self.context.bounds(stmt.start)[1], self.context.bounds(stmt.stop)[0]
                stack.enter_context(self.context.bound(stmt.var, None if low is None else low + 1, high))
            result: Stmt = self.generic(stmt)
            return result

    def rewrite_If(self, stmt: If) -> Stmt:
        condition = self.rewrite(stmt.condition)
        with self.context.assuming(stmt.condition):
            then_body = self.rewrite(stmt.then_body)
        else_body: Any = stmt.else_body
        if else_body is not None:
            with self.context.assuming(stmt.condition, holds=False):
                else_body = self.rewrite(else_body)
        if condition is stmt.condition and then_body is stmt.then_body and else_body is stmt.else_body:
            return stmt
        return If(condition, _as_seq(then_body), None if else_body is None else _as_seq(else_body), loc=stmt.loc)


def _as_seq(body: Stmt) -> Seq:
    return body if isinstance(body, Seq) else Seq((body,), loc=body.loc)
