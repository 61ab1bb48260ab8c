"""Generated statements mean in a kernel what they mean in Python.

Each program is run twice: as plain Python on integers, and as a kernel by the reference evaluator, where the
same names are T.alloc_var variables, `A` is a tensor and loops are loops of the kernel.
"""

from __future__ import annotations

import linecache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright.language as T
from tilewright.simulator.reference import run

VARIABLES = ("u", "v", "w")
SIZE = 5


@st.composite
def expressions(draw, names, depth=2):
    """An integer expression over `names`."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([*names, "1", "2", "7", "-3"]))
    left, right = (draw(expressions(names, depth - 1)) for _ in range(2))
    form = draw(
        st.sampled_from(
            [
                "({} + {})",
                "({} - {})",
                "({} * {} % 97)",
                "({} // 3 + {})",
                "({} % 5 + {})",
                "min({}, {})",
                "max({}, {})",
                "(-{} + {})",
            ]
        )
    )
    if draw(st.integers(0, 5)) == 0:
        return f"A[({left}) % {SIZE}]"
    if draw(st.integers(0, 4)) == 0:
        return f"({left} if {draw(conditions(names, 1))} else {right})"
    return form.format(left, right)


@st.composite
def conditions(draw, names, depth=2):
    """A condition over `names`."""
    if depth > 0 and draw(st.booleans()):
        first, second = (draw(conditions(names, depth - 1)) for _ in range(2))
        return draw(st.sampled_from(["({} and {})", "({} or {})", "(not {} and {})", "(not ({} or {}))"])).format(
            first, second
        )
    a, b, c = (draw(expressions(names, 1)) for _ in range(3))
    form = draw(st.sampled_from(["{} < {}", "{} == {}", "{} != {}", "{} <= {} < {}", "{} > {} != {}", "({} % 2)"]))
    return form.format(a, b, c)


@st.composite
def blocks(draw, names, depth, in_loop, fresh):
    """Lines of a block; `fresh` numbers the names that it introduces."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 9 if depth else 5))
        target = draw(st.sampled_from(VARIABLES))
        if kind <= 1:
            lines.append(f"{target} = {draw(expressions(names))} % 97")
        elif kind == 2:
            lines.append(f"{target} += {draw(expressions(names))} % 7")
        elif kind == 3:
            lines.append(f"A[({draw(expressions(names, 1))}) % {SIZE}] = {draw(expressions(names))} % 97")
        elif kind == 4:
            other = draw(st.sampled_from(VARIABLES))
            if other != target:
                lines.append(f"{target}, {other} = {other}, {target}")
            else:
                lines.append(f"A[0], {target} = {target}, A[0]")
        elif kind == 5:
            fresh[0] += 1
            lines.append(f"t{fresh[0]} = {draw(expressions(names))}")
            names = [*names, f"t{fresh[0]}"]
        elif kind == 6:
            lines.append(f"for i{depth} in range({draw(st.sampled_from(['3', 'u % 4', '1, 6, 2', '4, 0, -1']))}):")
            lines.extend(indented(draw(blocks([*names, f"i{depth}"], depth - 1, True, fresh))))
        elif kind == 7:
            lines.append(f"if {draw(conditions(names))}:")
            lines.extend(indented(draw(blocks(names, depth - 1, in_loop, fresh))))
            if draw(st.booleans()):
                lines.append(f"elif {draw(conditions(names, 1))}:")
                lines.extend(indented(draw(blocks(names, depth - 1, in_loop, fresh))))
            if draw(st.booleans()):
                lines.append("else:")
                lines.extend(indented(draw(blocks(names, depth - 1, in_loop, fresh))))
        elif kind == 8:
            lines.extend(
                [f"n{depth} = 0", f"while n{depth} < 3 and {draw(conditions(names, 1))}:", f"    n{depth} += 1"]
            )
            lines.extend(indented(draw(blocks(names, depth - 1, True, fresh))))
        elif in_loop:
            lines.extend([f"if {draw(conditions(names, 1))}:", f"    {draw(st.sampled_from(['break', 'continue']))}"])
        else:
            lines.append(f"assert {target} > -100000")
    return lines


def indented(lines):
    return ["    " + line for line in lines]


counter = 0


def define(lines, name):
    """The function of that name in the given source, known to linecache."""
    global counter
    counter += 1
    file, text = f"<semantics {counter}>", "\n".join(lines) + "\n"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    namespace = {"T": T}
    exec(compile(text, file, "exec"), namespace)
    return namespace[name]


@settings(max_examples=60, deadline=None)
@given(blocks(list(VARIABLES), 2, False, [0]))
def test_kernels_mean_what_python_means(lines):
    counters = ["n1", "n2"]
    plain = define(
        ["def main(A, u, v, w):", *indented([f"{n} = 0" for n in counters]), *indented(lines), "    return u, v, w"],
        "main",
    )
    head = [f'{name} = T.alloc_var("int32", {first})' for name, first in zip(VARIABLES, (5, 11, 2), strict=True)]
    head.extend(f'{name} = T.alloc_var("int32", 0)' for name in counters)
    tail = [f"out[{k}] = {name}" for k, name in enumerate(VARIABLES)]
    kernel = define(
        [
            "@T.prim_func",
            f'def main(A: T.Tensor(({SIZE},), "int32"), out: T.Tensor((3,), "int32")):',
            "    with T.Kernel(1):",
            *indented(indented([*head, *lines, *tail])),
        ],
        "main",
    )
    expected = list(range(10, 10 + SIZE))
    values = plain(expected, 5, 11, 2)
    array, out = np.arange(10, 10 + SIZE, dtype=np.int32), np.zeros(3, np.int32)
    run(kernel, (array, out))
    assert (array.tolist(), out.tolist()) == (expected, list(values))
