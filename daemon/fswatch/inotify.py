"""inotify: the fallback where fanotify cannot mark an overlay. One instance an attempt, one watch a directory.

A new directory is watched when its CREATE is read, so what happened in it before is not reported: it is listed once
the watch stands, and what the listing finds is told as a rescan. What came and went before that is lost unseen, which
the docs say. An overflow is a loss of unknown length, after which the whole tree is watched and listed again.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path

from daemon.fswatch.changes import (
    CREATE,
    ENTERING,
    IS_DIRECTORY,
    LEAVING,
    MOVED_FROM,
    MOVED_TO,
    RESCAN,
    WATCHED,
    Batch,
    Change,
    Source,
    in_order,
)
from daemon.fswatch.content import Workspace

_EVENT = struct.Struct("<iIII")  # wd, mask, cookie, length of the name
_Q_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLYDIR = 0x01000000
_READ_BYTES = 1 << 16
_FULL = frozenset({errno.ENOSPC, errno.ENOMEM})  # fs.inotify.max_user_watches
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})

_libc = ctypes.CDLL(None, use_errno=True)


class InotifySource(Source):
    """The changes below one directory. Raises OSError when no watch can be had."""

    def __init__(self, merged: Path, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._wall_ns = wall_ns
        self._paths: dict[int, bytes] = {}
        self._watches: dict[bytes, int] = {}
        self._moving: tuple[int, bytes] | None = None  # cookie and old path of a directory on its way
        self._started = self._short = False
        self._fd = -1
        self._workspace = Workspace(merged)
        try:
            self._fd = _libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
            if self._fd < 0:
                code = ctypes.get_errno()
                raise OSError(code, f"inotify_init1: {os.strerror(code)}")
            self._watch_tree(b"", None)
            self._started = True
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """The instance's descriptor."""
        return self._fd

    def read(self) -> Batch | None:
        """The next reports."""
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return None
        batch = Batch()
        at = 0
        while at < len(data):
            watch, mask, cookie, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].split(b"\0", 1)[0]
            at += _EVENT.size + length
            if mask & _Q_OVERFLOW:
                batch.overflow = True
                self._watch_tree(b"", batch)
            elif mask & _IGNORED:
                self._forget(watch)
            elif name:
                self._take(batch, watch, mask, cookie, name)
        batch.overflow, self._short = batch.overflow or self._short, False
        return batch

    def close(self) -> None:
        """End the instance and its watches."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        self._workspace.close()

    def _take(self, batch: Batch, watch: int, mask: int, cookie: int, name: bytes) -> None:
        directory = self._paths.get(watch)
        if directory is None:
            batch.lost += 1
            return
        path = directory + b"/" + name if directory else name
        is_directory = bool(mask & IS_DIRECTORY)
        now = self._wall_ns()
        for operation in in_order(mask & WATCHED, not mask & LEAVING):
            batch.changes.append(Change(now, operation, path, is_directory))
        if not is_directory:
            return
        if mask & MOVED_FROM:
            self._moving = (cookie, path)
        elif mask & MOVED_TO and self._moving is not None and self._moving[0] == cookie:
            self._moved(self._moving[1], path)
            self._moving = None
        elif mask & ENTERING:
            self._watch_tree(path, batch, CREATE if mask & CREATE else MOVED_TO)

    def _watch_tree(self, top: bytes, batch: Batch | None, operation: int = CREATE) -> None:
        """Watch a directory and all below it, the watch before the listing; what a listing finds goes to `batch`."""
        todo = [top]
        while todo:
            directory = todo.pop()
            if not self._watch(directory):
                continue
            for path, is_directory in self._workspace.listing(directory):
                if batch is not None:
                    batch.changes.append(Change(self._wall_ns(), operation, path, is_directory, RESCAN))
                if is_directory:
                    todo.append(path)

    def _watch(self, path: bytes) -> bool:
        """Watch one directory; False when it is gone. No room for it is an overflow, at the start an error."""
        fd = self._workspace.open_directory(path)
        if fd is None:
            return False
        try:
            # By the descriptor: a path could lead through a link of the agent's.
            place = b"/proc/self/fd/%d" % fd
            watch = _libc.inotify_add_watch(self._fd, place, ctypes.c_uint32(WATCHED | _ONLYDIR))
            if watch < 0:
                code = ctypes.get_errno()
                if code in _GONE:
                    return False
                if code in _FULL and self._started:
                    self._short = True
                    return False
                raise OSError(code, f"inotify_add_watch: {os.strerror(code)}")
        finally:
            os.close(fd)
        old = self._paths.get(watch)
        if old is not None and self._watches.get(old) == watch:
            del self._watches[old]
        self._paths[watch], self._watches[path] = path, watch
        return True

    def _moved(self, old: bytes, new: bytes) -> None:
        """A watched directory was renamed: its watches stay, their paths change."""
        prefix = old + b"/"
        for path in [path for path in self._watches if path == old or path.startswith(prefix)]:
            watch = self._watches.pop(path)
            self._paths[watch] = new + path[len(old) :]
            self._watches[self._paths[watch]] = watch

    def _forget(self, watch: int) -> None:
        path = self._paths.pop(watch, None)
        if path is not None and self._watches.get(path) == watch:
            del self._watches[path]
