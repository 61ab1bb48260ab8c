"""Python functions to Tile IR.  Importing it makes the decorators of the language work."""

from tilewright.frontend.build import build_macro, build_prim_func
from tilewright.language.entry import prim_func

__all__ = ["build_macro", "build_prim_func", "prim_func"]
