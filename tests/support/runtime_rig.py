"""What the runtime's contract needs of an adapter: specs it can run, and ways to make a sandbox end or misbehave.

`FakeRig` scripts the fake; `DockerRig` does it for real, with commands that wait for one line on stdin.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from daemon.runtime.docker import Deadlines, DockerRuntime
from daemon.runtime.errors import CreateFailed
from daemon.runtime.fake import FakeRuntime
from daemon.runtime.port import Runtime
from daemon.runtime.types import LABEL_INSTANCE, SUPERVISOR, Created, Mount, Resources, SandboxSpec
from tests.support.gobuild import GoProgram, built
from tests.support.mini_image import mini_image

MIB = 1 << 20
SECCOMP_PROFILE = Path(__file__).resolve().parents[2] / "seccomp" / "profile.json"
SUPERVISOR_PROGRAM = GoProgram("gauntlet-supervisor", "images/supervisor")
RESOURCES = Resources(memory_bytes=128 * MIB, cpu_millis=1000, disk_bytes=64 * MIB, pids=100, tmp_bytes=16 * MIB)
NO_SUCH_PROGRAM = ("/no/such/program",)
EAT_MEMORY = """read line; exec awk 'BEGIN { kept = "x"; while (1) kept = kept kept }'"""


class Rig(ABC):
    """One adapter under test, and an instance name nobody else uses."""

    def __init__(self, runtime: Runtime, image: str) -> None:
        self.runtime = runtime
        self.image = image
        self.instance = f"contract-{secrets.token_hex(4)}"
        self._created: list[Created] = []

    def spec(self, **changes: Any) -> SandboxSpec:
        """A sandbox whose PID 1 is a supervisor."""
        entry_id = f"sbx_{secrets.token_hex(6)}"
        values: dict[str, Any] = {
            "name": f"{self.instance}-{entry_id}",
            "instance": self.instance,
            "entry_id": entry_id,
            "template": "sha256:" + "0" * 64,
            "image": self.image,
            "runtime": "fake",
            "resources": RESOURCES,
            "seccomp_profile": "",
        }
        return SandboxSpec(**(values | changes))

    async def create(self, spec: SandboxSpec) -> Created:
        """`runtime.create`, its transport closed at the end."""
        created = await self.runtime.create(spec)
        self._created.append(created)
        return created

    @abstractmethod
    def again(self) -> Runtime:
        """The same engine as a daemon that has restarted would see it. The caller closes it."""

    @abstractmethod
    def impatient(self) -> Runtime:
        """The same engine with a deadline for creates that no create can keep. The caller closes it."""

    @abstractmethod
    def slow_create(self) -> Callable[[], Awaitable[bool]]:
        """Make the next create slow enough to be cancelled; the answer says whether the engine works on it."""

    @abstractmethod
    async def mortal(self, code: int) -> Created:
        """A sandbox that ends by itself with `code`, once triggered."""

    @abstractmethod
    async def glutton(self) -> Created:
        """A sandbox that exceeds its memory limit, once triggered."""

    @abstractmethod
    async def trigger(self, created: Created) -> None:
        """Let it happen."""

    @abstractmethod
    async def made_and_destroyed(self) -> tuple[int, int]:
        """How many containers of this instance the engine ever made, and how many it destroyed."""

    async def close(self) -> None:
        """Destroy everything of this instance."""
        for created in self._created:
            await created.transport.close()
        for seen in await self.runtime.list(self.instance):
            await self.runtime.destroy(seen.container_id)
        await self.runtime.close()


class FakeRig(Rig):
    """The fake, scripted."""

    def __init__(self) -> None:
        fake = FakeRuntime(images={"stack:1": "sha256:" + "1" * 64})
        super().__init__(fake, "sha256:" + "1" * 64)
        self.fake = fake
        self._fates: dict[str, tuple[int, bool]] = {}
        fake.before_start = self._start

    async def _start(self, spec: SandboxSpec) -> None:
        if spec.command == NO_SUCH_PROGRAM:
            raise CreateFailed("no such program")

    def again(self) -> Runtime:
        return self.fake

    def slow_create(self) -> Callable[[], Awaitable[bool]]:
        started = asyncio.Event()

        async def slowly(spec: SandboxSpec) -> None:
            started.set()
            await asyncio.sleep(0.05)

        async def under_way() -> bool:
            return started.is_set()

        self.fake.before_start = slowly
        return under_way

    def impatient(self) -> Runtime:
        async def slowly(spec: SandboxSpec) -> None:
            await asyncio.sleep(0.05)

        self.fake.before_start = slowly
        self.fake.create_seconds = 0.01
        return self.fake

    async def mortal(self, code: int) -> Created:
        created = await self.create(self.spec())
        self._fates[created.container_id] = (code, False)
        return created

    async def glutton(self) -> Created:
        created = await self.create(self.spec())
        self._fates[created.container_id] = (137, True)
        return created

    async def trigger(self, created: Created) -> None:
        code, oom = self._fates[created.container_id]
        self.fake.die(created.container_id, code, oom=oom)

    async def made_and_destroyed(self) -> tuple[int, int]:
        return self.fake.created_total, self.fake.destroyed_total


@dataclass(frozen=True)
class DockerPlace:
    """One engine and one of its runtimes."""

    socket: Path
    runsc_root: Path
    runtime: str


class DockerRig(Rig):
    """A real engine."""

    def __init__(self, place: DockerPlace) -> None:
        self.place = place
        self._client = docker.APIClient(base_url=f"unix://{place.socket}", version="auto")
        super().__init__(self._runtime(), mini_image(self._client))
        self._since = int(time.time())

    def _runtime(self, deadlines: Deadlines | None = None) -> DockerRuntime:
        return DockerRuntime(self.place.socket, runsc_root=self.place.runsc_root, deadlines=deadlines)

    def spec(self, **changes: Any) -> SandboxSpec:
        supervisor = Mount(built(SUPERVISOR_PROGRAM), SUPERVISOR, read_only=True)
        real = {"runtime": self.place.runtime, "seccomp_profile": SECCOMP_PROFILE.read_text(), "mounts": (supervisor,)}
        return super().spec(**(real | changes))

    def again(self) -> Runtime:
        return self._runtime()

    def slow_create(self) -> Callable[[], Awaitable[bool]]:
        def ask() -> bool:
            return bool(self._client.containers(all=True, filters={"label": f"{LABEL_INSTANCE}={self.instance}"}))

        async def under_way() -> bool:
            return await asyncio.to_thread(ask)

        return under_way

    def impatient(self) -> Runtime:
        return self._runtime(Deadlines(create=0.02))

    async def mortal(self, code: int) -> Created:
        return await self.create(self.spec(command=("/bin/sh", "-c", f"read line; exit {code}")))

    async def glutton(self) -> Created:
        return await self.create(self.spec(command=("/bin/sh", "-c", EAT_MEMORY)))

    async def trigger(self, created: Created) -> None:
        await created.transport.write(b"\n")

    async def made_and_destroyed(self) -> tuple[int, int]:
        actions = [action for action, _ in await self.history()]
        return actions.count("create"), actions.count("destroy")

    async def history(self) -> list[tuple[str, str]]:
        """(create or destroy, container id) of this instance, in order."""
        filters = {"type": "container", "event": ["create", "destroy"], "label": f"{LABEL_INSTANCE}={self.instance}"}

        def ask() -> list[tuple[str, str]]:
            stream = self._client.events(since=self._since, until=int(time.time()) + 1, filters=filters, decode=True)
            try:
                return [(event["Action"], event["Actor"]["ID"]) for event in stream]
            finally:
                stream.close()

        return await asyncio.to_thread(ask)

    async def starve_sentry(self, container_id: str) -> None:
        """Leave the sentry no host task more: it panics as soon as the guest starts processes."""
        pids = (await self.runtime.cgroup(container_id)).pids
        if pids is None:
            raise RuntimeError("no pids controller on this host")
        (pids / "pids.max").write_text("1")

    async def close(self) -> None:
        await super().close()
        self._client.close()
