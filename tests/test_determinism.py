"""The same program gives the same key, the same text and the same machine code, in every process."""

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import hashlib, json, sys
import tilewright
import tilewright.language as T
from tilewright.compiler import compile_func
from tilewright.options import CompileOptions
from tilewright.runtime.cache import cache_key
from tilewright.targets.registry import resolve_target

@T.prim_func
def matmul(A: T.Tensor((100, 77), "float16"), B: T.Tensor((77, 64), "float16"), C: T.Tensor((100, 64), "float32")):
    with T.Kernel(T.ceildiv(64, 32), T.ceildiv(100, 32), threads=128) as (bx, by):
        A_s = T.alloc_shared((32, 16), "float16")
        B_s = T.alloc_shared((16, 32), "float16")
        C_f = T.alloc_fragment((32, 32), "float32")
        T.clear(C_f)
        for k in T.Pipelined(T.ceildiv(77, 16), num_stages=2):
            T.copy(A[by * 32, k * 16], A_s)
            T.copy(B[k * 16, bx * 32], B_s)
            T.gemm(A_s, B_s, C_f)
        T.copy(C_f, C[by * 32, bx * 32])

n = T.dynamic("n")

@T.prim_func
def softmax(X: T.Tensor((n, 65), "float32"), Y: T.Tensor((n, 65), "float32")):
    with T.Kernel(n, threads=64) as bx:
        row = T.alloc_fragment((1, 65), "float32")
        top = T.alloc_fragment((1,), "float32")
        total = T.alloc_fragment((1,), "float32")
        T.copy(X[bx, 0], row)
        T.reduce_max(row, top, dim=1)
        for i, j in T.Parallel(1, 65):
            row[i, j] = T.exp(row[i, j] - top[i])
        T.reduce_sum(row, total, dim=1)
        for i, j in T.Parallel(1, 65):
            row[i, j] = row[i, j] / total[i]
        T.copy(row, Y[bx, 0])

result = []
options = CompileOptions.make()
for func in (matmul, softmax):
    for name in sys.argv[1:]:
        target = resolve_target(name)
        artifact = compile_func(func, target, options)
        result.append([
            cache_key(func, target, options),
            hashlib.sha256(artifact.source.encode()).hexdigest(),
            hashlib.sha256(artifact.binary).hexdigest(),
            json.dumps(artifact.metadata, sort_keys=True),
        ])
print(json.dumps(result))
"""


def compile_in_a_process(seed: int, directory, targets) -> list[list[str]]:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    script = directory / "kernels.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), *targets]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_processes_agree(target, tmp_path):
    first = compile_in_a_process(1, tmp_path, [target])
    assert len(first) == 2 and first[0] != first[1]
    assert compile_in_a_process(2, tmp_path, [target]) == first
