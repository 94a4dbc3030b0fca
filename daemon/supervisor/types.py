"""Plain values that cross the supervisor link: exec specs, events and results, file facts.

Pure data; no I/O, no protocol knowledge. Bytes stay bytes: names that are not UTF-8 travel as `bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

AGENT_UID = 1000
AGENT_GID = 1000
DEFAULT_OUTPUT_CAP = 1 << 20
StreamName: TypeAlias = Literal["stdout", "stderr"]
Text: TypeAlias = str | bytes


@dataclass(frozen=True, slots=True)
class ExecSpec:
    """One command.

    `cwd` is relative to /workspace or absolute; `env` is added to the attempt's environment; `stdin=False` gives
    /dev/null; `timeout_seconds` (finite, > 0) is enforced by the supervisor, the caller enforces it from outside
    as well; `max_output_bytes` bounds what is shipped and retained per stream; uid other than 1000, or any exec
    before `assign`, needs `admin=True` (judge harness only).
    """

    argv: Sequence[Text]
    cwd: Text = ""
    env: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = False
    uid: int = AGENT_UID
    gid: int = AGENT_GID
    timeout_seconds: float | None = None
    max_output_bytes: int = DEFAULT_OUTPUT_CAP
    admin: bool = False


@dataclass(frozen=True, slots=True)
class ExecResult:
    """How a command ended. Exactly one of exit_code, signal is set, or neither when it could not be started.

    A missing binary has exit_code 127 and one that cannot be executed 126, both with `error`; other start failures
    (bad cwd, EAGAIN, E2BIG …) have `error_errno` and exit_code None. Totals count every byte the command wrote;
    `*_shipped` what passed the cap. `duration_ns` is monotonic. `error` may also say that a timed-out lineage could
    not be confirmed dead (`error_errno` UNCONFIRMED).
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_ns: int
    stdout_total: int
    stderr_total: int
    stdout_shipped: int
    stderr_shipped: int
    error: str | None = None
    error_errno: str | None = None

    @property
    def truncated(self) -> bool:
        """True when either stream lost bytes to the cap."""
        return self.stdout_total > self.stdout_shipped or self.stderr_total > self.stderr_shipped


@dataclass(frozen=True, slots=True)
class Started:
    """The command runs; `pid` is its id inside the sandbox."""

    pid: int


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes of one stream, starting at `offset`."""

    stream: StreamName
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Exited:
    """The one end event of an exec."""

    result: ExecResult


ExecEvent: TypeAlias = Started | Output | Exited


@dataclass(frozen=True, slots=True)
class ExecInfo:
    """One exec as the supervisor knows it: live (`result` None) or recently ended."""

    exec_id: str
    stream: int
    pid: int
    stdout_total: int
    stderr_total: int
    stdin_received: int
    stdin: bool
    max_output_bytes: int
    result: ExecResult | None


@dataclass(frozen=True, slots=True)
class SupervisorInfo:
    """What READY said: `boot_id` is random per start of PID 1; `assigned` is the digest of the assigned env or None."""

    protocol: int
    pid: int
    boot_id: str
    assigned: str | None
    next_stream: int
    execs: tuple[ExecInfo, ...]


FileType: TypeAlias = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]


@dataclass(frozen=True, slots=True)
class FileStat:
    """lstat of one path; `mode` is the permission bits, `mtime_ns` wall clock, `target` a link's text."""

    type: FileType
    mode: int
    size: int
    uid: int
    gid: int
    mtime_ns: int
    target: Text | None = None


@dataclass(frozen=True, slots=True)
class DirEntry:
    """One directory entry; `name` is bytes when it is not UTF-8."""

    name: Text
    stat: FileStat


@dataclass(frozen=True, slots=True)
class FileDigest:
    """Length in bytes and lower-case hex SHA-256 of what was read or written; `file_size` the whole file's size."""

    size: int
    sha256: str
    file_size: int
