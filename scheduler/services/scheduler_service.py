"""`gauntlet.scheduler.v1.SchedulerService`, for operators and their tools."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as pb_grpc

from formats.record import State
from scheduler.attempts import Attempts
from scheduler.blobs import Blobs
from scheduler.cancelling import Cancelling
from scheduler.challenges import Challenges
from scheduler.convert import (
    attempt_message,
    node_message,
    page_position,
    page_size,
    page_token,
    priority_of,
    request_key,
    states_of,
)
from scheduler.errors import BadInput, NodeUnreachable, NoDiff, NoReport
from scheduler.gateway import Gateway
from scheduler.model import Attempt
from scheduler.nodes import Nodes
from scheduler.queue import Queue
from scheduler.record_builder import report_of
from scheduler.store.port import ControlStore
from scheduler.store.threaded import StoreThread
from scheduler.watch import Hub, follow
from wire.errors import WireFailure

Context = grpc.aio.ServicerContext[Any, Any]

PIECE_BYTES = 512 * 1024


@dataclass(frozen=True)
class Domain:
    """What the servicer calls."""

    attempts: Attempts
    challenges: Challenges
    queue: Queue
    cancelling: Cancelling
    nodes: Nodes
    gateway: Gateway
    hub: Hub
    store: ControlStore
    thread: StoreThread
    blobs: Blobs


class SchedulerServicer(pb_grpc.SchedulerServiceServicer):
    """The servicer."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    async def UploadChallenge(
        self, request_iterator: AsyncIterator[pb.UploadChallengeRequest], context: Context
    ) -> pb.UploadChallengeResponse:
        """Receive a package."""
        first = await anext(aiter(request_iterator), None)
        if first is None:
            raise BadInput(("digest", "send a first message with digest and size_bytes"))

        async def chunks() -> AsyncIterator[bytes]:
            if first.chunk:
                yield first.chunk
            async for message in request_iterator:
                yield message.chunk

        row = await self._domain.challenges.receive(first.digest, first.size_bytes, chunks())
        return pb.UploadChallengeResponse(digest=row.digest, challenge_id=row.challenge_id)

    async def SubmitAttempt(self, request: pb.SubmitAttemptRequest, context: Context) -> pb.SubmitAttemptResponse:
        """Queue an attempt."""
        attempt = await self._domain.queue.submit(
            request_key(request.request_id, request),
            challenge_digest=request.challenge_digest,
            agent_id=request.agent_id,
            priority=priority_of(request.priority),
            supersedes=request.supersedes or None,
        )
        return pb.SubmitAttemptResponse(attempt=self._shown(attempt))

    async def GetAttempt(self, request: pb.GetAttemptRequest, context: Context) -> pb.GetAttemptResponse:
        """Return one attempt."""
        return pb.GetAttemptResponse(attempt=self._shown(await self._domain.attempts.get(request.attempt_id)))

    async def ListAttempts(self, request: pb.ListAttemptsRequest, context: Context) -> pb.ListAttemptsResponse:
        """List attempts, newest first."""
        size = page_size(request.page_size)
        found = await self._domain.thread.run(
            self._domain.store.page,
            limit=size + 1,
            before_seq=page_position(request.page_token),
            states=states_of(list(request.states)),
            agent_id=request.agent_id or None,
            challenge_id=request.challenge_id or None,
        )
        shown = [self._shown(attempt, record=False) for attempt in found[:size]]
        more = page_token(found[size - 1].seq) if len(found) > size else ""
        return pb.ListAttemptsResponse(attempts=shown, next_page_token=more)

    async def WatchAttempt(
        self, request: pb.WatchAttemptRequest, context: Context
    ) -> AsyncIterator[pb.WatchAttemptResponse]:
        """Stream the present state, then each change."""
        with self._domain.hub.subscribe(request.attempt_id) as changes:
            first = await self._domain.attempts.get(request.attempt_id)
            async for attempt in follow(first, changes):
                yield pb.WatchAttemptResponse(attempt=self._shown(attempt))

    async def CancelAttempt(self, request: pb.CancelAttemptRequest, context: Context) -> pb.CancelAttemptResponse:
        """Cancel."""
        key = request_key(request.request_id, request)
        return pb.CancelAttemptResponse(
            attempt=self._shown(await self._domain.cancelling.cancel(key, request.attempt_id))
        )

    async def GetDiff(self, request: pb.GetDiffRequest, context: Context) -> AsyncIterator[pb.GetDiffResponse]:
        """Pass the node's diff on."""
        attempt = await self._domain.attempts.get(request.attempt_id)
        report = report_of(attempt)
        if report is None or not report.HasField("workspace") or attempt.node_id is None:
            raise NoDiff(attempt.attempt_id, attempt.public_state.value)
        try:
            async for batch in self._domain.nodes.get(attempt.node_id).client.diff(attempt.attempt_id):
                yield pb.GetDiffResponse(entries=batch.entries)
        except WireFailure as failure:
            if failure.code == "UNAVAILABLE":
                raise NodeUnreachable(attempt.node_id) from failure
            if failure.code in ("NOT_FOUND", "FAILED_PRECONDITION"):
                raise NoDiff(attempt.attempt_id, attempt.public_state.value) from failure
            raise

    async def GetReport(self, request: pb.GetReportRequest, context: Context) -> AsyncIterator[pb.GetReportResponse]:
        """Stream the documents of a judging that was delivered."""
        attempt = await self._domain.attempts.get(request.attempt_id)
        documents = await self._domain.thread.run(self._domain.store.documents, attempt.attempt_id)
        if attempt.results is None or not documents:
            raise NoReport(attempt.attempt_id, attempt.public_state.value)
        for (judge, name), content in sorted(documents.items()):
            for offset in range(0, max(len(content), 1), PIECE_BYTES):
                yield pb.GetReportResponse(judge=judge, name=name, chunk=content[offset : offset + PIECE_BYTES])

    async def GetBlob(self, request: pb.GetBlobRequest, context: Context) -> AsyncIterator[pb.GetBlobResponse]:
        """Pass on what an agent wrote."""
        async for piece in self._domain.blobs.read(request.attempt_id, request.digest):
            yield pb.GetBlobResponse(chunk=piece)

    async def IssueAttemptToken(
        self, request: pb.IssueAttemptTokenRequest, context: Context
    ) -> pb.IssueAttemptTokenResponse:
        """Mint a token."""
        token, endpoint = await self._domain.gateway.issue(request.attempt_id)
        return pb.IssueAttemptTokenResponse(token=token, node_endpoint=endpoint)

    async def GetQueue(self, request: pb.GetQueueRequest, context: Context) -> pb.GetQueueResponse:
        """Return the queue."""
        queued = await self._domain.attempts.find({"state": State.QUEUED}, order="queue")
        return pb.GetQueueResponse(
            attempts=[self._shown(attempt, record=False) for attempt in queued],
            max_depth=self._domain.queue.limits.max_queue_depth,
        )

    async def ListNodes(self, request: pb.ListNodesRequest, context: Context) -> pb.ListNodesResponse:
        """Return the nodes."""
        nodes = self._domain.nodes
        return pb.ListNodesResponse(nodes=[node_message(node, nodes.stale(node)) for node in nodes.all()])

    async def DrainNode(self, request: pb.DrainNodeRequest, context: Context) -> pb.DrainNodeResponse:
        """Drain or undrain a node."""
        key = request_key(request.request_id, request)
        node = await self._domain.nodes.set_draining(key, request.node_id, request.drain)
        return pb.DrainNodeResponse(node=node_message(node, self._domain.nodes.stale(node)))

    def _shown(self, attempt: Attempt, *, record: bool = True) -> pb.Attempt:
        node = self._domain.nodes.known(attempt.node_id)
        return attempt_message(attempt, node.row.agent_endpoint if node is not None else "", record=record)
