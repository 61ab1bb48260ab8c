"""`import tilewright`: cheap, and complete."""

import subprocess
import sys

import pytest

import tilewright

LOADED = """
import sys
import tilewright
import tilewright.language as T
print(*sorted({name.split(".")[0] for name in sys.modules} - set(sys.stdlib_module_names)))
"""


def test_import_brings_no_library_but_ours():
    """What importing costs is measured by benchmarks/compile_time.py; the libraries come with the first kernel."""
    out = subprocess.run([sys.executable, "-I", "-c", LOADED], capture_output=True, text=True, check=True).stdout
    loaded = set(out.split())
    assert "tilewright" in loaded
    assert not loaded & {"numpy", "ml_dtypes", "llvmlite", "rich", "platformdirs", "torch", "jax"}


@pytest.mark.parametrize("name", sorted(tilewright.EXPORTS))
def test_every_export_is_there(name):
    assert getattr(tilewright, name) is not None
    assert name in tilewright.__all__ and name in dir(tilewright)


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        tilewright.nonsense  # noqa: B018
