"""The functions that docs/ir.md shows are in the form it describes, are valid, and compute the same."""

import re
from pathlib import Path

import numpy as np

from tilewright.ir.parser import _STATEMENTS, parse_func
from tilewright.ir.printer import print_func
from tilewright.ir.verifier import verify
from tilewright.simulator.reference import run

PAGE = (Path(__file__).parents[3] / "docs" / "ir.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^```\n(func .*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_samples_are_in_the_printers_form():
    assert [parse_func(text).level for text in SHOWN] == ["tile", "lowered"]
    for text in SHOWN:
        verify(parse_func(text))
        assert print_func(parse_func(text)) == text


def test_the_samples_compute_the_same():
    rng = np.random.default_rng(3)
    x = rng.uniform(1, 2, (5, 72)).astype(np.float16)
    results = []
    for text in SHOWN:
        y = np.zeros_like(x)
        run(parse_func(text), [x, 3.0, y])
        results.append(y.astype(np.float64))
    wide = x.astype(np.float64)
    expected = wide * 3 / wide.sum(axis=1, keepdims=True)
    for y in results:
        np.testing.assert_allclose(y, expected, rtol=2e-3)


def test_every_statement_is_in_the_table():
    table = "\n".join(line for line in PAGE.splitlines() if line.startswith("|"))
    assert [word for word in _STATEMENTS if not re.search(rf"`{word}\b", table)] == []
