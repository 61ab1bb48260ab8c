"""Text of LLVM IR: a module, and a function written region by region.

A region is the body of a loop or branch.  `Writer.pure` puts an instruction that reads no memory into the
outermost region that defines all its operands, before the nested region that asks for it, and once only:
index arithmetic comes out free of common subexpressions and of loop invariants, so that the code needs no
clean-up by LLVM passes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tilewright.target import Target
from tilewright.targets.cpu.values import Linear, Value, integer, suffix, vector_type, width

ZEROS = "@tw.zeros"
ZERO_BYTES = 4096
"""Size of the zeros that a load reads where its mask does not hold; the largest vector element fits."""


class Facts:
    """What the emitter asks about a target."""

    def __init__(self, target: Target) -> None:
        features = {f[1:] for f in target.features.split(",") if f.startswith("+")}
        self.x86 = target.triple.startswith(("x86_64", "amd64"))
        arm = not self.x86
        self.fma = arm or "fma" in features
        self.half = arm or "f16c" in features
        self.rounding = arm or "sse4.1" in features
        self.avx512 = self.x86 and {"avx512f", "avx512vl", "avx512dq"} <= features
        self.dot_bf16 = target.dot_bf16 and "avx512bf16" in features


class Module:
    """One module's declarations, functions and metadata."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.facts = Facts(target)
        self.declarations: dict[str, str] = {}
        self.externals: set[str] = set()
        self.functions: list[str] = []
        self.internal: dict[str, None] = {}
        self.metadata: list[str] = []
        self._named: dict[str, str] = {}

    def declare(self, name: str, result: str, arguments: tuple[str, ...], attributes: str = "") -> None:
        """Declare the function `name` once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)}){attributes}"

    def node(self, text: str) -> str:
        """A metadata node."""
        self.metadata.append(text)
        return f"!{len(self.metadata) - 1}"

    def shared_node(self, text: str) -> str:
        """The metadata node with this text, made once."""
        if text not in self._named:
            self._named[text] = self.node(text)
        return self._named[text]

    def one(self) -> str:
        """The metadata node that holds the number 1."""
        return self.shared_node("!{i32 1}")

    def likely(self) -> str:
        """Branch weights: the first label it is."""
        return self.shared_node('!{!"branch_weights", i32 2000, i32 1}')

    def unlikely(self) -> str:
        """Branch weights: the second label it is."""
        return self.shared_node('!{!"branch_weights", i32 1, i32 2000}')

    def loop_node(self) -> str:
        """Loops are as they should be: LLVM neither unrolls nor vectorises them."""
        hints = [
            self.shared_node('!{!"llvm.loop.unroll.disable"}'),
            self.shared_node('!{!"llvm.loop.vectorize.enable", i1 false}'),
        ]
        return self.node(f"distinct !{{!{len(self.metadata)}, {', '.join(hints)}}}")

    def text(self) -> str:
        """The module."""
        head = [
            f'target triple = "{self.target.triple}"',
            f"{ZEROS} = internal constant [{ZERO_BYTES} x i8] zeroinitializer, align 64",
        ]
        nodes = [f"!{i} = {text}" for i, text in enumerate(self.metadata)]
        return "\n".join([*head, *self.declarations.values(), *self.functions, *nodes]) + "\n"


@dataclass(slots=True)
class Region:
    """A structured piece of code.

    before: lines of the enclosing region that run before this one.  floor: depth of the innermost branch around
    the code; what may be costly is not moved out of it.
    """

    before: list[Any]
    floor: int = 0
    lines: list[Any] = field(default_factory=list)
    memo: dict[str, Value] = field(default_factory=dict)


class Writer:
    """Writes one function."""

    def __init__(self, module: Module, signature: str) -> None:
        self.module = module
        self.facts = module.facts
        self.signature = signature
        self.stack: list[str] = []
        self.regions = [Region([])]
        self.streaming = False
        self._always: Value | None = None
        self._count = 0
        self._depth: int | None = None
        self.label = "entry"

    # --- text ---------------------------------------------------------------------------------

    def finish(self) -> None:
        """Add the function to the module."""
        lines = [self.signature + " {", "entry:", *self.stack, *_flatten(self.regions[0].lines), "}"]
        self.module.functions.append("\n".join(lines))

    @property
    def depth(self) -> int:
        """Nesting of the open region."""
        return len(self.regions) - 1

    def emit(self, line: str) -> None:
        """One line in the open region."""
        self.regions[-1].lines.append(line)

    def name(self, hint: str = "") -> str:
        """A fresh name (without %): `t7`, or `acc.7` from the user's name."""
        self._count += 1
        return f"{_clean(hint)}.{self._count}" if hint else f"t{self._count}"

    def place(self, label: str) -> None:
        """Begin the block `label`."""
        self.label = label
        self.emit(f"{label}:")

    def jump(self, label: str) -> None:
        """Go to `label`."""
        self.emit(f"br label %{label}")

    def branch(self, condition: Value, on_true: str, on_false: str) -> None:
        """Go to one of two labels."""
        self.emit(f"br i1 {condition.text}, label %{on_true}, label %{on_false}")

    def hoist_point(self) -> list[Any]:
        """A place in the open region that code of the next nested region may be moved to."""
        place: list[Any] = []
        self.regions[-1].lines.append(place)
        return place

    def open(self, before: list[Any], *, branch: bool = False) -> None:
        """Open a nested region; `before` is from `hoist_point`, with only the jump into the region after it."""
        region = Region(before, len(self.regions) if branch else self.regions[-1].floor)
        self.regions[-1].lines.append(region.lines)
        self.regions.append(region)

    def close(self) -> None:
        """Close the innermost region."""
        self.regions.pop()

    # --- instructions ---------------------------------------------------------------------------

    def ins(self, rhs: str, type_text: str, lanes: int = 1, hint: str = "") -> Value:
        """An instruction here, which may read or write memory."""
        text = f"%{self.name(hint)}"
        self.regions[-1].lines.append(f"{text} = {rhs}")
        return Value(text, type_text, lanes, None, len(self.regions) - 1)

    def pure(self, rhs: str, type_text: str, lanes: int, *operands: Value) -> Value:
        """An instruction that reads no memory and cannot trap, as far out as its operands allow, once."""
        return self._at(max([o.depth for o in operands], default=0), rhs, type_text, lanes)

    def op(self, rhs: str, type_text: str, lanes: int, *operands: Value) -> Value:
        """As `pure`, for an instruction that may be costly: it is moved out of loops, but not out of branches."""
        if self._depth is not None:
            return self._at(self._depth, rhs, type_text, lanes)
        depth = self.regions[-1].floor
        for operand in operands:
            depth = max(depth, operand.depth)
        return self._at(depth, rhs, type_text, lanes)

    @contextmanager
    def hoisting(self, *operands: Value) -> Iterator[None]:
        """Instructions in the body, which depend on `operands` alone, are written as by `pure`."""
        outer = self._depth
        self._depth = max([o.depth for o in operands], default=0)
        try:
            yield
        finally:
            self._depth = outer

    def _at(self, depth: int, rhs: str, type_text: str, lanes: int) -> Value:
        region = self.regions[depth]
        found = region.memo.get(rhs)
        if found is None:
            self._count += 1
            text = f"%t{self._count}"
            into = region.lines if depth == len(self.regions) - 1 else self.regions[depth + 1].before
            into.append(f"{text} = {rhs}")
            found = region.memo[rhs] = Value(text, type_text, lanes, None, depth)
        return found

    def alloca(self, type_text: str, hint: str, align: int) -> Value:
        """Memory of the function's frame."""
        text = f"%{self.name(hint)}"
        self.stack.append(f"{text} = alloca {type_text}, align {align}")
        return Value(text, "ptr")

    def always(self) -> Value:
        """A true that LLVM does not know."""
        if self._always is None:
            self.stack += [
                f"%always.byte = load volatile i8, ptr {ZEROS}, align 1",
                "%always = icmp eq i8 %always.byte, 0",
            ]
            self._always = Value("%always", "i1")
        return self._always

    def bin(self, op: str, a: Value, b: Value) -> Value:
        """`op` on two values of one type."""
        return self.op(f"{op} {a.type} {a.text}, {b.text}", a.type, a.lanes, a, b)

    def icmp(self, predicate: str, a: Value, b: Value) -> Value:
        """Integer comparison."""
        return self.op(f"icmp {predicate} {a.type} {a.text}, {b.text}", vector_type("i1", a.lanes), a.lanes, a, b)

    def fcmp(self, predicate: str, a: Value, b: Value) -> Value:
        """Float comparison."""
        return self.op(f"fcmp {predicate} {a.type} {a.text}, {b.text}", vector_type("i1", a.lanes), a.lanes, a, b)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """`a` where `condition`, else `b`."""
        if condition.lanes == 1 and condition.number is not None:
            return a if condition.number else b
        return self.op(f"select {condition.operand}, {a.operand}, {b.operand}", a.type, a.lanes, condition, a, b)

    def convert(self, op: str, a: Value, scalar: str) -> Value:
        """A conversion instruction to `scalar` lanes; integers of the same width are left alone."""
        if a.scalar_type == scalar:
            return a
        result = vector_type(scalar, a.lanes)
        if a.number is not None and op in ("sext", "zext", "trunc"):
            number = a.number & ((1 << width(a.scalar_type)) - 1) if op == "zext" else a.number
            return integer(number, width(scalar), a.lanes)
        return self.op(f"{op} {a.operand} to {result}", result, a.lanes, a)

    def bitcast(self, a: Value, type_text: str, lanes: int) -> Value:
        """The bits of `a` as another type."""
        if a.type == type_text:
            return a
        return self.op(f"bitcast {a.operand} to {type_text}", type_text, lanes, a)

    def as_bits(self, a: Value) -> Value:
        """A float's bits as an integer."""
        bits = f"i{width(a.scalar_type)}"
        return self.bitcast(a, vector_type(bits, a.lanes), a.lanes)

    def call(self, name: str, result: str, lanes: int, *arguments: Value) -> Value:
        """A call of a function without effects that is declared or defined in this module."""
        text = ", ".join([a.operand for a in arguments])
        return self.op(f"call {result} @{name}({text})", result, lanes, *arguments)

    def intrinsic(self, name: str, a: Value, *more: Value) -> Value:
        """The LLVM intrinsic `name`, overloaded on and giving the first operand's type."""
        full = f"llvm.{name}.{suffix(a.type)}"
        values = (a, *more)
        self.module.declare(full, a.type, tuple([v.type for v in values]))
        return self.call(full, a.type, a.lanes, *values)

    def libm(self, name: str, *arguments: Value) -> Value:
        """A function of the C library, lane by lane."""
        scalar = arguments[0].scalar_type
        self.module.externals.add(name)
        self.module.declare(name, scalar, (scalar,) * len(arguments), " nounwind willreturn memory(none)")
        return self.lanewise(lambda *lane: self.call(name, scalar, 1, *lane), scalar, *arguments)

    def lanewise(self, function: Any, scalar: str, *arguments: Value) -> Value:
        """`function` of the scalars of each lane, giving lanes of type `scalar`."""
        lanes = arguments[0].lanes
        if lanes == 1:
            single: Value = function(*arguments)
            return single
        result = Value("poison", vector_type(scalar, lanes), lanes)
        for lane in range(lanes):
            result = self.insert(result, function(*[self.extract(a, lane) for a in arguments]), lane)
        return result

    # --- vectors --------------------------------------------------------------------------------

    def extract(self, vector: Value, lane: int) -> Value:
        """One lane."""
        return self.op(f"extractelement {vector.operand}, i64 {lane}", vector.scalar_type, 1, vector)

    def insert(self, vector: Value, lane_value: Value, lane: int) -> Value:
        """`vector` with one lane replaced."""
        rhs = f"insertelement {vector.operand}, {lane_value.operand}, i64 {lane}"
        return self.op(rhs, vector.type, vector.lanes, vector, lane_value)

    def splat(self, scalar: Value, lanes: int) -> Value:
        """`scalar` in every lane."""
        if lanes == 1:
            return scalar
        vector = vector_type(scalar.type, lanes)
        if not scalar.text.startswith("%") and not scalar.text.startswith("@"):
            return Value(f"splat ({scalar.operand})", vector, lanes, scalar.number)
        first = self.pure(f"insertelement {vector} poison, {scalar.operand}, i64 0", vector, lanes, scalar)
        return self.pure(
            f"shufflevector {vector} {first.text}, {vector} poison, <{lanes} x i32> zeroinitializer",
            vector,
            lanes,
            first,
        )

    def shuffle(self, a: Value, b: Value | None, lanes: tuple[int, ...]) -> Value:
        """Lanes picked out of two vectors of one type."""
        scalar = a.scalar_type
        if len(lanes) == 1:
            source = a if lanes[0] < a.lanes or b is None else b
            return self.extract(source, lanes[0] % a.lanes)
        picked = ", ".join([f"i32 {lane}" for lane in lanes])
        other = b.text if b is not None else "poison"
        result = vector_type(scalar, len(lanes))
        rhs = f"shufflevector {a.operand}, {a.type} {other}, <{len(lanes)} x i32> <{picked}>"
        return self.op(rhs, result, len(lanes), a, b or a)

    def halves(self, vector: Value) -> tuple[Value, Value]:
        """The lower and the upper half of the lanes."""
        half = vector.lanes // 2
        return (
            self.shuffle(vector, None, tuple(range(half))),
            self.shuffle(vector, None, tuple(range(half, vector.lanes))),
        )

    def iota(self, lanes: int, scalar: str = "i64", step: int = 1) -> Value:
        """The constant vector 0, step, 2 * step, ..."""
        items = ", ".join([f"{scalar} {step * i}" for i in range(lanes)])
        return Value(f"<{items}>", vector_type(scalar, lanes), lanes)

    # --- exact index arithmetic -------------------------------------------------------------------

    def add(self, a: Value, b: Value) -> Value:
        """i64 (or vector) sum, hoisted."""
        return self._fold("add", a, b, 0)

    def sub(self, a: Value, b: Value) -> Value:
        """i64 (or vector) difference, hoisted."""
        if a.number is not None and b.number is not None and a.lanes == 1:
            return integer(a.number - b.number)
        return a if b.number == 0 else self.binary("sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """i64 (or vector) product, hoisted."""
        return self._fold("mul", a, b, 1)

    def binary(self, op: str, a: Value, b: Value) -> Value:
        """A hoisted integer instruction."""
        return self.pure(f"{op} {a.type} {a.text}, {b.text}", a.type, a.lanes, a, b)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """A hoisted integer comparison."""
        lanes = a.lanes
        return self.pure(f"icmp {predicate} {a.type} {a.text}, {b.text}", vector_type("i1", lanes), lanes, a, b)

    def choose(self, condition: Value, a: Value, b: Value) -> Value:
        """A hoisted select."""
        return self.pure(f"select {condition.operand}, {a.operand}, {b.operand}", a.type, a.lanes, condition, a, b)

    def _fold(self, op: str, a: Value, b: Value, neutral: int) -> Value:
        if a.number is not None:
            a, b = b, a
        if b.number is not None:
            if b.number == neutral:
                return a
            if a.number is not None and a.lanes == 1:
                return integer(a.number + b.number if op == "add" else a.number * b.number)
        return self.binary(op, a, b)

    def linear(self, value: Linear, *, offset: bool = True) -> Value:
        """A sum as one i64, added up from the outermost terms inwards; without its constant unless `offset`."""
        total: Value | None = None
        for term in self.terms(value):
            total = term if total is None else self.add(total, term)
        constant = integer(value.offset if offset else 0)
        if total is None:
            return constant
        return self.add(total, constant) if constant.number else total

    def terms(self, value: Linear) -> list[Value]:
        """The products of a sum but for the constant, outermost first."""
        found = []
        for key, coefficient in value.terms.items():
            if not key:
                continue
            atoms = sorted([value.atoms[name] for name in key], key=lambda atom: atom.depth)
            product = atoms[0]
            for atom in atoms[1:]:
                product = self.mul(product, atom)
            found.append(self.mul(product, integer(coefficient)))
        return sorted(found, key=lambda term: term.depth)


def _flatten(lines: list[Any]) -> Iterator[str]:
    for line in lines:
        if type(line) is list:
            yield from _flatten(line)
        else:
            yield line


def _clean(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]", "_", name)
