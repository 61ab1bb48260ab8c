"""Tests with an optional array library are collected where that library is installed."""

from importlib.util import find_spec

collect_ignore = [f"test_runtime_with_{name}.py" for name in ("torch", "jax") if find_spec(name) is None]
