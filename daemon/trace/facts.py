"""What the trace of one sandbox tells, and what is kept of a living process in order to tell it. Values, pure.

A fact is a process event's fields, a denied call, a run of a tool, a refused start, or a program without a name. Left
out: how they come about.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from formats import event
from formats.canonical import DIGEST_PREFIX


class Denied(NamedTuple):
    """A refused call."""

    syscall: str
    result: str
    pid: int
    command_line: str
    guest_time_ns: int
    inferred: bool


class Ran(NamedTuple):
    """A program below tools/bin that ended. `start_ns` by our clock, `duration_ns` by the guest's."""

    name: str
    pid: int
    ppid: int
    command_line: str
    start_ns: int
    duration_ns: int
    status: int


class Refused(NamedTuple):
    """A process or thread that was not made: the limit was reached."""

    pid: int


class Unnamed(NamedTuple):
    """A program ran, and nothing of its name and arguments could be told."""

    pid: int


Fact = event.Process | Denied | Ran | Refused | Unnamed


class Tool(NamedTuple):
    """A program below tools/bin that a process runs. Its start by our clock and by the guest's."""

    name: str
    command_line: str
    start_ns: int
    guest_ns: int


class Begun(NamedTuple):
    """An execve that was called and neither refused at once nor followed by its event yet. None: not told."""

    path: bytes = b""
    argv: tuple[bytes, ...] | None = None


@dataclass(slots=True)
class Process:
    """One living process."""

    pid: int
    ppid: int
    maker: int
    command_line: str
    guest_ns: int
    programs: int = 0
    path: str = ""
    helper: bool = False
    begun: Begun | None = None
    unnamed: bool = False
    cpu_ms: float | None = None
    rss: int | None = None
    # Signals, by bit.
    told: int = 0
    # When another process sent it SIGSYS.
    sigsys_ns: int | None = None
    tools: list[Tool] = field(default_factory=list)


def command_line(argv: Iterable[bytes]) -> tuple[str, str]:
    """Arguments joined by spaces and cut, and the digest of them all joined by NUL."""
    words = tuple(argv)
    text = b" ".join(words)[: event.COMMAND_LINE_BYTES].decode("utf-8", "replace")
    if not text.isascii():
        # Each bad byte has become three: cut again.
        text = text.encode("utf-8")[: event.COMMAND_LINE_BYTES].decode(errors="ignore")
    return text, DIGEST_PREFIX + hashlib.sha256(b"\0".join(words)).hexdigest()


def process_event(what: event.ProcessEvent, process: Process, now_ns: int, guest_ns: int) -> event.Process:
    """The fields that every event of a process has."""
    return {
        "timestamp_ns": now_ns,
        "event": what,
        "pid": process.pid,
        "ppid": process.ppid,
        "command_line": process.command_line,
        "exit_code": None,
        "cpu_time_ms": None,
        "peak_rss_bytes": None,
        "guest_time_ns": guest_ns,
    }
