"""The dispatcher: lets the queue's attempts start, and takes up again the starts that a kill cut off.

Owns the loop only: who may start is `scheduler.placement`, how one starts is `scheduler.claim`. Every STARTING attempt
has one task in this process, from its placement or from the process's start on.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from formats.record import State
from scheduler.attempts import Attempts
from scheduler.claim import Claimer
from scheduler.model import Active, Attempt, Placement, QueueEntry
from scheduler.nodes import Nodes
from scheduler.placement import plan
from scheduler.queue import Queue
from scheduler.tasks import Tasks

log = structlog.get_logger(__name__)

# A resting node's rest ends, and a queued attempt expires, without anybody ringing.
TICK_SECONDS = 0.5


class Dispatcher:
    """Places and starts."""

    def __init__(self, attempts: Attempts, queue: Queue, nodes: Nodes, claimer: Claimer, tasks: Tasks) -> None:
        self._attempts = attempts
        self._queue = queue
        self._nodes = nodes
        self._claimer = claimer
        self._tasks = tasks
        self._last_node: str | None = None
        self._expired_mark = float("-inf")

    def start(self) -> None:
        """Begin."""
        self._tasks.start(self.resume, "resume-starts")
        self._tasks.loop(self._step, "dispatcher")

    async def resume(self) -> None:
        """Take up the attempts that an earlier life left STARTING."""
        for attempt in await self._attempts.find({"state": State.STARTING}):
            log.info("start_resumed", attempt_id=attempt.attempt_id, node_id=attempt.node_id)
            self._begin(attempt)

    async def dispatch(self) -> None:
        """Expire, then place what may start now."""
        now = self._attempts.clock.steady()
        if now - self._expired_mark >= TICK_SECONDS:
            self._expired_mark = now
            await self._queue.expire()
        candidates = self._nodes.candidates()
        if not candidates:
            return

        def planner(queue: Sequence[QueueEntry], active: Active) -> list[Placement]:
            return plan(queue, active, candidates, self._queue.limits, self._last_node)

        for attempt in await self._attempts.assign(planner):
            self._last_node = attempt.node_id
            log.info("attempt_placed", attempt_id=attempt.attempt_id, node_id=attempt.node_id, fence=attempt.fence)
            self._begin(attempt)

    def _begin(self, attempt: Attempt) -> None:
        key = ("start", attempt.attempt_id, attempt.fence)
        self._tasks.only(key, lambda: self._claimer.start(attempt), f"start-{attempt.attempt_id}")

    async def _step(self) -> None:
        await self._attempts.bells.queue.wait(TICK_SECONDS)
        await self.dispatch()
