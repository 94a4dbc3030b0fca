"""`gauntlet.scheduler.v1.JudgingService`, for judge workers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from gauntlet.scheduler.v1 import judging_service_pb2 as pb
from gauntlet.scheduler.v1 import judging_service_pb2_grpc as pb_grpc

from scheduler.challenges import Challenges
from scheduler.errors import BadInput
from scheduler.judging import Judging
from scheduler.model import Attempt
from scheduler.nodes import Nodes

Context = grpc.aio.ServicerContext[Any, Any]

MAX_WAIT_SECONDS = 60.0
# Answers must be on their way before the caller's deadline is.
_ANSWER_SECONDS = 0.5


class JudgingServicer(pb_grpc.JudgingServiceServicer):
    """The servicer."""

    def __init__(self, judging: Judging, challenges: Challenges, nodes: Nodes) -> None:
        self._judging = judging
        self._challenges = challenges
        self._nodes = nodes

    async def LeaseJudging(self, request: pb.LeaseJudgingRequest, context: Context) -> pb.LeaseJudgingResponse:
        """Give out work."""
        if not request.worker_id:
            raise BadInput(("worker_id", "name the worker"))
        wait = request.wait_duration.ToNanoseconds() / 1e9
        if not 0 <= wait <= MAX_WAIT_SECONDS:
            raise BadInput(("wait_duration", f"must be 0 to {MAX_WAIT_SECONDS:g} seconds"))
        remaining = context.time_remaining()
        if remaining is not None:
            wait = max(0.0, min(wait, remaining - _ANSWER_SECONDS))
        attempt = await self._judging.lease(request.worker_id, wait)
        if attempt is None:
            return pb.LeaseJudgingResponse()
        return pb.LeaseJudgingResponse(lease=self._lease(attempt))

    async def RenewJudging(self, request: pb.RenewJudgingRequest, context: Context) -> pb.RenewJudgingResponse:
        """Extend a lease."""
        await self._judging.renew(request.lease_id)
        return pb.RenewJudgingResponse()

    async def CompleteJudging(self, request: pb.CompleteJudgingRequest, context: Context) -> pb.CompleteJudgingResponse:
        """Take a delivery."""
        await self._judging.complete(request.lease_id, request.results, request.judging_fault)
        return pb.CompleteJudgingResponse()

    async def GetChallenge(
        self, request: pb.GetChallengeRequest, context: Context
    ) -> AsyncIterator[pb.GetChallengeResponse]:
        """Stream a package."""
        async for chunk in self._challenges.read(request.digest):
            yield pb.GetChallengeResponse(chunk=chunk)

    def _lease(self, attempt: Attempt) -> pb.JudgingLease:
        node = self._nodes.known(attempt.node_id)
        lease = pb.JudgingLease(
            lease_id=attempt.judging_lease_id or "",
            attempt_id=attempt.attempt_id,
            challenge_digest=attempt.challenge_digest,
            node_endpoint=node.row.endpoint if node is not None else "",
            outcome=attempt.outcome.value if attempt.outcome is not None else "",
            previous_tries=attempt.judging_tries - 1,
        )
        lease.lease_duration.FromNanoseconds(int(self._judging.lease_seconds * 1e9))
        return lease
