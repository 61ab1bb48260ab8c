"""The disk cache: what is stored comes back, and nothing that is damaged does."""

import errno
import os
import random
import stat
import subprocess
import sys
import threading
import time

import pytest

from tilewright.errors import OptionError
from tilewright.runtime import cache
from tilewright.runtime.cache import DiskCache, pack, unpack
from tilewright.target import Target
from tilewright.targets.registry import Artifact

TARGET = Target("cpu", "host")
KEY = "0123456789abcdef" * 4


def artifact(seed=0, size=3000):
    data = random.Random(seed).randbytes(size)
    metadata = {"abi": 1, "launches": [{"entry": "e", "blocks": "b"}], "asserts": [{"message": "ä", "location": None}]}
    return Artifact(TARGET, "source µ\n", data, metadata, {"llvm": "; text"})


@pytest.fixture
def disk(tmp_path):
    return DiskCache(tmp_path / "cache")


def test_round_trip(disk):
    made = artifact()
    assert disk.load(KEY, TARGET) is None
    assert disk.store(KEY, made)
    assert disk.load(KEY, TARGET) == made


def test_a_thousand_damaged_entries_are_all_refused():
    whole = pack(KEY, artifact(size=700))
    assert unpack(whole, KEY, TARGET) is not None
    dice = random.Random(7)
    for _ in range(1000):
        damaged = bytearray(whole)
        kind = dice.randrange(4)
        if kind == 0:
            damaged[dice.randrange(len(damaged))] ^= 1 << dice.randrange(8)
        elif kind == 1:
            damaged = damaged[: dice.randrange(len(damaged))]
        elif kind == 2:
            damaged += dice.randbytes(dice.randrange(1, 50))
        else:
            start = dice.randrange(len(damaged))
            damaged[start : start + 8] = bytes(8) if any(damaged[start : start + 8]) else b"x" * 8
        assert bytes(damaged) == whole or unpack(bytes(damaged), KEY, TARGET) is None


def test_damaged_files_are_replaced(disk):
    made = artifact()
    disk.store(KEY, made)
    path = disk.path(KEY)
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    assert disk.load(KEY, TARGET) is None and not path.exists()
    assert disk.store(KEY, made) and disk.load(KEY, TARGET) == made


def test_well_formed_entries_of_others_are_refused(disk):
    disk.store(KEY, artifact())
    other = KEY[:-1] + "0"
    disk.path(KEY).rename(disk.path(other))  # a file under another's name
    assert disk.load(other, TARGET) is None


@pytest.mark.parametrize("header", [b"[]", b"{}", b"{", b'{"key": 1}', b"\xff\xfe", b"null"])
def test_signed_nonsense_is_refused(header):
    import hashlib

    body = cache.MAGIC + len(header).to_bytes(8, "little") + header
    assert unpack(body + hashlib.sha256(body).digest(), KEY, TARGET) is None


def test_files_that_others_may_write_are_not_trusted(disk):
    disk.store(KEY, artifact())
    path = disk.path(KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    assert disk.load(KEY, TARGET) is None


def test_an_unwritable_place_is_no_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    disk = DiskCache(file)
    assert disk.store(KEY, artifact()) is False
    assert disk.load(KEY, TARGET) is None
    disk.evict()
    disk.clear()
    directory = DiskCache(tmp_path / "d")
    directory.path(KEY).mkdir(parents=True)  # a directory where the entry should be
    assert directory.store(KEY, artifact()) is False
    assert directory.load(KEY, TARGET) is None
    assert not list((tmp_path / "d" / KEY[:2]).glob(".new-*"))


def keys(count):
    return [f"{i:02x}" * 32 for i in range(count)]


def test_the_least_recently_used_go_first(tmp_path):
    disk = DiskCache(tmp_path, limit=10_000)
    for age, key in enumerate(keys(6)):
        disk.store(key, artifact(age))
        os.utime(disk.path(key), (1000 + age, 1000 + age))
    assert disk.load(keys(6)[0], TARGET) is not None  # used now
    disk.evict()
    left = [key for key in keys(6) if disk.path(key).exists()]
    assert left == [keys(6)[0], *keys(6)[-1:]] or left == [keys(6)[0], *keys(6)[-2:]]
    assert sum(disk.path(key).stat().st_size for key in left) <= 10_000


def test_clear(disk):
    for key in keys(4):
        disk.store(key, artifact())
    disk.clear()
    assert all(disk.load(key, TARGET) is None for key in keys(4))


def test_threads_and_processes_write_the_same_entry(disk):
    script = f"""
import sys
sys.path.insert(0, {os.path.dirname(__file__)!r})
from test_runtime_disk_cache import *
disk = DiskCache(cache.Path({str(disk.directory)!r}))
for _ in range(60):
    assert disk.store(KEY, artifact())
    assert disk.load(KEY, TARGET) == artifact()
"""
    others = [subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) for _ in range(2)]
    problems = []

    def worker():
        for _ in range(60):
            disk.store(KEY, artifact())
            if disk.load(KEY, TARGET) != artifact():
                problems.append(1)

    threads = [threading.Thread(target=worker) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for process in others:
        assert process.wait(60) == 0, process.stderr.read()
        process.stderr.close()
    assert problems == []
    assert [f.name for f in disk.path(KEY).parent.iterdir()] == [disk.path(KEY).name]


def test_the_environment_chooses_the_directory(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    assert cache.default_directory() == tmp_path
    monkeypatch.setenv("TILEWRIGHT_CACHE", "0")
    assert cache.default_directory() is None
    monkeypatch.setenv("TILEWRIGHT_CACHE", "yes")
    with pytest.raises(OptionError):
        cache.default_directory()
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    monkeypatch.delenv("TILEWRIGHT_CACHE_DIR")
    assert cache.default_directory().name == "tilewright"


def test_a_changed_source_file_changes_the_fingerprint(monkeypatch, tmp_path):
    (tmp_path / "sub").mkdir()
    source = tmp_path / "sub" / "a.py"
    source.write_text("x = 1\n")
    monkeypatch.setattr(cache.tilewright, "__file__", str(tmp_path / "__init__.py"))
    cache.fingerprint.cache_clear()
    before = cache.fingerprint()
    cache.fingerprint.cache_clear()
    assert cache.fingerprint() == before
    time.sleep(0.01)
    source.write_text("x = 2\n")
    cache.fingerprint.cache_clear()
    assert cache.fingerprint() != before
    cache.fingerprint.cache_clear()


def test_a_full_disk_is_no_error_and_leaves_nothing_behind(disk, monkeypatch):
    class Full:
        def __init__(self, handle, _mode):
            self.handle = handle

        def __enter__(self):
            return self

        def __exit__(self, *_):
            os.close(self.handle)

        def write(self, data):
            os.write(self.handle, data[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(cache.os, "fdopen", Full)
        assert disk.store(KEY, artifact()) is False
    assert not list(disk.directory.rglob("*.*"))
    assert disk.store(KEY, artifact()) and disk.load(KEY, TARGET) == artifact()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_in_the_place_of_an_entry_is_not_waited_for(disk):
    disk.store(KEY, artifact())
    disk.path(KEY).unlink()
    os.mkfifo(disk.path(KEY))
    started = time.monotonic()
    assert disk.load(KEY, TARGET) is None
    assert time.monotonic() - started < 5
    assert disk.store(KEY, artifact()) and disk.load(KEY, TARGET) == artifact()


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_a_directory_that_cannot_be_written_is_no_error(disk, monkeypatch, error):
    def refuse(*_args, **_keywords):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(cache.tempfile, "mkstemp", refuse)
    assert disk.store(KEY, artifact()) is False and disk.load(KEY, TARGET) is None


def test_an_entry_that_is_a_link_to_a_file_of_ours_is_read(disk, tmp_path):
    disk.store(KEY, artifact())
    elsewhere = tmp_path / "elsewhere"
    disk.path(KEY).rename(elsewhere)
    disk.path(KEY).symlink_to(elsewhere)
    assert disk.load(KEY, TARGET) == artifact()
    elsewhere.unlink()
    assert disk.load(KEY, TARGET) is None
    assert disk.store(KEY, artifact()) and disk.load(KEY, TARGET) == artifact()


def test_another_version_of_ours_does_not_find_the_entries(monkeypatch):
    before = cache.fingerprint()
    cache.fingerprint.cache_clear()
    monkeypatch.setattr(cache.tilewright, "__version__", "99.0")
    changed = cache.fingerprint()
    cache.fingerprint.cache_clear()
    assert changed != before
