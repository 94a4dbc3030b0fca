"""gauntlet.daemon.v1.DaemonService over the domain."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as pb_grpc

from daemon.attempts.claims import Claimer
from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender, Releaser
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import Cause, State
from daemon.services import mapping
from daemon.services.requests import RequestLog
from formats.package import PackageError
from records.errors import BlobCorruptError, BlobMissingError
from wire import errors

log = structlog.get_logger(__name__)

SCHEDULER = "scheduler"
MAX_PACKAGE_BYTES = 1024**3
BATCH_BYTES = 512 * 1024
Context = Any


class DaemonService(pb_grpc.DaemonServiceServicer):
    """The scheduler's view of this node."""

    def __init__(self, node: NodeContext, node_id: str, claimer: Claimer, ender: Ender, releaser: Releaser) -> None:
        self._node = node
        self._node_id = node_id
        self._claimer = claimer
        self._ender = ender
        self._releaser = releaser
        self._requests = RequestLog()

    async def PutChallenge(
        self, request_iterator: AsyncIterator[pb.PutChallengeRequest], context: Context
    ) -> pb.PutChallengeResponse:
        """Receive a package into a file of our own, check its digest, store it."""
        with tempfile.NamedTemporaryFile(prefix="gauntlet-package-") as file:
            digest, size, received = "", 0, hashlib.sha256()
            total = 0
            async for part in request_iterator:
                if not digest:
                    digest, size = part.digest, part.size_bytes
                    if not 0 < size <= MAX_PACKAGE_BYTES:
                        raise errors.invalid(
                            "PACKAGE_SIZE", f"a package has 1 to {MAX_PACKAGE_BYTES} bytes, not {size}"
                        )
                total += len(part.chunk)
                if total > size:
                    raise errors.invalid("PACKAGE_SIZE", f"more than the announced {size} bytes")
                received.update(part.chunk)
                await self._node.blocking(file.write, part.chunk)
            if f"sha256:{received.hexdigest()}" != digest:
                raise errors.invalid("DIGEST_MISMATCH", "the bytes do not have the announced digest")
            await self._node.blocking(file.flush)
            try:
                await self._node.workspace.add_template(Path(file.name), digest)
            except PackageError as error:
                raise errors.invalid("PACKAGE_REFUSED", str(error)) from error
        return pb.PutChallengeResponse(digest=digest)

    async def Claim(self, request: pb.ClaimRequest, context: Context) -> pb.ClaimResponse:
        """Give an attempt a sandbox."""
        self._requests.check(SCHEDULER, request)
        attempt = await self._claimer.claim(mapping.claim_spec(request))
        return pb.ClaimResponse(attempt=mapping.attempt(attempt.facts))

    async def GetAttempt(self, request: pb.GetAttemptRequest, context: Context) -> pb.GetAttemptResponse:
        """One attempt."""
        return pb.GetAttemptResponse(attempt=mapping.attempt(self._node.registry.get(request.attempt_id).facts))

    async def WatchAttempts(
        self, request: pb.WatchAttemptsRequest, context: Context
    ) -> AsyncIterator[pb.WatchAttemptsResponse]:
        """Everything there is, then every change."""
        with self._node.registry.watching() as watch:
            for attempt in self._node.registry:
                yield pb.WatchAttemptsResponse(attempt=mapping.attempt(attempt.facts))
            yield pb.WatchAttemptsResponse(snapshot_complete=True)
            async for attempt in watch.changes():
                yield pb.WatchAttemptsResponse(attempt=mapping.attempt(attempt.facts))

    async def EndAttempt(self, request: pb.EndAttemptRequest, context: Context) -> pb.EndAttemptResponse:
        """Order the end; the answer does not wait for it."""
        self._requests.check(SCHEDULER, request)
        attempt = self._fenced(request.attempt_id, request.fence)
        if attempt.facts.state is State.STARTING:
            async with attempt.lock:
                attempt = self._node.registry.get(request.attempt_id)
        if not attempt.facts.ended:
            self._ender.begin(attempt, Cause.CANCEL)
        return pb.EndAttemptResponse(attempt=mapping.attempt(attempt.facts))

    async def ReleaseAttempt(self, request: pb.ReleaseAttemptRequest, context: Context) -> pb.ReleaseAttemptResponse:
        """Let go. An attempt that is not known was let go before."""
        self._requests.check(SCHEDULER, request)
        if self._node.registry.find(request.attempt_id) is not None:
            await self._releaser.release(self._fenced(request.attempt_id, request.fence))
        return pb.ReleaseAttemptResponse()

    async def GetDiff(self, request: pb.GetDiffRequest, context: Context) -> AsyncIterator[pb.GetDiffResponse]:
        """The diff, from the artifacts, also after the release."""
        path = self._node.diff_path(request.attempt_id)
        if path is None or not await self._node.blocking(path.is_file):
            raise errors.not_found("diff", request.attempt_id)
        with path.open("rb") as lines:
            while batch := await self._node.blocking(lines.readlines, BATCH_BYTES):
                yield pb.GetDiffResponse(entries=[line.rstrip(b"\n") for line in batch])

    async def GetBlob(self, request: pb.GetBlobRequest, context: Context) -> AsyncIterator[pb.GetBlobResponse]:
        """What an agent wrote, checked on the way."""
        pieces = self._node.telemetry.blobs.pieces(request.digest, BATCH_BYTES)
        try:
            while (piece := await self._node.blocking(next, pieces, None)) is not None:
                yield pb.GetBlobResponse(chunk=piece)
        except BlobMissingError as error:
            raise errors.not_found("blob", request.digest) from error
        except BlobCorruptError as error:
            log.error("blob_corrupt", attempt_id=request.attempt_id, digest=request.digest)
            raise errors.WireError(grpc.StatusCode.DATA_LOSS, "BLOB_CORRUPT", str(error)) from error

    async def GetNodeStatus(self, request: pb.GetNodeStatusRequest, context: Context) -> pb.GetNodeStatusResponse:
        """The node's pools and load."""
        return self.status()

    def status(self) -> pb.GetNodeStatusResponse:
        """The node's pools and load, for the heartbeat too."""
        return pb.GetNodeStatusResponse(
            node_id=self._node_id,
            pools=[
                pb.PoolStatus(
                    stack=pool.template.stack,
                    template_digest=pool.template.key,
                    target=pool.target,
                    ready=pool.ready,
                    creating=pool.creating,
                    allocated=pool.allocated,
                    breaker_open=pool.breaker_open,
                    last_error=pool.last_error,
                )
                for pool in self._node.pools.status()
            ],
            running=self._node.held(),
            capacity=self._node.capacity,
            draining=self._claimer.draining,
        )

    def _fenced(self, attempt_id: str, fence: int) -> LiveAttempt:
        attempt = self._node.registry.get(attempt_id)
        attempt.fence(fence)
        return attempt
