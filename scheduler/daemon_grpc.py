"""`DaemonClient` over gRPC."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as daemon_grpc

from scheduler.daemon_port import DaemonClient
from wire import client, errors

CHUNK_BYTES = 512 * 1024
# A cold start may build a quota file system and boot a sandbox on a busy machine.
CLAIM_TIMEOUT = 120.0
DATABASE_MARGIN = 30.0
PUT_TIMEOUT = 300.0
CALL_TIMEOUT = 10.0
DIFF_TIMEOUT = 300.0
BLOB_TIMEOUT = 300.0


class GrpcDaemon(DaemonClient):
    """The adapter for one endpoint. Retries are the callers', who know what an unanswered call means."""

    def __init__(self, endpoint: str) -> None:
        self._channel = client.connect(endpoint)
        self._stub = daemon_grpc.DaemonServiceStub(self._channel)

    async def claim(self, request: daemon_pb.ClaimRequest) -> daemon_pb.SandboxAttempt:
        """Claim. A database may take two starts, each with its own limit, before the sandbox is handed over."""
        starts = 2 * request.database.start_timeout_duration.ToTimedelta().total_seconds()
        timeout = CLAIM_TIMEOUT + (starts + DATABASE_MARGIN if starts else 0.0)
        answer: daemon_pb.ClaimResponse = await client.call(self._stub.Claim, request, timeout=timeout, retries=0)
        return answer.attempt

    async def put_challenge(self, digest: str, path: Path) -> None:
        """Send the file."""

        async def pieces() -> AsyncIterator[daemon_pb.PutChallengeRequest]:
            with path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                yield daemon_pb.PutChallengeRequest(digest=digest, size_bytes=size)
                while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
                    yield daemon_pb.PutChallengeRequest(chunk=chunk)

        try:
            await self._stub.PutChallenge(pieces(), timeout=PUT_TIMEOUT)
        except grpc.RpcError as error:
            raise errors.decode(error) from error

    async def end_attempt(self, request: daemon_pb.EndAttemptRequest) -> None:
        """Order the end."""
        await client.call(self._stub.EndAttempt, request, timeout=CALL_TIMEOUT, retries=0)

    async def release_attempt(self, request: daemon_pb.ReleaseAttemptRequest) -> None:
        """Let go."""
        await client.call(self._stub.ReleaseAttempt, request, timeout=CALL_TIMEOUT, retries=0)

    async def watch(self) -> AsyncIterator[daemon_pb.WatchAttemptsResponse]:
        """Stream."""
        stream = self._stub.WatchAttempts(daemon_pb.WatchAttemptsRequest())
        try:
            async for message in stream:
                yield message
        except grpc.RpcError as error:
            raise errors.decode(error) from error
        finally:
            stream.cancel()

    async def diff(self, attempt_id: str) -> AsyncIterator[daemon_pb.GetDiffResponse]:
        """Stream."""
        stream = self._stub.GetDiff(daemon_pb.GetDiffRequest(attempt_id=attempt_id), timeout=DIFF_TIMEOUT)
        try:
            async for message in stream:
                yield message
        except grpc.RpcError as error:
            raise errors.decode(error) from error
        finally:
            stream.cancel()

    async def blob(self, attempt_id: str, digest: str) -> AsyncIterator[daemon_pb.GetBlobResponse]:
        """Stream."""
        request = daemon_pb.GetBlobRequest(attempt_id=attempt_id, digest=digest)
        stream = self._stub.GetBlob(request, timeout=BLOB_TIMEOUT)
        try:
            async for message in stream:
                yield message
        except grpc.RpcError as error:
            raise errors.decode(error) from error
        finally:
            stream.cancel()

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close(None)
