"""What each pass does to a small function, and the lowered text of three examples, as golden texts.

`pytest --update-golden` writes tests/golden; look at the difference before you keep it.
"""

import pytest
from example_programs import fixed_cpu, program

from tilewright.ir.parser import parse_func
from tilewright.ir.printer import print_func
from tilewright.ir.structural import difference
from tilewright.ir.verifier import verify
from tilewright.options import CompileOptions
from tilewright.passes.default import SEQUENTIAL_BLOCK, lower_cpu

PASSES = {step.name: step for step in SEQUENTIAL_BLOCK}

PRODUCT = """
func product(
    A: float32[{m}, {k}],
    B: float32[{k}, {n}],
    C: float32[{m}, {n}],
) level(lowering):
    launch (bx < {columns}, by < {rows}) threads(128):
        alloc A_shared: float32[128, 32] shared
        alloc B_shared: float32[32, 128] shared
        alloc C_local: float32[128, 128] fragment
        fill C_local = 0.0
        for k in pipelined({steps}, stages=2):
            copy A[by * 128 +: 128, k * 32 +: 32] -> A_shared
            copy B[k * 32 +: 32, bx * 128 +: 128] -> B_shared
            gemm C_local += A_shared @ B_shared
        copy C_local -> C[by * 128 +: 128, bx * 128 +: 128]
"""
EVEN = PRODUCT.format(m=1024, n=1024, k=1024, columns=8, rows=8, steps=32)

BEFORE = {
    "inline_index": """
func scale(
    X: float32[100, 77],
    Y: float32[100, 77],
) level(lowering):
    launch (bx < 7) threads(128):
        let first = bx * 16
        parallel (i < 16, j < 77):
            let row = first + i
            let value = X[row, j]
            Y[row, j] = value * 2.0
""",
    "fit_blocks": PRODUCT.format(m=777, n=77, k=333, columns=1, rows=7, steps=11),
    "coarsen_blocks": EVEN,
    "chunk_gemm": EVEN,
    "pair_gemm": """
func product(
    A: bfloat16[128, 1024],
    B: bfloat16[1024, 128],
    C: float32[128, 128],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc A_shared: bfloat16[128, 256] shared
        alloc B_shared: bfloat16[256, 128] shared
        alloc C_local: float32[128, 128] fragment
        for k in serial(4):
            copy A[0 +: 128, k * 256 +: 256] -> A_shared
            copy B[k * 256 +: 256, 0 +: 128] -> B_shared
            if k == 0:
                gemm C_local = A_shared @ B_shared
            else:
                gemm C_local += A_shared @ B_shared
        copy C_local -> C
""",
    "overlap_copies": """
func product(
    A: float32[128, 1024],
    B: float32[1024, 128],
    C: float32[128, 128],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc A_shared: float32[128, 256] shared
        alloc B_shared: float32[256, 128] shared
        alloc C_local: float32[128, 128] fragment
        fill C_local = 0.0
        for k in serial(4):
            copy A[0 +: 128, k * 256 +: 256] -> A_shared
            copy B[k * 256 +: 256, 0 +: 128] -> B_shared
            gemm C_local += A_shared @ B_shared
        copy C_local -> C
""",
    "prepare_gemm": """
func scores(
    Q: float16[64, 32],
    K: float16[64, 32],
    S: float32[64, 64],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc Q_shared: float16[64, 32] shared
        alloc K_shared: float16[64, 32] shared
        alloc S_local: float32[64, 64] fragment
        copy Q -> Q_shared
        copy K -> K_shared
        gemm S_local = Q_shared @ K_shared (transpose_b)
        copy S_local -> S
""",
    "transpose_tiles": """
func transposed(
    B: float32[32, 16],
    C: float32[16, 32],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc B_packed: float32[16, 32] shared
        transpose B -> B_packed
        copy B_packed -> C
""",
    "lower_tiles": """
func tiles(
    X: float16[100, 77],
    counts: int32[8],
    Y: float32[77, 100],
) level(lowering):
    launch (bx < 7) threads(128):
        alloc tile: float32[16, 77] shared
        alloc one: int32[8] shared
        copy X[bx * 16 +: 16, 0 +: 77] -> tile
        transpose tile -> Y[0 +: 77, bx * 16 +: 16]
        fill one = 1
        atomic relaxed add counts, from one
""",
    "fuse_loops": """
func squares(
    X: float32[100, 64],
    S: float32[100],
) level(lowering):
    launch (bx < 100) threads(128):
        alloc x: float32[1, 64] fragment
        alloc square: float32[1, 64] fragment
        alloc total: float32[1] fragment
        parallel (i < 1, j < 64):
            x[i, j] = X[bx, j]
        parallel (i < 1, j < 64):
            square[i, j] = x[i, j] * x[i, j]
        reduce sum square -> total (dim=1, clear)
        parallel (i < 1):
            S[bx] = total[i]
""",
    "lower_reduce": """
func sums(
    X: float32[4, 256],
    S: float32[4],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc x: float32[4, 256] fragment
        alloc s: float32[4] fragment
        parallel (i < 4, j < 256):
            x[i, j] = X[i, j]
        reduce sum x -> s (dim=1, clear)
        parallel (i < 4):
            S[i] = s[i]
""",
    "lower_loops": """
func loops(
    X: float32[32],
    Y: float32[32],
) level(lowering):
    launch (bx < 1) threads(128):
        for k in pipelined(4, stages=2):
            for i in vectorized(8):
                Y[k * 8 + i] = X[k * 8 + i]
        for u in unroll(2):
            Y[u] = 0.0
        for u in unroll(1000):
            Y[0] = 0.0
""",
    "privatise": """
func squares(
    X: float32[64],
    Y: float32[64],
) level(lowering):
    launch (bx < 1) threads(128):
        alloc t: float32[] var = 0.0
        parallel (i < 64):
            t[] = X[i]
            Y[i] = t[] * t[]
""",
    "guard_accesses": """
func copy_tile(
    X: float32[1000, 333] safe(-1.0),
    Y: float32[1000, 333],
) level(lowering):
    launch (bx < 11, by < 8) threads(128):
        parallel (i < 128, j < 32):
            Y[by * 128 + i, bx * 32 + j] = X[by * 128 + i, bx * 32 + j]
""",
    "vectorise": """
func exponentials(
    X: float32[16, 77],
    Y: float32[16, 77],
) level(lowering):
    launch (bx < 1) threads(128):
        parallel (i < 16, j < 77):
            Y[i, j] = exp(X[i, j])
""",
    "lower_gemm": """
func product(
    A: float32[16, 32],
    B: float32[32, 64],
    C: float32[16, 64],
) level(lowering):
    launch (bx < 1) threads(128):
        gemm C = A @ B
""",
    "stream_stores": """
func double(
    X: float32[16384, 4096],
    Y: float32[16384, 4096],
) level(lowering):
    launch (bx < 16384) threads(128):
        for j in serial(0, 4096, 16):
            Y[bx, j +: 16] = X[bx, j +: 16] + X[bx, j +: 16]
""",
    "prefetch_rows": """
func normalise(
    X: float32[16384, 4096],
    Y: float32[16384, 4096],
) level(lowering):
    launch (bx < 16384) threads(128):
        alloc total: float32x16[] register
        alloc x: float32[4096] fragment
        total[] = broadcast(0.0, 16)
        for j in serial(0, 4096, 16):
            let value = X[bx, j +: 16]
            x[j +: 16] = value
            total[] = total[] + value
        let all = reduce_add(total[])
        for j in serial(0, 4096, 16):
            Y[bx, j +: 16] = x[j +: 16] / broadcast(all, 16)
""",
}

# A narrow vector where the text would be long else.
ARCH = {"prepare_gemm": "sse2", "transpose_tiles": "sse2", "pair_gemm": "avx512bf16"}
SETTINGS = {"pair_gemm": (("cpu.bf16_dot", True),)}


def test_every_pass_has_a_text():
    assert set(BEFORE) == set(PASSES)


@pytest.mark.parametrize("name", PASSES)
def test_pass(name, golden):
    before = parse_func(BEFORE[name])
    verify(before)
    after = PASSES[name].run(
        before, fixed_cpu(ARCH.get(name, "avx512")), CompileOptions(pass_configs=SETTINGS.get(name, ()))
    )
    verify(after)
    assert difference(before, after) is not None
    golden(f"passes/{name}", f"# before {name}\n{print_func(before)}\n# after {name}\n{print_func(after)}")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("matmul", (1024, 1024, 1024)),
        ("softmax", (1000, 333)),
        ("flash_attention", (2, 3, 77, 133, 40, True)),
    ],
)
def test_lowered_example(name, arguments, golden):
    lowered = lower_cpu(program(name, *arguments), fixed_cpu("avx512"), CompileOptions(verify=True))
    golden(f"lowered/{name}", print_func(lowered))
