"""The difference between Snapshot A and an agent's final tree, read from the overlay's upper layer.

Everything here was made by the agent: names of any bytes, trees of any depth, links to anywhere, files with a size of
terabytes. So: one directory descriptor at a time, never a path; ``..`` is taken back up and must be the directory it
was on the way down (the file system is frozen); nothing is followed; recursion is a list; hashing has a budget. The
entries come sorted by path bytes, so that the caller can stream them.

An entry is listed if the final tree differs from Snapshot A there: in existence, type, mode, owner or bytes. Copying up
without a change, and times, do not count.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from daemon.workspace.baseline import Baseline, BaselineEntry, type_of
from daemon.workspace.model import WorkspaceError
from formats.diff import Change, DiffEntry

MAX_PATH_BYTES = 65_536  # a directory with a longer path is listed, not entered
_OPAQUE = "trusted.overlay.opaque"
_CHUNK = 1 << 20
_ZEROS = memoryview(bytes(_CHUNK))
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK: were it no regular file after all, opening it must not wait for a writer.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Found:
    """One entry, with the way to its content while the walk stands there."""

    entry: DiffEntry
    directory: int = -1  # descriptor of its directory, valid until the walk goes on; -1 for a deleted entry
    name: bytes = b""
    status: os.stat_result | None = None


@dataclass(slots=True)
class _Level:
    """A directory being walked: ``todo`` is its names in reverse order, with b"/" behind those to descend into."""

    path: bytes
    identity: tuple[int, int]
    cut: bool  # Snapshot A does not show through: what is not in the upper layer is deleted
    todo: list[bytes] = field(default_factory=list)
    upper: frozenset[bytes] = frozenset()


class HashBudget:
    """SHA-256 of files, sparse ones by their extents, as long as ``left`` bytes of size are left."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.refused = 0
        self._links: dict[int, str] = {}

    def sha256(self, directory: int, name: bytes, status: os.stat_result) -> str | None:
        """The hash of a regular file, or None when the budget does not reach. Hard links cost once."""
        if status.st_nlink > 1 and status.st_ino in self._links:
            return self._links[status.st_ino]
        if status.st_size > self.left:
            self.refused += 1
            return None
        self.left -= status.st_size
        fd = open_file(directory, name, status)
        try:
            found = _sha256(fd, status.st_size)
        finally:
            os.close(fd)
        if status.st_nlink > 1:
            self._links[status.st_ino] = found
        return found


class UpperWalk:
    """One walk over an upper layer. ``unwalked`` holds the directories whose paths were too long to enter."""

    def __init__(
        self, upper: Path, baseline: Baseline, budget: HashBudget, max_path_bytes: int = MAX_PATH_BYTES
    ) -> None:
        self._upper = upper
        self._baseline = baseline
        self._budget = budget
        self._max_path_bytes = max_path_bytes
        self.unwalked: list[bytes] = []

    def entries(self) -> Iterator[Found]:
        """Every difference, sorted by path bytes. Single use."""
        fd = os.open(self._upper, _DIRECTORY)
        try:
            stack = [self._level(fd, b"", cut=False)]
            while True:
                level = stack[-1]
                if not level.todo:
                    stack.pop()
                    if not stack:
                        return
                    fd = _replace(fd, os.open(b"..", _DIRECTORY, dir_fd=fd))
                    if _identity(os.fstat(fd)) != stack[-1].identity:
                        raise WorkspaceError(f"{self._upper}: changed while it was read; it was not frozen")
                    continue
                key = level.todo.pop()
                if not key.endswith(b"/"):
                    found = self._entry(fd, level, key)
                    if found is not None:
                        yield found
                    continue
                name, path = key[:-1], _join(level.path, key[:-1])
                status = os.lstat(name, dir_fd=fd) if name in level.upper else None
                if status is None or not stat.S_ISDIR(status.st_mode):
                    for base in self._baseline.under(path):
                        yield Found(_deleted(base))
                elif len(path) > self._max_path_bytes:
                    self.unwalked.append(path)
                else:
                    fd = _replace(fd, os.open(name, _DIRECTORY, dir_fd=fd))
                    stack.append(self._level(fd, path, cut=level.cut or _is_opaque(fd)))
        finally:
            os.close(fd)

    def _level(self, fd: int, path: bytes, *, cut: bool) -> _Level:
        with os.scandir(fd) as listing:
            kinds = {os.fsencode(entry.name): entry.is_dir(follow_symlinks=False) for entry in listing}
        todo = set(kinds) | {name + b"/" for name, is_directory in kinds.items() if is_directory}
        names = set(kinds)
        if cut:
            names.update(self._baseline.children(path))
        for name in names:
            base = self._baseline.get(_join(path, name))
            if base is not None:
                todo.add(name)
                if base.type == "dir":
                    todo.add(name + b"/")
        # A name sorts before what lies below it, but "a.b" sorts between "a" and "a/…": hence two keys a directory.
        return _Level(path, _identity(os.fstat(fd)), cut, sorted(todo, reverse=True), frozenset(kinds))

    def _entry(self, fd: int, level: _Level, name: bytes) -> Found | None:
        path = _join(level.path, name)
        base = self._baseline.get(path)
        status = os.lstat(name, dir_fd=fd) if name in level.upper else None
        if status is None or (stat.S_ISCHR(status.st_mode) and status.st_rdev == 0):  # absent, or a whiteout
            return Found(_deleted(base)) if base is not None else None
        kind = type_of(status.st_mode)
        target = os.readlink(name, dir_fd=fd) if kind == "symlink" else None
        sha256 = self._budget.sha256(fd, name, status) if kind == "file" else None
        size = status.st_size if kind == "file" else len(target or b"")
        mode = stat.S_IMODE(status.st_mode)
        if base is not None:
            now = (kind, mode, status.st_uid, status.st_gid, size, sha256, target)
            before = (base.type, base.mode, base.uid, base.gid, base.size, base.sha256, base.target)
            if now == before:
                return None
        change: Change = "added" if base is None else "modified"
        return Found(DiffEntry(path, change, kind, mode, size, sha256, target), fd, name, status)


def open_file(directory: int, name: bytes, status: os.stat_result) -> int:
    """Open a regular file that was just looked at, and make sure that it is the same."""
    fd = os.open(name, _FILE, dir_fd=directory)
    if _identity(os.fstat(fd)) != _identity(status):
        os.close(fd)
        raise WorkspaceError(f"{os.fsdecode(name)!r} changed while it was read; the workspace was not frozen")
    return fd


def extents(fd: int, size: int) -> Iterator[tuple[int, int, bool]]:
    """The parts (start, end, is data) of a file, holes included, without reading them."""
    at = 0
    while at < size:
        try:
            data = min(os.lseek(fd, at, os.SEEK_DATA), size)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = size
        if data > at:
            yield at, data, False
        if data < size:
            at = min(os.lseek(fd, data, os.SEEK_HOLE), size)
            yield data, at, True
        else:
            at = size


def chunks(fd: int, size: int) -> Iterator[bytes | memoryview]:
    """The content of a file; holes cost no reading."""
    for start, end, is_data in extents(fd, size):
        while start < end:
            length = min(_CHUNK, end - start)
            if is_data:
                chunk = os.pread(fd, length, start)
                if not chunk:
                    raise WorkspaceError("a file became shorter while it was read; the workspace was not frozen")
                yield chunk
                start += len(chunk)
            else:
                yield _ZEROS[:length]
                start += length


def _sha256(fd: int, size: int) -> str:
    digest = hashlib.sha256()
    for chunk in chunks(fd, size):
        digest.update(chunk)
    return digest.hexdigest()


def _deleted(base: BaselineEntry) -> DiffEntry:
    return DiffEntry(base.path, "deleted", base.type, base.mode, base.size, base.sha256, base.target)


def _is_opaque(fd: int) -> bool:
    try:
        return os.getxattr(fd, _OPAQUE) == b"y"
    except OSError as error:
        if error.errno == errno.ENODATA:
            return False
        raise


def _replace(old: int, new: int) -> int:
    os.close(old)
    return new


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _join(path: bytes, name: bytes) -> bytes:
    return path + b"/" + name if path else name
