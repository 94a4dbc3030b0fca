"""Recording one attempt's filesystem events, with times that never run against their sequence.

A MODIFY waits for a quiet moment and carries its last write's time unless something later has been told already: the
store sorts by time, and readers of one kind may rely on both orders being one.
"""

from __future__ import annotations

import time

from daemon.fswatch.changes import Content
from daemon.fswatch.events import fields
from daemon.telemetry.facade import Telemetry

KIND = "filesystem"


class Teller:
    """Of one attempt; on the event loop."""

    def __init__(self, attempt_id: str, telemetry: Telemetry) -> None:
        self.attempt_id = attempt_id
        self._telemetry = telemetry
        self._last_ns = 0

    async def tell(
        self,
        operation: int,
        path: bytes,
        content: Content | None,
        source: str | None,
        time_ns: int | None = None,
        *,
        merged: bool = False,
    ) -> None:
        """Record an event, of now if no time is given; waits while the recorder is full. Raises TelemetryError."""
        self._last_ns = max(self._last_ns, time.time_ns() if time_ns is None else time_ns)
        event = fields(self._last_ns, operation, path, content, source, merged=merged)
        await self._telemetry.record(self.attempt_id, KIND, event)

    def lose(self, count: int | None, reason: str) -> None:
        """Say that events were lost, or an unknown number of them (None). Raises TelemetryError."""
        self._telemetry.record_loss(self.attempt_id, KIND, count, reason)
