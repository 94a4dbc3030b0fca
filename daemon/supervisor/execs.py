"""What the daemon keeps of one exec: its retained output, its end, and independent event readers."""

from __future__ import annotations

from collections.abc import AsyncIterator

from daemon.supervisor.output import RetainedOutput
from daemon.supervisor.types import ExecEvent, ExecResult


class ExecHandle:
    """One exec. Iterate it (any number of times, at any speed) for Started, Output…, Exited."""

    exec_id: str
    pid: int | None
    stdout: RetainedOutput
    stderr: RetainedOutput
    head: bytes  # first 1,024 bytes of both streams in arrival order
    result: ExecResult | None

    async def wait(self) -> ExecResult:
        """Wait for the end; raises SupervisorGone when the link ends first."""
        raise NotImplementedError

    def events(self, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[ExecEvent]:
        """A reader of its own, from these offsets."""
        raise NotImplementedError

    def __aiter__(self) -> AsyncIterator[ExecEvent]:
        """Events from the beginning."""
        return self.events()
