"""What tests of the scheduler share: a clock they turn themselves, challenges, and a core on in-process parts."""

from __future__ import annotations

import asyncio
import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb

from formats.package import pack
from records.ledger.memory import MemoryLedger
from records.ledger.port import Ledger
from scheduler.clock import Clock
from scheduler.config import SchedulerConfig
from scheduler.core import Core, Ports
from scheduler.daemon_port import DaemonClient
from scheduler.model import Attempt, NodeRow, Priority, RequestKey
from scheduler.store.memory import MemoryStore
from scheduler.store.port import ControlStore
from tests.support.fake_daemon import FakeNode, LocalDaemon

TOKEN_KEY = bytes(range(32))


class ManualClock(Clock):
    """Stands still until it is turned."""

    def __init__(self, steady: float = 1_000.0, boot_id: str = "boot-1") -> None:
        self.now = steady
        self.wall = 1_700_000_000_000_000_000
        self.boot = boot_id

    def wall_ns(self) -> int:
        return self.wall

    def steady(self) -> float:
        return self.now

    @property
    def boot_id(self) -> str:
        return self.boot

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.wall += int(seconds * 1e9)


def request_key(body: str = "body", request_id: str | None = None, principal: str = "operator") -> RequestKey:
    return RequestKey(principal, request_id or str(uuid.uuid4()), body)


def new_attempt(attempt_id: str, **changes: Any) -> Attempt:
    values: dict[str, Any] = {
        "attempt_id": attempt_id,
        "challenge_id": "fix-it",
        "challenge_digest": "sha256:" + "c" * 64,
        "agent_id": f"agent-of-{attempt_id}",
        "priority": Priority.PRACTICE,
        "created_ns": 1_700_000_000_000_000_000,
        "queued_mark": 1_000.0,
        **changes,
    }
    return Attempt(**values)


def challenge_directory(parent: Path, challenge_id: str = "fix-it", extra: str = "") -> Path:
    """A small valid challenge."""
    directory = parent / challenge_id
    source = directory / "workspace" / "challenge" / "src"
    source.mkdir(parents=True)
    (source / "a.py").write_text("def add(a, b):\n    return a - b\n")
    (directory / "challenge.yaml").write_text(
        f"id: {challenge_id}\ntitle: Fix it\nstack: python311\ntime_limit_seconds: 60\n"
        f"resources: {{memory: 512m}}\nenvironment: {{MODE: test}}\n{extra}"
    )
    return directory


def packed(directory: Path) -> tuple[str, bytes]:
    """(digest, bytes) of a challenge's package."""
    buffer = io.BytesIO()
    digest = pack(directory, buffer)
    return digest, buffer.getvalue()


def settings(state_dir: Path, **changes: Any) -> SchedulerConfig:
    values: dict[str, Any] = {
        "state_dir": state_dir,
        "operator_endpoint": f"unix://{state_dir}/operator.sock",
        "agent_endpoint": f"unix://{state_dir}/agent.sock",
        "token_key_file": state_dir / "token.key",
        "events_db": str(state_dir / "events.db"),
        "audit_db": str(state_dir / "audit.db"),
        "tick_seconds": 0.05,
        "judging_retry_seconds": 0.01,
        **changes,
    }
    return SchedulerConfig.model_validate(values)


class Bench:
    """A core on in-process parts, with nodes that tests script."""

    def __init__(
        self,
        directory: Path,
        *,
        store: ControlStore | None = None,
        ledger: Ledger | None = None,
        clock: Clock | None = None,
        nodes: dict[str, FakeNode] | None = None,
        wrap: Callable[[DaemonClient], DaemonClient] = lambda client: client,
        **changes: Any,
    ) -> None:
        self.clock = clock or ManualClock()
        self.store = store or MemoryStore()
        self.ledger = ledger or MemoryLedger()
        self.nodes = nodes if nodes is not None else {"node-1": FakeNode("node-1")}
        self.daemons = {name: LocalDaemon(node) for name, node in self.nodes.items()}
        self._wrap = wrap
        self.stacks: tuple[str, ...] = ()  # what the nodes say they offer
        self.config = settings(directory, **changes)
        self.config.challenges.mkdir(exist_ok=True)
        ports = Ports(store=self.store, ledger=self.ledger, connect=self._connect, clock=self.clock)
        self.core = Core(self.config, ports, TOKEN_KEY)

    def _connect(self, endpoint: str) -> DaemonClient:
        return self._wrap(self.daemons[endpoint.rsplit("/", 1)[-1]])

    async def start(self) -> None:
        await self.core.start()
        for name in self.nodes:
            await self.heartbeat(name)

    async def heartbeat(self, name: str, capacity: int | None = None) -> None:
        row = NodeRow(
            node_id=name,
            endpoint=f"unix:///nodes/{name}",
            agent_endpoint=f"unix:///agents/{name}",
            capacity=capacity if capacity is not None else self.nodes[name].capacity,
            boot_id="boot",
        )
        await self.core.nodes.heartbeat(row, 0, [], self.stacks)

    async def upload(self, directory: Path) -> str:
        digest, data = packed(directory)

        async def chunks() -> Any:
            yield data

        await self.core.challenges.receive(digest, len(data), chunks())
        return digest

    async def submit(self, digest: str, agent_id: str, priority: Priority = Priority.PRACTICE) -> Attempt:
        return await self.core.queue.submit(
            request_key(), challenge_digest=digest, agent_id=agent_id, priority=priority, supersedes=None
        )

    async def until(self, attempt_id: str, condition: Callable[[Attempt], bool], timeout: float = 10.0) -> Attempt:
        """Wait for an attempt to satisfy `condition`."""
        with self.core.hub.subscribe(attempt_id) as changes:
            attempt = await self.core.attempts.get(attempt_id)
            async with asyncio.timeout(timeout):
                while not condition(attempt):
                    attempt = await changes.get()
        return attempt

    async def judge(self, score: float = 80.0) -> None:
        """Judge one attempt."""
        attempt = await self.core.judging.lease("worker", 5.0)
        assert attempt is not None and attempt.judging_lease_id is not None
        result = judging_pb.JudgeResult(judge="objective", score=score, container_id="jsb_1")
        await self.core.judging.complete(attempt.judging_lease_id, [result], "")
