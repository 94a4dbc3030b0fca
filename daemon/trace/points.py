"""One packet of a sentry, decoded: the header, then one of the messages that this project asks for.

Everything here is untrusted: the sentry may be in the agent's hands. A packet is either one of the tuples below, with
ids and numbers in range, or a PointError; nothing else comes out and nothing is kept of it. Pure.
Source of the format: gVisor, pkg/sentry/seccheck/sinks/remote/wire and points/*.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from posixpath import join, normpath
from typing import NamedTuple

from gauntlet.telemetry.v1 import trace_points_pb2 as pb
from google.protobuf.message import DecodeError

PROTOCOL_VERSION = 1
# Header size, message type, events dropped so far by this sentry.
HEADER = struct.Struct("<HHI")
# A guest's execve carries at most 2 MiB of arguments and environment.
MAX_PACKET_BYTES = 5 << 20
MAX_HEADER_BYTES = 64
# The highest pid that Linux, and the sentry, ever give.
MAX_PID = 1 << 22
# The sandbox's first process: the platform's.
INIT = 1
CONTAINER_ID_BYTES = 64
# PID 1 gives its helpers no more than this; what it starts for an agent always has HOME, PATH and so on.
HELPER_ENVIRONMENT = frozenset({b"GOMAXPROCS=1"})
_HEX = frozenset(b"0123456789abcdef")

TYPE_START, TYPE_CLONE, TYPE_EXECVE, TYPE_EXIT, TYPE_SYSCALL, TYPE_EXECVE_CALL = 1, 2, 3, 4, 6, 11


class PointError(ValueError):
    """A packet that no honest sentry sends."""


class Who(NamedTuple):
    """Who made an event: guest time, thread, process, parent. 0 where the sentry did not say."""

    time_ns: int
    tid: int
    pid: int
    ppid: int


class Started(NamedTuple):
    """A container's first event."""

    container_id: str


class Cloned(NamedTuple):
    """`who` made a process, or a thread of its own when `pid` is the maker's."""

    who: Who
    pid: int
    flags: int


class Executed(NamedTuple):
    """`who` is about to run a program. `bare` when its environment is that of a helper of PID 1's."""

    who: Who
    path: bytes
    argv: tuple[bytes, ...]
    bare: bool


class Attempted(NamedTuple):
    """`who` called execve. `path` is as it was named, made absolute where that can be."""

    who: Who
    path: bytes
    argv: tuple[bytes, ...]


class Exited(NamedTuple):
    """`who` ended; `status` is a wait status."""

    who: Who
    status: int


class Called(NamedTuple):
    """A system call that begins, or has `ended` with an errno (0 for success)."""

    who: Who
    sysno: int
    arguments: tuple[int, int, int]
    ended: bool
    errno: int


Point = Started | Cloned | Executed | Attempted | Exited | Called


class Packet(NamedTuple):
    """A decoded packet. `dropped` counts since the session began; `point` is None for a type nobody asked for."""

    dropped: int
    point: Point | None


def handshake(packet: bytes) -> bytes:
    """The answer to a connection's first packet. Raises PointError for another protocol."""
    if len(packet) > MAX_HEADER_BYTES:
        raise PointError(f"a handshake of {len(packet)} bytes")
    try:
        version = pb.PointHandshake.FromString(packet).version
    except DecodeError as error:
        raise PointError("no handshake") from error
    if version < PROTOCOL_VERSION:
        raise PointError(f"protocol version {version}; {PROTOCOL_VERSION} is expected")
    return pb.PointHandshake(version=PROTOCOL_VERSION).SerializeToString()


def decode(packet: bytes) -> Packet:
    """One packet. Raises PointError."""
    if len(packet) < HEADER.size:
        raise PointError(f"a packet of {len(packet)} bytes")
    size, kind, dropped = HEADER.unpack_from(packet)
    if not HEADER.size <= size <= MAX_HEADER_BYTES or size > len(packet):
        raise PointError(f"a header of {size} bytes")
    reader = _READERS.get(kind)
    if reader is None:
        return Packet(dropped, None)
    try:
        return Packet(dropped, reader(packet[size:]))
    except DecodeError as error:
        raise PointError(f"message type {kind}: not decodable") from error


def _who(context: pb.PointContext) -> Who:
    # Each field is read from the message once: a read costs as much as the rest of a line.
    time_ns, tid = context.time_ns, context.thread_id
    pid, ppid = context.thread_group_id, context.parent_thread_group_id
    if not (0 <= tid <= MAX_PID and 0 <= pid <= MAX_PID and 0 <= ppid <= MAX_PID):
        raise PointError("a thread or process id out of range")
    return Who(time_ns if time_ns > 0 else 0, tid, pid, ppid)


def _started(body: bytes) -> Started:
    identity = pb.PointContainerStart.FromString(body).id
    if len(identity) != CONTAINER_ID_BYTES or not _HEX.issuperset(identity):
        raise PointError("container/start: no container id")
    return Started(identity.decode("ascii"))


def _cloned(body: bytes) -> Cloned:
    message = pb.PointClone.FromString(body)
    pid = message.created_thread_group_id
    if not 0 < pid <= MAX_PID:
        raise PointError("clone: a process id out of range")
    return Cloned(_who(message.context_data), pid, message.flags)


def _executed(body: bytes) -> Executed:
    message = pb.PointExecve.FromString(body)
    bare = HELPER_ENVIRONMENT.issuperset(message.env)
    return Executed(_who(message.context_data), message.binary_path, tuple(message.argv), bare)


def _attempted(body: bytes) -> Attempted:
    message = pb.PointExecveCall.FromString(body)
    context, path = message.context_data, message.pathname
    return Attempted(_who(context), normpath(join(context.cwd, path)) if path else b"", tuple(message.argv))


def _exited(body: bytes) -> Exited:
    message = pb.PointExit.FromString(body)
    status = message.exit_status
    if not 0 <= status <= 0xFFFF:
        raise PointError("exit: no wait status")
    return Exited(_who(message.context_data), status)


def _called(body: bytes) -> Called:
    message = pb.PointSyscall.FromString(body)
    ended = message.HasField("exit")
    errno = message.exit.errorno if ended else 0
    if not 0 <= errno < 4096:
        raise PointError("syscall: no errno")
    arguments = (message.arg1, message.arg2, message.arg3)
    return Called(_who(message.context_data), message.sysno, arguments, ended, errno)


_READERS: dict[int, Callable[[bytes], Point]] = {
    TYPE_START: _started,
    TYPE_CLONE: _cloned,
    TYPE_EXECVE: _executed,
    TYPE_EXECVE_CALL: _attempted,
    TYPE_EXIT: _exited,
    TYPE_SYSCALL: _called,
}
