"""Generated Parallel loops: all iterations at once give what one iteration after the other gives."""

import io
import random

import numpy as np
import pytest
from simulator_ir import buffer, evaluate, loop, parallel, region, seq, var

from tilewright.ir.expr import BINARY_OPS, Load, binary, cast, const, select, unary
from tilewright.ir.intrinsics import intrinsic
from tilewright.ir.stmt import Alloc, Break, Continue, Fill, If, Let, Print, Store, While

INT_OPS = [op for op in BINARY_OPS if op not in ("div", "pow", "and", "or")]
FLOAT_OPS = ["add", "sub", "mul", "div", "floordiv", "floormod", "truncmod", "min", "max", "lt", "ge", "eq"]
SHAPE = (4, 3)


class Generator:
    """A random loop body over buffers x (int32), h (float16), a private array and a private scalar."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.x, self.h = buffer("x", (5, 4), "int32"), buffer("h", (5, 4), "float16")
        self.out, self.result = buffer("out", SHAPE, "int32"), buffer("result", SHAPE, "float16")
        self.mine, self.count = buffer("mine", (3,), "int32", "local"), buffer("count", (), "int32", "var")
        self.vars = [var("i"), var("j")]
        self.names = list(self.vars)
        self.loops = 0

    def integer(self, depth):
        choice = self.random.randrange(8 if depth else 3)
        if choice == 0:
            return const(self.random.choice([0, 1, 2, -1, 3, 7, 40, 2147483647]), "int32")
        if choice == 1:
            return self.random.choice(self.names)
        if choice == 2:
            return self.random.choice([self.load(self.x, depth), Load(self.count.dtype, self.count, ())])
        if choice == 3:
            return self.load(self.mine, depth)
        if choice == 4:
            return select(self.condition(depth - 1), self.integer(depth - 1), self.integer(depth - 1))
        if choice == 5:
            return cast(self.floating(depth - 1), "int32")
        if choice == 6:
            return unary(self.random.choice(["neg", "bitnot"]), self.integer(depth - 1))
        value = binary(self.random.choice(INT_OPS), self.integer(depth - 1), self.integer(depth - 1))
        return cast(value, "int32")

    def floating(self, depth):
        choice = self.random.randrange(5 if depth else 2)
        if choice == 0:
            return const(self.random.choice([0.0, 1.5, -2.25, 1e5, float("inf")]), "float16")
        if choice == 1:
            return self.load(self.h, depth)
        if choice == 2:
            return intrinsic(self.random.choice(["exp", "abs", "round", "tanh", "sqrt"]), self.floating(depth - 1))
        if choice == 3:
            return cast(self.integer(depth - 1), self.random.choice(["float16", "float32"]))
        value = binary(self.random.choice(FLOAT_OPS), self.floating(depth - 1), self.floating(depth - 1))
        return cast(value, "float16")

    def condition(self, depth):
        make = self.random.choice([self.integer, self.floating])
        return binary(self.random.choice(["lt", "ge", "ne", "eq"]), make(depth), make(depth))

    def load(self, of, depth):
        indices = [self.random.choice(self.names) if not depth else self.small(depth - 1) for _ in range(of.ndim)]
        return Load(of.dtype, of, tuple(indices))

    def small(self, depth):
        return binary("sub", binary("floormod", self.integer(depth), const(6)), const(1))

    def body(self, depth):
        known = len(self.names)
        stmts = [self.statement(depth) for _ in range(self.random.randrange(1, 5))]
        del self.names[known:]
        return seq(*stmts)

    def statement(self, depth):
        choice = self.random.randrange(9 if depth else 5)
        if choice == 0:
            return Store(self.out, tuple(self.vars), self.integer(2))
        if choice == 1:
            return Store(self.result, tuple(self.vars), self.floating(2))
        if choice == 2:
            return Store(self.mine, (self.small(1),), self.integer(2))
        if choice == 3:
            return Store(self.count, (), self.integer(2))
        if choice == 4:
            value, name = self.integer(2), var("v")
            self.names.append(name)
            return Let(name, value)
        if choice == 5:
            return If(
                self.condition(1), self.body(depth - 1), self.body(depth - 1) if self.random.random() < 0.5 else None
            )
        if choice == 6 and self.loops:
            return If(self.condition(1), seq(self.random.choice([Break, Continue])()))
        if choice == 7:
            return self.while_loop(depth)
        return self.for_loop(depth)

    def for_loop(self, depth):
        name, bound = var("k"), binary("floormod", self.integer(1), const(4))
        step = self.random.choice([1, 2, -1])
        self.loops += 1
        self.names.append(name)
        inner = self.body(depth - 1)
        self.names.pop()
        self.loops -= 1
        start, stop = (bound, const(3)) if step > 0 else (const(3), bound)
        return loop(name, stop, *inner.stmts, start=start, step=step)

    def while_loop(self, depth):
        rounds = buffer("rounds", (), "int32", "var")
        now = Load(rounds.dtype, rounds, ())
        self.loops += 1
        inner = self.body(depth - 1)
        self.loops -= 1
        condition = binary("and", now < const(3), self.condition(1))
        return seq(Alloc(rounds, const(0)), While(condition, seq(Store(rounds, (), now + 1), *inner.stmts)))


@pytest.mark.parametrize("seed", range(150))
def test_generated_loops(seed):
    outcomes = []
    for one_by_one in (False, True):
        made = Generator(seed)
        rng = np.random.default_rng(seed)
        x, h = rng.integers(-9, 9, (5, 4), np.int32), (rng.standard_normal((5, 4)) * 4).astype(np.float16)
        out, result = np.zeros(SHAPE, np.int32), np.zeros(SHAPE, np.float16)
        body = [*made.body(3).stmts, Store(made.out, tuple(made.vars), made.integer(3))]
        if one_by_one:
            body.append(Print(""))  # which a vectorised loop does not have
        evaluate(
            [made.x, made.h, made.out, made.result],
            [x, h, out, result],
            Alloc(made.mine),
            Fill(region(made.mine), const(5)),
            Alloc(made.count, const(2)),
            parallel(made.vars, SHAPE, *body),
            stdout=io.StringIO(),
        )
        outcomes.append((out, result))
    assert np.array_equal(outcomes[0][0], outcomes[1][0])
    assert np.array_equal(outcomes[0][1], outcomes[1][1], equal_nan=True)
