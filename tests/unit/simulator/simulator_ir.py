"""Small pieces of IR for the tests of the evaluator."""

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var, as_expr
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import For, Launch, Parallel, Region, Seq
from tilewright.simulator.reference import run

I32 = dtype("int32")
F32 = dtype("float32")
BOOL = dtype("bool")


def num(value):
    """An int32 literal (expressions as they are)."""
    return as_expr(value, I32)


def nums(values):
    return tuple(num(v) for v in values)


def buffer(name, shape, of="float32", scope="global", **more):
    return Buffer(name, nums(shape), dtype(of), scope, **more)


def var(name, of="int32"):
    return Var(dtype(of), name)


def region(of, starts=None, extents=None):
    return Region(of, nums([0] * of.ndim if starts is None else starts), nums(extents or of.shape))


def seq(*stmts):
    return Seq(tuple(stmts))


def loop(variable, stop, *body, start=0, step=1, kind="serial"):
    return For(variable, num(start), num(stop), num(step), seq(*body), kind)


def parallel(variables, extents, *body):
    return Parallel(tuple(variables), nums(extents), seq(*body))


def kernel(params, *body, grid=(1,), block_vars=None, sizes=(), level="tile"):
    block_vars = block_vars or tuple(var(f"b{d}") for d in range(len(grid)))
    return PrimFunc("kernel", tuple(params), seq(Launch(nums(grid), block_vars, seq(*body))), tuple(sizes), (), level)


def evaluate(params, args, *body, **more):
    """Run a one-block kernel."""
    options = {k: more.pop(k) for k in ("order", "stdout") if k in more}
    run(kernel(params, *body, **more), args, **options)
