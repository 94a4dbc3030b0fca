"""What benches ask of an environment: to start in part, to claim and release at its node, to be quiet again."""

from __future__ import annotations

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import docker
from gauntlet.daemon.v1 import daemon_service_pb2 as pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as pb_grpc

from formats.package import pack
from tests.support.environment import MODULES, Environment
from wire import client, request_ids

CLAIM_TIMEOUT = 120.0
QUIET_TIMEOUT = 120.0
QUIET_POLL = 0.05
TIME_LIMIT_SECONDS = 3_600


def start(environment: Environment, *without: str) -> None:
    """Start every service but the judge, who would have work only between samples, and those named."""
    environment.start(*(name for name in MODULES if name not in ("judge", *without)))


class NodeCalls:
    """One daemon's control socket."""

    def __init__(self, endpoint: str) -> None:
        self._channel = client.connect(endpoint)
        self.stub = pb_grpc.DaemonServiceStub(self._channel)
        self._names = (f"att_bench{secrets.token_hex(4)}n{number}" for number in itertools.count())

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close(None)

    async def put(self, challenge: Path, package: Path) -> str:
        """Pack a challenge into `package` and upload it; its digest."""
        digest, data = await asyncio.to_thread(_packed, challenge, package)

        async def pieces() -> AsyncIterator[pb.PutChallengeRequest]:
            yield pb.PutChallengeRequest(digest=digest, size_bytes=len(data))
            yield pb.PutChallengeRequest(chunk=data)

        await self.stub.PutChallenge(pieces(), timeout=30)
        return digest

    def claim_request(self, digest: str, **resources: int) -> pb.ClaimRequest:
        """A claim of a new attempt; resources other than the stack's own make it a cold one."""
        request = pb.ClaimRequest(
            request_id=request_ids.new(),
            attempt_id=next(self._names),
            fence=1,
            challenge_digest=digest,
            challenge_id="answer",
            agent_id="bench",
            stack="python311",
            resources=pb.Resources(**resources),
        )
        request.time_limit_duration.FromSeconds(TIME_LIMIT_SECONDS)
        return request

    async def claim(self, request: pb.ClaimRequest) -> tuple[float, pb.SandboxAttempt]:
        """(seconds, attempt)."""
        began = time.perf_counter()
        answer = await client.call(self.stub.Claim, request, timeout=CLAIM_TIMEOUT, retries=0)
        return time.perf_counter() - began, answer.attempt

    async def release(self, attempt_id: str) -> None:
        """End and let go."""
        request = pb.ReleaseAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id, fence=1)
        await client.call(self.stub.ReleaseAttempt, request, timeout=CLAIM_TIMEOUT, retries=0)

    async def status(self) -> pb.GetNodeStatusResponse:
        """The node's pools and load."""
        return await client.call(self.stub.GetNodeStatus, pb.GetNodeStatusRequest())

    async def round_trip(self) -> float:
        """Seconds of the call that does least: the floor of every other one on this machine now."""
        began = time.perf_counter()
        await self.status()
        return time.perf_counter() - began

    async def quiet(self, containers: Callable[[], int]) -> None:
        """Wait until nothing is held, every pool is full and no container is left beside them.

        Nothing tells this to a client, so it is asked for. Raises TimeoutError.
        """
        async with asyncio.timeout(QUIET_TIMEOUT):
            while True:
                now = await self.status()
                pools = now.pools
                full = now.running == 0 and all(p.ready == p.target and not p.creating for p in pools)
                if full and await asyncio.to_thread(containers) == sum(pool.target for pool in pools):
                    return
                await asyncio.sleep(QUIET_POLL)


def _packed(challenge: Path, package: Path) -> tuple[str, bytes]:
    with package.open("w+b") as file:
        return pack(challenge, file), package.read_bytes()


@asynccontextmanager
async def node_calls(endpoint: str) -> AsyncIterator[NodeCalls]:
    """A connection to a daemon, closed at the end."""
    calls = NodeCalls(endpoint)
    try:
        yield calls
    finally:
        await calls.close()


@asynccontextmanager
async def engine() -> AsyncIterator[docker.APIClient]:
    """The Docker engine's API, closed at the end."""
    api = docker.APIClient(base_url="unix:///var/run/docker.sock", version="auto")
    try:
        yield api
    finally:
        api.close()
