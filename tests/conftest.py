"""Golden texts: `pytest --update-golden` writes what the tests produce, else they are compared."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden/*.txt instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)` fails unless tests/golden/<name>.txt has this text."""
    update = request.config.getoption("--update-golden")

    def compare(name: str, text: str) -> None:
        path = GOLDEN / f"{name}.txt"
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
            return
        how = f"to write it: pytest {request.node.nodeid} --update-golden"
        if not path.exists():
            pytest.fail(f"{path} is missing; {how}", pytrace=False)
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            lines = difflib.unified_diff(expected.splitlines(), text.splitlines(), str(path), "now", lineterm="")
            pytest.fail("\n".join([*lines, how]), pytrace=False)

    return compare
