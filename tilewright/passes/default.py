"""The passes of each kind of target, in order."""

from __future__ import annotations

from tilewright.ir.kernel import PrimFunc
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.chunk_gemm import chunk_gemm
from tilewright.passes.coarsen_blocks import coarsen_blocks
from tilewright.passes.fit_blocks import fit_blocks
from tilewright.passes.fuse_loops import fuse_loops
from tilewright.passes.guard_accesses import guard_accesses
from tilewright.passes.inline_index import inline_index
from tilewright.passes.lower_gemm import lower_gemm
from tilewright.passes.lower_loops import lower_loops
from tilewright.passes.lower_reduce import lower_reduce
from tilewright.passes.lower_tiles import lower_tiles
from tilewright.passes.overlap_copies import overlap_copies
from tilewright.passes.pair_gemm import pair_gemm
from tilewright.passes.pipeline import Pass, run_passes
from tilewright.passes.prefetch_rows import prefetch_rows
from tilewright.passes.prepare_gemm import prepare_gemm
from tilewright.passes.privatise import privatise
from tilewright.passes.stream_stores import stream_stores
from tilewright.passes.transpose_tiles import transpose_tiles
from tilewright.passes.vectorise import vectorise
from tilewright.target import Target

# A block is one sequential program with vector instructions.
SEQUENTIAL_BLOCK: tuple[Pass, ...] = (
    Pass("inline_index", inline_index),
    # Before tile operations become loops: what those write belongs to the whole block.
    Pass("privatise", privatise),
    Pass("fit_blocks", fit_blocks),
    Pass("coarsen_blocks", coarsen_blocks),
    Pass("chunk_gemm", chunk_gemm),
    Pass("pair_gemm", pair_gemm),
    Pass("overlap_copies", overlap_copies),
    Pass("prepare_gemm", prepare_gemm),
    Pass("transpose_tiles", transpose_tiles),
    Pass("lower_tiles", lower_tiles),
    Pass("fuse_loops", fuse_loops),
    Pass("lower_reduce", lower_reduce),
    Pass("lower_loops", lower_loops),
    Pass("guard_accesses", guard_accesses),
    Pass("vectorise", vectorise),
    Pass("lower_gemm", lower_gemm),
    Pass("stream_stores", stream_stores),
    Pass("prefetch_rows", prefetch_rows),
)


def lower_cpu(
    func: PrimFunc, target: Target, options: CompileOptions, times: dict[str, float] | None = None
) -> PrimFunc:
    """Tile IR to the lowered IR of a target whose blocks are sequential programs."""
    between = func.replace(level="lowering")
    lowered = run_passes(between, SEQUENTIAL_BLOCK, target, options, verify, times).replace(level="lowered")
    if options.verify:
        verify(lowered)
    return lowered
