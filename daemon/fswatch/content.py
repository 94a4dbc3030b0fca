"""Looking at what an agent made, from the host: type, size and hash, without following or waiting for anything.

Every path is opened beneath the workspace (no link is followed, magic or not), first without rights to its content;
only a regular file is then opened for reading. Hashing has a budget, of bytes in all and a second; holes are not read.
Blocking: for threads. Owns no decision about when to look.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.fswatch.changes import Content
from daemon.workspace.baseline import type_of
from daemon.workspace.diff_walk import chunks
from daemon.workspace.model import WorkspaceError
from daemon.workspace.syscalls import open_beneath

# A larger file is hashed once, at the end; until then its size is told without a hash.
LIVE_FILE_BYTES = 256 << 20
RATE_BYTES_PER_SECOND = 128 << 20
BURST_BYTES = 512 << 20
# Opening and looking cost as much as reading a small file.
LEAST_COST_BYTES = 16 << 10
# The kernel takes paths below 4,096 bytes; deeper ones are walked in pieces.
_PIECE_BYTES = 3_072
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE, errno.ENAMETOOLONG, errno.EXDEV})
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK
_MAX_LISTING = 1 << 20


class LiveBudget:
    """Bytes that may be hashed while the attempt runs: `total` in all, and a rate with a burst. Thread-safe."""

    def __init__(self, total: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._left = total
        self._burst = float(BURST_BYTES)
        self._at = monotonic()
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether a file of `size` may be hashed now; what may is paid for."""
        cost = max(size, LEAST_COST_BYTES)
        with self._lock:
            now = self._monotonic()
            self._burst = min(float(BURST_BYTES), self._burst + (now - self._at) * RATE_BYTES_PER_SECOND)
            self._at = now
            if size > LIVE_FILE_BYTES or cost > self._left or cost > self._burst:
                return False
            self._left -= cost
            self._burst -= cost
            return True


class Workspace:
    """A mounted workspace to look into. It keeps the file system mounted until `close`."""

    def __init__(self, root: Path) -> None:
        self._lock = threading.Lock()
        self.fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def look(self, path: bytes, budget: LiveBudget) -> Content | None:
        """What is at `path`; None when nothing is, or nothing can be reached there."""
        try:
            fd = self._open(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        try:
            status = os.fstat(fd)
            kind = type_of(status.st_mode)
            if kind == "symlink":
                return Content(kind, len(os.readlink(b"", dir_fd=fd)), None)
            if kind != "file":
                return Content(kind, None, None)
            if not budget.take(status.st_size):
                return Content(kind, status.st_size, None)
            return _hashed(fd)
        finally:
            os.close(fd)

    def exists(self, path: bytes) -> bool:
        """Whether anything is at `path`."""
        try:
            os.close(self._open(path, os.O_PATH | os.O_NOFOLLOW))
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        return True

    def is_at(self, path: bytes, fd: int) -> bool:
        """Whether an open object is what is at `path`."""
        try:
            there = self._open(path, os.O_PATH | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise
        try:
            return os.path.samestat(os.fstat(there), os.fstat(fd))
        finally:
            os.close(there)

    def walk(self, top: bytes, limit: int = _MAX_LISTING) -> Iterator[tuple[bytes, bool]]:
        """Everything below `top`: path, whether it is a directory. Parents first; what vanishes meanwhile is left.

        Ends after `limit` entries: the rest is found at the end of the attempt.
        """
        todo = [top]
        while todo and limit > 0:
            directory = todo.pop()
            for path, is_directory in self.listing(directory)[:limit]:
                yield path, is_directory
                limit -= 1
                if is_directory:
                    todo.append(path)

    def listing(self, directory: bytes) -> list[tuple[bytes, bool]]:
        """What is in a directory: path, whether it is a directory; nothing when it is gone."""
        fd = self.open_directory(directory)
        if fd is None:
            return []
        try:
            with os.scandir(fd) as entries:
                found = [(os.fsencode(entry.name), entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(fd)
        return [(directory + b"/" + name if directory else name, is_directory) for name, is_directory in found]

    def open_directory(self, path: bytes) -> int | None:
        """A descriptor of a directory, for the caller to close; None when there is none."""
        try:
            return self._open(path, _DIRECTORY)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise

    def close(self) -> None:
        """Let the file system be unmounted. Idempotent; looks afterwards find nothing."""
        with self._lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self, path: bytes, flags: int) -> int:
        root = self.fd
        if root < 0:
            raise OSError(errno.ENOENT, "the workspace is closed")
        if len(path) <= _PIECE_BYTES:
            return open_beneath(root, path or b".", flags)
        at, owned = root, False
        names = path.split(b"/")
        try:
            while len(names) > 1:
                piece = [names.pop(0)]
                while len(names) > 1 and sum(map(len, piece)) + len(piece) + len(names[0]) < _PIECE_BYTES:
                    piece.append(names.pop(0))
                deeper = open_beneath(at, b"/".join(piece), os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW)
                if owned:
                    os.close(at)
                at, owned = deeper, True
            return open_beneath(at, names[0], flags)
        finally:
            if owned:
                os.close(at)


def _hashed(place: int) -> Content:
    """Hash the regular file behind an O_PATH descriptor."""
    # Through our own descriptor's entry: no name of the agent's is looked up again.
    fd = os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        before = os.fstat(fd)
        digest = hashlib.sha256()
        try:
            for chunk in chunks(fd, before.st_size):
                digest.update(chunk)
        except WorkspaceError:  # it became shorter under the reader
            return Content("file", os.fstat(fd).st_size, None, stable=False)
        after = os.fstat(fd)
    finally:
        os.close(fd)
    if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
        return Content("file", after.st_size, None, stable=False)
    return Content("file", after.st_size, digest.hexdigest())
