"""A sentry for tests: packets as gVisor's remote sink writes them, over a real SEQPACKET socket."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from gauntlet.telemetry.v1 import trace_points_pb2 as pb

from daemon.trace.points import HEADER, TYPE_CLONE, TYPE_EXECVE, TYPE_EXECVE_CALL, TYPE_EXIT, TYPE_START, TYPE_SYSCALL

HOME = b"HOME=/home/agent"


def packet(kind: int, message: Any, dropped: int = 0) -> bytes:
    """A header and a message."""
    return HEADER.pack(HEADER.size, kind, dropped) + message.SerializeToString()


def who(pid: int, ppid: int = 1, *, tid: int = 0, at: int = 0) -> pb.PointContext:
    """A context; `at` is guest time in milliseconds."""
    return pb.PointContext(
        time_ns=1_000_000_000 + at * 1_000_000,
        thread_id=tid or pid,
        thread_group_id=pid,
        parent_thread_group_id=ppid,
    )


def start(container_id: str) -> bytes:
    """container/start."""
    message = pb.PointContainerStart(context_data=who(1, 0), id=container_id.encode())
    return packet(TYPE_START, message)


def clone(maker: int, pid: int, flags: int = 0, *, maker_parent: int = 1, at: int = 0, dropped: int = 0) -> bytes:
    """sentry/clone."""
    message = pb.PointClone(
        context_data=who(maker, maker_parent, at=at),
        created_thread_id=pid,
        created_thread_group_id=pid,
        flags=flags,
    )
    return packet(TYPE_CLONE, message, dropped)


def execve(
    pid: int, *argv: str | bytes, path: str = "", ppid: int = 1, env: tuple[bytes, ...] = (HOME,), at: int = 0
) -> bytes:
    """sentry/execve."""
    words = [word.encode() if isinstance(word, str) else word for word in argv]
    message = pb.PointExecve(
        context_data=who(pid, ppid, at=at), binary_path=path.encode() or words[0], argv=words, env=env
    )
    return packet(TYPE_EXECVE, message)


def attempted(pid: int, path: str, *argv: str, cwd: str = "/workspace") -> bytes:
    """The end of execve, with its name and arguments."""
    context = who(pid)
    context.cwd = cwd.encode()
    words = [word.encode() for word in argv]
    return packet(TYPE_EXECVE_CALL, pb.PointExecveCall(context_data=context, pathname=path.encode(), argv=words))


def exited(pid: int, status: int = 0, *, ppid: int = 1, at: int = 0, dropped: int = 0) -> bytes:
    """sentry/exit_notify_parent."""
    message = pb.PointExit(context_data=who(pid, ppid, at=at), exit_status=status)
    return packet(TYPE_EXIT, message, dropped)


def syscall(
    pid: int, sysno: int, *arguments: int, errno: int | None = None, tid: int = 0, at: int = 0, dropped: int = 0
) -> bytes:
    """A raw system call: its beginning, or with an errno (0 for success) its end."""
    values = [value & 0xFFFF_FFFF_FFFF_FFFF for value in (*arguments, 0, 0, 0)[:3]]
    message = pb.PointSyscall(
        context_data=who(pid, tid=tid, at=at), sysno=sysno, arg1=values[0], arg2=values[1], arg3=values[2]
    )
    if errno is not None:
        message.exit.SetInParent()
        message.exit.errorno = errno
    return packet(TYPE_SYSCALL, message, dropped)


class Sentry:
    """One connection. Blocking; use from a thread or for small amounts."""

    def __init__(self, path: Path, container_id: str = "") -> None:
        """Connect, greet, and say container/start if there is an id."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(10)
        self.socket.connect(str(path))
        self.socket.send(b"\x08\x01")
        assert self.socket.recv(64) == b"\x08\x01"
        if container_id:
            self.send(start(container_id))

    def send(self, *packets: bytes) -> None:
        """Send packets."""
        for each in packets:
            self.socket.send(each)

    def close(self) -> None:
        """The sandbox is gone."""
        self.socket.close()
