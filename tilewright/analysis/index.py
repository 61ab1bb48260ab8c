"""Integer index algebra: linear forms, bounds, divisibility, simplification and proofs.

Index expressions (over loop variables, block indices and sizes) are exact integers here.  Everything that is
not linear is an *atom* of a linear form, compared by structure.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from tilewright.analysis import intervals
from tilewright.analysis.intervals import UNBOUNDED, Bounds, plus, times, union
from tilewright.ir.dtype import DType
from tilewright.ir.expr import (
    Binary,
    Cast,
    Const,
    Expr,
    Ramp,
    Select,
    Unary,
    Var,
    binary,
    cast,
    const,
    promote,
    unary,
)
from tilewright.ir.structural import key


@dataclass(slots=True)
class Linear:
    """constant + Σ factor · atom.  terms: key of the atom -> (atom, factor); no factor is 0."""

    constant: int = 0
    terms: dict[Hashable, tuple[Expr, int]] = field(default_factory=dict)

    def add(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor · other."""
        terms = dict(self.terms)
        for name, (atom, f) in other.terms.items():
            total = f * factor + (terms[name][1] if name in terms else 0)
            if total:
                terms[name] = (atom, total)
            else:
                terms.pop(name, None)
        return Linear(self.constant + factor * other.constant, terms)

    def scale(self, factor: int) -> Linear:
        """factor · self."""
        if factor == 0:
            return Linear()
        return Linear(self.constant * factor, {k: (a, f * factor) for k, (a, f) in self.terms.items()})

    def coefficient(self, variable: Var) -> int:
        """The factor of a variable, 0 when it is no term."""
        found = self.terms.get(key(variable))
        return found[1] if found is not None else 0


def mentions(item: Expr, variable: Var) -> bool:
    """Whether `variable` occurs in `item`."""
    pending = [item]
    while pending:
        current = pending.pop()
        if current is variable:
            return True
        pending.extend(current.children())  # type: ignore[arg-type]
    return False


class IndexContext:
    """What is known about variables at one place of a program."""

    def __init__(self) -> None:
        self._ranges: dict[int, tuple[Var, int | None, int | None, int]] = {}
        self._facts: tuple[Linear, ...] = ()  # each is known to be >= 0
        self._linear: dict[int, tuple[Expr, Linear]] = {}

    def bind(self, var: Var, lo: int | None, hi: int | None, multiple_of: int = 1) -> None:
        """`lo <= var <= hi` (None: no bound), and var is a multiple of `multiple_of`."""
        self._ranges[id(var)] = (var, lo, hi, multiple_of)
        self._linear.clear()

    @contextmanager
    def bound(self, var: Var, lo: int | None, hi: int | None, multiple_of: int = 1) -> Iterator[None]:
        """`bind` for the length of a `with`."""
        self.bind(var, lo, hi, multiple_of)
        try:
            yield
        finally:
            self._ranges.pop(id(var), None)
            self._linear.clear()

    @contextmanager
    def assuming(self, condition: Expr, holds: bool = True) -> Iterator[None]:
        """Take `condition` for true (or for false) for the length of a `with`."""
        known = self._facts
        self._facts = (*known, *self._facts_of(condition, holds))
        self._linear.clear()  # forms may hold conditions that were decided by facts
        try:
            yield
        finally:
            self._facts = known
            self._linear.clear()

    def _facts_of(self, condition: Expr, holds: bool) -> Iterator[Linear]:
        if isinstance(condition, Unary) and condition.op == "not":
            yield from self._facts_of(condition.operand, not holds)
        if not isinstance(condition, Binary):
            return
        op = condition.op
        if (op in ("and", "bitand") and holds) or (op in ("or", "bitor") and not holds):
            yield from self._facts_of(condition.lhs, holds)
            yield from self._facts_of(condition.rhs, holds)
            return
        if op not in _NEGATED or not condition.lhs.dtype.is_int:
            return
        difference = self.linear(condition.lhs).add(self.linear(condition.rhs), -1)
        op = op if holds else _NEGATED[op]
        if op in ("ge", "eq"):
            yield difference
        if op in ("le", "eq"):
            yield difference.scale(-1)
        if op == "gt":
            yield difference.add(Linear(-1))
        if op == "lt":
            yield difference.scale(-1).add(Linear(-1))

    # --- linear forms ------------------------------------------------------------------------------

    def linear(self, item: Expr) -> Linear:
        """`item` as a linear form of atoms."""
        known = self._linear.get(id(item))
        if known is not None:
            return known[1]
        result = self._make_linear(item)
        self._linear[id(item)] = (item, result)
        return result

    def _make_linear(self, item: Expr) -> Linear:
        if isinstance(item, Const) and not item.dtype.is_float:
            return Linear(int(item.value))
        if isinstance(item, Var):
            known = self._ranges.get(id(item))
            if known is not None and known[1] is not None and known[1] == known[2]:
                return Linear(known[1])
            return _atom(item)
        if isinstance(item, Unary) and item.op == "neg":
            return self.linear(item.operand).scale(-1)
        if isinstance(item, Cast) and item.dtype.is_int and item.value.dtype.is_int and _keeps(item):
            return self.linear(item.value)
        if not isinstance(item, Binary):
            simplified = self._simplify_children(item)
            chosen = isinstance(item, Select) and not isinstance(simplified, Select)
            return self.linear(simplified) if chosen else _atom(simplified)
        handler = _LINEAR.get(item.op)
        if handler is None:
            return _atom(self._simplify_children(item))
        return handler(self, item)

    def _simplify_children(self, item: Expr) -> Expr:
        simplified: Expr = item.map_children(self.simplify)
        if isinstance(simplified, Select) and isinstance(simplified.condition, Const):
            return simplified.on_true if simplified.condition.value else simplified.on_false
        return simplified

    def _linear_sum(self, item: Binary) -> Linear:
        return self.linear(item.lhs).add(self.linear(item.rhs), 1 if item.op == "add" else -1)

    def _linear_product(self, item: Binary) -> Linear:
        left, right = self.linear(item.lhs), self.linear(item.rhs)
        if not right.terms:
            return left.scale(right.constant)
        if not left.terms:
            return right.scale(left.constant)
        return _atom(binary("mul", self.rebuild(left, item.dtype), self.rebuild(right, item.dtype), loc=item.loc))

    def _linear_quotient(self, item: Binary) -> Linear:
        left, right = self.linear(item.lhs), self.linear(item.rhs)
        divisor = right.constant
        if right.terms or divisor <= 0:
            return _atom(self._simplify_children(item))
        quotient, rest = _split(left, divisor)
        lo, hi = self._linear_bounds(rest)
        if lo is not None and hi is not None and lo // divisor == hi // divisor:
            return quotient.add(Linear(lo // divisor))
        rest, _ = self._without_small_part(rest, divisor)
        if len(rest.terms) == 1 and rest.constant == 0:
            ((atom, factor),) = rest.terms.values()
            inner = _constant_divisor(atom, "floordiv")
            if factor == 1 and inner is not None and isinstance(atom, Binary):
                merged = binary("floordiv", atom.lhs, inner * divisor, loc=item.loc)
                return quotient.add(self.linear(merged))
        common = math.gcd(divisor, *[f for _, f in rest.terms.values()])
        if common > 1:  # floor((g·x + c) / (g·d)) = floor((x + floor(c / g)) / d)
            rest, divisor = _divided(rest, common), divisor // common
        return quotient.add(_atom(binary("floordiv", self.rebuild(rest, item.dtype), divisor, loc=item.loc)))

    def _linear_remainder(self, item: Binary) -> Linear:
        left, right = self.linear(item.lhs), self.linear(item.rhs)
        divisor = right.constant
        if right.terms or divisor <= 0:
            return _atom(self._simplify_children(item))
        _, rest = _split(left, divisor)
        lo, hi = self._linear_bounds(rest)
        if lo is not None and hi is not None and lo // divisor == hi // divisor:
            return rest.add(Linear(-(lo // divisor) * divisor))
        rest, small = self._without_small_part(rest, divisor)
        common = math.gcd(divisor, rest.constant, *[f for _, f in rest.terms.values()])
        reduced = self.rebuild(_divided(rest, common), item.dtype)  # (g·x) mod (g·d) = g · (x mod d)
        return small.add(_atom(binary("floormod", reduced, divisor // common, loc=item.loc)), common)

    def _without_small_part(self, form: Linear, divisor: int) -> tuple[Linear, Linear]:
        """(large, small) with form = large + small, where small never carries into a multiple of `divisor`.

        large is a multiple of some g that divides `divisor`, and 0 <= small < g.
        """
        granules = {name: factor * self._multiple(atom) for name, (atom, factor) in form.terms.items()}
        for step in sorted({math.gcd(divisor, granule) for granule in granules.values()} - {1}, reverse=True):
            small = Linear(form.constant % step)
            small.terms.update({name: term for name, term in form.terms.items() if granules[name] % step})
            lo, hi = self._linear_bounds(small)
            if lo is not None and hi is not None and lo >= 0 and hi < step:
                return form.add(small, -1), small
        return form, Linear()

    def _linear_extreme(self, item: Binary) -> Linear:
        left, right = self.linear(item.lhs), self.linear(item.rhs)
        lo, hi = self._linear_bounds(left.add(right, -1))
        if lo is not None and lo >= 0:
            return left if item.op == "max" else right
        if hi is not None and hi <= 0:
            return right if item.op == "max" else left
        return _atom(self._simplify_children(item))

    def rebuild(self, form: Linear, dtype: DType) -> Expr:
        """A linear form as an expression of at least `dtype`: positive terms first, the constant last."""
        result: Expr | None = None
        for atom, factor in sorted(form.terms.values(), key=lambda term: term[1] < 0):
            kind = promote(dtype, atom.dtype)
            size = abs(factor)
            term = atom if size == 1 else binary("mul", atom, const(size, kind if _fits(size, kind) else None))
            if result is None:
                result = term if factor > 0 else unary("neg", term)
            else:
                result = binary("add" if factor > 0 else "sub", result, term)
        if result is None:
            return const(form.constant, dtype if _fits(form.constant, dtype) else None)
        if form.constant:
            return binary("add" if form.constant > 0 else "sub", result, abs(form.constant))
        return result

    # --- bounds and divisibility -------------------------------------------------------------------

    def bounds(self, item: Expr) -> Bounds:
        """Inclusive bounds of an integer expression; None where there is none."""
        if isinstance(item, Ramp):
            base, stride = self.bounds(item.base), self.bounds(item.stride)
            return plus(base, times(stride, (0, item.dtype.lanes - 1)))
        return self._linear_bounds(self.linear(item))

    def _linear_bounds(self, form: Linear) -> Bounds:
        total: Bounds = (form.constant, form.constant)
        for atom, factor in form.terms.values():
            total = plus(total, times(self._atom_bounds(atom), (factor, factor)))
        return total

    def _atom_bounds(self, atom: Expr) -> Bounds:
        if isinstance(atom, Var):
            known = self._ranges.get(id(atom))
            return (known[1], known[2]) if known is not None else UNBOUNDED
        if isinstance(atom, Select):
            return union(self.bounds(atom.on_true), self.bounds(atom.on_false))
        if isinstance(atom, Cast) and atom.value.dtype.is_bool:
            return (0, 1)
        if not isinstance(atom, Binary):
            return atom.dtype.int_range() if atom.dtype.is_int and atom.dtype.bits < 32 else UNBOUNDED
        left, right = self.bounds(atom.lhs), self.bounds(atom.rhs)
        return intervals.OPERATORS[atom.op](left, right) if atom.op in intervals.OPERATORS else UNBOUNDED

    def modular(self, item: Expr) -> tuple[int, int]:
        """(modulus, residue) with item ≡ residue (mod modulus); modulus 0 means that item is the residue."""
        form = self.linear(item)
        modulus = 0
        for atom, factor in form.terms.values():
            modulus = math.gcd(modulus, factor * self._multiple(atom))
        return (modulus, form.constant % modulus if modulus else form.constant)

    def _multiple(self, atom: Expr) -> int:
        if isinstance(atom, Var):
            known = self._ranges.get(id(atom))
            return known[3] if known is not None else 1
        if isinstance(atom, Binary) and atom.op == "mul":
            return self._divisor(atom.lhs) * self._divisor(atom.rhs)
        if isinstance(atom, Binary) and atom.op in ("min", "max"):
            return math.gcd(self._divisor(atom.lhs), self._divisor(atom.rhs)) or 1
        if isinstance(atom, Binary) and atom.op == "floormod":
            divisor = _constant_divisor(atom, "floormod")
            return math.gcd(self._divisor(atom.lhs), divisor) if divisor else 1
        return 1

    def _divisor(self, item: Expr) -> int:
        modulus, residue = self.modular(item)
        return math.gcd(modulus, residue) or 1

    def divisible(self, item: Expr, by: int) -> bool:
        """Whether `item` is known to be a multiple of `by`."""
        modulus, residue = self.modular(item)
        return modulus % by == 0 and residue % by == 0

    # --- simplification and proofs -----------------------------------------------------------------

    def simplify(self, item: Expr) -> Expr:
        """An expression of the same value and dtype, in linear form where it is an integer; conditions may fold."""
        if item.dtype.lanes > 1:
            return self._simplify_children(item)
        if item.dtype.is_int and isinstance(item, (Binary, Unary, Cast)):
            return cast(self.rebuild(self.linear(item), item.dtype), item.dtype, loc=item.loc)
        if item.dtype.is_bool and isinstance(item, (Binary, Unary)):
            return self._simplify_condition(item)
        return self._simplify_children(item)

    def _simplify_condition(self, item: Binary | Unary) -> Expr:
        if isinstance(item, Unary):
            inner = self.simplify(item.operand)
            return unary("not", inner, loc=item.loc) if item.op == "not" else self._simplify_children(item)
        if item.op in ("and", "or"):
            left, right = self.simplify(item.lhs), self.simplify(item.rhs)
            absorbing = item.op == "or"
            for one, other in ((left, right), (right, left)):
                if isinstance(one, Const):
                    return one if bool(one.value) == absorbing else other
            return item if left is item.lhs and right is item.rhs else binary(item.op, left, right, loc=item.loc)
        if item.op in _NEGATED and item.lhs.dtype.is_int:
            known = self._decide(item)
            if known is not None:
                return const(known)
        return self._simplify_children(item)

    def _decide(self, item: Binary) -> bool | None:
        """Whether a comparison of integers holds, None when not known."""
        difference = self.linear(item.lhs).add(self.linear(item.rhs), -1)
        for op, answer in ((item.op, True), (_NEGATED[item.op], False)):
            if self._holds(op, difference):
                return answer
        return None

    def _holds(self, op: str, difference: Linear) -> bool:
        """Whether `difference op 0` is proven."""
        negative = difference.scale(-1)
        if op == "ge":
            return self._not_negative(difference)
        if op == "le":
            return self._not_negative(negative)
        if op == "gt":
            return self._not_negative(difference.add(Linear(-1)))
        if op == "lt":
            return self._not_negative(negative.add(Linear(-1)))
        if op == "eq":
            return self._not_negative(difference) and self._not_negative(negative)
        return self._not_negative(difference.add(Linear(-1))) or self._not_negative(negative.add(Linear(-1)))

    def _not_negative(self, form: Linear) -> bool:
        lo, _ = self._linear_bounds(form)
        if lo is not None and lo >= 0:
            return True
        facts, self._facts = self._facts, ()  # to bound what a fact says, no fact is used: that might never end
        try:
            differences = (self._linear_bounds(form.add(fact, -1))[0] for fact in facts)
            return any(lo is not None and lo >= 0 for lo in differences)
        finally:
            self._facts = facts

    def prove(self, condition: Expr) -> bool:
        """Whether `condition` is known to hold; False means not known."""
        simplified = self.simplify(condition)
        return isinstance(simplified, Const) and bool(simplified.value)


def _atom(item: Expr) -> Linear:
    if isinstance(item, Const) and not item.dtype.is_float:
        return Linear(int(item.value))
    return Linear(0, {key(item): (item, 1)})


def _keeps(item: Cast) -> bool:
    """Whether an integer cast keeps every value of an index."""
    return item.dtype.bits >= item.value.dtype.bits and item.dtype.kind == item.value.dtype.kind


def _fits(value: int, dtype: DType) -> bool:
    low, high = dtype.int_range()
    return low <= value <= high


def _split(form: Linear, divisor: int) -> tuple[Linear, Linear]:
    """form = divisor · quotient + rest, with the factors of the rest in 0..divisor-1."""
    quotient, rest = Linear(form.constant // divisor), Linear(form.constant % divisor)
    for name, (atom, factor) in form.terms.items():
        if factor // divisor:
            quotient.terms[name] = (atom, factor // divisor)
        if factor % divisor:
            rest.terms[name] = (atom, factor % divisor)
    return quotient, rest


def _divided(form: Linear, by: int) -> Linear:
    """floor(form / by), where `by` divides every factor."""
    return Linear(form.constant // by, {name: (atom, factor // by) for name, (atom, factor) in form.terms.items()})


def _constant_divisor(item: Expr, op: str) -> int | None:
    """The divisor of `x op d` when it is a positive literal."""
    if isinstance(item, Binary) and item.op == op and isinstance(item.rhs, Const) and item.rhs.dtype.is_int:
        return int(item.rhs.value) if item.rhs.value > 0 else None
    return None


_NEGATED = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
_LINEAR = {
    "add": IndexContext._linear_sum,
    "sub": IndexContext._linear_sum,
    "mul": IndexContext._linear_product,
    "floordiv": IndexContext._linear_quotient,
    "floormod": IndexContext._linear_remainder,
    "min": IndexContext._linear_extreme,
    "max": IndexContext._linear_extreme,
}
