"""What a rewritten function calls while it runs: `__tw` in `frontend/rewrite.py`.

An activation is one run of one function.  It decides, operand by operand, whether a construct is done now
(its operands are Python values) or becomes IR (they are expressions), and it knows in which block each name
was bound, so that a value that would depend on run-time control flow is refused instead of misread.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import Any

from tilewright.errors import (
    AnnotationError,
    DTypeError,
    KernelStructureError,
    LanguageError,
    NameRebindingError,
    UnsupportedSyntaxError,
)
from tilewright.frontend.blocks import BranchRun, LoopRun, PythonBranch, PythonLoop, WhileRun, WithRun, remedy
from tilewright.frontend.scopes import Binding, Dead, Scope, refuse_dead
from tilewright.frontend.values import contains_load, is_reference, is_symbolic, is_variable
from tilewright.ir.builder import Builder
from tilewright.ir.dtype import DType
from tilewright.ir.expr import Buffer, Const, Expr, Load, Var, as_bool, as_expr, binary, cast, const, select, unary
from tilewright.ir.stmt import Assert, Break, Continue, Let, Store
from tilewright.language.allocate import is_fresh
from tilewright.language.loops import Loop, loop_break, serial
from tilewright.language.tensor import BufferSlice, element_value, shape_of
from tilewright.source import caller_location

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": operator.eq,
    "NotEq": operator.ne,
    "Lt": operator.lt,
    "LtE": operator.le,
    "Gt": operator.gt,
    "GtE": operator.ge,
    "Is": operator.is_,
    "IsNot": operator.is_not,
    "In": lambda a, b: a in b,
    "NotIn": lambda a, b: a not in b,
}

_INPLACE: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.iadd,
    "Sub": operator.isub,
    "Mult": operator.imul,
    "Div": operator.itruediv,
    "FloorDiv": operator.ifloordiv,
    "Mod": operator.imod,
    "Pow": operator.ipow,
    "LShift": operator.ilshift,
    "RShift": operator.irshift,
    "BitAnd": operator.iand,
    "BitOr": operator.ior,
    "BitXor": operator.ixor,
    "MatMult": operator.imatmul,
}


class Activation:
    """One run of a kernel function or macro."""

    slice = staticmethod(builtins.slice)

    def __init__(self, builder: Builder, declare: Callable[[str, Any], Any] | None = None) -> None:
        self.builder = builder
        self.root = Scope("the function", None, conditional=False)
        self.scope = self.root
        self.names: dict[str, Binding] = {}
        self.loops: list[Any] = []
        self.declare_parameter = declare

    # --- names -------------------------------------------------------------------------------

    def parameter(self, name: str, value: Any) -> None:
        """Enter an argument."""
        self.names[name] = Binding(value, self.root, None)

    def bind(self, name: str, value: Any) -> Any:
        """`name = value`: what the Python name is to hold."""
        old = self.names.get(name)
        if old is not None and old.scope.open:
            if is_reference(old.value) and not is_fresh(value, self.builder):
                self.store_reference(old.value, value)
                return old.value
            if old.scope.control() is not self.scope.control():
                self.refuse_rebinding(name, old)
        return self.enter(name, self.name_value(name, value))

    def bind_target(self, name: str, value: Any) -> Any:
        """`name` as the target of a `for`: it belongs to the loop, and ends with it."""
        old = self.names.get(name)
        if old is not None and old.scope.open and self.scope.parent is not None and self.loops[-1].symbolic:
            allowed = (self.scope.control(), self.scope.parent.control())
            if is_reference(old.value) or not any(old.scope.control() is scope for scope in allowed):
                self.refuse_rebinding(name, old)
            return self.enter(name, self.name_value(name, value))
        return self.bind(name, value)

    def enter(self, name: str, value: Any) -> Any:
        self.names[name] = Binding(value, self.scope, caller_location())
        return value

    def refuse_rebinding(self, name: str, old: Binding) -> None:
        where = f" (line {old.loc.line})" if old.loc else ""
        raise NameRebindingError(
            f"{name!r}, bound before{where}, is bound again inside {self.scope.control().what}: "
            "its value would depend on run-time control flow",
            location=caller_location(),
            hint=remedy(name, old.value),
        )

    def name_value(self, name: str, value: Any) -> Any:
        """`value` under a name: expressions become lets, new buffers take the name."""
        if isinstance(value, Expr):
            if isinstance(value, (Const, Var)):
                return value
            if is_fresh(value, self.builder):
                self.builder.name_buffer(value.buffer, name)
                return value
            return self.let(name, value)
        if isinstance(value, Buffer):
            self.builder.name_buffer(value, name)
            return value
        if type(value) is Dead:
            refuse_dead(value)
        if isinstance(value, Loop):
            raise UnsupportedSyntaxError(
                f"{value.what} stands directly in a `for` statement", location=caller_location()
            )
        return self.freeze(value, name)

    def let(self, name: str, value: Expr) -> Var:
        """Evaluate `value` now, and return the variable that holds it."""
        loc = value.loc or caller_location()
        var = self.builder.fresh_var(name, value.dtype, loc)
        self.builder.emit(Let(var, value, loc=loc))
        return var

    def freeze(self, value: Any, name: str = "value") -> Any:
        """`value` with everything read from memory read now, also inside tuples, lists and dictionaries."""
        kind = type(value)
        if kind in (int, float, str, bool) or value is None:
            return value
        if isinstance(value, Expr):
            if is_variable(value):
                self.builder.name_buffer(value.buffer, name)
                return value
            return self.let(name, value) if contains_load(value) else value
        if isinstance(value, Buffer):
            self.builder.name_buffer(value, name)
        elif kind is tuple:
            frozen = [self.freeze(item, name) for item in value]
            return value if all(a is b for a, b in zip(frozen, value, strict=True)) else tuple(frozen)
        elif kind is list:
            value[:] = [self.freeze(item, name) for item in value]
        elif kind is dict:
            for key, item in value.items():
                value[key] = self.freeze(item, name)
        return value

    def read(self, value: Any) -> Any:
        """A name that may be dead here."""
        if type(value) is Dead:
            refuse_dead(value)
        return value

    def store_reference(self, target: Load, value: Any) -> None:
        """Assign to a mutable scalar, or to the element that a T.Ref stands for."""
        loc = caller_location()
        if type(value) is Dead:
            refuse_dead(value)
        stored = element_value(_number(value, target.dtype), target.buffer, loc)
        self.builder.emit(Store(target.buffer, target.indices, stored, loc=loc))

    # --- assignment --------------------------------------------------------------------------

    def augment(self, name: str, op: str, old: Any, value: Any) -> Any:
        """`name op= value`."""
        return self.bind(name, self.inplace(op, old, value))

    def inplace(self, op: str, old: Any, value: Any) -> Any:
        """`old op value`, in place for a Python object that does so."""
        return _INPLACE[op](old, value)

    def shared(self, value: Any) -> Any:
        """The value of an assignment with several targets: evaluated once."""
        if isinstance(value, Expr) and not isinstance(value, (Const, Var)) and not is_fresh(value, self.builder):
            return self.let("value", value)
        return self.freeze(value)

    def unpack(self, value: Any, count: int, star: int, names: tuple[str, ...] | None) -> Any:
        """The parts of `value` for `count` targets, the one at `star` taking what is left over."""
        if isinstance(value, Expr):
            if count == 1 and star < 0:
                return [value]
            raise UnsupportedSyntaxError(
                f"a run-time value cannot be unpacked to {count} names",
                location=caller_location(),
                hint="a loop or kernel of one dimension has one variable",
            )
        parts = list(value)
        if star >= 0:
            if any(isinstance(p, (Expr, Buffer)) for p in parts):
                raise UnsupportedSyntaxError("a starred target cannot take run-time values", location=caller_location())
            last = len(parts) - (count - star - 1)
            if last < star:
                raise ValueError(f"not enough values to unpack (expected at least {count - 1}, got {len(parts)})")
            parts[star:last] = [parts[star:last]]
        elif len(parts) != count and any(isinstance(p, (Expr, Buffer)) for p in parts):
            raise UnsupportedSyntaxError(
                f"{len(parts)} values cannot be unpacked to {count} names",
                location=caller_location(),
                hint="a loop or kernel has as many variables as dimensions",
            )
        elif len(parts) != count:
            few = "not enough" if len(parts) < count else "too many"
            raise ValueError(f"{few} values to unpack (expected {count}, got {len(parts)})")
        if names is None or any(n in self.names and is_reference(self.names[n].value) for n in names):
            return [self.let("value", p) if contains_load(p) and not is_fresh(p, self.builder) else p for p in parts]
        return parts

    def setitem(self, owner: Any, index: Any, value: Any) -> None:
        """`owner[index] = value`."""
        if type(value) is Dead or type(owner) is Dead:
            refuse_dead(value if type(value) is Dead else owner)
        if isinstance(owner, (Buffer, BufferSlice)):
            owner[index] = value
            return
        if isinstance(owner, Expr):
            _ = owner[index]
            assert isinstance(owner, Load)
            self.store_reference(owner, value)
            return
        if isinstance(owner, (list, dict)) and not isinstance(index, builtins.slice):
            old = owner.get(index) if isinstance(owner, dict) else owner[index]
            if is_variable(old) and not is_fresh(value, self.builder):
                self.store_reference(old, value)
                return
        self.refuse_hidden_state("an assignment to an element of a Python object", value)
        owner[index] = self.freeze(value)

    def setattr(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name = value`."""
        if isinstance(owner, (Buffer, BufferSlice, Expr)):
            raise UnsupportedSyntaxError(
                f"the attribute {name!r} of a {'run-time value' if isinstance(owner, Expr) else 'tensor'} cannot be set",
                location=caller_location(),
            )
        old = getattr(owner, name, None)
        if is_variable(old) and not is_fresh(value, self.builder):
            self.store_reference(old, value)
            return
        self.refuse_hidden_state("an assignment to an attribute of a Python object", value)
        setattr(owner, name, self.freeze(value, name))

    def refuse_hidden_state(self, what: str, value: Any) -> None:
        """Refuse to keep `value` in a Python object where the statement would be run at run time; tensors may be kept."""
        if isinstance(value, (Buffer, BufferSlice)):
            return
        frame = next((f for f in reversed(self.builder.frames) if f.kind not in ("function", "launch")), None)
        if frame is not None:
            where = f" (line {frame.loc.line})" if frame.loc else ""
            raise NameRebindingError(
                f"{what} inside run-time control flow{where} would be done once, while compiling",
                location=caller_location(),
                hint="use T.alloc_var or a local buffer for what changes at run time",
            )

    def annotated(self, value: Any, annotation: Callable[[], Any]) -> Any:
        """`name: annotation = value`: a dtype converts the value."""
        of = annotation()
        if not isinstance(of, DType) or isinstance(value, Buffer) or is_fresh(value, self.builder):
            return value
        if not isinstance(value, (Expr, int, float)):
            raise DTypeError(f"{type(value).__name__} is no {of}", location=caller_location())
        return cast(_number(value, of), of, loc=caller_location())

    def declare(self, name: str, annotation: Callable[[], Any]) -> Any:
        """`name: annotation` without a value: the type of an eager kernel's parameter."""
        if self.declare_parameter is None:
            raise AnnotationError(
                f"{name}: an annotation without a value declares a parameter of an eager kernel (@tilewright.jit)",
                location=caller_location(),
                hint="annotate the parameters of a prim_func in its signature",
            )
        return self.enter(name, self.declare_parameter(name, annotation()))

    # --- control flow ------------------------------------------------------------------------

    def if_(self, test: Any) -> Any:
        """Open an `if`."""
        if type(test) is Dead:
            refuse_dead(test)
        if not is_symbolic(test):
            return PythonBranch.of(bool(test))
        loc = caller_location()
        self.builder.require_launch("an `if` on a run-time value", loc)
        return BranchRun(self, as_bool(test, loc=loc), loc)

    def for_(self, iterable: Any, names: tuple[str, ...]) -> Any:
        """Open a `for`."""
        if isinstance(iterable, Loop):
            return LoopRun(self, iterable, names)
        return PythonLoop(self, iterable)

    def range_(self, function: Any, *bounds: Any) -> Any:
        """`range(...)` in a `for` statement."""
        return serial(*bounds) if function is builtins.range else function(*bounds)

    def while_(self, test: Callable[[], Any], literal: bool) -> Any:
        """Open a `while`."""
        return WhileRun(self, test, literal, caller_location())

    def with_(self, context: Any, names: tuple[str, ...]) -> Any:
        """Open a `with`."""
        return WithRun(self, context, names, caller_location())

    def jump(self, word: str) -> bool:
        """`break` or `continue`: whether Python is to do it."""
        loop = self.loops[-1]
        loc = caller_location()
        if not loop.symbolic:
            if self.scope.control() is loop.scope.control():
                return True
            raise KernelStructureError(
                f"`{word}` of a loop over Python values depends on {self.scope.control().what}",
                location=loc,
                hint="use a loop of the kernel: range(n) or T.serial(n)",
            )
        loop_break(loop.loop, word, loc)
        self.builder.emit(Break(loc=loc) if word == "break" else Continue(loc=loc))
        return False

    def return_(self, value: Any) -> Any:
        """`return value`."""
        control = self.scope.control()
        if control.conditional:
            raise UnsupportedSyntaxError(
                f"`return` inside {control.what}",
                location=caller_location(),
                hint="assign the result to a T.alloc_var, and return after the block",
            )
        return self.freeze(self.read(value), "result")

    def raise_(self) -> None:
        """`raise`: allowed where Python decides."""
        control = self.scope.control()
        if control.conditional:
            raise UnsupportedSyntaxError(
                f"`raise` inside {control.what}", location=caller_location(), hint="use T.device_assert"
            )

    def assert_(self, test: Any, message: Callable[[], Any]) -> None:
        """`assert test, message`."""
        if is_symbolic(test):
            loc = caller_location()
            self.builder.require_launch("an `assert` on a run-time value", loc)
            text = message()
            self.builder.emit(Assert(as_bool(test, loc=loc), "" if text is None else str(text), loc=loc))
        elif not test:
            text = message()
            raise AssertionError(*(() if text is None else (text,)))

    # --- expressions -------------------------------------------------------------------------

    def shape(self, owner: Any) -> Any:
        """`owner.shape`."""
        return shape_of(owner) if isinstance(owner, Buffer) else owner.shape

    def and_(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first and second`."""
        if not is_symbolic(first):
            return second() if first else first
        return self.logic("and", first, second)

    def or_(self, first: Any, second: Callable[[], Any]) -> Any:
        """`first or second`."""
        if not is_symbolic(first):
            return first if first else second()
        return self.logic("or", first, second)

    def logic(self, op: str, first: Any, second: Callable[[], Any]) -> Any:
        loc = caller_location()
        other = self.conditional(op, second)
        if not is_symbolic(other):
            truth = bool(other)
            if truth is (op == "and"):
                return as_bool(first, loc=loc)
            return const(truth)
        return binary(op, first, other, loc=loc)

    def conditional(self, what: str, operand: Callable[[], Any]) -> Any:
        """An operand that is evaluated at run time only sometimes: it must consist of an expression alone."""
        frame = self.builder.frames[-1]
        before = len(frame.stmts)
        value = operand()
        if len(frame.stmts) != before:
            raise UnsupportedSyntaxError(
                f"an operand of `{what}` that is evaluated under a run-time condition contains statements",
                location=caller_location(),
                hint="evaluate it before, or use an `if` statement",
            )
        return value

    def not_(self, value: Any) -> Any:
        """`not value`."""
        if type(value) is Dead:
            refuse_dead(value)
        return unary("not", value, loc=caller_location()) if is_symbolic(value) else not value

    def ifexp(self, test: Any, then: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
        """`then if test else orelse`."""
        if not is_symbolic(test):
            return then() if test else orelse()
        loc = caller_location()
        sides = self.conditional("if else", then), self.conditional("if else", orelse)
        for side in sides:
            if not isinstance(side, (Expr, int, float)):
                raise UnsupportedSyntaxError(
                    f"a run-time condition cannot choose between Python values ({type(side).__name__})", location=loc
                )
        return select(test, *sides, loc=loc)

    def compare(self, op: str, left: Any, right: Any) -> Any:
        """`is`, `in` and their negations."""
        if op in ("Is", "IsNot"):
            if left is not None and right is not None and (is_symbolic(left) or is_symbolic(right)):
                raise UnsupportedSyntaxError(
                    "`is` has no meaning on run-time values", location=caller_location(), hint="use =="
                )
        elif is_symbolic(left) or isinstance(right, (Expr, Buffer)):
            raise UnsupportedSyntaxError(
                "`in` has no meaning on run-time values", location=caller_location(), hint="compare with == and `or`"
            )
        return _COMPARE[op](left, right)

    def chain(self, first: Any, *rest: tuple[str, Callable[[], Any]]) -> Any:
        """`first < second <= third ...`: every operand evaluated once, at most."""
        result: Any = True
        left = first
        for op, operand in rest:
            if is_symbolic(result):
                right = self.conditional("a chained comparison", operand)
            elif result:
                right = operand()
            else:
                return result
            result = self.and_(result, lambda op=op, a=left, b=right: self.step(op, a, b))  # type: ignore[misc]
            left = right
        return result

    def step(self, op: str, left: Any, right: Any) -> Any:
        return self.compare(op, left, right) if op in ("Is", "IsNot", "In", "NotIn") else _COMPARE[op](left, right)

    def minmax(self, function: Any, *args: Any) -> Any:
        """`min(...)` and `max(...)`, the built-in ones on numbers and expressions."""
        if function not in (builtins.min, builtins.max) or not any(is_symbolic(a) for a in args):
            return function(*args)
        loc = caller_location()
        result: Any = args[0]
        for value in args[1:]:
            result = binary("min" if function is builtins.min else "max", result, value, loc=loc)
        return result

    def python_only(self, value: Any, what: str) -> Any:
        """A value that Python decides on."""
        if is_symbolic(value):
            raise UnsupportedSyntaxError(
                f"`{what}` on a run-time value is not supported", location=caller_location(), hint="use if / elif"
            )
        return value


def _number(value: Any, like: DType) -> Expr:
    if isinstance(value, (Buffer, BufferSlice)):
        raise LanguageError("a scalar variable cannot take a whole tensor", location=caller_location())
    return as_expr(value, like, loc=caller_location())
