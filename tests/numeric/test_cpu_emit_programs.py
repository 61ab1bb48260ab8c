"""Random lowered programs: nested control flow over random expressions, bit for bit as the evaluator."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "unit" / "targets_cpu"))
from cpu_harness import RUNNABLE, buf, kernel, let, load, loop, num, ramp, resolve, run_both, same_bits, seq, store, var

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Binary, Broadcast, Call, Cast, Reinterpret, Select, Shuffle, Unary, const
from tilewright.ir.stmt import Alloc, Break, Continue, If

SIZE = 96
DTYPES = (
    "float32",
    "int32",
    "int64",
    "uint8",
    "int16",
    "bfloat16",
    "float16",
    "bool",
    "float64",
    "uint32",
    "float8_e4m3fn",
)
INT_OPS = (
    "add",
    "sub",
    "mul",
    "floordiv",
    "floormod",
    "truncdiv",
    "truncmod",
    "min",
    "max",
    "bitand",
    "bitor",
    "bitxor",
    "shl",
    "shr",
)
FLOAT_OPS = ("add", "sub", "mul", "div")
COMPARE = ("lt", "le", "gt", "ge", "eq", "ne")


class Programs:
    """Draws programs from a seed."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.inputs = {name: buf(f"in_{name}", (SIZE,), name) for name in DTYPES}
        self.outputs = {name: buf(f"out_{name}", (SIZE,), name) for name in DTYPES}
        self.size = var("n")
        self.indices = [self.size]  # small exact integers, not negative
        self.lets = []
        self.tile = buf("tile", (SIZE,), "float32", "shared")
        self.count = 0

    def pick(self, items):
        return items[int(self.rng.integers(len(items)))]

    # --- expressions -------------------------------------------------------------------------

    def index(self, depth):
        """Exact index arithmetic; its size stays below 2^63."""
        if depth == 0 or self.rng.random() < 0.2:
            return self.pick(self.indices) if self.rng.random() < 0.7 else num(int(self.rng.integers(-20, 60)))
        op = self.pick(
            (
                "add",
                "sub",
                "mul",
                "floordiv",
                "floormod",
                "truncdiv",
                "truncmod",
                "min",
                "max",
                "neg",
                "select",
                "bitand",
                "shr",
            )
        )
        if op == "neg":
            return Unary(dtype("int32"), "neg", self.index(depth - 1))
        first, second = self.index(depth - 1), self.index(depth - 1)
        if op == "select":
            return Select(dtype("int32"), Binary(dtype("bool"), "lt", first, second), second, self.index(depth - 1))
        return Binary(dtype("int32"), op, first, second)

    def place(self, lanes):
        """An index in range for `lanes` elements: contiguous, strided, or computed."""
        if lanes > 1 and self.rng.random() < 0.25:
            return Binary(
                dtype("int32").with_lanes(lanes),
                "floormod",
                self.value("int32", lanes, 1),
                Broadcast(dtype("int32").with_lanes(lanes), num(SIZE)),
            )
        base = Binary(dtype("int32"), "floormod", self.index(2), num(SIZE - 3 * lanes))
        return base if lanes == 1 else ramp(base, lanes, int(self.pick((1, 1, 1, 2, 3))))

    def condition(self, lanes, depth):
        name = self.pick(("int32", "float32", "bfloat16", "uint8"))
        op = self.pick(COMPARE)
        return Binary(
            dtype("bool").with_lanes(lanes), op, self.value(name, lanes, depth), self.value(name, lanes, depth)
        )

    def value(self, name, lanes, depth):
        of = dtype(name).with_lanes(lanes)
        known = [v for v in self.lets if v.dtype is of]
        if known and self.rng.random() < 0.2:
            return self.pick(known)
        if depth == 0:
            return self.leaf(name, of, lanes)
        kind = self.pick(("op", "op", "op", "cast", "cast", "select", "load", "special"))
        if kind == "cast":
            return Cast(of, self.value(self.pick(DTYPES), lanes, depth - 1))
        if kind == "select":
            sides = self.value(name, lanes, depth - 1), self.value(name, lanes, depth - 1)
            return Select(of, self.condition(lanes, 1), *sides)
        if kind == "load":
            return self.leaf(name, of, lanes)
        if kind == "special":
            return self.special(name, of, lanes, depth)
        return self.operation(name, of, lanes, depth)

    def operation(self, name, of, lanes, depth):
        if of.is_bool:
            if self.rng.random() < 0.5:
                return self.condition(lanes, depth - 1)
            return Binary(
                of,
                self.pick(("and", "or", "bitxor")),
                self.value(name, lanes, depth - 1),
                self.value(name, lanes, depth - 1),
            )
        ops = FLOAT_OPS if of.is_float else INT_OPS
        return Binary(of, self.pick(ops), self.value(name, lanes, depth - 1), self.value(name, lanes, depth - 1))

    def special(self, name, of, lanes, depth):
        first = self.value(name, lanes, depth - 1)
        if of.is_bool:
            return Unary(of, "not", first)
        if name in ("int32", "float32", "uint32") and self.rng.random() < 0.4:
            other = "float32" if name != "float32" else "int32"
            return Reinterpret(of, self.value(other, lanes, depth - 1))
        if lanes > 1 and self.rng.random() < 0.4:
            picked = tuple(int(k) for k in self.rng.integers(0, 2 * lanes, lanes))
            return Shuffle(of, first, self.value(name, lanes, depth - 1), picked)
        if of.is_float and self.rng.random() < 0.5:
            return Call(of, self.pick(("floor", "ceil", "trunc", "round", "abs")), (first,))
        return Unary(of, "neg", first)

    def leaf(self, name, of, lanes):
        choice = self.rng.random()
        if choice < 0.5:
            mask = self.condition(lanes, 0) if self.rng.random() < 0.3 else None
            return load(self.inputs[name], self.place(lanes), mask=mask)
        if choice < 0.75 and name == "int32":
            return self.index(2) if lanes == 1 else ramp(self.index(2), lanes, 3)
        drawn = int(self.rng.integers(0, 2 if of.is_bool else 12))
        scalar = const(bool(drawn) if of.is_bool else drawn, of.scalar)
        return scalar if lanes == 1 else Broadcast(of, scalar)

    # --- statements --------------------------------------------------------------------------

    def statements(self, depth, in_loop):
        outer = len(self.lets), len(self.indices)
        result = [s for _ in range(int(self.rng.integers(1, 4))) for s in self.statement(depth, in_loop)]
        del self.lets[outer[0] :], self.indices[outer[1] :]
        return result

    def statement(self, depth, in_loop):
        kind = self.pick(
            (
                "store",
                "store",
                "let",
                "tile",
                "index",
                *(("for", "if") if depth else ()),
                *(("jump",) if in_loop else ()),
            )
        )
        lanes = int(self.pick((1, 1, 4, 8, 16)))
        if kind == "for":
            return [self.counted(depth)]
        if kind == "if":
            otherwise = seq(*self.statements(depth - 1, in_loop)) if self.rng.random() < 0.5 else None
            return [If(self.condition(1, 1), seq(*self.statements(depth - 1, in_loop)), otherwise)]
        if kind == "jump":
            return [If(self.condition(1, 1), seq(self.pick((Break, Continue))()))]
        if kind == "index":
            named = self.named("int32")
            statement = let(named, Binary(dtype("int32"), "floormod", self.index(2), num(40)))
            self.indices.append(named)
            return [statement]
        if kind == "tile":
            return [store(self.tile, (self.place(lanes),), self.value("float32", lanes, 2))]
        name = self.pick(DTYPES)
        value = self.value(name, lanes, 3)
        if kind == "let":
            named = self.named(value.dtype.name)
            self.lets.append(named)
            return [let(named, value)]
        mask = self.condition(lanes, 1) if self.rng.random() < 0.3 else None
        return [store(self.outputs[name], (self.place(lanes),), value, mask)]

    def counted(self, depth):
        named = self.named("int32")
        start, stop = int(self.rng.integers(0, 4)), int(self.rng.integers(0, 7))
        step = int(self.pick((1, 1, 2, -1)))
        kind = self.pick(("serial", "unroll"))
        end = (
            num(stop)
            if kind == "unroll" or self.rng.random() < 0.6
            else Binary(dtype("int32"), "min", self.size, num(stop))
        )
        self.indices.append(named)
        body = self.statements(depth - 1, in_loop=True)
        self.indices.pop()
        return loop(named, end, *body, start=start, step=step, kind=kind)

    def named(self, of):
        self.count += 1
        return var(f"v{self.count}", of)

    def kernel(self):
        i = var("i")
        body = [s for _ in range(4) for s in self.statements(3, in_loop=False)]
        params = [*self.inputs.values(), *self.outputs.values(), self.size]
        clear = loop(i, SIZE, store(self.tile, (i,), const(0.0, dtype("float32"))))
        save = loop(i, SIZE, store(self.outputs["float32"], (i,), load(self.tile, i)))
        return kernel(params, Alloc(self.tile), clear, *body, save)


def inputs(seed):
    rng = np.random.default_rng(seed)
    arrays = []
    for name in DTYPES:
        values = rng.integers(0, 2 if name == "bool" else 100, SIZE)
        if dtype(name).is_float:
            values = np.round(rng.standard_normal(SIZE) * 8, 2)
        arrays.append(values.astype(dtype(name).numpy))
    return arrays


@pytest.mark.parametrize("seed", [*range(40), 44, 227])
def test_random_programs(seed):
    func = Programs(seed).kernel()
    level = [*RUNNABLE, "host"][seed % (len(RUNNABLE) + 1)]
    outputs = [np.zeros(SIZE, dtype(name).numpy) for name in DTYPES]
    with np.errstate(all="ignore"):
        mine, theirs = run_both(func, *inputs(seed), *outputs, 5, target=resolve(level))
    for name, a, b in zip(DTYPES, mine[len(DTYPES) : -1], theirs[len(DTYPES) : -1], strict=True):
        same_bits(a, b, f"program {seed} on {level}, {name}:")
