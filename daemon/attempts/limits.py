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
from daemon.fswatch.fullness import Fullness, measure
from daemon.supervisor.errors import SupervisorError

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
    """Sees workspaces that fill up, by a look every second and by what the filesystem watch hears between two looks.

    A call of the agent that meets ENOSPC says so by itself.
    """

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    async def run(self) -> None:
        """Look at every running attempt, for ever."""
        while True:
            await asyncio.sleep(DISK_INTERVAL_SECONDS)
            for attempt in self._node.registry:
                if attempt.facts.state is State.RUNNING and not attempt.facts.evidence.disk_full:
                    await self._look(attempt)

    def heard(self, attempt_id: str, fullness: Fullness) -> None:
        """A look between two of ours, from the filesystem watch; it may come while the attempt ends."""
        attempt = self._node.registry.find(attempt_id)
        if attempt is not None and self._note(attempt, fullness):
            self._node.spawn(self._node.keep(attempt), f"{attempt_id}:disk")

    async def _look(self, attempt: LiveAttempt) -> None:
        if attempt.slot is None:
            return
        try:
            fullness = await self._node.blocking(measure, attempt.slot.quota)
        except OSError as error:
            log.warning("disk_usage_unknown", attempt_id=attempt.facts.attempt_id, error=str(error))
            return
        if self._note(attempt, fullness):
            await self._node.keep(attempt)

    def _note(self, attempt: LiveAttempt, fullness: Fullness) -> bool:
        """Put a look into the evidence, and say it once; whether there was anything new."""
        facts, evidence = attempt.facts, attempt.facts.evidence
        before = (evidence.disk_high, evidence.disk_full)
        if fullness.high and not evidence.disk_high:
            evidence.disk_high = True
            percent = round(100 * fullness.used_ratio, 1)
            log.warning("disk_above_80_percent", attempt_id=facts.attempt_id, used_percent=percent)
        evidence.disk_full = evidence.disk_full or fullness.full
        return before != (evidence.disk_high, evidence.disk_full)
