"""The builder that the language's functions append statements to while a kernel function runs."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tilewright.errors import KernelStructureError
from tilewright.ir.expr import Buffer, Expr, Var
from tilewright.ir.stmt import Let, Seq, Stmt
from tilewright.source import Location, caller_location

_ACTIVE = threading.local()


class Frame:
    """One open scope.  kind: "function", "launch", "serial", "pipelined", "unroll", "vectorized", "parallel", "while", "if", ..."""

    __slots__ = ("data", "kind", "loc", "stmts")

    def __init__(self, kind: str, loc: Location | None, data: Any = None) -> None:
        self.kind = kind
        self.loc = loc
        self.stmts: list[Stmt] = []
        self.data = data

    def seq(self) -> Seq:
        return Seq(tuple(self.stmts), loc=self.loc)


class Builder:
    """Collects the statements of one PrimFunc.

    `Builder.current()` is the builder of the function being built on this Python thread.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.frames: list[Frame] = [Frame("function", None)]
        self.params: list[Buffer | Var] = []
        self.sizes: list[Var] = []
        self.outputs: list[int] = []
        self.lets: dict[int, Let] = {}
        # Buffers that wait for the name of the Python variable that they are assigned to, by id.
        self.unnamed: dict[int, Buffer] = {}
        # Where kernels were made that no `with` has opened yet.
        self.unopened: list[Location | None] = []
        # What T.const gives for a name; None where sizes are not taken from arguments.
        self.const_size: Callable[[str], int] | None = None
        self.macro_depth = 0
        self._names: dict[str, int] = {}

    @staticmethod
    def current(what: str = "this operation") -> Builder:
        """The active builder; raises KernelStructureError naming `what` outside of a kernel function."""
        stack: list[Builder] = getattr(_ACTIVE, "stack", [])
        if not stack:
            raise KernelStructureError(
                f"{what} can only be used while a kernel is being built",
                location=caller_location(),
                hint="call it inside a function decorated with @T.prim_func, @T.macro or @tilewright.jit",
            )
        return stack[-1]

    @staticmethod
    def active() -> Builder | None:
        """The active builder or None."""
        stack: list[Builder] = getattr(_ACTIVE, "stack", [])
        return stack[-1] if stack else None

    @contextmanager
    def activate(self) -> Iterator[Builder]:
        """Make this the current builder of the Python thread."""
        stack: list[Builder] = _ACTIVE.__dict__.setdefault("stack", [])
        stack.append(self)
        try:
            yield self
        finally:
            stack.pop()

    def emit(self, stmt: Stmt) -> None:
        """Append `stmt` to the innermost open scope."""
        if type(stmt) is Let:
            self.lets[id(stmt.var)] = stmt
        self.frames[-1].stmts.append(stmt)

    def let_value(self, var: Var) -> Expr | None:
        """The expression that the let variable `var` stands for, None when it is no let of this function."""
        let = self.lets.get(id(var))
        return let.value if let is not None else None

    @contextmanager
    def scope(self, kind: str, *, loc: Location | None = None, data: Any = None) -> Iterator[Frame]:
        """Open a scope; its statements are in the yielded frame's `seq()` afterwards."""
        frame = Frame(kind, loc, data)
        self.frames.append(frame)
        try:
            yield frame
        finally:
            while self.frames.pop() is not frame:
                pass

    def innermost(self, *kinds: str) -> Frame | None:
        """The innermost open scope of one of `kinds`, or None."""
        return next((f for f in reversed(self.frames) if f.kind in kinds), None)

    @property
    def in_launch(self) -> bool:
        """Whether a kernel (T.Kernel) is open."""
        return self.innermost("launch") is not None

    def require_launch(self, what: str, loc: Location | None = None) -> None:
        """Raise KernelStructureError unless a kernel is open."""
        if not self.in_launch:
            raise KernelStructureError(
                f"{what} must stand inside `with T.Kernel(...)`", location=loc or caller_location()
            )

    def unique_name(self, base: str) -> str:
        """`base`, or `base_1`, ... where it is taken in this function."""
        base = re.sub(r"\W", "_", base) or "v"
        if base[0].isdigit():
            base = f"v{base}"
        count = self._names.get(base)
        if count is None:
            self._names[base] = 0
            return base
        while True:
            count += 1
            name = f"{base}_{count}"
            if name not in self._names:
                self._names[base] = count
                self._names[name] = 0
                return name

    def reserve(self, name: str) -> None:
        """Keep `name` for something that has it already."""
        self._names.setdefault(name, 0)

    def declare(self, buffer: Buffer, base: str) -> None:
        """Let `buffer` be named by its first assignment; `base` is its name until then."""
        buffer.name = base
        self.unnamed[id(buffer)] = buffer

    def name_buffer(self, buffer: Buffer, base: str) -> None:
        """Give `buffer`, if it has no name of its own yet, a unique one made from `base`."""
        if self.unnamed.pop(id(buffer), None) is not None:
            buffer.name = self.unique_name(base)

    def fresh_var(self, base: str, dtype: Any, loc: Location | None = None) -> Var:
        """A new variable with a unique name."""
        return Var(dtype, self.unique_name(base), loc=loc)
