"""The CPU driver with object code written by hand: launches, scratch, workspaces, asserts, prints, hosts."""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import llvmlite.binding as llvm
import numpy as np
import pytest

from tilewright.errors import CompileError, DeviceAssertError, TargetError
from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Buffer, Var, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import Copy, Region, Seq
from tilewright.options import CompileOptions
from tilewright.runtime import pool as pool_module
from tilewright.runtime.drivers.cpu import DRIVER
from tilewright.runtime.kernel import Kernel, Loaded
from tilewright.target import Target
from tilewright.targets.registry import Artifact

N = Var(dtype("int32"), "n")
TARGET = Target("cpu", "host")

# y[i] = x[i] * s through the scratch arena, a block of 4 elements at a time; args: x, y, s, n, workspace.
# Fails assert 0 where x[i] < 0, and prints i and x[i] where x[i] > 1000.
MODULE = r"""
define i64 @blocks(ptr %args) {
  %p = getelementptr i64, ptr %args, i64 3
  %n = load i64, ptr %p
  %a = add i64 %n, 3
  %b = sdiv i64 %a, 4
  ret i64 %b
}
define i64 @bytes(ptr %args) {
  %p = getelementptr i64, ptr %args, i64 3
  %n = load i64, ptr %p
  %b = mul i64 %n, 8
  ret i64 %b
}
define void @entry(ptr %args, ptr %counter, i64 %total, ptr %scratch, ptr %status) {
start:
  %x = load ptr, ptr %args
  %yp = getelementptr i64, ptr %args, i64 1
  %y = load ptr, ptr %yp
  %sp = getelementptr i64, ptr %args, i64 2
  %s = load float, ptr %sp
  %np = getelementptr i64, ptr %args, i64 3
  %n = load i64, ptr %np
  %wp = getelementptr i64, ptr %args, i64 4
  %w = load ptr, ptr %wp
  %cbp = getelementptr i64, ptr %status, i64 1
  %cb = load ptr, ptr %cbp
  br label %fetch
fetch:
  %block = atomicrmw add ptr %counter, i64 1 seq_cst
  %more = icmp slt i64 %block, %total
  %failed = load atomic i64, ptr %status monotonic, align 8
  %ok = icmp eq i64 %failed, 0
  %go = and i1 %more, %ok
  br i1 %go, label %body, label %done
body:
  %first = mul i64 %block, 4
  br label %loop
loop:
  %j = phi i64 [ 0, %body ], [ %j1, %next ]
  %i = add i64 %first, %j
  %in = icmp slt i64 %i, %n
  br i1 %in, label %work, label %next
work:
  %xi = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %xi
  %negative = fcmp olt float %v, 0.0
  br i1 %negative, label %fail, label %check
fail:
  %won = cmpxchg ptr %status, i64 0, i64 1 seq_cst seq_cst
  %won1 = extractvalue { i64, i1 } %won, 1
  br i1 %won1, label %where, label %done
where:
  %bp = getelementptr i64, ptr %status, i64 2
  store i64 %block, ptr %bp
  br label %done
check:
  %slot = getelementptr float, ptr %scratch, i64 %j
  %m = fmul float %v, %s
  store float %m, ptr %slot
  %big = fcmp ogt float %v, 1.0e3
  br i1 %big, label %tell, label %store
tell:
  %packed = getelementptr i8, ptr %scratch, i64 128
  store i64 %i, ptr %packed, align 1
  %packed1 = getelementptr i8, ptr %scratch, i64 136
  store float %v, ptr %packed1, align 1
  call void %cb(i64 0, ptr %packed, i64 12)
  br label %store
store:
  %back = load float, ptr %slot
  %wi = getelementptr i64, ptr %w, i64 %i
  store i64 %i, ptr %wi
  %yi = getelementptr float, ptr %y, i64 %i
  store float %back, ptr %yi
  br label %next
next:
  %j1 = add i64 %j, 1
  %again = icmp slt i64 %j1, 4
  br i1 %again, label %loop, label %fetch
done:
  ret void
}
"""
METADATA = {
    "abi": 1,
    "launches": [{"entry": "entry", "blocks": "blocks"}],
    "workspaces": [{"bytes": "bytes"}],
    "scratch_bytes": 256,
    "asserts": [{"message": "x is negative", "location": [__file__, 3, 5, 8]}],
    "prints": [
        {"message": "big", "dtypes": ["int64", "float32"], "shapes": [None, [1]], "names": ["", "x"], "location": None}
    ],
}


def whole(buffer):
    return Region(buffer, (const(0),), buffer.shape)


def function():
    x, y = (Buffer(name, (N,), dtype("float32")) for name in "xy")
    return PrimFunc("scale", (x, y, Var(dtype("float32"), "s")), Seq((Copy(whole(x), whole(y)),)), (N,), (1,))


def object_code():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
    return machine.emit_object(llvm.parse_assembly(MODULE))


@pytest.fixture(scope="module")
def code():
    return object_code()


@pytest.fixture
def kernel(code, monkeypatch):
    monkeypatch.setattr(pool_module, "_pool", pool_module.Pool(3))
    yield Kernel(function(), Loaded(Artifact(TARGET, "text", code, METADATA), "compiled"), CompileOptions())
    pool_module.pool().shutdown()


@pytest.mark.parametrize("count", [0, 1, 4, 5, 1001])
def test_a_launch(kernel, count):
    x = np.arange(count, dtype=np.float32) / 2
    y = kernel(x, 3)
    np.testing.assert_array_equal(y, x * 3)


def test_an_assert_stops_the_kernel_and_names_the_place(kernel):
    x = np.ones(4000, np.float32)
    x[2001] = -1
    with pytest.raises(DeviceAssertError, match="kernel 'scale', block 500: x is negative") as caught:
        kernel(x, 1.0)
    assert caught.value.location.key() == (__file__, 3, 5)
    np.testing.assert_array_equal(kernel(np.ones(9, np.float32), 2.0), np.full(9, 2.0))


def test_prints_go_to_the_standard_output_of_python(kernel, capsys):
    x = np.ones(10, np.float32)
    x[7] = 2000.5
    kernel(x, 1.0)
    assert capsys.readouterr().out == "big: 7\nbig: x = [2000.5]\n"


def test_an_error_while_printing_reaches_the_caller(kernel):
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError("nobody listens")

    x = np.full(100, 5000, np.float32)
    with contextlib.redirect_stdout(Closed()), pytest.raises(BrokenPipeError, match="nobody listens"):
        kernel(x, 1.0)
    np.testing.assert_array_equal(kernel(np.ones(2, np.float32), 2.0), [2.0, 2.0])


def test_a_kernel_called_while_another_prints_has_its_own_scratch(kernel):
    inner_results = []

    class Nested(io.StringIO):
        def write(self, text):
            inner_results.append(kernel(np.arange(50, dtype=np.float32), 2.0))
            return len(text)

    x = np.arange(2000, dtype=np.float32)
    with contextlib.redirect_stdout(Nested()):
        y = kernel(x, 3.0)
    np.testing.assert_array_equal(y, x * 3)
    assert len(inner_results) == 999
    assert all((r == np.arange(50) * 2).all() for r in inner_results)


def test_eight_python_threads_at_once(kernel):
    problems = []

    def caller(seed):
        random = np.random.default_rng(seed)
        for _ in range(60):
            x = random.random(int(random.integers(1, 800)), np.float32)
            if not np.array_equal(kernel(x, seed), x * np.float32(seed)):
                problems.append(seed)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert problems == []


def test_loading_from_several_threads(code):
    x = np.arange(20, dtype=np.float32)
    loaded = Loaded(Artifact(TARGET, "", code, METADATA), "compiled")
    results = []
    threads = [
        threading.Thread(target=lambda: results.append(Kernel(function(), loaded, CompileOptions())(x, 2)))
        for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(results) == 6 and all((r == x * 2).all() for r in results)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"triple": "riscv64-unknown-linux-gnu"}, "compiled for riscv64"),
        ({"features": "+sse2,+avx10.9-imaginary"}, None),
    ],
)
def test_code_for_another_machine_is_refused(code, changes, message):
    artifact = Artifact(replace(TARGET, **changes), "", code, METADATA)
    if message is None:
        DRIVER.load(artifact)  # a feature that LLVM does not name cannot be judged
        return
    with pytest.raises(TargetError, match=message):
        DRIVER.load(artifact)


def test_a_missing_cpu_feature_is_named(code, monkeypatch):
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: {"avx2": True, "avx512f": False})
    artifact = Artifact(replace(TARGET, features="+avx2,+avx512f,-sse4a"), "", code, METADATA)
    with pytest.raises(TargetError, match="a CPU with avx512f, which this one lacks") as caught:
        DRIVER.load(artifact)
    assert "TILEWRIGHT_CPU_FEATURES" in caught.value.hint


def test_other_abis_and_broken_code_are_refused(code):
    with pytest.raises(TargetError, match="ABI 2"):
        DRIVER.load(Artifact(TARGET, "", code, METADATA | {"abi": 2}))
    with pytest.raises(CompileError, match="no function 'nowhere'"):
        DRIVER.load(Artifact(TARGET, "", code, METADATA | {"launches": [{"entry": "nowhere", "blocks": "blocks"}]}))
    with pytest.raises(CompileError, match="cannot be loaded"):
        DRIVER.load(Artifact(TARGET, "", b"this is no object file", METADATA))


def test_external_functions_are_found_in_the_c_library():
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    text = """
declare float @cbrtf(float)
define i64 @blocks(ptr %a) { ret i64 1 }
define void @entry(ptr %a, ptr %c, i64 %t, ptr %s, ptr %st) {
  %x = load ptr, ptr %a
  %v = load float, ptr %x
  %r = call float @cbrtf(float %v)
  store float %r, ptr %x
  ret void
}
"""
    machine = llvm.Target.from_default_triple().create_target_machine(reloc="pic", jit=True)
    binary = machine.emit_object(llvm.parse_assembly(text))
    metadata = {"abi": 1, "launches": [{"entry": "entry", "blocks": "blocks"}], "externals": ["cbrtf"]}
    x = Buffer("x", (const(1),), dtype("float32"))
    func = PrimFunc("root", (x,), Seq((Copy(whole(x), whole(x)),)))
    array = np.array([27], np.float32)
    Kernel(func, Loaded(Artifact(TARGET, "", binary, metadata), "compiled"), CompileOptions())(array)
    assert array[0] == 3
    with pytest.raises(CompileError, match="no function 'no_such_function'"):
        DRIVER.load(Artifact(TARGET, "", binary, metadata | {"externals": ["no_such_function"]}))


def test_a_call_costs_little(kernel):
    x = np.zeros(4, np.float32)
    out = np.zeros(4, np.float32)
    times = []
    for _ in range(500):
        start = time.perf_counter()
        kernel(x, 1.0, y=out)
        times.append(time.perf_counter() - start)
    assert sorted(times)[100] < 200e-6  # about 15 µs on an idle machine


def test_children_that_are_forked_while_kernels_run():
    script = f"""
import os, sys, threading
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_runtime_cpu_driver import *
kernel = Kernel(function(), Loaded(Artifact(TARGET, "", object_code(), METADATA), "compiled"), CompileOptions())
stop = threading.Event()
def work():
    x = np.arange(500, dtype=np.float32)
    while not stop.is_set():
        assert (kernel(x, 2.0) == x * 2).all()
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
children = []
for _ in range(5):
    child = os.fork()
    if not child:
        x = np.arange(900, dtype=np.float32)
        os._exit(0 if all((kernel(x, 3.0) == x * 3).all() for _ in range(20)) else 1)
    children.append(child)
print([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children])
stop.set()
"""
    environment = {**os.environ, "TILEWRIGHT_NUM_THREADS": "3"}
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[0, 0, 0, 0, 0]", done.stderr
