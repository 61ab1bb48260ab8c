"""Tilewright: a tile language and compiler for GPU and CPU kernels."""

__version__ = "0.1.0"
