"""`import tilewright`: cheap, and complete."""

import subprocess
import sys

import pytest

import tilewright

TIME = """
import sys, time
start = time.perf_counter()
import tilewright
import tilewright.language as T
print(time.perf_counter() - start, *(m for m in ("numpy", "torch", "llvmlite", "jax") if m in sys.modules))
"""


def test_import_is_cheap_and_brings_no_big_library():
    out = [
        subprocess.run([sys.executable, "-c", TIME], capture_output=True, text=True, check=True).stdout for _ in "ab"
    ]
    seconds = min(float(text.split()[0]) for text in out)
    assert seconds <= 0.25
    assert out[0].split()[1:] == []


@pytest.mark.parametrize("name", sorted(tilewright.EXPORTS))
def test_every_export_is_there(name):
    assert getattr(tilewright, name) is not None
    assert name in tilewright.__all__ and name in dir(tilewright)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tilewright.nonsense  # noqa: B018
