"""Names of the surface that exist on a GPU only, or are not there yet: calling one says so, with its line."""

from __future__ import annotations

from typing import Any

from tilewright.errors import UnsupportedOnTargetError
from tilewright.source import caller_location

_THREADS = "a block is written as one program; use T.Parallel, T.copy and the tile operations"
_BARRIER = "tile operations are in program order; no barrier is needed"
_ASYNC = "use T.copy inside T.Pipelined(..., num_stages=...)"
_MATRIX = "use T.gemm"
_LATER = "this operation is not there yet"

# name -> what to do instead
GPU_ONLY: dict[str, str] = {
    **dict.fromkeys(
        [
            "get_thread_binding",
            "get_thread_bindings",
            "get_block_binding",
            "get_block_bindings",
            "get_thread_extent",
            "get_thread_extents",
            "get_block_extent",
            "get_block_extents",
            "get_cluster_id",
            "get_cluster_ids",
            "get_cluster_dims",
            "get_cluster_size",
            "thread_binding",
            "launch_thread",
            "get_lane_idx",
            "get_warp_idx",
            "get_warp_idx_sync",
            "get_warp_group_idx",
            "shuffle_elect",
            "shfl_sync",
            "shfl_xor",
            "shfl_up",
            "shfl_down",
            "any_sync",
            "all_sync",
            "ballot",
            "ballot_sync",
            "activemask",
            "match_any_sync",
            "match_all_sync",
            "syncthreads_count",
            "syncthreads_and",
            "syncthreads_or",
            "warp_reduce_sum",
            "warp_reduce_max",
            "warp_reduce_min",
            "warp_reduce_bitand",
            "warp_reduce_bitor",
            "ws",
            "annotate_ws_schedule",
            "set_max_nreg",
            "inc_max_nreg",
            "dec_max_nreg",
            "annotate_producer_reg_dealloc",
            "annotate_consumer_reg_alloc",
            "no_set_max_nreg",
            "disable_warp_group_reg_alloc",
            "annotate_producer_warps",
        ],
        _THREADS,
    ),
    **dict.fromkeys(
        [
            "sync_threads",
            "sync_warp",
            "sync_grid",
            "sync_global",
            "sync_cluster",
            "alloc_barrier",
            "alloc_cluster_barrier",
            "mbarrier_wait_parity",
            "mbarrier_arrive",
            "mbarrier_expect_tx",
            "mbarrier_arrive_expect_tx",
            "barrier_wait",
            "barrier_arrive",
            "cluster_arrive",
            "cluster_wait",
            "pdl_trigger",
            "pdl_sync",
            "fence_proxy_async",
            "create_list_of_mbarrier",
            "get_mbarrier",
        ],
        _BARRIER,
    ),
    **dict.fromkeys(
        [
            "tma_copy",
            "copy_cluster",
            "tma_gather4",
            "tma_scatter4",
            "tma_store_arrive",
            "tma_store_wait",
            "cp_async",
            "ptx_cp_async",
            "ptx_commit_group",
            "ptx_wait_group",
            "cp_async_commit",
            "cp_async_wait",
            "ldg32",
            "ldg64",
            "ldg128",
            "ldg256",
            "stg32",
            "stg64",
            "stg128",
            "stg256",
            "lds32",
            "lds64",
            "lds128",
            "sts32",
            "sts64",
            "sts128",
            "create_tma_descriptor",
        ],
        _ASYNC,
    ),
    **dict.fromkeys(
        [
            "wgmma_gemm",
            "wait_wgmma",
            "tcgen05_gemm",
            "tcgen05_gemm_blockscaled",
            "alloc_tmem",
            "ptx_mma",
            "ptx_mma_sp",
            "ptx_wgmma_ss",
            "ptx_wgmma_rs",
            "ptx_ldmatrix",
            "ptx_stmatrix",
            "mma_store",
            "mma_fill",
            "tvm_mfma",
            "tvm_mfma_store",
            "tvm_rdna_wmma",
            "ptx_tcgen05_mma_ss",
            "warpgroup_arrive",
            "warpgroup_commit_batch",
            "warpgroup_wait",
        ],
        _MATRIX,
    ),
    **dict.fromkeys(
        [
            "gemm_sp",
            "gemm_sp_v2",
            "gemm_blockscaled",
            "rng_init",
            "rng_rand",
            "rng_rand_float",
            "make_tensor",
            "make_tensor_from_addr",
            "match_buffer",
            "address_of",
            "access_ptr",
            "call_intrin",
            "add2",
            "sub2",
            "mul2",
            "fma2",
            "max2",
            "min2",
            "abs2",
            "max3",
            "dp4a",
            "call_extern",
            "call_pure_extern",
            "import_source",
            "cluster_dims",
        ],
        _LATER,
    ),
}


class GpuOnly:
    """A name of the surface that no target here supports; calling or using it raises UnsupportedOnTargetError."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise UnsupportedOnTargetError(
            f"T.{self.name} is not supported on the targets of this version",
            location=caller_location(),
            hint=GPU_ONLY[self.name],
        )

    def __repr__(self) -> str:
        return f"T.{self.name}"
