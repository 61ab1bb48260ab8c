"""Values that are made once."""

import subprocess
import sys
import threading
import time

import pytest

from tilewright.runtime.once import OnceMap


def test_one_maker_however_many_ask():
    once = OnceMap()
    made = []

    def make():
        time.sleep(0.02)
        made.append(1)
        return object()

    results = []
    threads = [threading.Thread(target=lambda: results.append(once.get("k", make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(made) == 1 and len(set(map(id, results))) == 1
    assert (once.hits, once.misses, len(once)) == (7, 1, 1)


def test_keys_do_not_wait_for_each_other():
    once = OnceMap()
    inside = threading.Barrier(2, timeout=10)
    threads = [threading.Thread(target=once.get, args=(key, lambda: inside.wait() + 1)) for key in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(once) == 2


def test_a_failure_is_tried_again():
    once = OnceMap()
    with pytest.raises(ValueError, match="first"):
        once.get("k", lambda: int("first"))
    assert once.find("k") is None and len(once) == 0
    assert once.get("k", lambda: 5) == 5


def test_nested_use_of_one_map():
    once = OnceMap()
    assert once.get("a", lambda: once.get("b", lambda: 2) + 1) == 3
    once.clear()
    assert len(once) == 0 and once.misses == 0


def test_a_forked_child_finds_the_locks_free():
    script = """
import os, threading
from tilewright.runtime.once import OnceMap
once = OnceMap()
inside, go_on = threading.Event(), threading.Event()
def slow():
    inside.set()
    go_on.wait(20)
    return 1
thread = threading.Thread(target=once.get, args=("k", slow))
thread.start()
inside.wait(20)
child = os.fork()
if not child:
    os._exit(once.get("k", lambda: 9))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
go_on.set()
thread.join()
"""
    command = [sys.executable, "-W", "ignore", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "9", done.stderr
