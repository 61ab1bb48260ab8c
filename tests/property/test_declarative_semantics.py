"""Generated loop nests mean as declarative kernels what they mean in Python.

Each program runs as plain Python on arrays whose elements read as Python numbers and round or wrap when they are
stored, and as a kernel by the reference evaluator and on the CPU.  Values are small integers and halves, exact in
every dtype here, so results are equal to the bit whatever was recognised.
"""

from __future__ import annotations

import linecache
from dataclasses import dataclass

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import tilewright

SIZES = {"M": "i", "N": "j", "K": "k"}
TENSORS = {"A": "MK", "B": "KN", "V": "N", "W": "M", "C": "MN", "D": "MN", "R": "M", "H": "N"}
WRITTEN = ("C", "D", "R", "H")
SCALARS = ("s", "t", "u")
LIMIT = {"float16": 1000, "int8": 100}


class Large(Exception):
    """A value that some dtype does not hold exactly."""


class Elements:
    """An array as plain Python sees it."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.limit = LIMIT.get(array.dtype.name, 1 << 18)

    def __getitem__(self, index):
        value = self.array[index].item()
        return float(value) if self.array.dtype.kind == "f" else int(value)

    def __setitem__(self, index, value) -> None:
        if abs(value) > self.limit:
            raise Large
        self.array[index] = value if self.array.dtype.kind == "f" else int(value)


def python_grid(*extents):
    return (tuple(int(n) for n in index) for index in np.ndindex(*extents))


@dataclass
class Names:
    """What a line may use: indices with the size that bounds each, scalars that have a value, and a number to name loops."""

    indices: tuple[tuple[str, str], ...]
    scalars: frozenset[str]

    def with_index(self, name: str, size: str) -> Names:
        return Names((*self.indices, (name, size)), self.scalars)


def index(draw, names: Names, size: str) -> str:
    """An index within `size`, usually a plain one."""
    own = [name for name, bound in names.indices if bound == size]
    if own and draw(st.integers(0, 5)):
        return draw(st.sampled_from(own))
    every = [name for name, _ in names.indices]
    forms = ["0", "-1", f"{size} - 1"]
    if every:
        forms += [f"({draw(st.sampled_from(every))} + {draw(st.integers(0, 2))}) % {size}"]
    if own:
        chosen = draw(st.sampled_from(own))
        forms += [f"{size} - 1 - {chosen}", f"max({chosen} - 1, 0)", f"min({chosen} + 1, {size} - 1)"]
    return draw(st.sampled_from(forms))


def element(draw, names: Names, tensors) -> str:
    tensor = draw(st.sampled_from(sorted(tensors)))
    return f"{tensor}[{', '.join(index(draw, names, size) for size in TENSORS[tensor])}]"


def expression(draw, names: Names, depth: int = 2) -> str:
    """A value; reads of what is written, and scalars, stay small by a remainder."""
    kind = draw(st.integers(0, 11 if depth else 5))
    if kind <= 2:
        return element(draw, names, ("A", "B", "V", "W"))
    if kind == 3 and names.scalars:
        return f"({draw(st.sampled_from(sorted(names.scalars)))} % 7)"
    if kind == 4:
        return f"({element(draw, names, WRITTEN)} % 5)"
    if kind <= 5:
        return draw(st.sampled_from(["1", "2", "-3", "0.5", *(name for name, _ in names.indices)]))
    if kind == 6:
        return f"{element(draw, names, 'ABVW')} * {element(draw, names, 'ABVW')}"
    if kind == 7:
        first, second = (expression(draw, names, depth - 1) for _ in range(2))
        return f"({first} if {condition(draw, names)} else {second})"
    if kind == 8:
        function = draw(st.sampled_from(["max", "min"]))
        return f"{function}({expression(draw, names, depth - 1)}, {expression(draw, names, depth - 1)})"
    if kind == 9:
        return f"abs({expression(draw, names, depth - 1)})"
    operator = draw(st.sampled_from(["+", "-"]))
    return f"({expression(draw, names, depth - 1)} {operator} {expression(draw, names, depth - 1)})"


def condition(draw, names: Names) -> str:
    form = draw(
        st.sampled_from(["{} > {}", "{} <= {}", "{} != {}", "{} < {} and {} > 0", "not {} < {}", "{} > 0 or {}"])
    )
    return form.format(*(expression(draw, names, 1) for _ in range(4)))


def loop(draw, names: Names) -> tuple[str, list[tuple[str, str]]] | None:
    """A loop's head, and its indices with their sizes."""
    used = {name for name, _ in names.indices}
    free = [(name, size) for size, first in SIZES.items() for name in (first, first * 2) if name not in used]
    name, size = draw(st.sampled_from(free))
    if draw(st.integers(0, 5)) == 0:
        others = [(n, s) for n, s in free if n != name]
        second, second_size = draw(st.sampled_from(others))
        return f"for {name}, {second} in grid({size}, {second_size}):", [(name, size), (second, second_size)]
    bounds = [size] * 6 + [f"1, {size}", f"0, {size}, 2", f"{size} - 1, -1, -1", f"{size} // 2"]
    bounds += [outer for outer, bound in names.indices if bound == size]
    bounds += [f"{outer} + 1" for outer, bound in names.indices if bound == size]
    return f"for {name} in range({draw(st.sampled_from(bounds))}):", [(name, size)]


def block(draw, names: Names, depth: int) -> tuple[list[str], frozenset[str]]:
    """Lines, and the scalars that have a value after them."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.integers(0, 10 if depth else 5))
        if kind <= 1:
            scalar = draw(st.sampled_from(SCALARS))
            lines.append(f"{scalar} = {expression(draw, names)}")
            names = Names(names.indices, names.scalars | {scalar})
        elif kind == 2 and names.scalars:
            scalar = draw(st.sampled_from(sorted(names.scalars)))
            value = expression(draw, names)
            forms = [f"{scalar} += {value}", f"{scalar} = {scalar} + {value}", f"{scalar} -= {value}"]
            forms += [f"{scalar} = max({scalar}, {value})", f"{scalar} = min({value}, {scalar})"]
            lines.append(draw(st.sampled_from(forms)))
        elif kind <= 5:
            target = element(draw, names, WRITTEN)
            lines.append(f"{target} {draw(st.sampled_from(['=', '=', '+=']))} {expression(draw, names)}")
        elif kind == 6:
            body, first = block(draw, names, depth - 1)
            lines += [f"if {condition(draw, names)}:", *indented(body)]
            if draw(st.booleans()):
                body, second = block(draw, names, depth - 1)
                lines += ["else:", *indented(body)]
                names = Names(names.indices, names.scalars | (first & second))
        else:
            head, found = loop(draw, names)
            inner = names
            for name, size in found:
                inner = inner.with_index(name, size)
            body, _ = block(draw, inner, depth - 1)
            lines += [head, *indented(body)]
    return lines, names.scalars


def pattern(draw) -> list[str]:
    """A nest that is recognised, with free parts."""
    points = Names((("i", "M"), ("j", "N")), frozenset("s"))
    row = Names((("i", "M"), ("j", "N")), frozenset("st"))
    kind = draw(st.integers(0, 2))
    start = draw(st.sampled_from(["0", "0.0", "W[i]", "C[i, j] % 3"] if kind == 0 else ["0", "0.0", "W[i]", "-7"]))
    if kind == 0:
        factors = draw(st.sampled_from(["A[i, k] * B[k, j]", "B[k, j] * A[i, k]", "A[i, k] * float32(B[k, j])"]))
        order = draw(st.sampled_from([["for i in range(M):", "for j in range(N):"], ["for i, j in grid(M, N):"]]))
        body = [f"s = {start}", "for k in range(K):", f"    s += {factors}"]
        body.append(
            f"{draw(st.sampled_from(['C', 'D']))}[i, j] = {draw(st.sampled_from(['s', expression(draw, points)]))}"
        )
    else:
        order = ["for i in range(M):"]
        local = (
            [f"    t = {expression(draw, Names(points.indices, frozenset()))}"]
            if draw(st.booleans())
            else ["    t = 2"]
        )
        combine = draw(st.sampled_from(["s += {}", "s = max(s, {})", "s = min({}, s)"]))
        body = [f"s = {start}", "for j in range(N):", *local]
        names = Names(points.indices, frozenset("t"))
        if draw(st.integers(0, 3)) == 0:
            body += [f"    if {condition(draw, names)}:", f"        s += {expression(draw, names)}"]
        else:
            body.append("    " + combine.format(expression(draw, names)))
        if kind == 2:
            body += ["for j in range(N):", "    t = s - 1", f"    C[i, j] = {expression(draw, row)}"]
        body.append(f"R[i] = {draw(st.sampled_from(['s', 's % 5']))}")
    for head in reversed(order):
        body = [head, *indented(body)]
    return body


def indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


@st.composite
def programs(draw) -> str:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.integers(0, 2)) == 0:
            lines += pattern(draw)
        else:
            lines += block(draw, Names((), frozenset()), 3)[0]
    return "\n".join(lines)


def arrays(sizes: dict[str, int], dtypes: tuple[str, str], seed: int) -> dict[str, np.ndarray]:
    source = np.random.default_rng(seed)
    return {
        name: source.integers(-3, 4, [sizes[s] for s in dims]).astype(dtypes[name in WRITTEN])
        for name, dims in TENSORS.items()
    }


def build(body: str, dtypes: tuple[str, str]) -> object:
    """The body as a function in a file of its own."""
    parameters = ", ".join(f"{name}: {dtypes[name in WRITTEN]}[{', '.join(dims)}]" for name, dims in TENSORS.items())
    text = (
        "from __future__ import annotations\n" + f"def program({parameters}):\n" + "\n".join(indented(body.split("\n")))
    )
    file = f"<declarative {hash((body, dtypes))}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    space = {"grid": python_grid, "float32": float}
    exec(compile(text, file, "exec"), space)
    return space["program"]


@settings(max_examples=35, deadline=None)
@given(
    programs(),
    st.fixed_dictionaries({"M": st.integers(1, 7), "N": st.integers(1, 7), "K": st.integers(1, 6)}),
    st.sampled_from(["float64", "float32", "float16", "int32", "int64", "int8"]),
    st.sampled_from(["float64", "float32", "float16", "int32", "int64"]),
    st.sampled_from([{}, {"block": (2, 3), "block_k": 2}, {"block": 2}]),
    st.integers(0, 99),
)
def test_program_means_what_python_does(body, sizes, first, second, hints, seed):
    """A program's arrays after it ran: Python, the reference evaluator, the CPU."""
    check(body, sizes, (first, second), hints, seed)


def check(body, sizes, dtypes, hints, seed) -> None:
    program = build(body, dtypes)
    expected = arrays(sizes, dtypes, seed)
    elements = {name: Elements(array) for name, array in expected.items()}
    for name, value in sizes.items():
        program.__globals__[name] = value
    try:
        program(**elements)
    except Large:
        assume(False)
    for name in sizes:
        del program.__globals__[name]
    del program.__globals__["float32"]
    kernel = tilewright.kernel(program, **hints)
    for target in ("reference", "cpu"):
        found = arrays(sizes, dtypes, seed)
        kernel(**found, target=target)
        for name in WRITTEN:
            np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{target} {name}\n{body}")
