"""Kernels on real threads and in real processes: forks, ends of interpreters, interrupts, printing."""

import contextlib
import io
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

import tilewright
import tilewright.language as T
from tilewright import errors

PRELUDE = """
import os, sys, threading, time
import numpy as np
import tilewright, tilewright.language as T

m = T.dynamic("m")

@T.prim_func
def double(X: T.Tensor((m, 64), "float32"), Y: T.Tensor((m, 64), "float32")):
    with T.Kernel(m, threads=32) as b:
        S = T.alloc_shared((64,), "float32")
        T.copy(X[b, 0:64], S)
        for i in T.Parallel(64):
            Y[b, i] = S[i] * 2

kernel = tilewright.compile(double, target="cpu")
x, y = np.ones((300, 64), np.float32), np.zeros((300, 64), np.float32)

def works():
    y[...] = 0
    kernel(x, y)
    return bool((y == 2).all())

def slow(count):
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(64, threads=32) as b:
            for i in T.serial(count):
                A[b] = A[b] * 0.5 + 1
    return tilewright.compile(main, target="cpu")
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")

    def start(program, **environment):
        path = folder / "program.py"
        path.write_text(PRELUDE + textwrap.dedent(program))
        settings = {"TILEWRIGHT_CACHE_DIR": str(folder / "cache"), "TILEWRIGHT_NUM_THREADS": "4", **environment}
        return subprocess.run(
            [sys.executable, str(path)],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return start


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children_run_and_compile_kernels(run):
    done = run("""
        import multiprocessing
        assert works()
        for _ in range(3):
            child = os.fork()
            if not child:
                os._exit(0 if works() else 3)
            assert os.waitpid(child, 0)[1] == 0
        child = os.fork()
        if not child:
            single = slow(5)
            single(np.zeros(64, np.float32))
            os._exit(0 if works() else 3)
        assert os.waitpid(child, 0)[1] == 0
        busy, a = slow(2_000_000), np.zeros(64, np.float32)
        thread = threading.Thread(target=busy, args=(a,))
        thread.start()
        child = os.fork()
        if not child:
            os._exit(0 if works() else 3)
        assert os.waitpid(child, 0)[1] == 0
        thread.join()

        def scaled(i):
            kernel(x * i, y)
            return float(y[0, 0])

        with multiprocessing.get_context("fork").Pool(3) as workers:
            assert workers.map(scaled, range(6)) == [0, 2, 4, 6, 8, 10]
        assert works()
        print("through")
    """)
    assert done.stdout == "through\n", done.stderr


def test_the_interpreter_ends_while_kernels_run(run):
    done = run("""
        import atexit
        assert works()
        busy, a = slow(5_000_000), np.zeros(64, np.float32)
        threading.Thread(target=busy, args=(a,), daemon=True).start()
        time.sleep(0.2)
        atexit.register(lambda: print("at exit", works()))
        print("leaving")
    """)
    assert (done.returncode, done.stdout) == (0, "leaving\nat exit True\n"), done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent as POSIX does")
def test_interrupts_arrive_when_the_kernel_is_through(run):
    done = run("""
        import signal
        busy, a = slow(200_000), np.zeros(64, np.float32)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                busy(a)
        except KeyboardInterrupt:
            print("interrupted", works())
    """)
    assert done.stdout == "interrupted True\n", done.stderr


@pytest.mark.parametrize("value", ["0", "-1", "abc", "1.5", " 2 ", "²", "5000", "9" * 5000])
def test_bad_numbers_of_threads_are_refused(monkeypatch, value):
    from tilewright.options import env_threads

    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", value)
    with pytest.raises(errors.OptionError, match="TILEWRIGHT_NUM_THREADS must be a number from 1 to 4096") as caught:
        env_threads()
    assert "unset" in caught.value.hint


def test_many_more_threads_than_cores_and_a_bad_number(run):
    assert run("print(works())", TILEWRIGHT_NUM_THREADS="300").stdout == "True\n"
    done = run(
        """
        try:
            works()
        except tilewright.errors.OptionError as error:
            print(error.location.source_line().strip())
        """,
        TILEWRIGHT_NUM_THREADS="many",
    )
    assert done.stdout == "kernel(x, y)\n", done.stderr


# --- asserts and prints -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checked():
    @T.prim_func
    def main(A: T.Tensor((1000,), "int32")):
        with T.Kernel(1000, threads=32) as b:
            T.device_assert(A[b] != 7, "seven is not allowed")
            A[b] = A[b] + 1

    return tilewright.compile(main, target="cpu")


@pytest.mark.parametrize("block", [0, 500, 999])
def test_an_assert_in_one_block_stops_the_call_and_nothing_else(checked, block):
    values = np.zeros(1000, np.int32)
    values[block] = 7
    with pytest.raises(errors.DeviceAssertError, match=f"block {block}: seven is not allowed") as caught:
        checked(values)
    assert caught.value.location.source_line().strip() == 'T.device_assert(A[b] != 7, "seven is not allowed")'
    assert values[block] == 7
    fine = np.zeros(1000, np.int32)
    checked(fine)
    assert (fine == 1).all()


@pytest.fixture(scope="module")
def printing():
    @T.prim_func
    def main(A: T.Tensor((200,), "int32")):
        with T.Kernel(200, threads=32) as b:
            T.print(A[b], "an element")

    return tilewright.compile(main, target="cpu")


def test_lines_of_many_blocks_are_whole(printing):
    out = io.StringIO()

    def work():
        printing(np.arange(200, dtype=np.int32))

    with contextlib.redirect_stdout(out):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(out.getvalue().splitlines()) == sorted([f"an element: {i}" for i in range(200)] * 4)


class Stream(io.StringIO):
    """A stream whose `write` does something else first."""

    def __init__(self, act):
        super().__init__()
        self.act = act
        self.depth = 0
        self.lines = []

    def write(self, text):
        self.lines.append(text)
        if self.depth < 2:
            self.depth += 1
            try:
                self.act()
            finally:
                self.depth -= 1
        return len(text)


def test_a_stream_that_runs_kernels_itself(printing, checked):
    few = np.full(1000, 100, np.int32)
    stream = Stream(lambda: checked(few))
    with contextlib.redirect_stdout(stream):
        printing(np.arange(200, dtype=np.int32))
    assert len(stream.lines) == 200 and (few == 300).all()


def test_a_stream_that_runs_a_kernel_that_prints():
    @T.prim_func
    def main(A: T.Tensor((3,), "int32")):
        with T.Kernel(3, threads=32) as b:
            T.print(A[b])

    kernel = tilewright.compile(main, target="cpu")
    values = np.zeros(3, np.int32)
    stream = Stream(lambda: kernel(values))
    with contextlib.redirect_stdout(stream):
        kernel(values)
    assert len(stream.lines) >= 3 + 3 * 3


@pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
def test_what_writing_raises_ends_the_call(printing, error):
    def fail():
        raise error

    stream = Stream(fail)
    with contextlib.redirect_stdout(stream), pytest.raises(type(error)):
        printing(np.zeros(200, np.int32))
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        printing(np.zeros(200, np.int32))
    assert len(out.getvalue().splitlines()) == 200
