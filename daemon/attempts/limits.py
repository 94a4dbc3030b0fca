"""An attempt's time: the soft limit, thirty seconds of grace, the hard end. The daemon's timer, nothing inside.

Also the watch over full disks. Both see a running attempt only; the end is `ending`'s.
"""

from __future__ import annotations

import asyncio
import signal

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import Cause, State
from daemon.supervisor.errors import SupervisorError
from daemon.workspace.model import WorkspaceError

log = structlog.get_logger(__name__)

GRACE_SECONDS = 30.0
# The order to end is one frame; a sandbox that does not take it in this time meets the hard end.
ORDER_TIMEOUT_SECONDS = 5.0
DISK_INTERVAL_SECONDS = 1.0


class TimeKeeper:
    """Holds attempts to their time limit."""

    def __init__(self, node: NodeContext, ender: Ender, grace_seconds: float = GRACE_SECONDS) -> None:
        self._node = node
        self._ender = ender
        self._grace_ns = int(grace_seconds * 1e9)

    def start(self, attempt: LiveAttempt) -> None:
        """Watch an attempt that runs."""
        attempt.spawn(self._watch(attempt), "time-limit")

    async def _watch(self, attempt: LiveAttempt) -> None:
        facts = attempt.facts
        soft = facts.started_boottime_ns + int(facts.spec.time_limit_seconds * 1e9)
        await self._node.clock.sleep_until(soft)
        if not facts.evidence.time_limit_reached:
            facts.evidence.time_limit_reached = True
            attempt.sent("SIGTERM", "soft_timeout", self._node.clock.wall_ns())
            await self._node.keep(attempt)
            await self._terminate(attempt)
        await self._node.clock.sleep_until(soft + self._grace_ns)
        self._ender.begin(attempt, Cause.TIME_LIMIT)

    async def _terminate(self, attempt: LiveAttempt) -> None:
        if attempt.entry is None:
            return
        try:
            async with asyncio.timeout(ORDER_TIMEOUT_SECONDS):
                await attempt.entry.link.kill_all(signal.SIGTERM)
        except (SupervisorError, TimeoutError) as error:
            log.warning("soft_timeout_not_delivered", attempt_id=attempt.facts.attempt_id, error=str(error))


class DiskWatch:
    """Sees workspaces that are full. A moment of fullness between two looks is seen by the calls that met ENOSPC."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def run(self) -> None:
        """Look at every running attempt, for ever."""
        while True:
            await asyncio.sleep(DISK_INTERVAL_SECONDS)
            for attempt in self._node.registry:
                if attempt.facts.state is State.RUNNING and not attempt.facts.evidence.disk_full:
                    await self._look(attempt)

    async def _look(self, attempt: LiveAttempt) -> None:
        if attempt.slot is None:
            return
        try:
            usage = await self._node.workspace.disk_usage(attempt.slot)
        except (WorkspaceError, OSError) as error:
            log.warning("disk_usage_unknown", attempt_id=attempt.facts.attempt_id, error=str(error))
            return
        if usage.free == 0:
            attempt.facts.evidence.disk_full = True
            await self._node.keep(attempt)
