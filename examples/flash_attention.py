"""Flash attention forward: online softmax over tiles of keys, full or causal, with padding lengths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, random, run_example

import tilewright
import tilewright.language as T


def flash_attention(batch, heads, seq_q, seq_k, dim, causal=False, block_M=64, block_N=64, dtype="float32"):
    """O = softmax(Q · Kᵀ / √dim, masked) · V for tensors (batch, seq, heads, dim); keys from lengths[b] on are hidden."""
    scale = math.log2(math.e) / math.sqrt(dim)  # exponentials are taken to base 2
    offset = seq_k - seq_q

    @T.prim_func
    def main(
        Q: T.Tensor((batch, seq_q, heads, dim), dtype),
        K: T.Tensor((batch, seq_k, heads, dim), dtype),
        V: T.Tensor((batch, seq_k, heads, dim), dtype),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, seq_q, heads, dim), dtype),  # noqa: E741
    ):
        with T.Kernel(T.ceildiv(seq_q, block_M), heads, batch, threads=128) as (bx, by, bz):
            Q_shared = T.alloc_shared((block_M, dim), dtype)
            K_shared = T.alloc_shared((block_N, dim), dtype)
            V_shared = T.alloc_shared((block_N, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            out = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            previous_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")

            T.copy(Q[bz, bx * block_M : (bx + 1) * block_M, by, :], Q_shared)
            T.clear(out)
            T.clear(row_sum)
            T.fill(row_max, -T.infinity("float32"))
            last_key = T.min(seq_k, (bx + 1) * block_M + offset) if causal else seq_k
            for k in T.Pipelined(T.ceildiv(last_key, block_N), num_stages=2):
                T.copy(K[bz, k * block_N : (k + 1) * block_N, by, :], K_shared)
                T.gemm(Q_shared, K_shared, scores, transpose_B=True, clear_accum=True)
                for i, j in T.Parallel(block_M, block_N):
                    key = k * block_N + j
                    hidden = key >= lengths[bz]
                    if causal:
                        hidden = hidden or key > bx * block_M + i + offset
                    scores[i, j] = T.if_then_else(hidden, -T.infinity("float32"), scores[i, j] * scale)
                T.copy(row_max, previous_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    # A row with nothing visible yet keeps -inf; subtracting it from itself would give NaN.
                    safe = T.if_then_else(row_max[i] == -T.infinity("float32"), 0.0, row_max[i])
                    rescale[i] = T.exp2(previous_max[i] - safe)
                for i, j in T.Parallel(block_M, block_N):
                    safe = T.if_then_else(row_max[i] == -T.infinity("float32"), 0.0, row_max[i])
                    scores[i, j] = T.exp2(scores[i, j] - safe)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
                for i, j in T.Parallel(block_M, dim):
                    out[i, j] = out[i, j] * rescale[i]
                T.copy(V[bz, k * block_N : (k + 1) * block_N, by, :], V_shared)
                T.copy(scores, weights)
                T.gemm(weights, V_shared, out)
            for i, j in T.Parallel(block_M, dim):
                out[i, j] = T.if_then_else(row_sum[i] > 0.0, out[i, j] / row_sum[i], 0.0)
            T.copy(out, O[bz, bx * block_M : (bx + 1) * block_M, by, :])

    return main


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray, causal: bool) -> np.ndarray:
    """Attention in float64; a query that sees no key gives 0."""
    q, k, v = (np.moveaxis(x.astype(np.float64), 2, 1) for x in (q, k, v))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(q.shape[-1])
    columns = np.arange(k.shape[2])
    visible = columns[None, None, None, :] < lengths[:, None, None, None]
    if causal:
        visible = visible & (columns[None, :] <= np.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2])
    scores = np.where(visible, scores, -np.inf)
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isinf(top), 0.0, top))
    total = weights.sum(axis=-1, keepdims=True)
    return np.moveaxis(weights @ v / np.where(total == 0, 1.0, total), 1, 2)


def case(target: str, batch: int, heads: int, seq_q: int, seq_k: int, dim: int, causal: bool, dtype: str) -> Case:
    """Random queries, keys, values and lengths."""
    program = flash_attention(batch, heads, seq_q, seq_k, dim, causal, dtype=dtype)
    kernel = tilewright.compile(program, out_idx=-1, target=target)
    q = random((batch, seq_q, heads, dim), dtype, 1)
    k, v = (random((batch, seq_k, heads, dim), dtype, seed) for seed in (2, 3))
    lengths = np.random.default_rng(4).integers(seq_k // 2, seq_k + 1, batch).astype(np.int32)
    expected = reference(q, k, v, lengths, causal)
    work = 4.0 * batch * heads * seq_q * seq_k * dim * (0.5 if causal else 1.0)
    size = f"b{batch} h{heads} {seq_q}x{seq_k} d{dim}"
    name = "flash attention" + (" causal" if causal else "")
    # The weights are rounded to the input dtype before the second product.
    return Case(name, size, dtype, lambda: kernel(q, k, v, lengths), expected, work, "GFLOP/s", seq_k)


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Odd and even sizes, full and causal."""
    seq = 256 if quick else 1024
    for causal in (False, True):
        for dtype in ("float32", "float16", "bfloat16"):
            yield case(target, 2, 3, 77, 133, 40, causal, dtype)
        yield case(target, 2, 4, seq, seq, 128, causal, "float32")
        yield case(target, 2, 4, seq, seq, 64, causal, "float16")


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {
        "flash attention": tilewright.compile(flash_attention(2, 4, 1024, 1024, 128, True), out_idx=-1, target=target)
    }


if __name__ == "__main__":
    raise SystemExit(run_example("flash attention forward", cases, kernels))
