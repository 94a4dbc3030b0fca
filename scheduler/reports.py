"""What a node's report of one attempt means. Every report, from the stream or from a claim's answer, comes here.

A report counts only for the lease it belongs to (node and fence). One that belongs to no present lease is a stray: the
sandbox of a claim that was given up, of a voided attempt whose node came back, or of an attempt nobody knows. Strays
are released, so that no attempt ever has two sandboxes.
"""

from __future__ import annotations

from enum import Enum

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.record import State
from scheduler import ids
from scheduler.attempts import Attempts
from scheduler.finisher import Finisher
from scheduler.model import ACTIVE, FINAL, Attempt
from scheduler.nodes import Nodes
from wire.errors import WireFailure

log = structlog.get_logger(__name__)

LIVE = (daemon_pb.SANDBOX_STATE_RUNNING, daemon_pb.SANDBOX_STATE_ENDING)
ENDED = (daemon_pb.SANDBOX_STATE_FROZEN, daemon_pb.SANDBOX_STATE_LOST)


class Standing(Enum):
    """How a report stands to what the database says."""

    PRESENT = "present"
    LATER = "later"
    STRAY = "stray"
    NOTHING = "nothing"


def standing(attempt: Attempt | None, node_id: str, report: daemon_pb.SandboxAttempt) -> Standing:
    """Pure: PRESENT for the attempt's own lease, STRAY to be released, LATER when only time will tell."""
    gone = report.state == daemon_pb.SANDBOX_STATE_RELEASED
    if attempt is None:
        return Standing.NOTHING if gone else Standing.STRAY
    if attempt.node_id == node_id and attempt.fence == report.fence and not attempt.released:
        return Standing.PRESENT
    if gone:
        return Standing.NOTHING
    if attempt.state is State.QUEUED:
        # Its next claim may meet it on this very node and take it over; on another node it becomes a stray.
        return Standing.LATER
    if attempt.node_id == node_id and attempt.state not in FINAL and report.fence < attempt.fence:
        return Standing.LATER
    return Standing.STRAY


class Reports:
    """Acts on reports."""

    def __init__(self, attempts: Attempts, nodes: Nodes, finisher: Finisher) -> None:
        self._attempts = attempts
        self._nodes = nodes
        self._finisher = finisher

    async def claimed(self, attempt: Attempt, report: daemon_pb.SandboxAttempt) -> None:
        """Act on the answer to a claim of `attempt` as it was placed: it is read again only if it moved on since."""
        assert attempt.node_id is not None
        if report.state not in LIVE or not await self._started(attempt, report):
            await self.take(attempt.node_id, report)

    async def take(self, node_id: str, report: daemon_pb.SandboxAttempt) -> bool:
        """Act on one report; whether it is settled. An unsettled one is to be shown again later."""
        attempt = await self._attempts.known(report.attempt_id)
        match standing(attempt, node_id, report):
            case Standing.NOTHING:
                return True
            case Standing.LATER:
                return False
            case Standing.STRAY:
                return await self._release(node_id, report, attempt)
            case Standing.PRESENT:
                assert attempt is not None
                return await self._present(attempt, report)

    async def _present(self, attempt: Attempt, report: daemon_pb.SandboxAttempt) -> bool:
        """Act on a report of the present lease; False when the attempt moved on meanwhile (it may be a stray now)."""
        if report.state in LIVE and attempt.state is State.STARTING:
            return await self._started(attempt, report)
        if report.state in ENDED and attempt.state in ACTIVE:
            return await self._finisher.finish(attempt, report)
        if report.state == daemon_pb.SANDBOX_STATE_RELEASED and attempt.state in ACTIVE:
            return await self._finisher.void(attempt, "the node let the sandbox go before its end was seen")
        return True

    async def _started(self, attempt: Attempt, report: daemon_pb.SandboxAttempt) -> bool:
        """Note that the agent may act."""
        clock = self._attempts.clock
        changes = {
            "state": State.RUNNING,
            "report": report.SerializeToString(),
            "started_ns": report.start_time.ToNanoseconds() or clock.wall_ns(),
            "deadline_ns": report.deadline_time.ToNanoseconds() or None,
            "started_mark": clock.steady(),
        }
        when = {"state": State.STARTING, "fence": attempt.fence}
        # The node shows it again on every new stream, so this one does not wait for the disk.
        change = await self._attempts.change(attempt.attempt_id, when, changes, told_again=True)
        if change.applied:
            launch = daemon_pb.LaunchType.Name(report.launch_type).removeprefix("LAUNCH_TYPE_")
            log.info("attempt_running", attempt_id=attempt.attempt_id, node_id=attempt.node_id, launch_type=launch)
        return change.applied

    async def _release(self, node_id: str, report: daemon_pb.SandboxAttempt, attempt: Attempt | None) -> bool:
        fence = max(report.fence, attempt.fence if attempt is not None else 0)
        log.warning("stray_released", attempt_id=report.attempt_id, node_id=node_id, fence=report.fence)
        request = daemon_pb.ReleaseAttemptRequest(
            request_id=ids.request_id(report.attempt_id, fence, f"release-stray/{node_id}/{report.fence}"),
            attempt_id=report.attempt_id,
            fence=fence,
        )
        try:
            await self._nodes.get(node_id).client.release_attempt(request)
        except WireFailure as failure:
            log.warning("stray_release_failed", attempt_id=report.attempt_id, node_id=node_id, error=str(failure))
            return False
        return True
