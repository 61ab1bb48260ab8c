"""The thread pool that blocks of CPU kernels run on.

The caller of a kernel takes part in the work itself, so that nested and concurrent use cannot
deadlock: a job makes progress even when every other thread is busy.  Idle threads sleep on a lock of
their own; nothing spins.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable

from tilewright.options import env_threads


class _Job:
    """A task that up to `wanted` more threads may join."""

    __slots__ = ("active", "closed", "done", "error", "task", "wanted")

    def __init__(self, task: Callable[[], None], wanted: int) -> None:
        self.task = task
        self.wanted = wanted
        self.active = 0
        self.closed = False
        self.error: BaseException | None = None
        self.done = threading.Lock()


class Pool:
    """Up to `size` threads work on a job, the caller among them; threads are started when first needed."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._lock = threading.Lock()
        self._open: list[_Job] = []
        self._idle: list[threading.Lock] = []
        self._threads: list[threading.Thread] = []
        self._stopped = False

    def run(self, task: Callable[[], None], threads: int) -> None:
        """Call `task` on up to `threads` threads at once, always on the calling one; return when all are through.

        Not every thread need come in time to take part, so `task` must fetch its share of the work itself.
        An exception of a task is raised here, after every thread has left it.
        """
        wanted = min(threads, self.size) - 1
        if wanted <= 0:
            task()
            return
        job = _Job(task, wanted)
        try:
            self._announce(job)
            task()
        finally:
            self._wait(job)
        if job.error is not None:
            raise job.error

    def _announce(self, job: _Job) -> None:
        with self._lock:
            if self._stopped:
                return
            self._open.append(job)
            sleepers = [self._idle.pop() for _ in range(min(job.wanted, len(self._idle)))]
            missing = min(job.wanted - len(sleepers), self.size - 1 - len(self._threads))
            started = [self._new_thread() for _ in range(missing)]
        for sleeper in sleepers:
            sleeper.release()
        for thread in started:
            self._start(thread)

    def _new_thread(self) -> threading.Thread:
        thread = threading.Thread(target=self._work, name=f"tilewright-{len(self._threads) + 1}", daemon=True)
        self._threads.append(thread)
        return thread

    def _start(self, thread: threading.Thread) -> None:
        try:
            thread.start()
        except RuntimeError:  # the system, or an interpreter that is ending, gives no more threads
            with self._lock:
                self._threads.remove(thread)

    def _wait(self, job: _Job) -> None:
        """Take `job` off the list and wait for the threads in it, however often the user presses Ctrl-C."""
        interrupt: KeyboardInterrupt | None = None
        while True:
            try:
                self._close(job)
                break
            except KeyboardInterrupt as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _close(self, job: _Job) -> None:
        with self._lock:
            if not job.closed:
                job.closed = True
                if job in self._open:
                    self._open.remove(job)
                job.done.acquire()  # free until now
                if not job.active:
                    return
            elif not job.active:
                return
        job.done.acquire()

    def _next(self, sleeper: threading.Lock) -> _Job | None:
        """An open job, joined; else None, and `sleeper` is on the list of those to wake."""
        with self._lock:
            if not self._open:
                if not self._stopped:
                    self._idle.append(sleeper)
                return None
            job = self._open[0]
            job.wanted -= 1
            job.active += 1
            if not job.wanted:
                self._open.pop(0)
            return job

    def _work(self) -> None:
        sleeper = threading.Lock()
        sleeper.acquire()
        while True:
            job = self._next(sleeper)
            if job is None:
                if self._stopped:
                    return
                sleeper.acquire()
                continue
            try:
                job.task()
            except BaseException as error:
                job.error = error
            with self._lock:
                job.active -= 1
                if job.closed and not job.active:
                    job.done.release()
            del job

    def shutdown(self) -> None:
        """End all threads; later jobs run on their callers alone."""
        with self._lock:
            self._stopped = True
            sleepers, self._idle = self._idle, []
            threads, self._threads = self._threads, []
        for sleeper in sleepers:
            sleeper.release()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=1.0)


_pool: Pool | None = None
_pool_lock = threading.Lock()


def pool() -> Pool:
    """This process's pool, of `options.env_threads()` threads.  Raises OptionError when the variable is bad."""
    global _pool
    if _pool is None:
        with _pool_lock:
            if _pool is None:
                _pool = Pool(env_threads())
    return _pool


def _after_fork() -> None:
    """A child process has none of the parent's threads."""
    global _pool, _pool_lock
    _pool = None
    _pool_lock = threading.Lock()


def _at_exit() -> None:
    if _pool is not None:
        _pool.shutdown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
atexit.register(_at_exit)
