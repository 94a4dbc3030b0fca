"""The real scheduler process on unix sockets, and the clients a test speaks to it with."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from gauntlet.audit.v1 import audit_service_pb2_grpc as audit_grpc
from gauntlet.scheduler.v1 import agent_gateway_service_pb2_grpc as gateway_grpc
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb
from gauntlet.scheduler.v1 import judging_service_pb2_grpc as judging_grpc
from gauntlet.scheduler.v1 import node_registry_service_pb2 as registry_pb
from gauntlet.scheduler.v1 import node_registry_service_pb2_grpc as registry_grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as pb_grpc
from gauntlet.telemetry.v1 import event_service_pb2_grpc as event_grpc

from tests.support.scheduling import TOKEN_KEY, packed
from wire import client, request_ids

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 256 * 1024


class SchedulerProcess:
    """One state directory and the process that works on it. `directory` must have a short path (unix sockets)."""

    def __init__(self, directory: Path, **changes: Any) -> None:
        self.directory = directory
        directory.chmod(0o700)
        (directory / "token.key").write_bytes(TOKEN_KEY)
        self.config = {
            "state_dir": str(directory),
            "operator_endpoint": f"unix://{directory}/op.sock",
            "agent_endpoint": f"unix://{directory}/ag.sock",
            "token_key_file": str(directory / "token.key"),
            "events_db": str(directory / "events.db"),
            "audit_db": str(directory / "audit.db"),
            "tick_seconds": 0.1,
            "judging_retry_seconds": 0.05,
            **changes,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self.log = directory / "scheduler.log"
        self._channels: list[grpc.aio.Channel] = []

    def command(self) -> list[str]:
        """The command line, its settings written."""
        path = self.directory / "scheduler.json"
        path.write_text(json.dumps(self.config))
        return [sys.executable, "-m", "scheduler", "--config", str(path)]

    async def start(self) -> None:
        """Start the process and wait until it serves."""
        environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}", "PYTHONWARNINGS": "error"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(  # noqa: ASYNC220 - it is killed and waited for synchronously
                self.command(), cwd=ROOT, env=environment, stdout=log, stderr=log
            )
        channel = client.connect(self.config["operator_endpoint"])
        try:
            async with asyncio.timeout(30):
                while True:
                    assert self.process.poll() is None, self.log.read_text()
                    try:
                        stub = pb_grpc.SchedulerServiceStub(channel)
                        await stub.ListNodes(pb.ListNodesRequest(), timeout=1)
                        return
                    except grpc.RpcError:
                        await asyncio.sleep(0.05)
        finally:
            await channel.close(None)

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(10)

    async def terminate(self) -> int:
        """SIGTERM; the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(self.process.wait, 15)

    async def close(self) -> None:
        """End everything."""
        for channel in self._channels:
            await channel.close(None)
        if self.process is not None and self.process.poll() is None:
            await self.terminate()

    def _connect(self, which: str = "operator_endpoint") -> grpc.aio.Channel:
        channel = client.connect(self.config[which])
        self._channels.append(channel)
        return channel

    def connect(self) -> Clients:
        """Clients of the running process."""
        return Clients(self._connect(), self._connect("agent_endpoint"))


class Clients:
    """Every stub, and the calls that tests repeat."""

    def __init__(self, operator: grpc.aio.Channel, agent: grpc.aio.Channel) -> None:
        self.scheduler = pb_grpc.SchedulerServiceStub(operator)
        self.judging = judging_grpc.JudgingServiceStub(operator)
        self.registry = registry_grpc.NodeRegistryServiceStub(operator)
        self.events = event_grpc.EventServiceStub(operator)
        self.audit = audit_grpc.AuditServiceStub(operator)
        self.gateway = gateway_grpc.AgentGatewayServiceStub(agent)
        self.scheduler_on_agent_socket = pb_grpc.SchedulerServiceStub(agent)

    async def heartbeat(self, node_id: str, endpoint: str, capacity: int = 4) -> registry_pb.HeartbeatResponse:
        request = registry_pb.HeartbeatRequest(
            node_id=node_id,
            boot_id="boot",
            endpoint=endpoint,
            agent_endpoint="unix:///run/agents.sock",
            capacity=capacity,
        )
        return await client.call(self.registry.Heartbeat, request)

    async def upload(self, directory: Path) -> str:
        digest, data = packed(directory)
        await self.upload_bytes(digest, data)
        return digest

    async def upload_bytes(self, digest: str, data: bytes, size_bytes: int | None = None) -> pb.UploadChallengeResponse:
        async def pieces() -> AsyncIterator[pb.UploadChallengeRequest]:
            yield pb.UploadChallengeRequest(digest=digest, size_bytes=len(data) if size_bytes is None else size_bytes)
            for offset in range(0, len(data), CHUNK):
                yield pb.UploadChallengeRequest(chunk=data[offset : offset + CHUNK])

        return await self.scheduler.UploadChallenge(pieces(), timeout=20)

    async def submit(self, digest: str, agent_id: str, request_id: str | None = None, **fields: Any) -> pb.Attempt:
        request = pb.SubmitAttemptRequest(
            request_id=request_id or request_ids.new(), challenge_digest=digest, agent_id=agent_id, **fields
        )
        return (await client.call(self.scheduler.SubmitAttempt, request)).attempt

    async def get(self, attempt_id: str) -> pb.Attempt:
        request = pb.GetAttemptRequest(attempt_id=attempt_id)
        return (await client.call(self.scheduler.GetAttempt, request)).attempt

    async def cancel(self, attempt_id: str, request_id: str | None = None) -> pb.Attempt:
        request = pb.CancelAttemptRequest(request_id=request_id or request_ids.new(), attempt_id=attempt_id)
        return (await client.call(self.scheduler.CancelAttempt, request)).attempt

    async def until(self, attempt_id: str, *states: int, timeout: float = 20.0) -> pb.Attempt:
        """Watch an attempt until it is in one of these states."""
        async with asyncio.timeout(timeout):
            stream = self.scheduler.WatchAttempt(pb.WatchAttemptRequest(attempt_id=attempt_id), timeout=timeout)
            async for message in stream:
                if message.attempt.state in states:
                    stream.cancel()
                    return message.attempt
        raise AssertionError(f"the stream of {attempt_id} ended in another state")

    async def judge(self, score: float = 75.0, documents: dict[str, bytes] | None = None) -> str:
        """Judge one attempt; its id."""
        request = judging_pb.LeaseJudgingRequest(worker_id="worker")
        request.wait_duration.FromSeconds(8)
        lease = (await client.call(self.judging.LeaseJudging, request)).lease
        assert lease.lease_id
        result = judging_pb.JudgeResult(
            judge="objective", score=score, documents=documents or {"test_results.json": b"{}"}
        )
        done = judging_pb.CompleteJudgingRequest(lease_id=lease.lease_id, results=[result])
        await client.call(self.judging.CompleteJudging, done)
        return lease.attempt_id
