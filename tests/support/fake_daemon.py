"""A node's daemon as a test double: the same behaviour behind a real gRPC server and behind the port in process.

`FakeNode` follows daemon_service.proto: idempotent claims, fences, a snapshot and then changes on the stream. Tests
script what it does (`refuse_next`, `end`, `lose`, `forget`, `pause`) and read what it was asked (`calls`, `made`).
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from gauntlet.daemon.v1 import daemon_service_pb2 as pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as pb_grpc

from scheduler.daemon_port import DaemonClient
from wire import errors, request_ids
from wire.errors import WireError, WireFailure
from wire.server import Server

SERVICE = "gauntlet.daemon.v1.DaemonService"
GIB = 1024**3


class FakeNode:
    """What one daemon holds and does."""

    def __init__(self, node_id: str = "node-1", capacity: int = 4) -> None:
        self.node_id = node_id
        self.capacity = capacity
        self.attempts: dict[str, pb.SandboxAttempt] = {}
        self.challenges: set[str] = set()
        self.calls: list[tuple[str, str, int]] = []
        self.made: Counter[str] = Counter()
        self.agents: dict[str, str] = {}
        self.live: Counter[str] = Counter()
        self.most_live: Counter[str] = Counter()
        self.refusals: list[Exception] = []
        self.before_answer: list[Callable[[], None]] = []
        self.on_claim: Callable[[pb.ClaimRequest], None] | None = None
        self.on_running: Callable[[pb.SandboxAttempt], None] | None = None
        self.need_challenge = True
        self.diff_entries: list[bytes] = [b'{"path":"challenge/a.py","change":"modified"}']
        self.blobs: dict[str, list[bytes]] = {}
        self._watchers: set[asyncio.Queue[pb.SandboxAttempt | None]] = set()
        self._requests: dict[str, str] = {}
        self._gate = asyncio.Event()
        self._gate.set()
        self._changed = asyncio.Event()

    # ---- what the scheduler asks -----------------------------------------------------------------------------

    async def claim(self, request: pb.ClaimRequest) -> pb.SandboxAttempt:
        self._seen(request)
        self.calls.append(("claim", request.attempt_id, request.fence))
        if self.on_claim is not None:
            self.on_claim(request)
        self._note()
        await self._gate.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        held = self.attempts.get(request.attempt_id)
        if held is not None and request.fence < held.fence:
            raise errors.precondition("STALE_FENCE", f"fence {request.fence} is below {held.fence}")
        if self.need_challenge and request.challenge_digest not in self.challenges:
            raise errors.precondition("CHALLENGE_MISSING", "put the challenge first", request.challenge_digest)
        if held is None or held.state == pb.SANDBOX_STATE_RELEASED:
            held = self._make(request)
        held.fence = request.fence
        self._tell(held)
        for hook in self.before_answer:
            hook()
        return self._copy(held)

    async def put_challenge(self, digest: str) -> None:
        self.calls.append(("put_challenge", digest, 0))
        self.challenges.add(digest)

    async def end_attempt(self, request: pb.EndAttemptRequest) -> pb.SandboxAttempt:
        self._seen(request)
        self.calls.append(("end", request.attempt_id, request.fence))
        self._note()
        held = self._held(request.attempt_id, request.fence)
        if held.state == pb.SANDBOX_STATE_RUNNING:
            self.end(request.attempt_id, pb.END_CAUSE_CANCEL, signals=[("SIGKILL", "cancel")])
        return self._copy(held)

    async def release_attempt(self, request: pb.ReleaseAttemptRequest) -> None:
        self._seen(request)
        self.calls.append(("release", request.attempt_id, request.fence))
        self._note()
        held = self.attempts.get(request.attempt_id)
        if held is None:
            return
        if request.fence < held.fence:
            raise errors.precondition("STALE_FENCE", f"fence {request.fence} is below {held.fence}")
        if held.state != pb.SANDBOX_STATE_RELEASED:
            held.state = pb.SANDBOX_STATE_RELEASED
            self.live[request.attempt_id] -= 1
            self._tell(held)

    async def watch(self) -> AsyncIterator[pb.WatchAttemptsResponse]:
        queue: asyncio.Queue[pb.SandboxAttempt | None] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            for held in list(self.attempts.values()):
                if held.state != pb.SANDBOX_STATE_RELEASED:
                    yield pb.WatchAttemptsResponse(attempt=self._copy(held))
            yield pb.WatchAttemptsResponse(snapshot_complete=True)
            while (changed := await queue.get()) is not None:
                yield pb.WatchAttemptsResponse(attempt=changed)
            raise errors.unavailable("", "the stream was cut")
        finally:
            self._watchers.discard(queue)

    async def diff(self, attempt_id: str) -> AsyncIterator[pb.GetDiffResponse]:
        if attempt_id not in self.attempts:
            raise errors.not_found("attempt", attempt_id)
        for entry in self.diff_entries:
            yield pb.GetDiffResponse(entries=[entry])

    async def blob(self, attempt_id: str, digest: str) -> AsyncIterator[pb.GetBlobResponse]:
        self.calls.append(("blob", attempt_id, 0))
        if digest not in self.blobs:
            raise errors.not_found("blob", digest)
        for piece in self.blobs[digest]:
            yield pb.GetBlobResponse(chunk=piece)

    # ---- what a test makes of it -----------------------------------------------------------------------------

    def refuse_next(self, *refusals: Exception) -> None:
        """Answer the next claims with these."""
        self.refusals.extend(refusals)

    def pause(self) -> None:
        """Let claims hang until `resume`."""
        self._gate.clear()

    def resume(self) -> None:
        """Let claims go on."""
        self._gate.set()

    def end(
        self,
        attempt_id: str,
        cause: int = pb.END_CAUSE_SUBMIT,
        *,
        signals: list[tuple[str, str]] | None = None,
        state: int = pb.SANDBOX_STATE_FROZEN,
        **evidence: Any,
    ) -> None:
        """Freeze an attempt with this evidence."""
        held = self.attempts[attempt_id]
        seen: dict[str, Any] = {
            "container_exit_known": True,
            "workspace_extracted": True,
            "identity_confirmed": True,
            "submitted": cause == pb.END_CAUSE_SUBMIT,
            "time_limit_reached": cause == pb.END_CAUSE_TIME_LIMIT,
            **evidence,
        }
        held.evidence.CopyFrom(pb.Evidence(cause=cause, **seen))
        for name, reason in signals or []:
            held.evidence.signals.add(name=name, reason=reason)
        held.usage.CopyFrom(
            pb.Usage(
                peak_memory_bytes=123_456_789,
                peak_cpu_percent=87.54,
                disk_written_bytes=4096,
                pids_peak=7,
                telemetry_events=42,
            )
        )
        held.workspace.CopyFrom(
            pb.WorkspaceSummary(
                baseline_digest="sha256:" + "b" * 64,
                diff_digest="sha256:" + "d" * 64,
                modified=1,
                artifact_path=f"/var/lib/node/{attempt_id}",
            )
        )
        held.end_time.FromNanoseconds(time.time_ns())
        held.state = state
        self._tell(held)

    def lose(self, attempt_id: str) -> None:
        """The platform lost it, and says so."""
        self.end(
            attempt_id,
            pb.END_CAUSE_PLATFORM,
            state=pb.SANDBOX_STATE_LOST,
            workspace_extracted=False,
            platform_fault="the gofer died",
        )

    def forget(self, attempt_id: str) -> None:
        """As if the daemon had come back without any memory of it."""
        del self.attempts[attempt_id]
        self.live[attempt_id] -= 1

    def cut_streams(self) -> None:
        """End every open stream."""
        for queue in self._watchers:
            queue.put_nowait(None)

    async def until(self, condition: Callable[[], bool], timeout: float = 10.0) -> None:
        """Wait until `condition` holds, looking after every call that arrives."""
        async with asyncio.timeout(timeout):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def count(self, verb: str, attempt_id: str | None = None) -> int:
        """How often a verb was called."""
        return sum(call[0] == verb and attempt_id in (None, call[1]) for call in self.calls)

    # ---- within ----------------------------------------------------------------------------------------------

    def _make(self, request: pb.ClaimRequest) -> pb.SandboxAttempt:
        name = request.attempt_id
        self.made[name] += 1
        self.agents[name] = request.agent_id
        self.live[name] += 1
        self.most_live[name] = max(self.most_live[name], self.live[name])
        held = pb.SandboxAttempt(
            attempt_id=name,
            fence=request.fence,
            state=pb.SANDBOX_STATE_RUNNING,
            sandbox_id=f"sbx_{name}_{self.made[name]}",
            container_id=f"ctr_{name}",
            image_digest="sha256:" + "1" * 64,
            launch_type=pb.LAUNCH_TYPE_WARM,
            limits=request.resources,
        )
        held.start_time.FromNanoseconds(time.time_ns())
        held.deadline_time.FromNanoseconds(time.time_ns() + request.time_limit_duration.ToNanoseconds())
        self.attempts[name] = held
        if self.on_running is not None:
            self.on_running(held)
        return held

    def _held(self, attempt_id: str, fence: int) -> pb.SandboxAttempt:
        held = self.attempts.get(attempt_id)
        if held is None:
            raise errors.not_found("attempt", attempt_id)
        if fence < held.fence:
            raise errors.precondition("STALE_FENCE", f"fence {fence} is below {held.fence}")
        return held

    def _seen(self, request: Any) -> None:
        request_id, body = request_ids.require(request.request_id), request_ids.fingerprint(request)
        if self._requests.setdefault(request_id, body) != body:
            raise request_ids.reused(request_id)

    def _copy(self, held: pb.SandboxAttempt) -> pb.SandboxAttempt:
        copy = pb.SandboxAttempt()
        copy.CopyFrom(held)
        return copy

    def _tell(self, held: pb.SandboxAttempt) -> None:
        for queue in self._watchers:
            queue.put_nowait(self._copy(held))
        self._note()

    def _note(self) -> None:
        self._changed.set()


class FakeDaemonServicer(pb_grpc.DaemonServiceServicer):
    """A FakeNode behind real gRPC."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node

    async def PutChallenge(self, request_iterator: Any, context: Any) -> pb.PutChallengeResponse:
        import hashlib

        digest, hashed = "", hashlib.sha256()
        async for message in request_iterator:
            digest = digest or message.digest
            hashed.update(message.chunk)
        if digest != f"sha256:{hashed.hexdigest()}":
            raise errors.invalid("DIGEST_MISMATCH", "the bytes have another digest", [("digest", "mismatch")])
        await self.node.put_challenge(digest)
        return pb.PutChallengeResponse(digest=digest)

    async def Claim(self, request: pb.ClaimRequest, context: Any) -> pb.ClaimResponse:
        return pb.ClaimResponse(attempt=await self.node.claim(request))

    async def WatchAttempts(self, request: Any, context: Any) -> AsyncIterator[pb.WatchAttemptsResponse]:
        async for message in self.node.watch():
            yield message

    async def EndAttempt(self, request: pb.EndAttemptRequest, context: Any) -> pb.EndAttemptResponse:
        return pb.EndAttemptResponse(attempt=await self.node.end_attempt(request))

    async def ReleaseAttempt(self, request: pb.ReleaseAttemptRequest, context: Any) -> pb.ReleaseAttemptResponse:
        await self.node.release_attempt(request)
        return pb.ReleaseAttemptResponse()

    async def GetDiff(self, request: pb.GetDiffRequest, context: Any) -> AsyncIterator[pb.GetDiffResponse]:
        async for batch in self.node.diff(request.attempt_id):
            yield batch

    async def GetBlob(self, request: pb.GetBlobRequest, context: Any) -> AsyncIterator[pb.GetBlobResponse]:
        async for piece in self.node.blob(request.attempt_id, request.digest):
            yield piece


def daemon_server(node: FakeNode, endpoint: str) -> Server:
    """A gRPC server for a FakeNode; start it with `await server.start()`."""
    services = {SERVICE: (pb_grpc.add_DaemonServiceServicer_to_server, FakeDaemonServicer(node))}
    return Server(endpoint, services)


class LocalDaemon(DaemonClient):
    """A FakeNode behind the port, without sockets. `down` makes every call fail like a lost connection."""

    def __init__(self, node: FakeNode) -> None:
        self.node = node
        self.down = False

    async def claim(self, request: pb.ClaimRequest) -> pb.SandboxAttempt:
        return await self._call(self.node.claim(request))

    async def put_challenge(self, digest: str, path: Path) -> None:
        assert str(path).endswith(".tar")
        await self._call(self.node.put_challenge(digest))

    async def end_attempt(self, request: pb.EndAttemptRequest) -> None:
        await self._call(self.node.end_attempt(request))

    async def release_attempt(self, request: pb.ReleaseAttemptRequest) -> None:
        await self._call(self.node.release_attempt(request))

    async def watch(self) -> AsyncIterator[pb.WatchAttemptsResponse]:
        if self.down:
            raise WireFailure("UNAVAILABLE", "", "no connection")
        try:
            async for message in self.node.watch():
                yield message
        except WireError as error:
            raise _failure(error) from error

    async def diff(self, attempt_id: str) -> AsyncIterator[pb.GetDiffResponse]:
        try:
            async for batch in self.node.diff(attempt_id):
                yield batch
        except WireError as error:
            raise _failure(error) from error

    async def blob(self, attempt_id: str, digest: str) -> AsyncIterator[pb.GetBlobResponse]:
        try:
            async for piece in self.node.blob(attempt_id, digest):
                yield piece
        except WireError as error:
            raise _failure(error) from error

    async def close(self) -> None:
        """Nothing to close."""

    async def _call(self, call: Any) -> Any:
        if self.down:
            call.close()
            raise WireFailure("UNAVAILABLE", "", "no connection")
        try:
            return await call
        except WireError as error:
            raise _failure(error) from error


def _failure(error: WireError) -> WireFailure:
    return WireFailure(error.code.name, error.reason, error.message, retry_after=error.retry_after)
