"""The on-disk cache of compiled artifacts.

One file an entry: a magic line, the length of a JSON header, the header, the payload (machine code and
texts), and a SHA-256 of all that.  An entry is named after a hash of everything that its content depends
on, and holds that name; what does not check out is dropped and compiled again.  Nothing is unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tilewright
from tilewright.ir.kernel import PrimFunc
from tilewright.ir.printer import print_func
from tilewright.ir.rewriter import walk
from tilewright.ir.stmt import Assert, Print
from tilewright.options import CompileOptions, env_flag
from tilewright.target import Target
from tilewright.targets.registry import Artifact

MAGIC = b"TILEWRIGHT KERNEL 1\n"
SUFFIX = ".kernel"
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 32
LIMIT_BYTES = 512 << 20
"""Size that the least recently used entries are evicted at."""
WRITES_PER_SCAN = 32
"""How many entries a process writes before it looks at the directory's size again."""


# --- keys -----------------------------------------------------------------------------------------


def cache_key(func: PrimFunc, target: Target, options: CompileOptions) -> str:
    """A hash of all that the artifact of `func` depends on.

    That is the program with the user's lines, which listings show, and the places of its asserts and prints, which
    messages name.  Which parameters are results is the caller's affair.
    """
    parts = [
        print_func(func.replace(outputs=()), show_source=True),
        _places(func),
        repr(sorted(asdict(target).items())),
        repr((options.opt_level, options.pass_configs)),
        fingerprint(),
    ]
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        digest.update(_LENGTH.pack(len(data)))
        digest.update(data)
    return digest.hexdigest()


def _places(func: PrimFunc) -> str:
    """Where asserts and prints stand: their messages name it."""
    found = (item.loc for item in walk(func) if isinstance(item, (Assert, Print)))
    return repr([(loc.file, loc.line, loc.column, loc.end_column) if loc else None for loc in found])


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """Our version, that of LLVM's binding, and the state of our own source files, so that a changed compiler starts anew."""
    root = os.path.dirname(tilewright.__file__)
    states = sorted((os.path.relpath(e.path, root), s.st_size, s.st_mtime_ns) for e, s in _sources(root))
    return hashlib.sha256(repr((tilewright.__version__, _llvm_version(), states)).encode()).hexdigest()


def _sources(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from _sources(entry.path)
            elif entry.name.endswith(".py"):
                yield entry, entry.stat()


def _llvm_version() -> str:
    """The text of llvmlite's version file; importing the package, or reading its metadata, takes far longer."""
    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "none"
    return Path(spec.origin).with_name("_version.py").read_text(encoding="utf-8")


# --- the directory --------------------------------------------------------------------------------


def default_directory() -> Path | None:
    """TILEWRIGHT_CACHE_DIR, else the user's cache directory; None when TILEWRIGHT_CACHE is 0."""
    if not env_flag("TILEWRIGHT_CACHE", default=True):
        return None
    named = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if named:
        return Path(named)
    import platformdirs

    return Path(platformdirs.user_cache_dir("tilewright", appauthor=False))


class DiskCache:
    """Artifacts in `directory`.  No method raises on account of what is, or is not, on the disk."""

    def __init__(self, directory: Path, limit: int = LIMIT_BYTES) -> None:
        self.directory = directory
        self.limit = limit
        self._writes = 0

    def path(self, key: str) -> Path:
        """The file of an entry."""
        return self.directory / key[:2] / f"{key}{SUFFIX}"

    def load(self, key: str, target: Target) -> Artifact | None:
        """The artifact of `key`, None when there is none that can be trusted."""
        path = self.path(key)
        try:
            with open(path, "rb", opener=_open_at_once) as file:
                if not _own(file.fileno()):
                    return None
                data = file.read()
        except OSError:
            return None
        artifact = unpack(data, key, target)
        try:
            if artifact is None:
                path.unlink()
            else:
                os.utime(path)  # the order of eviction
        except OSError:
            pass
        return artifact

    def store(self, key: str, artifact: Artifact) -> bool:
        """Write an entry in one step; False when that was not possible."""
        path = self.path(key)
        temporary = ""
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(handle, "wb") as file:
                file.write(pack(key, artifact))
            os.replace(temporary, path)
        except OSError:
            _remove(temporary)
            return False
        if self._writes % WRITES_PER_SCAN == 0:
            self.evict()
        self._writes += 1
        return True

    def evict(self) -> None:
        """Remove the least recently used entries until the limit holds, and what interrupted writers left."""
        entries = sorted(self._entries())
        total = sum(size for _, size, _ in entries)
        for _, size, path in entries:
            if total <= self.limit:
                return
            _remove(path)
            total -= size

    def clear(self) -> None:
        """Remove every entry."""
        for _, _, path in self._entries():
            _remove(path)

    def _entries(self) -> Iterator[tuple[float, int, str]]:
        """(time of last use, bytes, path) of each file of ours."""
        try:
            folders = [f.path for f in os.scandir(self.directory) if f.is_dir() and len(f.name) == 2]
        except OSError:
            return
        for folder in folders:
            try:
                files = list(os.scandir(folder))
            except OSError:
                continue
            for file in files:
                if file.name.endswith(SUFFIX) or file.name.startswith(".new-"):
                    try:
                        state = file.stat()
                    except OSError:
                        continue
                    yield (state.st_mtime, state.st_size, file.path)


def _remove(path: str) -> None:
    try:
        if path:
            os.unlink(path)
    except OSError:
        pass


def _open_at_once(path: str, flags: int) -> int:
    """Open a file without waiting, should it be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _own(handle: int) -> bool:
    """Whether it is an ordinary file, this user's (or the system's), that nobody else may write."""
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode):
        return False
    if not hasattr(os, "getuid"):
        return True
    return state.st_uid in (os.getuid(), 0) and not state.st_mode & 0o022


# --- the format of an entry ------------------------------------------------------------------------


def pack(key: str, artifact: Artifact) -> bytes:
    """An entry as bytes."""
    texts = {"source": artifact.source, **{f"text:{name}": text for name, text in sorted(artifact.texts.items())}}
    encoded = {name: text.encode("utf-8", "surrogatepass") for name, text in texts.items()}
    header = {
        "key": key,
        "target": artifact.target.name,
        "metadata": artifact.metadata,
        "binary": len(artifact.binary),
        "texts": [[name, len(data)] for name, data in encoded.items()],
    }
    head = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    body = b"".join([MAGIC, _LENGTH.pack(len(head)), head, artifact.binary, *encoded.values()])
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes, key: str, target: Target) -> Artifact | None:
    """The artifact in an entry, None unless it is whole and is that of `key`."""
    start = len(MAGIC) + _LENGTH.size
    body = data[:-_DIGEST_BYTES]
    if len(body) < start or not body.startswith(MAGIC) or hashlib.sha256(body).digest() != data[-_DIGEST_BYTES:]:
        return None
    (length,) = _LENGTH.unpack_from(body, len(MAGIC))
    try:
        header: dict[str, Any] = json.loads(body[start : start + length])
        if header["key"] != key:
            return None
        position = start + length + header["binary"]
        binary = body[start + length : position]
        texts: dict[str, str] = {}
        for name, size in header["texts"]:
            texts[name] = body[position : position + size].decode("utf-8", "surrogatepass")
            position += size
        source = texts.pop("source")
        names = {name.removeprefix("text:"): text for name, text in texts.items()}
        return Artifact(target, source, binary, header["metadata"], names)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
