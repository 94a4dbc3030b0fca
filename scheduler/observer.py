"""Watching the nodes: one stream per node, reconciled at every (re)connect, and what silence means.

An attempt that was RUNNING before a stream opened and is not in the stream's snapshot was lost by its node. A node
that is silent for one lease and one tick loses its running attempts. An attempt whose end is overdue by far is given
up although its node answers: every transitional state has a deadline.
"""

from __future__ import annotations

import asyncio

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.record import State
from scheduler.attempts import Attempts
from scheduler.challenges import Challenges
from scheduler.finisher import Finisher
from scheduler.nodes import Nodes
from scheduler.reports import Reports
from scheduler.tasks import Tasks
from wire.errors import WireFailure

log = structlog.get_logger(__name__)

RECONNECT_SECONDS = (0.1, 2.0)
# From the time limit on: the agent's grace, then ending, freezing and reading the workspace.
GRACE_SECONDS = 30.0


class Observer:
    """Observes every node that the registry knows. `ending_seconds` is what an end may take beyond the grace."""

    def __init__(
        self,
        attempts: Attempts,
        challenges: Challenges,
        nodes: Nodes,
        reports: Reports,
        finisher: Finisher,
        tasks: Tasks,
        *,
        tick_seconds: float,
        ending_seconds: float,
    ) -> None:
        self._attempts = attempts
        self._challenges = challenges
        self._nodes = nodes
        self._reports = reports
        self._finisher = finisher
        self._tasks = tasks
        self._tick = tick_seconds
        self._ending = ending_seconds
        self._unsettled: dict[tuple[str, str], daemon_pb.SandboxAttempt] = {}

    def start(self) -> None:
        """Observe the nodes known and those that join."""
        self._nodes.joined = self._observe
        for node in self._nodes.all():
            self._observe(node.row.node_id)
        self._tasks.loop(self._step, "observer")

    def _observe(self, node_id: str) -> None:
        endpoint = self._nodes.get(node_id).row.endpoint
        self._tasks.only(("observe", node_id, endpoint), lambda: self._follow(node_id, endpoint), f"observe-{node_id}")

    async def _follow(self, node_id: str, endpoint: str) -> None:
        pause = RECONNECT_SECONDS[0]
        while self._nodes.get(node_id).row.endpoint == endpoint:
            try:
                await self._stream(node_id)
                log.warning("node_stream_ended", node_id=node_id)
            except WireFailure as failure:
                log.warning("node_stream_failed", node_id=node_id, code=failure.code, error=failure.message)
            except Exception:
                log.exception("node_stream_broken", node_id=node_id)
            if self._nodes.get(node_id).connected:
                pause = RECONNECT_SECONDS[0]
            self._nodes.connection(node_id, up=False)
            await asyncio.sleep(pause)
            pause = min(pause * 2, RECONNECT_SECONDS[1])

    async def _stream(self, node_id: str) -> None:
        """One stream from its opening to its end."""
        # Read before the stream opens: what starts later may rightly be missing in the snapshot.
        expected = await self._attempts.find({"state": State.RUNNING, "node_id": node_id})
        seen: set[str] = set()
        async for message in self._nodes.get(node_id).client.watch():
            if message.snapshot_complete:
                self._nodes.connection(node_id, up=True)
                log.info("node_connected", node_id=node_id, attempts=len(seen))
                for attempt in expected:
                    if attempt.attempt_id not in seen:
                        await self._finisher.void(attempt, f"node {node_id} does not know the attempt any more")
            elif message.HasField("attempt"):
                seen.add(message.attempt.attempt_id)
                await self._take(node_id, message.attempt)

    async def _take(self, node_id: str, report: daemon_pb.SandboxAttempt) -> None:
        key = (node_id, report.attempt_id)
        self._unsettled.pop(key, None)
        if not await self._reports.take(node_id, report):
            self._unsettled[key] = report

    async def _step(self) -> None:
        await asyncio.sleep(self._tick)
        await self.tick()

    async def tick(self) -> None:
        """Look again at unsettled reports, silent nodes and overdue ends."""
        for (node_id, _), report in list(self._unsettled.items()):
            if self._nodes.get(node_id).connected:
                await self._take(node_id, report)
        for node_id, silent in self._nodes.lost():
            for attempt in await self._attempts.find({"state": State.RUNNING, "node_id": node_id}):
                await self._finisher.void(attempt, f"node {node_id} was silent for {silent:.0f} seconds")
        now = self._attempts.clock.steady()
        for attempt in await self._attempts.find({"state": State.RUNNING}):
            spec = await self._challenges.spec(attempt.challenge_digest)
            limit = spec.time_limit_seconds + GRACE_SECONDS + self._ending
            if attempt.started_mark is not None and now - attempt.started_mark > limit:
                await self._finisher.void(attempt, f"no end was reported {limit:.0f} seconds after the start")
