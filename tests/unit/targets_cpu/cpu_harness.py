"""Lowered functions built by hand, run by the CPU back-end on one thread and by the reference evaluator."""

import ctypes
import functools

import llvmlite.binding as llvm
import numpy as np

from tilewright.ir.dtype import dtype
from tilewright.ir.expr import Broadcast, Buffer, Load, Ramp, Var, as_expr, const
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.stmt import For, Launch, Let, Region, Seq, Store
from tilewright.simulator.reference import run as evaluate
from tilewright.targets.cpu import codegen
from tilewright.targets.cpu.arch import resolve
from tilewright.targets.cpu.emit import emit_module

HOST = resolve("host")
I32 = dtype("int32")
I64 = dtype("int64")
F32 = dtype("float32")
BOOL = dtype("bool")

# Levels whose code runs here, widest first.
RUNNABLE = [
    name
    for name, feature in (("avx512", "avx512f"), ("avx2", "avx2"), ("sse2", "sse2"))
    if dict(llvm.get_host_cpu_features()).get(feature)
] or ["neon"]


def num(value):
    return as_expr(value, I32)


def nums(values):
    return tuple(num(v) for v in values)


def buf(name, shape, of="float32", scope="global", strides=None, **more):
    return Buffer(name, nums(shape), dtype(of), scope, None if strides is None else nums(strides), **more)


def var(name, of="int32"):
    return Var(dtype(of), name)


def seq(*stmts):
    return Seq(tuple(stmts))


def loop(variable, stop, *body, start=0, step=1, kind="serial"):
    return For(variable, num(start), num(stop), num(step), seq(*body), kind)


def ramp(base, lanes, stride=1):
    base = num(base)
    return Ramp(base.dtype.with_lanes(lanes), base, as_expr(stride, base.dtype))


def splat(value, lanes):
    value = num(value)
    return Broadcast(value.dtype.with_lanes(lanes), value)


def load(of, *indices, mask=None):
    lanes = max([num(i).dtype.lanes for i in indices], default=1) * of.dtype.lanes
    return Load(of.dtype.with_lanes(lanes), of, nums(indices), mask)


def store(of, indices, value, mask=None, **more):
    return Store(of, nums(indices), value, mask, **more)


def let(variable, value):
    return Let(variable, value)


def point(of, *indices):
    return Region(of, nums(indices), nums([1] * of.ndim))


def kernel(params, *body, grid=(1,), block_vars=None, sizes=(), before=()):
    block_vars = block_vars or tuple(var(f"b{d}") for d in range(len(grid)))
    launch = Launch(nums(grid), tuple(block_vars), seq(*body))
    return PrimFunc("kernel", tuple(params), seq(*before, launch), tuple(sizes), (), "lowered")


class Loaded:
    """Object code in this process."""

    def __init__(self, func, target=HOST, level=3):
        self.func = func
        text, self.metadata = emit_module(func, target)
        self.text = text
        code = codegen.object_code(text, target, level)
        machine = llvm.Target.from_default_triple().create_target_machine()
        for name in self.metadata["externals"]:
            llvm.add_symbol(name, _library_function(name))
        self.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self.engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self.engine.finalize_object()
        self.printed = []

    def function(self, name, result, *arguments):
        return ctypes.CFUNCTYPE(result, *arguments)(self.engine.get_function_address(name))

    def __call__(self, *args, sizes=()):
        """Run all launches; gives the status slots."""
        slots = [_slot(p, a) for p, a in zip(self.func.params, args, strict=True)] + [int(s) for s in sizes]
        count = len(slots)
        memory = (ctypes.c_int64 * (count + len(self.metadata["workspaces"])))(*slots)
        keep = []
        for i, workspace in enumerate(self.metadata["workspaces"]):
            nbytes = self.function(workspace["bytes"], ctypes.c_int64, ctypes.c_void_p)(ctypes.addressof(memory))
            keep.append(np.full(nbytes + 64, 0x6D, np.uint8))
            memory[count + i] = keep[-1].ctypes.data
        status = (ctypes.c_int64 * 8)()
        callback = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64)(self._print)
        status[1] = ctypes.cast(callback, ctypes.c_void_p).value
        arena = np.full(self.metadata["scratch_bytes"] + 128, 0x6D, np.uint8)
        base = -(-arena.ctypes.data // 64) * 64
        for launch in self.metadata["launches"]:
            total = self.function(launch["blocks"], ctypes.c_int64, ctypes.c_void_p)(ctypes.addressof(memory))
            counter = ctypes.c_int64(0)
            entry = self.function(launch["entry"], None, *[ctypes.c_void_p] * 2, ctypes.c_int64, *[ctypes.c_void_p] * 2)
            entry(ctypes.addressof(memory), ctypes.addressof(counter), total, base, ctypes.addressof(status))
            if status[0]:
                break
        return list(status)

    def _print(self, number, data, nbytes):
        self.printed.append((number, ctypes.string_at(data, nbytes) if nbytes else b""))


def _slot(param, arg):
    if isinstance(param, Buffer):
        return arg.ctypes.data
    if param.dtype.is_float:
        return int.from_bytes(np.asarray(arg, param.dtype.numpy).tobytes(), "little")
    value = int(arg)
    return value - (1 << 64) if value >= 1 << 63 else value


@functools.cache
def _library_function(name):
    return ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value


def run_both(func, *args, sizes=(), target=HOST):
    """(what the back-end left in the arrays, what the evaluator left)."""
    mine = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    theirs = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    status = Loaded(func, target)(*mine, sizes=sizes)
    assert status[0] == 0
    evaluate(func, theirs)
    return mine, theirs


def same_bits(mine, theirs, message=""):
    """Equal bit for bit, any NaN equal to any other."""
    mine, theirs = np.asarray(mine), np.asarray(theirs)
    raw = f"u{mine.dtype.itemsize}"
    equal = mine.view(raw) == theirs.view(raw)
    if mine.dtype.kind not in "biu":
        with np.errstate(invalid="ignore"):
            equal |= np.isnan(mine.astype(np.float64)) & np.isnan(theirs.astype(np.float64))
    bad = np.flatnonzero(~equal.reshape(-1))
    assert not bad.size, f"{message} {bad.size} differ, first {bad[:4]}: {mine.flat[bad[:4]]} {theirs.flat[bad[:4]]}"


def literal(value, of):
    return const(value, of)
