"""Statements: control flow and scalar code of both IR levels, and the tile operations of Tile IR.

Meaning of what is common to all tile operations:
- A `Region` is a box of a buffer: for each dimension of the buffer a start and an extent.
  Elements of a region that lie outside their buffer read as 0 (or the buffer's safe value)
  and are not written.
- Operands of one operation have the same extents once extents of 1 are dropped.
- Every operation is done as if by one thread, in program order.
"""

from __future__ import annotations

from tilewright.ir.expr import Buffer, Expr, Var, const_int
from tilewright.ir.node import Node, node, reference

# --- structure and control flow: both levels ---------------------------------------------------


@node
class Stmt(Node):
    """Something that is executed."""


@node
class Seq(Stmt):
    """Statements one after the other, and the scope of the names and buffers that they introduce."""

    stmts: tuple[Stmt, ...] = ()


@node
class Let(Stmt):
    """`var` stands for `value` from here to the end of the enclosing Seq."""

    var: Var = reference()
    value: Expr


@node
class Alloc(Stmt):
    """`buffer` (on-chip, var, or a global workspace) exists from here to the end of the enclosing Seq.

    Its contents are undefined until written; `init` is the first value of a var.
    """

    buffer: Buffer = reference()
    init: Expr | None = None


@node
class Alias(Stmt):
    """`buffer` names the storage of `buffer.view_of` with another shape or dtype, row-major, from its start."""

    buffer: Buffer = reference()


@node
class Store(Stmt):
    """`buffer[indices] = value`.

    Tile IR: nothing is stored when an index is out of range.  Lowered IR: in range by construction
    wherever `mask` holds; vector as `Load`.
    `nontemporal`: lowered IR, the data is not read again soon.
    """

    buffer: Buffer = reference()
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    nontemporal: bool = False


@node
class For(Stmt):
    """`for var in range(start, stop, step)`; start and stop are evaluated once; `step` is not 0.

    kind: "serial"; "unroll" (bounds are literals); "vectorized"; "pipelined" (Tile IR: serial in meaning;
    `num_stages` says how many iterations' copies may be in flight; `order` and `stage` are the user's
    placement of the body's statements, empty when he left it to the compiler).
    """

    var: Var = reference()
    start: Expr
    stop: Expr
    step: Expr
    body: Seq
    kind: str = "serial"
    num_stages: int = 0
    order: tuple[int, ...] = ()
    stage: tuple[int, ...] = ()


FOR_KINDS = ("serial", "unroll", "vectorized", "pipelined")


@node
class While(Stmt):
    """`while condition: body`."""

    condition: Expr
    body: Seq


@node
class If(Stmt):
    """`if condition: then_body else: else_body`."""

    condition: Expr
    then_body: Seq
    else_body: Seq | None = None


@node
class Break(Stmt):
    """Leave the innermost For or While."""


@node
class Continue(Stmt):
    """Go on with the next iteration of the innermost For or While."""


@node
class Region(Node):
    """A box of `buffer`: `starts[d]` up to `starts[d] + extents[d]` in each dimension d."""

    buffer: Buffer = reference()
    starts: tuple[Expr, ...]
    extents: tuple[Expr, ...]

    @property
    def const_extents(self) -> tuple[int, ...] | None:
        """The extents as integers, None when one is known at launch only."""
        sizes = [const_int(e) for e in self.extents]
        return None if None in sizes else tuple(s for s in sizes if s is not None)


@node
class Print(Stmt):
    """Write `message` and the values to the caller's standard output; a buffer is given as its whole region.

    The values, then the regions, one line each: `message: value`, or `message: name = value` where `names` has one;
    `message` alone when there is neither.  `tilewright.simulator.printing` has the format.
    The order in which blocks and iterations print is not defined.
    """

    message: str
    values: tuple[Expr, ...] = ()
    regions: tuple[Region, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each value and region: none ("") for a value, the buffer's for a region."""
        return ("",) * len(self.values) + tuple([r.buffer.name for r in self.regions])


@node
class Assert(Stmt):
    """Stop the kernel and raise DeviceAssertError in the caller when `condition` is false.

    The error has the statement's location; its message names the kernel, the number of the block, and `message`.
    """

    condition: Expr
    message: str = ""


@node
class Prefetch(Stmt):
    """`region` will be read soon: a hint to bring it nearer, without any effect.  It may leave its buffer.

    Lowered IR: one element (extents 1), whose cache line is meant.
    """

    region: Region


# --- Tile IR ------------------------------------------------------------------------------------


@node
class Parallel(Stmt):
    """`body` for every point of the box `extents`, in any order.

    Iterations do not depend on one another, except that stores to a `reducer` buffer of the form
    `r[i] = r[i] op x` combine.  A local or var buffer that an iteration writes is its own: it starts with
    what the buffer held before the loop, and after the loop the buffer's contents are undefined.
    """

    vars: tuple[Var, ...] = reference()
    extents: tuple[Expr, ...]
    body: Seq


@node
class Copy(Stmt):
    """dst = cast(src, dst.dtype), element by element; source and destination do not overlap.

    `overlap`: set by passes; the next gemm in the same Seq has nothing to do with dst, so that the copy may be done
    in between its steps.
    """

    src: Region
    dst: Region
    overlap: bool = False


@node
class Transpose(Stmt):
    """dst[j, i] = cast(src[i, j], dst.dtype) for two-dimensional regions."""

    src: Region
    dst: Region


@node
class Fill(Stmt):
    """dst = cast(value, dst.dtype)."""

    dst: Region
    value: Expr


@node
class Gemm(Stmt):
    """c = (0 if clear_accum else c) + op(a) · op(b), where op transposes when told to.

    op(a) is M×K, op(b) K×N, c M×N.  Products and sums are done in c's dtype (float32 for a narrower
    float c, rounded once at the end); integers wrap.  The order of the K sums is not defined.  The reference
    gives the true sum rounded once.
    policy: "square", "full_row" or "full_col", how waves divide c; k_pack: matrix instructions per
    operand load; both are hints.
    """

    a: Region
    b: Region
    c: Region
    transpose_a: bool = False
    transpose_b: bool = False
    clear_accum: bool = False
    policy: str = "square"
    k_pack: int = 1


REDUCE_OPS = ("sum", "max", "min", "abssum", "absmax", "bitand", "bitor", "bitxor", "any", "all")


@node
class Reduce(Stmt):
    """dst = op over dimension `dim` of src, joined with dst's old value unless `clear`.

    dst has src's extents without `dim`, or with a 1 there.  Sums are done in float32 at least (in
    dst's dtype when it is wider), in any order, and rounded once; integers are cast to dst's dtype first and wrap.
    `any` and `all` give 0 or 1.  `max`, `min`, `absmax` leave NaN out,
    and give NaN only where all are NaN, unless `nan_propagate`.  An empty dimension gives the neutral element.
    """

    op: str
    src: Region
    dst: Region
    dim: int
    clear: bool = True
    nan_propagate: bool = False


@node
class Scan(Stmt):
    """dst[i] = op of src[0..i] along `dim` (of src[i..] when `reverse`); op: "sum" or "max".  dst may be src.

    Rounding and NaN as in Reduce; each element is rounded once.
    """

    op: str
    src: Region
    dst: Region
    dim: int
    reverse: bool = False


ATOMIC_OPS = ("add", "max", "min", "or", "and", "xor", "load", "store", "exchange")


@node
class Atomic(Stmt):
    """dst = dst op value, indivisibly for each element, also between blocks.

    `value` for one element, `source` for a whole region (extents as dst's).  `result`, where given, is a
    Let-like variable that takes the old value of a single element (0 or the safe value when it is out of
    range).  Narrow floats: the sum is done in float32 and rounded.  max and min are those of Binary.
    """

    op: str
    dst: Region
    value: Expr | None = None
    source: Region | None = None
    memory_order: str = "relaxed"
    result: Var | None = reference(default=None)


@node
class Launch(Stmt):
    """A kernel: `body` once for every block of `grid`, in any order and concurrently.

    grid, block_vars: one to three.  threads: the block's threads in x, y, z; on a target where a block is
    one sequential program they have no meaning.  swizzle: (panel size, "row" or "column") of the block
    order, None for the plain order.  annotations: further hints by name.
    """

    grid: tuple[Expr, ...]
    block_vars: tuple[Var, ...] = reference()
    body: Seq
    threads: tuple[int, int, int] = (128, 1, 1)
    swizzle: tuple[int, str] | None = None
    annotations: tuple[tuple[str, object], ...] = ()
