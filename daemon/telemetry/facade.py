"""What the daemon calls: one object for all telemetry of this node.

Signatures first, so that the attempt's life cycle can be written against them; the parts follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daemon.telemetry.tool_calls import ToolCall
from daemon.telemetry.types import Finished, Limits, PidsSource, ResourceSource

FINISH_TIMEOUT_SECONDS = 10.0


class Telemetry:
    """Telemetry of every attempt on this node. `start` before use, `close` at the end; use on one event loop."""

    def __init__(self, state: Path, node_id: str, collector_endpoint: str) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Begin to write and to ship, including what an earlier life left in the spool."""
        raise NotImplementedError

    async def open(self, attempt_id: str) -> None:
        """Begin an attempt's telemetry, before its first event. Idempotent."""
        raise NotImplementedError

    async def resume(self, attempt_id: str) -> None:
        """Go on with an attempt after a restart: sequences continue, what was lost becomes a gap record."""
        raise NotImplementedError

    async def record(self, attempt_id: str, kind: str, fields: Mapping[str, Any]) -> int:
        """Record one event and return its sequence; waits while the buffer is full."""
        raise NotImplementedError

    def begin_tool(self, attempt_id: str, tool_name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Begin to observe one call of the agent: feed it `output`, `content`, then `end`, then `record_tool`."""
        raise NotImplementedError

    async def record_tool(self, attempt_id: str, call: ToolCall) -> int:
        """Record an ended call; on return its event is in the spool and survives a kill -9 of the daemon."""
        raise NotImplementedError

    def start_sampling(
        self, attempt_id: str, source: ResourceSource, limits: Limits, pids: PidsSource | None = None
    ) -> None:
        """Sample resources every five seconds until `finish`."""
        raise NotImplementedError

    async def sample_now(self, attempt_id: str) -> None:
        """Read the counters once more; call it just before the sandbox is killed, when they vanish."""
        raise NotImplementedError

    async def finish(self, attempt_id: str, timeout: float = FINISH_TIMEOUT_SECONDS) -> Finished:
        """Take the last sample, close the attempt's streams, wait until stored. Idempotent, also after a restart."""
        raise NotImplementedError

    async def discard(self, attempt_id: str) -> bool:
        """Remove a finished attempt's spool once stored; False while lines are still to be shipped."""
        raise NotImplementedError

    async def close(self) -> None:
        """Write what is buffered, stop shipping, let go of every file."""
        raise NotImplementedError
