"""fanotify: one group and one file-system mark for each attempt's overlay.

A group an attempt, since reports say a file system's id and the overlays of one node may share theirs (quota images
are copies of one image). The mark sits on the superblock: every bind of it is covered, new directories are covered
from their first instant, and no access but the five kinds of change is reported, so our own reading is not. The queue
is unlimited; the reader bounds what is held behind it. Reports name the object itself as well where the kernel can
(5.17 on): renamed directories stay known, a rename is one report, and the kernel merges reports of one object only.
What it merges is taken apart by `story`.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

from daemon.fswatch.changes import CREATE, DELETE, IS_DIRECTORY, MODIFY, WATCHED, Batch, Source
from daemon.fswatch.content import Workspace
from daemon.fswatch.directories import Directories
from daemon.fswatch.origins import Origins, origins_of
from daemon.fswatch.records import Q_OVERFLOW, RENAME, records
from daemon.fswatch.story import Story

_CLOEXEC, _NONBLOCK, _UNLIMITED_QUEUE, _UNLIMITED_MARKS = 0x1, 0x2, 0x10, 0x20
_REPORT_DFID_NAME = 0x400 | 0x800
_REPORT_DFID_NAME_TARGET = _REPORT_DFID_NAME | 0x200 | 0x1000
_MARK_ADD, _MARK_FILESYSTEM = 0x1, 0x100
_AT_FDCWD = -100
# About 500 reports: a slice of work that keeps one busy attempt from holding up the others.
READ_BYTES = 1 << 16
# Two names and three handles; a buffer with room for one more was not the whole of a queue.
_MAX_RECORD_BYTES = 1 << 10
OPEN_TRIES = 10
_GONE = frozenset({errno.ESTALE, errno.ENOENT, errno.ENAMETOOLONG, errno.ENOTDIR})
_DELETED = b" (deleted)"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]


class FanotifySource(Source):
    """The changes of one mounted overlay. Raises OSError where the kernel or the file system has no such marks."""

    patient = True

    def __init__(
        self,
        merged: Path,
        origins: Callable[[Workspace], Origins] = origins_of,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`origins` finds the directories that are there already."""
        self._wall_ns = wall_ns
        self._root = os.fsencode(os.path.realpath(merged))
        self._workspace = Workspace(merged)
        self._fd = -1
        self._emptied = True
        try:
            self._fd, mask = _group()
            flags = _MARK_ADD | _MARK_FILESYSTEM
            _check(_libc.fanotify_mark(self._fd, flags, mask, _AT_FDCWD, self._root), "fanotify_mark")
            self._directories = Directories(self._resolve, origins(self._workspace))
        except BaseException:
            self.close()
            raise
        self._story = Story(self._directories, self._is_at, self._resolve)

    def fileno(self) -> int:
        """The group's descriptor."""
        return self._fd

    def read(self) -> Batch | None:
        """The next reports."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            if self._emptied:
                return None
            data = b""
        batch = Batch()
        now = self._wall_ns()
        for record in records(data):
            if record.mask & Q_OVERFLOW:
                batch.overflow = True
                self._directories.forget_all()
                self._story.forget()
                continue
            self._story.tell(record, now, batch)
        self._emptied = len(data) < READ_BYTES - _MAX_RECORD_BYTES
        if self._emptied:
            self._story.settle(now, batch)
        return batch

    def close(self) -> None:
        """End the group and its mark."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._workspace.close()

    def _is_at(self, path: bytes, child: bytes | None) -> bool:
        """Whether an object, or any if the kernel named none, is at a path now."""
        if child is None:
            return self._workspace.exists(path)
        fd = self._open(child)
        if fd is None:
            return False
        try:
            return self._workspace.is_at(path, fd)
        finally:
            os.close(fd)

    def _open(self, handle: bytes) -> int | None:
        """A descriptor without rights, for the caller to close; None when the object is gone."""
        return open_handle(self._workspace.fd, handle)

    def _resolve(self, handle: bytes) -> bytes | None:
        """Where a directory is now, relative to the overlay; None when it is gone."""
        fd = self._open(handle)
        if fd is None:
            return None
        try:
            place = os.readlink(b"/proc/self/fd/%d" % fd)  # noqa: PTH115 (bytes)
            below = place[len(self._root) :].lstrip(b"/")
            if not place.startswith(self._root) or (place.endswith(_DELETED) and not self._workspace.is_at(below, fd)):
                return None
            return below
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        finally:
            os.close(fd)


def open_handle(mount: int, handle: bytes) -> int | None:
    """Open what a handle names, without rights; None when it is gone. Raises OSError.

    The overlay says ENOMEM of an object that vanishes while it is being found; asked again it knows that it is gone.
    """
    for _ in range(OPEN_TRIES):
        fd = int(_libc.open_by_handle_at(mount, handle, os.O_PATH))
        if fd >= 0:
            return fd
        code = ctypes.get_errno()
        if code in _GONE:
            return None
        if code != errno.ENOMEM:
            break
    raise OSError(code, f"open_by_handle_at: {os.strerror(code)}")


def _group() -> tuple[int, int]:
    """A group, and what its mark may ask for."""
    flags = _CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE | _UNLIMITED_MARKS
    fd = _libc.fanotify_init(flags | _REPORT_DFID_NAME_TARGET, os.O_RDONLY | os.O_LARGEFILE)
    if fd < 0 and ctypes.get_errno() == errno.EINVAL:  # before 5.17
        fd = _libc.fanotify_init(flags | _REPORT_DFID_NAME, os.O_RDONLY | os.O_LARGEFILE)
        return _check(fd, "fanotify_init"), WATCHED | IS_DIRECTORY
    return _check(fd, "fanotify_init"), MODIFY | CREATE | DELETE | RENAME | IS_DIRECTORY


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
