"""One daemon's connection to one sandbox's PID 1."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.files import FileReader
from daemon.supervisor.transport import ByteTransport
from daemon.supervisor.types import DirEntry, ExecInfo, ExecSpec, FileDigest, FileStat, SupervisorInfo, Text


class SupervisorLink:
    """Typed calls over a `ByteTransport`; see images/supervisor/PROTOCOL.md for the frames.

    Every call raises SupervisorGone at once when the transport has ended. Deadlines are the caller's
    (`asyncio.timeout`); cancelling a call is always safe.
    """

    def __init__(self, transport: ByteTransport, *, fresh: bool = True) -> None:
        """`fresh=False` when an earlier daemon may have used this sandbox: connect then resynchronises first."""
        raise NotImplementedError

    info: SupervisorInfo
    execs: Mapping[str, ExecHandle]  # live ones, adopted ones included

    async def connect(self) -> SupervisorInfo:
        """SYNC, HELLO, READY. Raises ProtocolError on a version mismatch, SupervisorGone when the stream ends."""
        raise NotImplementedError

    async def ping(self) -> float:
        """Seconds for one round trip."""
        raise NotImplementedError

    async def assign(self, env: Mapping[str, str]) -> None:
        """Set the attempt's environment, once. The same env again is fine, another raises CallFailed ALREADY_ASSIGNED."""
        raise NotImplementedError

    async def exec(self, spec: ExecSpec, *, exec_id: str) -> ExecHandle:
        """Start a command; returns when it is started or ended. Raises ExecRefused, TooManyExecs, ValueError."""
        raise NotImplementedError

    async def list_execs(self) -> tuple[ExecInfo, ...]:
        """Live execs and the last ended ones, as the supervisor knows them."""
        raise NotImplementedError

    async def write_stdin(self, exec_id: str, offset: int, data: bytes, eof: bool = False) -> int:
        """Send stdin from `offset` (bytes already sent are skipped); returns the next offset.

        Raises StdinGap, StdinClosed, KeyError (no such live exec).
        """
        raise NotImplementedError

    async def signal(self, exec_id: str, signo: int, *, pids: tuple[int, ...] = ()) -> int:
        """Signal the exec's group, session and lineage (`pids`: more roots known from outside).

        SIGKILL is repeated until two scans in a row find nothing. Returns how many processes were signalled;
        raises CallFailed NOT_FOUND or UNCONFIRMED.
        """
        raise NotImplementedError

    async def kill_all(self, signo: int) -> int:
        """Signal every agent process; with SIGKILL repeat until none lives. Returns how many are left."""
        raise NotImplementedError

    async def stop(self, grace_seconds: float) -> None:
        """TERM to all, grace, KILL, then PID 1 exits 0; returns when the stream has ended."""
        raise NotImplementedError

    def read_file(self, path: Text, offset: int = 0, length: int | None = None) -> FileReader:
        """Async iterator over chunks; its `digest` is set at the end. Errors are raised while iterating."""
        raise NotImplementedError

    async def write_file(
        self,
        path: Text,
        chunks: AsyncIterator[bytes] | bytes,
        *,
        size: int | None = None,
        sha256: str | None = None,
        mode: int | None = None,
        parents: bool = False,
    ) -> FileDigest:
        """Write by temporary file and rename, verified; `mode` None keeps an existing file's, else 0644."""
        raise NotImplementedError

    async def list_dir(self, path: Text, *, limit: int = 10_000) -> tuple[list[DirEntry], bool]:
        """Entries sorted by name, and whether `limit` cut them."""
        raise NotImplementedError

    async def stat(self, path: Text) -> FileStat:
        """Lstat."""
        raise NotImplementedError

    async def mkdir(self, path: Text, *, parents: bool = False, mode: int = 0o755) -> None:
        """Make a directory; with `parents` an existing one is fine."""
        raise NotImplementedError

    async def remove(self, path: Text, *, recursive: bool = False) -> None:
        """Remove a file, link or empty directory; a whole tree with `recursive`, following nothing."""
        raise NotImplementedError

    async def close(self) -> None:
        """Leave: pending calls fail with SupervisorGone, PID 1 and its execs go on."""
        raise NotImplementedError
