"""Scripts in the TileLang dialect, whose `tilelang` is this package: they run as they are written."""

from __future__ import annotations

import linecache
import math
import sys
import textwrap

import numpy as np
import pytest
from language_harness import both_targets, near, random, same

import tilewright
from tilewright.errors import UnsupportedOnTargetError

NAMES = ("", ".language", ".layout", ".profiler", ".dialect")
count = 0


@pytest.fixture(autouse=True)
def tilelang(monkeypatch):
    """`import tilelang` gives this package while a test runs."""
    for name in [n for n in sys.modules if n.partition(".")[0] == "tilelang"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tilelang", tilewright)
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    yield
    for name in [n for n in sys.modules if n.startswith("tilelang.")]:
        del sys.modules[name]


def script(source: str, target: str, monkeypatch) -> dict:
    """Run the text of a script, on `target` where it names none; its globals."""
    global count
    count += 1
    text = textwrap.dedent(source)
    file = f"<script {count}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    monkeypatch.setenv("TILEWRIGHT_TARGET", target)
    scope = {"__name__": "script"}
    exec(compile(text, file, "exec", dont_inherit=True), scope)
    return scope


@both_targets
def test_matmul(target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T

        tilelang.disable_cache()
        tilelang.set_log_level("WARNING")


        def matmul(M, N, K, block_M, block_N, block_K, dtype="float16", accum_dtype="float"):

            @T.prim_func
            def main(
                    A: T.Buffer((M, K), dtype),
                    B: T.Tensor((K, N), dtype),
                    C: T.Tensor((M, N), dtype),
            ):
                with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
                    A_shared = T.alloc_shared((block_M, block_K), dtype)
                    B_shared = T.alloc_shared((block_K, block_N), dtype)
                    C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
                    C_shared = T.alloc_shared((block_M, block_N), dtype, scope="shared")

                    T.annotate_layout({
                        A_shared: tilelang.layout.make_swizzled_layout(A_shared),
                        C_shared: tilelang.layout.make_swizzled_layout(C_shared),
                    })
                    T.use_swizzle(panel_size=10, enable=True)
                    T.clear(C_local)
                    for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=3):
                        T.copy(A[by * block_M, k * block_K], A_shared)
                        for i, j in T.Parallel(block_K, block_N):
                            B_shared[i, j] = B[k * block_K + i, bx * block_N + j]
                        T.gemm(A_shared, B_shared, C_local, policy=T.GemmWarpPolicy.FullRow)
                    T.copy(C_local, C_shared)
                    T.copy(C_shared, C[by * block_M, bx * block_N], coalesced_width=8)

            return main


        func = matmul(100, 72, 96, 32, 32, 32)
        kernel = tilelang.compile(func, out_idx=[2], execution_backend="cython", target_host=None, pass_configs={
            tilelang.PassConfigKey.TL_DISABLE_TMA_LOWER: True,
            tilelang.PassConfigKey.TL_DISABLE_WARP_SPECIALIZED: True,
        })
        profiler = kernel.get_profiler(tensor_supply_type=tilelang.TensorSupplyType.Normal)
        profiler.assert_allclose(lambda a, b: a.astype("float32") @ b.astype("float32"), rtol=1e-2, atol=1e-2)
        source = kernel.get_kernel_source()
        """,
        target,
        monkeypatch,
    )
    a, b = random((100, 96), "float16"), random((96, 72), "float16")
    near(scope["kernel"](a, b), a.astype(np.float64) @ b.astype(np.float64), "float16", k=96)
    assert "main" in scope["source"]


@both_targets
@pytest.mark.parametrize("causal", [False, True])
def test_flash_attention(causal, target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T
        from tilelang.layout import make_swizzled_layout


        @tilelang.jit(out_idx=[3], pass_configs={tilelang.PassConfigKey.TL_ENABLE_FAST_MATH: True})
        def flashattn(batch, heads, seq_len, dim, is_causal, block_M=32, block_N=32, num_stages=1, threads=128):
            scale = (1.0 / dim)**0.5 * 1.44269504  # log2(e)
            shape = [batch, seq_len, heads, dim]
            dtype = T.float16
            accum_dtype = T.float32

            @T.macro
            def MMA0(K: T.Tensor(shape, dtype), Q_shared: T.SharedBuffer([block_M, dim], dtype),
                     K_shared: T.SharedBuffer([block_N, dim], dtype),
                     acc_s: T.FragmentBuffer([block_M, block_N], accum_dtype),
                     k: T.int32, bx: T.int32, by: T.int32, bz: T.int32):
                T.copy(K[bz, k * block_N:(k + 1) * block_N, by, :], K_shared)
                if is_causal:
                    for i, j in T.Parallel(block_M, block_N):
                        acc_s[i, j] = T.if_then_else(bx * block_M + i >= k * block_N + j, 0,
                                                     -T.infinity(acc_s.dtype))
                else:
                    for i, j in T.Parallel(block_M, block_N):
                        acc_s[i, j] = T.if_then_else(k * block_N + j >= seq_len, -T.infinity(acc_s.dtype), 0)
                T.gemm(Q_shared, K_shared, acc_s, transpose_B=True, policy=T.GemmWarpPolicy.FullRow)

            @T.macro
            def Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum):
                T.copy(scores_max, scores_max_prev)
                T.fill(scores_max, -T.infinity(accum_dtype))
                T.reduce_max(acc_s, scores_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    scores_max[i] = T.max(scores_max[i], scores_max_prev[i])
                for i in T.Parallel(block_M):
                    scores_scale[i] = T.exp2(scores_max_prev[i] * scale - scores_max[i] * scale)
                for i, j in T.Parallel(block_M, block_N):
                    acc_s[i, j] = T.exp2(acc_s[i, j] * scale - scores_max[i] * scale)
                T.reduce_sum(acc_s, scores_sum, dim=1)
                for i in T.Parallel(block_M):
                    logsum[i] = logsum[i] * scores_scale[i] + scores_sum[i]
                T.copy(acc_s, acc_s_cast)

            @T.prim_func
            def main(
                    Q: T.Tensor(shape, dtype),
                    K: T.Tensor(shape, dtype),
                    V: T.Tensor(shape, dtype),
                    Output: T.Tensor(shape, dtype),
            ):
                with T.Kernel(T.ceildiv(seq_len, block_M), heads, batch, threads=threads) as (bx, by, bz):
                    Q_shared = T.alloc_shared([block_M, dim], dtype)
                    K_shared = T.alloc_shared([block_N, dim], dtype)
                    V_shared = T.alloc_shared([block_N, dim], dtype)
                    O_shared = T.alloc_shared([block_M, dim], dtype)
                    acc_s = T.alloc_fragment([block_M, block_N], accum_dtype)
                    acc_s_cast = T.alloc_fragment([block_M, block_N], dtype)
                    acc_o = T.alloc_fragment([block_M, dim], accum_dtype)
                    scores_max = T.alloc_fragment([block_M], accum_dtype)
                    scores_max_prev = T.alloc_fragment([block_M], accum_dtype)
                    scores_scale = T.alloc_fragment([block_M], accum_dtype)
                    scores_sum = T.alloc_fragment([block_M], accum_dtype)
                    logsum = T.alloc_fragment([block_M], accum_dtype)

                    T.annotate_layout({O_shared: make_swizzled_layout(O_shared)})
                    T.copy(Q[bz, bx * block_M:(bx + 1) * block_M, by, :], Q_shared)
                    T.fill(acc_o, 0)
                    T.fill(logsum, 0)
                    T.fill(scores_max, -T.infinity(accum_dtype))

                    loop_range = (
                        T.min(T.ceildiv(seq_len, block_N), T.ceildiv((bx + 1) * block_M, block_N))
                        if is_causal else T.ceildiv(seq_len, block_N))
                    for k in T.Pipelined(loop_range, num_stages=num_stages,
                                         order=[-1, 0, 3, 1, -1, 2], stage=[-1, 0, 0, 1, -1, 1],
                                         group=[[0], [1, 2], [3, 4, 5, 6, 7, 8, 9, 10], [11], [12], [13]]):
                        MMA0(K, Q_shared, K_shared, acc_s, k, bx, by, bz)
                        Softmax(acc_s, acc_s_cast, scores_max, scores_max_prev, scores_scale, scores_sum, logsum)
                        for i, j in T.Parallel(block_M, dim):
                            acc_o[i, j] *= scores_scale[i]
                        T.copy(V[bz, k * block_N:(k + 1) * block_N, by, :], V_shared)
                        T.gemm(acc_s_cast, V_shared, acc_o, policy=T.GemmWarpPolicy.FullRow)
                    for i, j in T.Parallel(block_M, dim):
                        acc_o[i, j] /= logsum[i]
                    T.copy(acc_o, O_shared)
                    T.copy(O_shared, Output[bz, bx * block_M:(bx + 1) * block_M, by, :])

            return main
        """,
        target,
        monkeypatch,
    )
    batch, heads, length, dim = 1, 2, 77, 16
    q, k, v = (random((batch, length, heads, dim), "float16") for _ in range(3))
    out = scope["flashattn"](batch, heads, length, dim, causal)(q, k, v)
    scores = np.einsum("bqhd,bkhd->bhqk", q.astype(float), k.astype(float)) / math.sqrt(dim)
    if causal:
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    expected = np.einsum("bhqk,bkhd->bqhd", weights, v.astype(float))
    np.testing.assert_allclose(out.astype(float), expected, atol=4e-3, rtol=4e-3)


@both_targets
def test_elementwise_with_dynamic_rows(target, monkeypatch):
    scope = script(
        """
        import tilelang
        from tilelang import language as T


        def elementwise_add(N, block_M, block_N, in_dtype, out_dtype, threads):
            M = T.dynamic("m")

            @T.prim_func
            def elem_add(A: T.Tensor((M, N), in_dtype), B: T.Tensor((M, N), in_dtype), C: T.Tensor((M, N), out_dtype)):
                with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
                    A_shared = T.alloc_shared((block_M, block_N), in_dtype)
                    B_shared = T.alloc_shared((block_M, block_N), in_dtype)
                    C_local = T.alloc_fragment((block_M, block_N), out_dtype)
                    T.copy(A[by * block_M, bx * block_N], A_shared)
                    T.copy(B[by * block_M, bx * block_N], B_shared)
                    for (local_y, local_x) in T.Parallel(block_M, block_N):
                        C_local[local_y, local_x] = A_shared[local_y, local_x] + B_shared[local_y, local_x]
                    T.copy(C_local, C[by * block_M, bx * block_N])

            return elem_add


        kernel = tilelang.compile(elementwise_add(50, 16, 32, "float32", "float16", 128), out_idx=-1)
        """,
        target,
        monkeypatch,
    )
    for rows in (1, 33, 64):
        a, b = random((rows, 50)), random((rows, 50))
        near(scope["kernel"](a, b), a + b, "float16")


@both_targets
def test_rms_norm_and_softmax(target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T


        def rms_norm(M, N, blk_m):
            dtype = "float"

            @T.prim_func
            def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
                with T.Kernel(T.ceildiv(M, blk_m), threads=128) as bx:
                    A_shared = T.alloc_shared((blk_m, N), dtype)
                    A_pow_local = T.alloc_fragment((blk_m, N), dtype)
                    A_local = T.alloc_fragment((blk_m, N), dtype)
                    A_powsum = T.alloc_fragment((blk_m,), dtype)
                    T.copy(A[bx * blk_m:(bx + 1) * blk_m, :], A_shared)
                    T.copy(A_shared, A_local)
                    for i, j in T.Parallel(blk_m, N):
                        A_pow_local[i, j] = A_local[i, j] * A_local[i, j]
                    T.reduce_sum(A_pow_local, A_powsum, dim=1)
                    for i in T.Parallel(blk_m):
                        A_powsum[i] = T.rsqrt(A_powsum[i] / N + 1e-12)
                    for i, j in T.Parallel(blk_m, N):
                        A_local[i, j] *= A_powsum[i]
                    T.copy(A_local, B[bx * blk_m:(bx + 1) * blk_m, :])

            return main


        @tilelang.jit(out_idx=[1])
        def softmax_kernel(M, N, dtype="float16"):
            BN = min(tilelang.next_power_of_2(N), 32)
            NN = tilelang.cdiv(N, BN)
            accum_dtype = "float"
            scale = 1.44269504

            @T.prim_func
            def main(X: T.Tensor([M, N], dtype), Y: T.Tensor([M, N], dtype)):
                with T.Kernel(M, threads=128) as (i_m):
                    x = T.alloc_fragment([BN], dtype)
                    y = T.alloc_fragment([BN], dtype)
                    lse = T.alloc_fragment([1], accum_dtype)
                    max_x = T.alloc_fragment([1], dtype)
                    exp_x = T.alloc_fragment([BN], accum_dtype)
                    sum_exp_x = T.alloc_fragment([1], accum_dtype)
                    T.fill(lse, -T.infinity(accum_dtype))
                    for i_n in T.Pipelined(0, NN):
                        T.copy(X[i_m, i_n * BN:(i_n + 1) * BN], x)
                        for j in T.Parallel(BN):
                            x[j] = T.if_then_else(i_n * BN + j < N, x[j], -T.infinity(dtype))
                        T.reduce_max(x, max_x, dim=0, clear=True)
                        for j in T.Parallel(BN):
                            exp_x[j] = T.exp2(x[j] * scale - max_x[0] * scale)
                        T.reduce_sum(exp_x, sum_exp_x, dim=0, clear=True)
                        lse[0] = max_x[0] * scale + T.log2(T.exp2(lse[0] - max_x[0] * scale) + sum_exp_x[0])
                    for i_n in T.Pipelined(0, NN):
                        T.copy(X[i_m, i_n * BN:(i_n + 1) * BN], x)
                        for j in T.Parallel(BN):
                            y[j] = T.exp2(x[j] * scale - lse[0])
                        T.copy(y, Y[i_m, i_n * BN:(i_n + 1) * BN])

            return main


        rms = tilelang.compile(rms_norm(37, 50, 4), out_idx=[-1])
        softmax = softmax_kernel(9, 77)
        """,
        target,
        monkeypatch,
    )
    a = random((37, 50))
    x = a.astype(np.float64)
    near(scope["rms"](a), x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12), k=50)
    a = random((9, 77), "float16")
    e = np.exp(a.astype(np.float64))
    np.testing.assert_allclose(scope["softmax"](a).astype(float), e / e.sum(1, keepdims=True), atol=1e-3)


@both_targets
def test_gemv_and_a_cast_of_packed_weights(target, monkeypatch):
    scope = script(
        """
        import tilelang as tl
        import tilelang.language as T


        @tl.jit(out_idx=[-1])
        def gemv(N, K, BLOCK_N, BLOCK_K, dtype: str = "float16", accum_dtype: str = "float"):

            @T.prim_func
            def main(A: T.Tensor((K,), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((N,), dtype)):
                with T.Kernel(T.ceildiv(N, BLOCK_N)) as bn:
                    A_shared = T.alloc_shared((BLOCK_K,), dtype)
                    B_shared = T.alloc_shared((BLOCK_N, BLOCK_K), dtype)
                    C_reg = T.alloc_reducer((BLOCK_N,), accum_dtype, op="sum", replication="all")
                    T.fill(C_reg, 0)
                    for bk in T.serial(T.ceildiv(K, BLOCK_K)):
                        T.copy(A[bk * BLOCK_K], A_shared)
                        T.copy(B[bn * BLOCK_N, bk * BLOCK_K], B_shared)
                        for i, k in T.Parallel(BLOCK_N, BLOCK_K):
                            C_reg[i] += A_shared[k].astype(accum_dtype) * B_shared[i, k].astype(accum_dtype)
                    T.finalize_reducer(C_reg)
                    for i in T.Parallel(BLOCK_N):
                        if bn * BLOCK_N + i < N:
                            C[bn * BLOCK_N + i] = C_reg[i]

            return main


        def dequant(N, K, block_N, block_K, in_dtype="float16"):
            num_elems_per_byte = 2
            storage_dtype = "uint8"

            @T.macro
            def unpack(packed: T.uint8, pos: T.int32):
                nibble = (packed >> (T.Cast(storage_dtype, pos) * T.Cast(storage_dtype, 4))) & T.Cast(storage_dtype, 15)
                return T.cast(nibble, "int32") - 8

            @T.prim_func
            def main(B: T.Tensor((N, K // num_elems_per_byte), storage_dtype), scales: T.Tensor((N,), in_dtype),
                     Out: T.Tensor((N, K), in_dtype)):
                with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(K, block_K), threads=128) as (bx, by):
                    B_shared = T.alloc_shared((block_N, block_K // num_elems_per_byte), storage_dtype)
                    B_local = T.alloc_fragment((block_N, block_K // num_elems_per_byte), storage_dtype)
                    B_dequant = T.alloc_fragment((block_N, block_K), in_dtype)
                    T.copy(B[bx * block_N, by * block_K // num_elems_per_byte], B_shared)
                    T.copy(B_shared, B_local)
                    for i, j in T.Parallel(block_N, block_K):
                        B_dequant[i, j] = unpack(B_local[i, j // num_elems_per_byte], j % num_elems_per_byte) * scales[
                            bx * block_N + i]
                    T.copy(B_dequant, Out[bx * block_N, by * block_K])

            return main


        gemv_kernel = gemv(45, 70, 16, 32)
        dequant_kernel = tl.compile(dequant(24, 40, 16, 16), out_idx=[2])
        """,
        target,
        monkeypatch,
    )
    a, b = random((70,), "float16"), random((45, 70), "float16")
    near(scope["gemv_kernel"](a, b), b.astype(float) @ a.astype(float), "float16", k=70)
    packed, scales = np.random.default_rng(1).integers(0, 256, (24, 20), np.uint8), random((24,), "float16")
    nibbles = np.stack([packed & 15, packed >> 4], -1).reshape(24, 40).astype(int) - 8
    near(scope["dequant_kernel"](packed, scales), nibbles * scales[:, None].astype(float), "float16")


@both_targets
def test_split_k_with_atomics(target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T


        @tilelang.jit
        def matmul(M, N, K, block_M, block_N, block_K, split_k, dtype=T.float16, accum_dtype=T.float, out_dtype=T.float32):
            splitK = K // split_k

            @T.prim_func
            def main(A: T.Tensor((M, K), dtype), B: T.Tensor((N, K), dtype), C: T.Tensor((M, N), out_dtype)):
                with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), split_k, threads=128) as (bx, by, bz):
                    A_shared = T.alloc_shared((block_M, block_K), dtype, "shared")
                    B_shared = T.alloc_shared((block_N, block_K), dtype, "shared")
                    C_shared = T.alloc_shared((block_M, block_N), out_dtype)
                    C_local = T.alloc_fragment((block_M, block_N), accum_dtype)
                    T.clear(C_local)
                    for ko in T.Pipelined(T.ceildiv(splitK, block_K), num_stages=0):
                        T.copy(A[by * block_M, bz * splitK + ko * block_K], A_shared)
                        T.copy(B[bx * block_N, bz * splitK + ko * block_K], B_shared)
                        T.gemm(A_shared, B_shared, C_local, transpose_B=True)
                    T.copy(C_local, C_shared)
                    if bz % 2 == 0:
                        T.atomic_add(C[by * block_M, bx * block_N], C_shared)
                    else:
                        for i, j in T.Parallel(block_M, block_N // 2):
                            m, n = by * block_M + i, bx * block_N + j * 2
                            T.atomic_addx2(C[m, n], C_shared[i, j * 2])

            return main


        kernel = matmul(48, 64, 128, 16, 32, 16, 4)
        """,
        target,
        monkeypatch,
    )
    a, b = random((48, 128), "float16"), random((64, 128), "float16")
    c = np.zeros((48, 64), np.float32)
    scope["kernel"](a, b, c)
    near(c, a.astype(float) @ b.T.astype(float), "float32", k=128)


@both_targets
def test_the_eager_form(target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T


        @tilelang.jit
        def gemm(A, B, block_M: int = 32, block_N: int = 32, block_K: int = 32, out_dtype: T.dtype = T.float32):
            M, N, K = T.const('M, N, K')
            A: T.Tensor[[M, K], T.float16]
            B: T.Tensor[[K, N], T.float16]
            C = T.empty((M, N), out_dtype)
            with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=128) as (bx, by):
                A_shared = T.alloc_shared((block_M, block_K), A.dtype)
                B_shared = T.alloc_shared((block_K, block_N), B.dtype)
                C_local = T.alloc_fragment((block_M, block_N), T.float32)
                T.clear(C_local)
                for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=2):
                    T.copy(A[by * block_M, k * block_K], A_shared)
                    T.copy(B[k * block_K, bx * block_N], B_shared)
                    T.gemm(A_shared, B_shared, C_local)
                for i, j in T.Parallel(block_M, block_N):
                    C_local[i, j] = T.max(C_local[i, j], 0)
                T.copy(C_local, C[by * block_M, bx * block_N])
            return C
        """,
        target,
        monkeypatch,
    )
    a, b = random((50, 70), "float16"), random((70, 33), "float16")
    near(scope["gemm"](a, b, block_N=16), np.maximum(a.astype(float) @ b.astype(float), 0), "float32", k=70)


@both_targets
def test_convolution_by_patches_and_views_of_parameters(target, monkeypatch):
    scope = script(
        """
        import tilelang
        import tilelang.language as T


        def convolution(N, C, H, W, F, K, S, D, P, block_M, block_N, block_K, num_stages, threads, dtype="float32"):
            KH, KW = K, K
            OH = (H + 2 * P - D * (K - 1) - 1) // S + 1
            OW = (W + 2 * P - D * (K - 1) - 1) // S + 1

            @T.prim_func
            def main(data: T.Tensor((N, H, W, C), dtype), kernel: T.Tensor((KH, KW, C, F), dtype),
                     out: T.Tensor((N, OH, OW, F), dtype)):
                with T.Kernel(T.ceildiv(F, block_N), T.ceildiv(N * OH * OW, block_M), threads=threads) as (bx, by):
                    data_shared = T.alloc_shared((block_M, block_K), dtype)
                    kernel_shared = T.alloc_shared((block_K, block_N), dtype)
                    out_local = T.alloc_fragment((block_M, block_N), "float")
                    kernel_flat = T.Tensor((KH * KW * C, F), dtype, kernel.data)
                    out_flat = T.Tensor((N * OH * OW, F), dtype, out.data)
                    T.clear(out_local)
                    for k_iter in T.Pipelined(T.ceildiv(KH * KW * C, block_K), num_stages=num_stages):
                        T.c2d_im2col(data, data_shared, by, k_iter, KH, S, D, P)
                        T.copy(kernel_flat[k_iter * block_K, bx * block_N], kernel_shared)
                        T.gemm(data_shared, kernel_shared, out_local)
                    T.copy(out_local, out_flat[by * block_M, bx * block_N])

            return main


        kernel = tilelang.compile(convolution(1, 3, 8, 9, 5, 3, 1, 1, 1, 16, 16, 16, 3, 256), out_idx=[2])
        """,
        target,
        monkeypatch,
    )
    x, w = random((1, 8, 9, 3)), random((3, 3, 3, 5))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), (3, 3), axis=(1, 2))
    near(scope["kernel"](x, w), np.einsum("nyxckl,klcf->nyxf", windows.astype(float), w.astype(float)), k=27)


def test_autotuning_says_that_it_is_not_there_yet(monkeypatch):
    source = """
        import tilelang
        from tilelang import autotune

        @autotune(configs=[{"block": 32}], warmup=3, rep=5)
        @tilelang.jit(out_idx=[-1])
        def kernel(n, block=32):
            return None
        """
    with pytest.raises(UnsupportedOnTargetError, match="autotune is not there yet") as info:
        script(source, "reference", monkeypatch)
    assert info.value.location.source_line().strip().startswith("@autotune(")


def test_layouts_by_hand():
    T, layout = tilewright.language, tilewright.layout.make_swizzled_layout

    @T.prim_func
    def main(A: T.Tensor((8, 64), "float16")):
        with T.Kernel(1):
            tile = T.alloc_shared((8, 64), "float16")
            odd = T.alloc_shared((8, 24), "float16")
            made = layout(tile)
            assert made.shape == (8, 64) and "^" in repr(made)
            assert "^" not in repr(layout(odd))
            T.annotate_layout({tile: made, odd: layout(odd)})
            T.copy(A, tile)
            T.copy(tile, A)

    a = random((8, 64), "float16")
    before = a.copy()
    tilewright.compile(main, target="reference")(a)
    same(a, before)


def test_names_beside_the_language(monkeypatch):
    import tilelang

    monkeypatch.setenv("TILEWRIGHT_CACHE", "1")
    tilelang.disable_cache()
    assert not tilelang.is_cache_enabled()
    tilelang.enable_cache()
    assert tilelang.is_cache_enabled()
    assert (tilelang.cdiv(7, 2), tilelang.next_power_of_2(5), tilelang.next_power_of_2(8)) == (4, 8, 8)
    assert tilelang.PassConfigKey.TL_DISABLE_TMA_LOWER == "tl.disable_tma_lower"
    assert tilelang.cdiv(np.array([7, 8]), 4).tolist() == [2, 2]
    assert not hasattr(tilelang.PassConfigKey, "nonsense")
