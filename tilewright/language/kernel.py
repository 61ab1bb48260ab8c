"""`with T.Kernel(...)`, and the hints about a kernel that stand inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import ArgumentValueError, KernelStructureError, ScopeError, ShapeError
from tilewright.ir.builder import Builder, Frame
from tilewright.ir.expr import INT32, INT64, Buffer, Expr, Var, as_expr, cast, const_int
from tilewright.ir.stmt import Launch
from tilewright.language.layouts import Layout
from tilewright.source import Location, caller_location

DEFAULT_THREADS = (128, 1, 1)


class Context:
    """A `with` statement of the language.  names: the user's names for what `as` gives; the front-end sets them."""

    names: Sequence[str] = ()

    def __enter__(self) -> Any:
        raise AssertionError

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        raise AssertionError


class Kernel(Context):
    """`with T.Kernel(gx[, gy[, gz]], threads=128) as bx | (bx, by[, bz])`: the body runs once for every block of the grid.

    grid: integers or sizes known at launch.  threads: of a block, one to three numbers.
    Raises KernelStructureError inside another kernel, ArgumentValueError for a bad grid or thread count.
    """

    def __init__(
        self,
        *blocks: Any,
        threads: int | Sequence[int] | None = None,
        is_cpu: bool = False,
        prelude: str | None = None,
        cluster_dims: Any = None,
    ) -> None:
        self.loc = caller_location()
        if not 1 <= len(blocks) <= 3:
            raise ArgumentValueError(f"T.Kernel takes one to three grid sizes, got {len(blocks)}", location=self.loc)
        self.grid = tuple(self._size(b) for b in blocks)
        self.threads = self._threads(threads)
        builder = Builder.active()
        if builder is not None:
            builder.unopened.append(self.loc)
        self.hints = tuple(
            (name, value) for name, value in (("prelude", prelude), ("cluster_dims", cluster_dims)) if value is not None
        )

    def _size(self, value: Any) -> Expr:
        size = as_expr(value, loc=self.loc)
        known = const_int(size)
        if not size.dtype.is_int or (known is not None and known < 0):
            shown = known if known is not None else size.dtype
            raise ArgumentValueError(f"a grid size is an integer and not negative, got {shown}", location=self.loc)
        return size if size.dtype.bits == 64 else cast(size, INT32, loc=self.loc)

    def _threads(self, threads: int | Sequence[int] | None) -> tuple[int, int, int]:
        if threads is None:
            return DEFAULT_THREADS
        given = [const_int(t) for t in (threads if isinstance(threads, (tuple, list)) else (threads,))]
        if not 1 <= len(given) <= 3 or any(t is None or t < 1 for t in given):
            raise ArgumentValueError(
                f"threads must be one to three positive integers, got {threads!r}", location=self.loc
            )
        x, y, z = ([t or 1 for t in given] + [1, 1])[:3]
        if x * y * z > 1024:
            raise ArgumentValueError(f"a block has at most 1024 threads, got {x * y * z}", location=self.loc)
        return (x, y, z)

    def __enter__(self) -> Any:
        builder = Builder.current("T.Kernel")
        if self.loc in builder.unopened:
            builder.unopened.remove(self.loc)
        outer = builder.innermost("launch")
        if outer is not None:
            raise KernelStructureError(
                f"a kernel inside another kernel (opened in line {outer.loc.line if outer.loc else '?'})",
                location=self.loc,
                hint="kernels of one function stand one after the other",
            )
        names = [self.names[d] if d < len(self.names) else "b" + "xyz"[d] for d in range(len(self.grid))]
        self.vars = tuple(
            builder.fresh_var(name, INT64 if size.dtype.bits == 64 else INT32, self.loc)
            for name, size in zip(names, self.grid, strict=True)
        )
        around = (builder.frames[0].data or {}).get("annotations", {})
        builder.frames.append(Frame("launch", self.loc, {"annotations": {**around, **dict(self.hints)}}))
        return self.vars if len(self.vars) > 1 else self.vars[0]

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            return
        builder = Builder.current("T.Kernel")
        frame = builder.frames.pop()
        builder.emit(
            Launch(
                self.grid,
                self.vars,
                frame.seq(),
                self.threads,
                frame.data.get("swizzle"),
                tuple(sorted(frame.data["annotations"].items())),
                loc=self.loc,
            )
        )


def _launch(what: str, loc: Location | None) -> dict[str, Any]:
    builder = Builder.current(what)
    builder.require_launch(what, loc)
    frame = builder.innermost("launch")
    assert frame is not None
    data: dict[str, Any] = frame.data
    return data


def _annotate(what: str, name: str, value: object) -> None:
    _launch(what, caller_location())["annotations"][name] = value


def use_swizzle(panel_size: int, order: str = "row", enable: bool = True) -> None:
    """Run blocks in panels of `panel_size` rows (order "row") or columns ("column"), for cache reuse."""
    loc = caller_location()
    data = _launch("T.use_swizzle", loc)
    if not isinstance(panel_size, int) or panel_size < 1:
        raise ArgumentValueError(f"panel_size must be a positive integer, got {panel_size!r}", location=loc)
    name = {"row": "row", "col": "column", "column": "column"}.get(order)
    if name is None:
        raise ArgumentValueError(f'order must be "row" or "column", got {order!r}', location=loc)
    data["swizzle"] = (panel_size, name) if enable else None


def _buffer_map(what: str, mapping: Any) -> list[tuple[Buffer, Any]]:
    if not isinstance(mapping, Mapping) or not all(isinstance(key, Buffer) for key in mapping):
        raise ScopeError(f"{what} takes a dictionary from tensors to values", location=caller_location())
    return list(mapping.items())


def annotate_layout(layouts: Mapping[Buffer, Any]) -> None:
    """Fix the layout of tiles, a hint: `{tile: T.Layout | T.Fragment | function of the tile's indices}`."""
    loc = caller_location()
    annotations = _launch("annotate_layout", loc)["annotations"]
    found = dict(annotations.get("layout", ()))
    for buffer, given in _buffer_map("annotate_layout", layouts):
        layout = Layout(buffer.shape, given) if callable(given) and not isinstance(given, Layout) else given
        if not isinstance(layout, Layout):
            raise ArgumentValueError(f"{given!r} is no layout", location=loc, hint="use T.Layout or T.Fragment")
        if layout.shape != buffer.const_shape():
            raise ShapeError(
                f"a layout for shape {layout.shape} does not fit {buffer.name}, whose shape is {buffer.const_shape()}",
                location=loc,
            )
        found[buffer.name] = layout
    annotations["layout"] = tuple(found.items())


def annotate_safe_value(values: Mapping[Buffer, Any]) -> None:
    """What reading a tensor out of range gives, instead of 0: `{tensor: number}`."""
    loc = caller_location()
    for buffer, value in _buffer_map("annotate_safe_value", values):
        safe = cast(as_expr(value, buffer.dtype, loc=loc), buffer.dtype, loc=loc)
        if isinstance(safe, Var) or list(safe.children()):
            raise ArgumentValueError("a safe value is a number that is known while compiling", location=loc)
        buffer.safe_value = safe


def annotate_l2_hit_ratio(ratios: Mapping[Buffer, float]) -> None:
    """Which share of a tensor to keep in the level-2 cache: `{tensor: 0.0 to 1.0}`, a hint."""
    items = _buffer_map("annotate_l2_hit_ratio", ratios)
    for buffer, ratio in items:
        if not isinstance(ratio, (int, float)) or not 0 <= ratio <= 1:
            raise ArgumentValueError(
                f"the hit ratio of {buffer.name} must be a number from 0 to 1, got {ratio!r}",
                location=caller_location(),
            )
    _annotate("annotate_l2_hit_ratio", "l2_hit_ratio", tuple((b.name, float(r)) for b, r in items))


def annotate_min_blocks_per_sm(count: int) -> None:
    """How many blocks a compute unit should hold at least, a hint for register allocation."""
    if not isinstance(count, int) or count < 1:
        raise ArgumentValueError(
            f"annotate_min_blocks_per_sm takes a positive integer, got {count!r}", location=caller_location()
        )
    _annotate("annotate_min_blocks_per_sm", "min_blocks_per_sm", count)


def annotate_restrict_buffers(*buffers: Buffer) -> None:
    """Tensors that may share memory with one another, so that a target must not assume the opposite; a hint."""
    builder = Builder.current("annotate_restrict_buffers")
    for buffer in buffers:
        if not isinstance(buffer, Buffer) or buffer.scope != "global":
            raise ScopeError(
                f"annotate_restrict_buffers takes tensors that are parameters, got {buffer!r}",
                location=caller_location(),
            )
    # Before the kernels of a function it holds for all of them.
    frame = builder.innermost("launch") or builder.frames[0]
    frame.data = frame.data or {}
    frame.data.setdefault("annotations", {})["may_overlap"] = tuple(b.name for b in buffers)


def annotate_pass_configs(configs: Mapping[str, Any]) -> None:
    """Settings of compiler passes for this kernel, by name."""
    if not isinstance(configs, Mapping):
        raise ArgumentValueError(
            f"annotate_pass_configs takes a dictionary from names to values, got {configs!r}",
            location=caller_location(),
        )
    _annotate("annotate_pass_configs", "pass_configs", tuple(sorted((str(k), v) for k, v in configs.items())))


__all__ = [
    "Kernel",
    "annotate_l2_hit_ratio",
    "annotate_layout",
    "annotate_min_blocks_per_sm",
    "annotate_pass_configs",
    "annotate_restrict_buffers",
    "annotate_safe_value",
    "use_swizzle",
]
