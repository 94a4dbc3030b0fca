"""fanotify: one group and one file-system mark for each attempt's overlay.

A group an attempt, since reports say a file system's id and the overlays of one node may share theirs (quota images
are copies of one image). The mark sits on the superblock: every bind of it is covered, new directories are covered
from their first instant, and no access but the five kinds of change is reported, so our own reading is not. The queue
is unlimited; the reader bounds what is held behind it. Reports name the object itself as well where the kernel can
(5.17 on): renamed directories stay known, and the kernel merges reports of one object only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from daemon.fswatch.changes import (
    DELETE,
    ENTERING,
    IS_DIRECTORY,
    LEAVING,
    MOVED_TO,
    NAMES,
    WATCHED,
    Batch,
    Change,
    Source,
    in_order,
)
from daemon.fswatch.content import Workspace
from daemon.fswatch.directories import Directories

_CLOEXEC, _NONBLOCK, _UNLIMITED_QUEUE, _UNLIMITED_MARKS = 0x1, 0x2, 0x10, 0x20
_REPORT_DFID_NAME = 0x400 | 0x800
_REPORT_DFID_NAME_TARGET = _REPORT_DFID_NAME | 0x200 | 0x1000
_MARK_ADD, _MARK_FILESYSTEM = 0x1, 0x100
_Q_OVERFLOW = 0x4000
_AT_FDCWD = -100
_HEAD = struct.Struct("<IBBHQii")  # event_len, vers, reserved, metadata_len, mask, fd, pid
_INFO = struct.Struct("<BBH8sIi")  # info_type, pad, len, fsid, handle_bytes, handle_type; then the handle, then a name
_HANDLE_AT = 12  # a struct file_handle begins behind info_type, pad, len and fsid
_FID, _DFID_NAME = 1, 2
# About 500 reports: a slice of work that keeps one busy attempt from holding up the others.
READ_BYTES = 1 << 16
_GONE = frozenset({errno.ESTALE, errno.ENOENT, errno.ENAMETOOLONG, errno.ENOTDIR})
_DELETED = b" (deleted)"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fanotify_mark.argtypes = [ctypes.c_int, ctypes.c_uint, ctypes.c_uint64, ctypes.c_int, ctypes.c_char_p]


class FanotifySource(Source):
    """The changes of one mounted overlay. Raises OSError where the kernel or the file system has no such marks."""

    patient = True

    def __init__(self, merged: Path, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._wall_ns = wall_ns
        self._root = os.fsencode(os.path.realpath(merged))
        self._workspace = Workspace(merged)
        self._fd = -1
        try:
            self._fd = _group()
            mask = WATCHED | IS_DIRECTORY
            flags = _MARK_ADD | _MARK_FILESYSTEM
            _check(_libc.fanotify_mark(self._fd, flags, mask, _AT_FDCWD, self._root), "fanotify_mark")
        except BaseException:
            self.close()
            raise
        self._directories = Directories(self._resolve)

    def fileno(self) -> int:
        """The group's descriptor."""
        return self._fd

    def read(self) -> Batch | None:
        """The next reports."""
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return None
        batch = Batch()
        now = self._wall_ns()
        for mask, parent, name, child in reports(data):
            if mask & _Q_OVERFLOW:
                batch.overflow = True
                self._directories.forget_all()
                continue
            directory = self._directories.path(parent)
            if mask & IS_DIRECTORY:
                self._follow(mask, parent, name, child)
            if directory is None or not name:
                batch.lost += 1
                continue
            path = directory + b"/" + name if directory else name
            operation = mask & WATCHED
            if operation in NAMES:
                batch.changes.append(Change(now, operation, path, bool(mask & IS_DIRECTORY)))
                continue
            # Only a record that says both needs to know which came last.
            exists = self._workspace.exists(path) if mask & ENTERING and mask & LEAVING else not mask & LEAVING
            batch.changes += [Change(now, bit, path, bool(mask & IS_DIRECTORY)) for bit in in_order(operation, exists)]
        return batch

    def close(self) -> None:
        """End the group and its mark."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._workspace.close()

    def _follow(self, mask: int, parent: bytes, name: bytes, child: bytes | None) -> None:
        if mask & ENTERING:
            self._directories.entered(child, parent, name, moved=bool(mask & MOVED_TO))
        elif mask & DELETE:
            self._directories.removed(child)

    def _resolve(self, handle: bytes) -> bytes | None:
        """Where a directory is now, relative to the overlay; None when it is gone."""
        fd = _libc.open_by_handle_at(self._workspace.fd, handle, os.O_PATH)
        if fd < 0:
            code = ctypes.get_errno()
            if code in _GONE:
                return None
            raise OSError(code, f"open_by_handle_at: {os.strerror(code)}")
        try:
            place = os.readlink(b"/proc/self/fd/%d" % fd)  # noqa: PTH115 (bytes)
            below = place[len(self._root) :].lstrip(b"/")
            if not place.startswith(self._root) or (place.endswith(_DELETED) and not self._is(below, fd)):
                return None
            return below
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise
        finally:
            os.close(fd)

    def _is(self, path: bytes, fd: int) -> bool:
        """Whether a directory that looks deleted has only such a name."""
        try:
            status = os.stat(os.path.join(self._root, path), follow_symlinks=False)  # noqa: PTH116, PTH118 (bytes)
        except OSError:
            return False
        return os.path.samestat(status, os.fstat(fd))


def reports(data: bytes) -> Iterator[tuple[int, bytes, bytes, bytes | None]]:
    """Each report of a buffer: mask, handle of the directory, name in it, handle of the object itself if told.

    A handle is a whole `struct file_handle`, as open_by_handle_at takes it.
    """
    at, end = 0, len(data)
    while at < end:
        length, _, _, head, mask, _, _ = _HEAD.unpack_from(data, at)
        parent, name, child = b"", b"", None
        info, stop = at + head, at + length
        while info < stop:
            kind, _, size, _, handle_bytes, _ = _INFO.unpack_from(data, info)
            begin, behind = info + _HANDLE_AT, info + _INFO.size + handle_bytes
            if kind == _DFID_NAME:
                parent = data[begin:behind]
                name = data[behind : info + size].split(b"\0", 1)[0]
            elif kind == _FID and handle_bytes:
                child = data[begin:behind]
            info += size
        yield mask, parent, name, child
        at += length


def _group() -> int:
    flags = _CLOEXEC | _NONBLOCK | _UNLIMITED_QUEUE | _UNLIMITED_MARKS
    fd = _libc.fanotify_init(flags | _REPORT_DFID_NAME_TARGET, os.O_RDONLY | os.O_LARGEFILE)
    if fd < 0 and ctypes.get_errno() == errno.EINVAL:  # before 5.17
        fd = _libc.fanotify_init(flags | _REPORT_DFID_NAME, os.O_RDONLY | os.O_LARGEFILE)
    return _check(fd, "fanotify_init")


def _check(result: int, what: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result
