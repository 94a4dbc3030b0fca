"""ENOSPC as it is given: the kernel's own trace of system calls that failed with it, so that no moment is missed.

gVisor writes a workspace by system calls of its sentry and gofer on the host, so an agent that meets ENOSPC there makes
one of them fail, however soon it frees the space again and however empty the disk was before. A tracing instance of
ours filters those in the kernel; every system call of the host becomes about 7 ns slower (measured: 156 to 163 ns for
getppid). Where tracefs is missing, looks every few milliseconds have to do.

The tracefs is mounted nowhere: it is reached by a descriptor. The instance outlives a killed daemon, switched on or
off, and is taken over by the next life.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re

# Every call by which data or names come into a file system.
CALLS = (
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "sendfile64", "splice", "copy_file_range"),
    *("open", "openat", "openat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "symlink", "symlinkat"),
    *("link", "linkat", "rename", "renameat", "renameat2", "fallocate", "ftruncate", "truncate", "fsync", "fdatasync"),
)
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_CMD_CREATE = 6
_CLOEXEC = 1
_READ_BYTES = 1 << 16
_LINE = re.compile(rb"-(\d+)\s+\[\d+\].*: sys_\w+ -> 0x[0-9a-f]+")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

_libc = ctypes.CDLL(None, use_errno=True)


class EnospcTrace:
    """One instance, by name. Raises OSError where the kernel has no tracefs or no system call events."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._on = False
        self._switches: list[int] = []
        self._pipe = -1
        self._instances = -1
        try:
            self._instances = _instances()
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=self._instances)
            self._open()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Readable when a call failed."""
        return self._pipe

    def switch(self, on: bool) -> None:
        """Trace from now on, or no longer."""
        if on != self._on:
            self._on = on
            for switch in self._switches:
                os.pwrite(switch, b"1" if on else b"0", 0)

    def read(self) -> list[int]:
        """Host thread ids of the calls that failed since the last look."""
        try:
            return [int(number) for number in _LINE.findall(os.read(self._pipe, _READ_BYTES))]
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Remove the instance. Idempotent."""
        if self._switches:
            self.switch(False)
        for fd in (*self._switches, self._pipe):
            if fd >= 0:
                os.close(fd)
        self._switches, self._pipe = [], -1
        if self._instances >= 0:
            with contextlib.suppress(FileNotFoundError):
                os.rmdir(self._name, dir_fd=self._instances)
            os.close(self._instances)
            self._instances = -1

    def _open(self) -> None:
        instance = os.open(self._name, _DIRECTORY, dir_fd=self._instances)
        try:
            for call in CALLS:
                event = f"events/syscalls/sys_exit_{call}"
                try:
                    _write(instance, f"{event}/filter", f"ret == -{errno.ENOSPC}")
                except FileNotFoundError:
                    continue  # not on this architecture
                self._switches.append(os.open(f"{event}/enable", os.O_WRONLY | os.O_CLOEXEC, dir_fd=instance))
                os.pwrite(self._switches[-1], b"0", 0)
            if not self._switches:
                raise OSError(errno.ENOSYS, "the kernel traces no system calls")
            _write(instance, "buffer_size_kb", "64")
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            self._pipe = os.open("trace_pipe", flags, dir_fd=instance)
        finally:
            os.close(instance)


def cgroup_of(thread: int) -> str:
    """The control groups of a host thread, as /proc tells them; empty when it is gone."""
    try:
        with open(f"/proc/{thread}/cgroup", encoding="utf-8") as file:  # noqa: PTH123 (no Path for one read)
            return file.read()
    except OSError:
        return ""


def _instances() -> int:
    """A descriptor of tracefs' directory of instances."""
    context = _check(_libc.syscall(_FSOPEN, b"tracefs", _CLOEXEC))
    try:
        _check(_libc.syscall(_FSCONFIG, context, _FSCONFIG_CMD_CREATE, None, None, 0))
        mount = _check(_libc.syscall(_FSMOUNT, context, _CLOEXEC, 0))
    finally:
        os.close(context)
    try:
        return os.open("instances", _DIRECTORY, dir_fd=mount)
    finally:
        os.close(mount)


def _write(directory: int, name: str, text: str) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def _check(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"tracefs: {os.strerror(code)}")
    return result
