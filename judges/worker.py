"""The judge worker: leases finished attempts from the scheduler, has them judged, delivers the results.

A worker may die at any instruction: its lease runs out and the work is given out again. Nothing is kept between
judgings but the expected test ids of challenges.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile

import grpc
import structlog
from gauntlet.daemon.v1 import judge_sandbox_service_pb2_grpc as judge_grpc
from gauntlet.scheduler.v1 import judging_service_pb2 as pb
from gauntlet.scheduler.v1 import judging_service_pb2_grpc as pb_grpc
from google.protobuf.duration_pb2 import Duration

from judges.config import JudgeConfig
from judges.errors import JudgingFault
from judges.objective import ObjectiveJudge, ObjectiveVerdict
from judges.package import JudgedChallenge, read_challenge
from wire import client, errors

log = structlog.get_logger(__name__)

WAIT_SECONDS = 10.0
RETRY_SECONDS = 1.0
FETCH_TIMEOUT = 120.0


class JudgeWorker:
    """One worker process's work."""

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._objective = ObjectiveJudge()

    async def run(self) -> None:
        """Judge, for ever."""
        async with client.connect(self._config.scheduler_endpoint) as channel:
            stub = pb_grpc.JudgingServiceStub(channel)
            async with asyncio.TaskGroup() as group:
                for _ in range(self._config.parallel):
                    group.create_task(self._serve(stub))

    async def _serve(self, stub: pb_grpc.JudgingServiceStub) -> None:
        while True:
            wait = Duration()
            wait.FromNanoseconds(int(WAIT_SECONDS * 1e9))
            request = pb.LeaseJudgingRequest(worker_id=self._config.worker_id, wait_duration=wait)
            try:
                answer = await client.call(stub.LeaseJudging, request, timeout=WAIT_SECONDS + 5, retries=0)
                if answer.HasField("lease"):
                    await self._judge(stub, answer.lease)
            except errors.WireFailure as failure:
                # The scheduler is away, or took the lease back: there is nothing to deliver.
                log.warning("scheduler_call_failed", error=str(failure), reason=failure.reason)
                await asyncio.sleep(RETRY_SECONDS)

    async def _judge(self, stub: pb_grpc.JudgingServiceStub, lease: pb.JudgingLease) -> None:
        structlog.contextvars.bind_contextvars(attempt_id=lease.attempt_id)
        request = pb.CompleteJudgingRequest(lease_id=lease.lease_id)
        renewing = asyncio.create_task(_renew(stub, lease))
        try:
            verdict = await self._verdict(stub, lease)
        except JudgingFault as fault:
            log.error("judging_failed", error=str(fault))
            request.judging_fault = str(fault)
        else:
            if verdict.score is not None:
                duration = Duration()
                duration.FromNanoseconds(int(verdict.seconds * 1e9))
                request.results.append(
                    pb.JudgeResult(
                        judge="objective",
                        score=verdict.score,
                        container_id=verdict.container_id,
                        run_duration=duration,
                        documents=verdict.documents,
                    )
                )
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            structlog.contextvars.unbind_contextvars("attempt_id")
        await client.call(stub.CompleteJudging, request)

    async def _verdict(self, stub: pb_grpc.JudgingServiceStub, lease: pb.JudgingLease) -> ObjectiveVerdict:
        challenge = await _fetch(stub, lease.challenge_digest)
        async with client.connect(lease.node_endpoint) as channel:
            sandboxes = judge_grpc.JudgeSandboxServiceStub(channel)
            return await self._objective.judge(sandboxes, lease.attempt_id, lease.challenge_digest, challenge)


async def _fetch(stub: pb_grpc.JudgingServiceStub, digest: str) -> JudgedChallenge:
    """The challenge behind a digest. Raises JudgingFault."""
    with tempfile.TemporaryFile() as file:
        try:
            async for part in stub.GetChallenge(pb.GetChallengeRequest(digest=digest), timeout=FETCH_TIMEOUT):
                file.write(part.chunk)
        except grpc.RpcError as error:
            raise JudgingFault(f"the challenge cannot be had: {errors.decode(error)}") from error
        file.seek(0)
        return read_challenge(file)


async def _renew(stub: pb_grpc.JudgingServiceStub, lease: pb.JudgingLease) -> None:
    """Keep the lease while the judging runs; a lost one is noticed at delivery."""
    seconds = max(lease.lease_duration.ToNanoseconds() / 1e9 / 3, 0.5)
    while True:
        await asyncio.sleep(seconds)
        with contextlib.suppress(errors.WireFailure):
            await client.call(stub.RenewJudging, pb.RenewJudgingRequest(lease_id=lease.lease_id))
