"""Orders to nodes that must arrive sooner or later: end a cancelled attempt, let go of a finished one.

What is to be ordered is read from the attempts' states, so that nothing is forgotten by a kill; an order is repeated,
with the same request id, until the node has answered it. One order an attempt is under way at a time, and a node that
does not answer holds up no other.
"""

from __future__ import annotations

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.record import State
from scheduler import ids
from scheduler.attempts import Attempts
from scheduler.model import FINAL, Attempt
from scheduler.nodes import Nodes
from scheduler.tasks import Tasks
from wire.errors import WireFailure

log = structlog.get_logger(__name__)

TICK_SECONDS = 1.0
# The node says that it has nothing of the attempt, or that a later lease owns it: either way nothing is ours there.
NOTHING_HELD = frozenset({"NOT_FOUND"})


class Orders:
    """Sends what is due."""

    def __init__(self, attempts: Attempts, nodes: Nodes, tasks: Tasks) -> None:
        self._attempts = attempts
        self._nodes = nodes
        self._tasks = tasks

    async def send_due(self) -> None:
        """Begin every order that is due and not under way."""
        for attempt in await self._attempts.find({"state": State.RUNNING}):
            if attempt.cancel_reason is not None:
                self._begin(attempt, "end")
        reachable = frozenset(node.row.node_id for node in self._nodes.all() if node.connected)
        due = {"state": FINAL, "recorded": True, "released": False, "node_id": reachable}
        for attempt in await self._attempts.find(due):
            self._begin(attempt, "release")

    def _begin(self, attempt: Attempt, verb: str) -> None:
        work = self._end if verb == "end" else self._release
        self._tasks.only((verb, attempt.attempt_id), lambda: work(attempt), f"{verb}-{attempt.attempt_id}")

    async def _end(self, attempt: Attempt) -> None:
        node = self._nodes.known(attempt.node_id)
        if node is None:
            return
        request = daemon_pb.EndAttemptRequest(
            request_id=ids.request_id(attempt.attempt_id, attempt.fence, "end"),
            attempt_id=attempt.attempt_id,
            fence=attempt.fence,
            reason=attempt.cancel_reason or "",
        )
        try:
            await node.client.end_attempt(request)
        except WireFailure as failure:
            log.warning("end_order_failed", attempt_id=attempt.attempt_id, error=str(failure))

    async def _release(self, attempt: Attempt) -> None:
        node = self._nodes.known(attempt.node_id)
        if node is None:
            return
        request = daemon_pb.ReleaseAttemptRequest(
            request_id=ids.request_id(attempt.attempt_id, attempt.fence, "release"),
            attempt_id=attempt.attempt_id,
            fence=attempt.fence,
        )
        try:
            await node.client.release_attempt(request)
        except WireFailure as failure:
            if failure.code not in NOTHING_HELD and failure.reason != "STALE_FENCE":
                log.warning("release_order_failed", attempt_id=attempt.attempt_id, error=str(failure))
                return
        when = {"state": FINAL, "released": False, "fence": attempt.fence}
        await self._attempts.change(attempt.attempt_id, when, {"released": True})

    async def step(self) -> None:
        """One turn of the loop."""
        await self._attempts.bells.orders.wait(TICK_SECONDS)
        await self.send_due()
