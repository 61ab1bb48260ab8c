"""An attention-mask operator: causal, sliding window, padding lengths and ALiBi bias on a tensor of scores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Case, numpy_dtype, random, run_example

import tilewright
import tilewright.language as T

MASKED = -30000.0  # finite, and representable in float16: rows that are masked whole stay free of NaN


def attention_mask(batch, heads, seq_q, seq_k, causal=True, window=0, block_M=64, block_N=64, dtype="float32"):
    """Y[b, h, q, k] = S + slope[h] · (k - q'), or MASKED; q' = q + seq_k - seq_q aligns the last query with the last key."""
    offset = seq_k - seq_q

    @T.prim_func
    def main(
        S: T.Tensor((batch, heads, seq_q, seq_k), dtype),
        lengths: T.Tensor((batch,), "int32"),
        slopes: T.Tensor((heads,), "float32"),
        Y: T.Tensor((batch, heads, seq_q, seq_k), dtype),
    ):
        with T.Kernel(T.ceildiv(seq_k, block_N), T.ceildiv(seq_q, block_M), batch * heads, threads=128) as (bx, by, bz):
            tile = T.alloc_fragment((block_M, block_N), "float32")
            b = bz // heads
            h = bz % heads
            T.copy(S[b, h, by * block_M, bx * block_N], tile)
            for i, j in T.Parallel(block_M, block_N):
                q = by * block_M + i + offset
                k = bx * block_N + j
                visible = k < lengths[b]
                if causal:
                    visible = visible and k <= q
                if window > 0:
                    visible = visible and k > q - window
                biased = tile[i, j] + slopes[h] * T.cast(k - q, "float32")
                tile[i, j] = T.if_then_else(visible, biased, MASKED)
            T.copy(tile, Y[b, h, by * block_M, bx * block_N])

    return main


def visible_pairs(lengths: np.ndarray, seq_q: int, seq_k: int, causal: bool, window: int) -> np.ndarray:
    """The boolean mask (batch, 1, seq_q, seq_k)."""
    q = np.arange(seq_q)[:, None] + seq_k - seq_q
    k = np.arange(seq_k)[None, :]
    mask = k < lengths[:, None, None, None]
    if causal:
        mask = mask & (k <= q)
    if window > 0:
        mask = mask & (k > q - window)
    return mask


def case(target: str, name: str, shape: tuple[int, int, int, int], causal: bool, window: int, dtype: str) -> Case:
    """Random scores, lengths and slopes."""
    batch, heads, seq_q, seq_k = shape
    program = attention_mask(batch, heads, seq_q, seq_k, causal, window, dtype=dtype)
    kernel = tilewright.compile(program, out_idx=-1, target=target)
    scores = random(shape, dtype, 1)
    lengths = np.random.default_rng(2).integers(1, seq_k + 1, batch).astype(np.int32)
    slopes = (2.0 ** -np.arange(1, heads + 1)).astype(np.float32)
    distance = np.arange(seq_k)[None, :] - (np.arange(seq_q)[:, None] + seq_k - seq_q)
    biased = scores.astype(np.float64) + slopes[None, :, None, None] * distance
    masked = float(np.asarray(MASKED).astype(numpy_dtype(dtype)))
    expected = np.where(visible_pairs(lengths, seq_q, seq_k, causal, window), biased, masked)
    nbytes = 2.0 * scores.nbytes
    size = "x".join(map(str, shape))
    return Case(name, size, dtype, lambda: kernel(scores, lengths, slopes), expected, nbytes, "GB/s")


def cases(target: str, quick: bool) -> Iterator[Case]:
    """Every mask, odd and even sizes."""
    side = 512 if quick else 1024
    for dtype in ("float32", "float16", "bfloat16"):
        yield case(target, "causal + ALiBi + lengths", (2, 3, 77, 133), True, 0, dtype)
        yield case(target, "sliding window", (2, 3, 133, 133), True, 31, dtype)
        yield case(target, "lengths only", (2, 8, side, side), False, 0, dtype)


def kernels(target: str) -> dict[str, Any]:
    """What `--show` prints."""
    return {"attention mask": tilewright.compile(attention_mask(2, 8, 1024, 1024), out_idx=-1, target=target)}


if __name__ == "__main__":
    raise SystemExit(run_example("attention mask", cases, kernels))
