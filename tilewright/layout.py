"""Layouts by hand, under the name that scripts in the TileLang dialect import them from."""

from tilewright.language.layouts import Fragment, Layout, make_swizzled_layout

__all__ = ["Fragment", "Layout", "make_swizzled_layout"]
