"""One claim, from STARTING to RUNNING or back: the only place that asks a node for a sandbox.

Idempotent after a kill at any instruction: the request id is derived from attempt and fence, so a resumed claim is the
same claim. A node that refuses, or stays silent for longer than patience allows, gives the attempt back to the queue;
what failed for the attempt's own sake is counted, and given up in the end. Its next placement has a higher fence, and
a sandbox that the first claim may have got becomes a stray (`scheduler.reports`).
"""

from __future__ import annotations

import asyncio
from enum import Enum

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.challenge import ChallengeSpec
from formats.record import Outcome, State
from scheduler import ids
from scheduler.attempts import Attempts
from scheduler.challenges import Challenges
from scheduler.model import Attempt
from scheduler.nodes import Nodes
from scheduler.queue import CANCELLED_BEFORE_START, never_started
from scheduler.reports import Reports
from wire.errors import WireFailure

log = structlog.get_logger(__name__)

# A daemon that restarts is back within this; a node that is gone must not hold the attempt longer.
PATIENCE_SECONDS = 5.0
RETRY_SECONDS = 0.2
REST_SECONDS = 2.0
FAULT_REST_SECONDS = 1.0
# A node's own failures before the attempt is given up; refusals for want of room are bounded by the queue's timeout.
MAX_CLAIM_TRIES = 5
MAX_UPLOADS = 2


class Answer(Enum):
    """What a failed claim calls for."""

    UPLOAD = "upload"
    RETRY = "retry"
    ELSEWHERE = "elsewhere"
    FAULT = "fault"
    REFUSED = "refused"


def answer_to(failure: WireFailure) -> Answer:
    """Pure: UPLOAD the challenge, RETRY the same claim, try ELSEWHERE, count a FAULT, or take it as REFUSED."""
    match failure.code:
        case "UNAVAILABLE" | "CANCELLED" | "UNKNOWN" if not failure.reason:
            return Answer.RETRY  # nobody answered
        case "UNAVAILABLE" if failure.reason == "COLD_START_FAILED":
            return Answer.FAULT  # the node has room and a runtime, and could not make this attempt's sandbox
        case "UNAVAILABLE" | "RESOURCE_EXHAUSTED":
            return Answer.ELSEWHERE
        case "FAILED_PRECONDITION" if failure.reason == "CHALLENGE_MISSING":
            return Answer.UPLOAD
        case "INVALID_ARGUMENT" | "UNIMPLEMENTED" | "PERMISSION_DENIED" | "UNAUTHENTICATED" | "NOT_FOUND":
            return Answer.REFUSED
        case _:
            return Answer.FAULT


class Claimer:
    """Claims sandboxes."""

    def __init__(self, attempts: Attempts, challenges: Challenges, nodes: Nodes, reports: Reports) -> None:
        self._attempts = attempts
        self._challenges = challenges
        self._nodes = nodes
        self._reports = reports

    async def start(self, attempt: Attempt) -> None:
        """Bring a STARTING attempt to RUNNING, or back to the queue, or to its end."""
        try:
            await self._start(attempt)
        except Exception:
            # Whatever broke, nobody else would ever look at a STARTING attempt again.
            log.exception("claim_broken", attempt_id=attempt.attempt_id, node_id=attempt.node_id)
            await self._requeue(attempt, "the scheduler failed while it was starting", fault=True)

    async def _start(self, attempt: Attempt) -> None:
        assert attempt.node_id is not None
        spec = await self._challenges.spec(attempt.challenge_digest)
        if self._nodes.known(attempt.node_id) is None:
            await self._requeue(attempt, f"node {attempt.node_id} is not known any more", fault=False)
            return
        request = claim_request(attempt, spec)
        give_up = self._attempts.clock.steady() + PATIENCE_SECONDS
        uploads = 0
        while True:
            try:
                report = await self._nodes.get(attempt.node_id).client.claim(request)
                break
            except WireFailure as failure:
                answer = answer_to(failure)
                log.warning(
                    "claim_failed",
                    attempt_id=attempt.attempt_id,
                    node_id=attempt.node_id,
                    answer=answer.value,
                    error=str(failure),
                )
                if answer is Answer.UPLOAD and uploads < MAX_UPLOADS:
                    uploads += 1
                    if await self._upload(attempt, attempt.node_id):
                        continue
                elif answer is Answer.RETRY and self._attempts.clock.steady() < give_up:
                    await asyncio.sleep(RETRY_SECONDS)
                    continue
                elif answer is Answer.REFUSED:
                    await self._give_up(attempt, f"node {attempt.node_id} refused it: {failure.message}")
                    return
                fault = answer in (Answer.FAULT, Answer.UPLOAD)
                if fault:
                    # The attempt waits, not the node: what others want may well be there.
                    await asyncio.sleep(FAULT_REST_SECONDS)
                else:
                    self._nodes.rest(attempt.node_id, REST_SECONDS)
                await self._requeue(attempt, str(failure), fault=fault)
                return
        if report.fence != attempt.fence:
            await self._requeue(attempt, f"the node answered for fence {report.fence}", fault=True)
            return
        await self._reports.claimed(attempt, report)

    async def _upload(self, attempt: Attempt, node_id: str) -> bool:
        digest = attempt.challenge_digest
        try:
            await self._nodes.get(node_id).client.put_challenge(digest, self._challenges.path(digest))
        except WireFailure as failure:
            log.warning("challenge_upload_failed", node_id=node_id, digest=digest, error=str(failure))
            return False
        return True

    async def _requeue(self, attempt: Attempt, reason: str, *, fault: bool) -> None:
        tries = attempt.claim_tries + int(fault)
        if tries >= MAX_CLAIM_TRIES:
            await self._give_up(attempt, f"no node could start it in {tries} tries: {reason}")
            return
        when = {"state": State.STARTING, "fence": attempt.fence, "cancel_reason": None}
        changes = {"state": State.QUEUED, "node_id": None, "claim_tries": tries}
        change = await asyncio.shield(self._attempts.change(attempt.attempt_id, when, changes))
        if not change.applied and change.attempt.cancel_reason is not None:
            await self._end(attempt, Outcome.CANCELLED, CANCELLED_BEFORE_START)

    async def _give_up(self, attempt: Attempt, reason: str) -> None:
        await self._end(attempt, Outcome.VOIDED, reason)

    async def _end(self, attempt: Attempt, outcome: Outcome, reason: str) -> None:
        """End it FAILED; what the node may hold of it is released like after every end."""
        when = {"state": State.STARTING, "fence": attempt.fence}
        changes = never_started(attempt, self._attempts.clock.wall_ns(), outcome, reason)
        await asyncio.shield(self._attempts.change(attempt.attempt_id, when, changes))


def claim_request(attempt: Attempt, spec: ChallengeSpec) -> daemon_pb.ClaimRequest:
    """The claim of an attempt's present lease: always the same for the same lease."""
    wanted = spec.resources
    request = daemon_pb.ClaimRequest(
        request_id=ids.request_id(attempt.attempt_id, attempt.fence, "claim"),
        attempt_id=attempt.attempt_id,
        fence=attempt.fence,
        challenge_digest=attempt.challenge_digest,
        challenge_id=attempt.challenge_id,
        agent_id=attempt.agent_id,
        stack=spec.stack,
        resources=daemon_pb.Resources(
            memory_bytes=wanted.memory or 0,
            cpu_millis=round((wanted.cpus or 0) * 1000),
            disk_bytes=wanted.disk or 0,
            pids=wanted.pids or 0,
            tmp_bytes=wanted.tmp or 0,
        ),
        environment=spec.environment,
        network_digest=attempt.network_digest,
    )
    request.time_limit_duration.FromSeconds(spec.time_limit_seconds)
    if spec.database is not None:
        request.database.kind, request.database.name = spec.database.kind, spec.database.name
        request.database.start_timeout_duration.FromSeconds(spec.database.start_timeout_seconds)
    return request
