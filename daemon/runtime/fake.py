"""The runtime port in memory: containers that are objects, with delays and failures by script.

For simulations and tests of pools and attempts without an engine. It passes the same contract as the real adapters.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal as signals
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

from daemon.runtime.errors import CreateFailed, ImageMissing, NoSuchSandbox, RuntimeTimeout, RuntimeUnavailable
from daemon.runtime.fake_supervisor import FakeSupervisor
from daemon.runtime.port import Runtime, TaskCounter
from daemon.runtime.types import (
    CgroupPaths,
    ContainerState,
    Created,
    EventKind,
    Observation,
    RuntimeEvent,
    RuntimeVersion,
    SandboxSpec,
)
from daemon.supervisor.transport import ByteTransport

BeforeStart = Callable[[SandboxSpec], Awaitable[None]]


@dataclass
class FakeContainer:
    """One container: what is asked of it and what is seen of it."""

    spec: SandboxSpec
    seen: Observation
    supervisor: FakeSupervisor
    panic: bytes = b""


class FakeRuntime(Runtime):
    """Containers in memory. The attributes below are the script."""

    def __init__(self, *, images: dict[str, str] | None = None, create_seconds: float = 30.0) -> None:
        """`images` maps tags to digests; any digest among them may be used. None accepts every image."""
        self.images = images
        self.create_seconds = create_seconds
        self.containers: dict[str, FakeContainer] = {}
        self.before_start: BeforeStart | None = None
        """Awaited inside each create; may wait for an event or raise CreateFailed."""
        self.destroy_failures: deque[Exception] = deque()
        """Raised by the next destroys, in order."""
        self.created_total = 0
        self.destroyed_total = 0
        self._down = False
        self._counter = 0
        self._queues: set[asyncio.Queue[RuntimeEvent | None]] = set()
        self._making: set[asyncio.Task[Created]] = set()

    # -- the script

    def engine_down(self) -> None:
        """Every call fails, event streams break, containers live on."""
        self._down = True
        for queue in self._queues:
            queue.put_nowait(None)

    def engine_up(self) -> None:
        """It is back; event streams resynchronise."""
        self._down = False
        for queue in self._queues:
            queue.put_nowait(None)

    def die(self, container_id: str, exit_code: int, *, oom: bool = False, panic: bytes = b"") -> None:
        """The container ends by itself."""
        held = self.containers[container_id]
        if not held.seen.state.live:
            return
        held.panic = panic
        held.seen = replace(
            held.seen,
            state=ContainerState.EXITED,
            exit_code=exit_code,
            oom_killed=oom,
            finished_at_ns=time.time_ns(),
        )
        held.supervisor.die()
        if oom:
            self._tell(held, EventKind.OOM, None)
        self._tell(held, EventKind.DIE, exit_code)

    def _tell(self, held: FakeContainer, kind: EventKind, exit_code: int | None) -> None:
        event = RuntimeEvent(kind, held.seen.container_id, exit_code, time.time_ns(), held.spec.labels)
        for queue in self._queues:
            queue.put_nowait(event)

    # -- the port

    async def create(self, spec: SandboxSpec) -> Created:
        """See the port."""
        self._reach()
        making = asyncio.create_task(self._make(spec))
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        try:
            async with asyncio.timeout(self.create_seconds):
                return await asyncio.shield(making)
        except BaseException as error:
            making.add_done_callback(self._too_late)
            if isinstance(error, TimeoutError):
                raise RuntimeTimeout(f"create {spec.name}", self.create_seconds) from None
            raise

    def _too_late(self, making: asyncio.Task[Created]) -> None:
        if not making.cancelled() and making.exception() is None:
            self._remove(making.result().container_id)

    async def _make(self, spec: SandboxSpec) -> Created:
        if self.images is not None and spec.image not in (*self.images, *self.images.values()):
            raise ImageMissing(spec.image)
        self._check_name(spec.name)
        if self.before_start is not None:
            await self.before_start(spec)
        self._reach()
        self._check_name(spec.name)
        self._counter += 1
        self.created_total += 1
        container_id = hashlib.sha256(f"{id(self)} {self._counter}".encode()).hexdigest()
        supervisor = FakeSupervisor(lambda code: self.die(container_id, code))
        seen = Observation(
            container_id=container_id,
            name=spec.name,
            state=ContainerState.RUNNING,
            exit_code=None,
            oom_killed=False,
            started_at_ns=time.time_ns(),
            finished_at_ns=None,
            labels=spec.labels,
            image_digest=(self.images or {}).get(spec.image, spec.image),
        )
        self.containers[container_id] = FakeContainer(spec, seen, supervisor)
        return Created(container_id, supervisor.attach())

    def _check_name(self, name: str) -> None:
        if self._find(name) is not None:
            raise CreateFailed(f"the name {name} is taken")

    async def attach(self, container_id: str) -> ByteTransport:
        """See the port."""
        return self._running(container_id).supervisor.attach()

    async def rename(self, container_id: str, name: str) -> None:
        """See the port."""
        self._reach()
        held = self._find(container_id)
        if held is None:
            raise NoSuchSandbox(container_id)
        self._check_name(name)
        held.seen = replace(held.seen, name=name)

    async def kill(self, container_id: str, signal: str = "SIGKILL") -> None:
        """See the port."""
        held = self._running(container_id)
        self.die(held.seen.container_id, 128 + signals.Signals[signal])

    async def destroy(self, container_id: str) -> None:
        """See the port."""
        self._reach()
        await asyncio.sleep(0)
        if self.destroy_failures:
            raise self.destroy_failures.popleft()
        held = self._find(container_id)
        if held is not None:
            self._remove(held.seen.container_id)

    def _remove(self, container_id: str) -> None:
        self.die(container_id, 137)
        del self.containers[container_id]
        self.destroyed_total += 1

    async def inspect(self, container_id: str) -> Observation | None:
        """See the port."""
        self._reach()
        held = self._find(container_id)
        return None if held is None else held.seen

    async def list(self, instance: str) -> tuple[Observation, ...]:
        """See the port."""
        self._reach()
        return tuple(held.seen for held in self.containers.values() if held.spec.instance == instance)

    def events(self, instance: str) -> AsyncIterator[RuntimeEvent]:
        """See the port."""
        return self._follow(instance)

    async def _follow(self, instance: str) -> AsyncGenerator[RuntimeEvent]:
        queue: asyncio.Queue[RuntimeEvent | None] = asyncio.Queue()
        self._queues.add(queue)
        try:
            queue.put_nowait(None)
            while True:
                event = await queue.get()
                if event is None:
                    if not self._down:
                        yield RuntimeEvent(EventKind.RESYNC, observations=await self.list(instance))
                elif not self._down and self._belongs(event, instance):
                    yield event
        finally:
            self._queues.discard(queue)

    @staticmethod
    def _belongs(event: RuntimeEvent, instance: str) -> bool:
        return event.labels.get("gauntlet.instance") == instance

    async def panic_log(self, container_id: str) -> bytes:
        """See the port."""
        held = self._find(container_id)
        return b"" if held is None else held.panic

    async def cgroup(self, container_id: str) -> CgroupPaths:
        """See the port. Nothing of it is on the host."""
        self._running(container_id)
        return CgroupPaths(2, None, None, None, None, None, ())

    async def task_counter(self, container_id: str) -> TaskCounter:
        """See the port. The fake's guest is its supervisor alone."""
        self._running(container_id)

        async def count() -> int | None:
            return 1

        return count

    async def image_digest(self, reference: str) -> str:
        """See the port."""
        self._reach()
        if self.images is None:
            return "sha256:" + hashlib.sha256(reference.encode()).hexdigest()
        digest = self.images.get(reference, reference if reference in self.images.values() else None)
        if digest is None:
            raise ImageMissing(reference)
        return digest

    async def ping(self) -> None:
        """See the port."""
        self._reach()

    async def version(self) -> RuntimeVersion:
        """See the port."""
        self._reach()
        return RuntimeVersion("fake", "0", ("fake",))

    async def close(self) -> None:
        """See the port."""
        for making in tuple(self._making):
            making.cancel()
        await asyncio.gather(*self._making, return_exceptions=True)

    def _reach(self) -> None:
        if self._down:
            raise RuntimeUnavailable("the fake engine is down")

    def _find(self, reference: str) -> FakeContainer | None:
        held = self.containers.get(reference)
        if held is None:
            held = next((one for one in self.containers.values() if one.seen.name == reference), None)
        return held

    def _running(self, container_id: str) -> FakeContainer:
        self._reach()
        held = self._find(container_id)
        if held is None or not held.seen.state.live:
            raise NoSuchSandbox(container_id, "" if held is None else "it does not run")
        return held
