"""The running form of compound statements: what `if_`, `for_`, `while_` and `with_` of an activation return.

Every one has the method at a block's end (`end` or `finish`) that says whether the block was one of the IR; then
`lost(name)` tells whether a name died with it, and `dead(name)` is what that name holds from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tilewright.errors import KernelStructureError, UnsupportedSyntaxError
from tilewright.frontend.scopes import Dead, Scope
from tilewright.frontend.values import is_reference, is_symbolic
from tilewright.ir.builder import Frame
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Expr, as_bool, const
from tilewright.ir.stmt import If, Seq, While
from tilewright.language.kernel import Context
from tilewright.language.loops import Loop
from tilewright.source import Location, caller_location

if TYPE_CHECKING:
    from tilewright.frontend.activation import Activation


class PythonBranch:
    """An `if` that Python decides."""

    __slots__ = ("value",)

    TRUE: PythonBranch
    FALSE: PythonBranch

    def __init__(self, value: bool) -> None:
        self.value = value

    @staticmethod
    def of(value: bool) -> PythonBranch:
        """The branch for a decided condition."""
        return PythonBranch.TRUE if value else PythonBranch.FALSE

    def then(self) -> bool:
        return self.value

    def orelse(self) -> bool:
        return not self.value

    def end(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing was opened."""


PythonBranch.TRUE = PythonBranch(True)
PythonBranch.FALSE = PythonBranch(False)


class _Block:
    """A block of the IR that is being collected."""

    def __init__(self, activation: Activation, loc: Location | None) -> None:
        self.activation = activation
        self.loc = loc
        self.scope = activation.scope
        self.outer = activation.scope

    def enter(self, what: str, *, conditional: bool = True) -> None:
        self.outer = self.activation.scope
        self.scope = Scope(what, self.outer, conditional=conditional)
        self.activation.scope = self.scope

    def leave(self) -> None:
        self.scope.open = False
        self.activation.scope = self.outer

    def lost(self, name: str) -> bool:
        """Whether the binding of `name` ended with this block."""
        binding = self.activation.names.get(name)
        return binding is not None and binding.scope is self.scope

    def dead(self, name: str) -> Dead:
        """The value of `name` after the block."""
        binding = self.activation.names[name]
        return Dead(name, self.scope.what, binding.loc, remedy(name, binding.value))


def remedy(name: str, value: Any) -> str:
    """What to write so that `name` has a value after (or changes in) a block of the kernel."""
    if isinstance(value, Buffer) or is_reference(value):
        return f"allocate {name} before the block"
    first = ""
    if isinstance(value, Expr):
        of = f'"{value.dtype}"'
    elif isinstance(value, (bool, int, float)):
        of, first = f'"{dtype(type(value))}"', f", {value!r}"
    else:
        return "use T.alloc_var or a local buffer for what changes at run time"
    return f"make it a variable: {name} = T.alloc_var({of}{first}) before the block, then assign to it inside"


class BranchRun(_Block):
    """An `if` on a run-time value: both branches are collected, one after the other."""

    def __init__(self, activation: Activation, condition: Expr, loc: Location | None) -> None:
        super().__init__(activation, loc)
        self.condition = condition
        self.bodies: list[Seq] = []

    def _open(self) -> bool:
        self.activation.builder.frames.append(Frame("if", self.loc))
        self.enter("a run-time `if`")
        return True

    then = orelse = _open

    def end(self) -> bool:
        """The end of either branch."""
        self.bodies.append(self.activation.builder.frames.pop().seq())
        self.leave()
        return True

    def close(self) -> None:
        """Both branches are there."""
        orelse = self.bodies[1] if len(self.bodies) > 1 else None
        self.activation.builder.emit(If(self.condition, self.bodies[0], orelse, loc=self.loc))


class PythonLoop(_Block):
    """A `for` over Python values: the body runs for each of them."""

    symbolic = False

    def __init__(self, activation: Activation, iterable: Any) -> None:
        super().__init__(activation, None)
        try:
            self.values: Iterator[Any] = iter(iterable)
        except TypeError:
            raise UnsupportedSyntaxError(
                f"a `for` statement cannot go over {type(iterable).__name__} {iterable!r}",
                location=caller_location(),
                hint="use range(n), T.serial(n), T.Parallel(m, n) or a Python sequence",
            ) from None
        self.depth = len(activation.loops)
        activation.loops.append(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.values)

    def finish(self) -> bool:
        """After the loop, however it ended."""
        del self.activation.loops[self.depth :]
        return False


class LoopRun(_Block):
    """A `for` over a loop of the kernel: the body runs once, for the IR."""

    symbolic = True

    def __init__(self, activation: Activation, loop: Loop, names: tuple[str, ...]) -> None:
        super().__init__(activation, loop.loc)
        self.loop = loop
        self.names = names
        self.opened = False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.opened:
            raise StopIteration
        self.opened = True
        value = self.loop.open(self.activation.builder, self.names)
        self.enter(f"a {self.loop.what} loop")
        self.activation.loops.append(self)
        return value

    def finish(self) -> bool:
        """After the body."""
        self.activation.loops.pop()
        self.leave()
        self.loop.close(self.activation.builder)
        return True


class WhileRun(_Block):
    """A `while`: decided by Python as long as its condition is a Python value, else a loop of the kernel."""

    def __init__(self, activation: Activation, test: Callable[[], Any], literal: bool, loc: Location | None) -> None:
        super().__init__(activation, loc)
        self.test = test
        self.literal = literal
        self.symbolic = False
        self.loop = Loop("while", 0, loc)
        self.condition: Expr = const(True)
        self.started = False
        self.depth = len(activation.loops)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> None:
        if self.symbolic:
            raise StopIteration
        value = self.activation.conditional("while", self.test)
        if not self.started:
            self.started = True
            self.activation.loops.append(self)
            self.symbolic = is_symbolic(value) or (self.literal and bool(value))
            if self.symbolic:
                self._open(value)
                return
        elif is_symbolic(value):
            raise KernelStructureError(
                "the condition of this `while` was a Python value at first and depends on run-time values now",
                location=self.loc,
            )
        if not value:
            raise StopIteration

    def _open(self, value: Any) -> None:
        builder = self.activation.builder
        builder.require_launch("a `while` on a run-time value", self.loc)
        self.condition = as_bool(value, loc=self.loc)
        builder.frames.append(Frame("while", self.loc))
        self.enter("a run-time `while`")

    def finish(self) -> bool:
        """After the loop, however it ended."""
        del self.activation.loops[self.depth :]
        if self.symbolic:
            self.leave()
            body = self.activation.builder.frames.pop().seq()
            self.activation.builder.emit(While(self.condition, body, loc=self.loc))
        return self.symbolic


class WithRun(_Block):
    """A `with`: a kernel, or a Python context that no statement of the kernel stands in."""

    def __init__(self, activation: Activation, context: Any, names: tuple[str, ...], loc: Location | None) -> None:
        super().__init__(activation, loc)
        self.context = context
        self.symbolic = isinstance(context, Context)
        if self.symbolic:
            context.names = names

    def __enter__(self) -> Any:
        value = self.context.__enter__()
        if self.symbolic:
            self.enter("a kernel", conditional=False)
        else:
            self.before = len(self.activation.builder.frames[-1].stmts)
        return value

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> Any:
        if self.symbolic:
            self.leave()
        elif kind is None and len(self.activation.builder.frames[-1].stmts) != self.before:
            raise UnsupportedSyntaxError(
                f"`with` on {type(self.context).__name__} has no effect on the statements of a kernel inside of it",
                location=self.loc,
                hint="only T.Kernel and other contexts of the language stand around them",
            )
        return self.context.__exit__(kind, value, traceback)

    def finish(self) -> bool:
        """After the body."""
        return self.symbolic

    def lost(self, name: str) -> bool:
        """As for any block; Python values outlive a kernel."""
        binding = self.activation.names.get(name)
        if binding is None or binding.scope is not self.scope:
            return False
        if isinstance(binding.value, (Expr, Buffer)):
            return True
        binding.scope = self.outer
        return False
