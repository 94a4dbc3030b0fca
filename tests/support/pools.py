"""Pools under test: a clock that tests move, a factory whose creates end when a test says so, templates."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from pathlib import Path

from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFactory, EntryFailed
from daemon.pool.template import Template
from daemon.pool.watched import WatchedTransport
from daemon.runtime.fake_supervisor import FakeSupervisor
from daemon.runtime.types import Resources
from daemon.supervisor.link import SupervisorLink
from daemon.workspace.model import Slot, SlotPhase

MIB = 1 << 20


def template(stack: str = "python311", **changes: object) -> Template:
    """A template; each change makes another key."""
    values: dict[str, object] = {
        "stack": stack,
        "image_digest": "sha256:" + "1" * 64,
        "resources": Resources(
            memory_bytes=512 * MIB, cpu_millis=1000, disk_bytes=256 * MIB, pids=128, tmp_bytes=64 * MIB
        ),
        "profile_digest": "sha256:" + "2" * 64,
        "runtime": "fake",
        "runtime_digest": "sha256:" + "3" * 64,
    }
    return Template(**(values | changes))  # type: ignore[arg-type]


class ManualClock:
    """Time that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        future = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move on, waking sleepers in order and letting each do its work."""
        end = self.now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self.now, _, future = heapq.heappop(self._sleepers)
            if not future.done():
                future.set_result(None)
                await settle()
        self.now = end
        await settle()


async def settle() -> None:
    """Let everything that can run, run. The event loop has no call for "idle": some dozens of turns are enough here."""
    for _ in range(40):
        await asyncio.sleep(0)


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something that nobody announces; a liveness deadline, not a measurement."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class ScriptedFactory(EntryFactory):
    """Entries without a sandbox. With `manual`, a create waits for `finish` or `fail`; else it ends at once."""

    def __init__(self, clock: ManualClock, *, manual: bool = False) -> None:
        self.clock = clock
        self.manual = manual
        self.failing: set[str] = set()
        """Keys of templates whose creates fail."""
        self.waiting: list[tuple[Template, asyncio.Future[None]]] = []
        self.made: list[PoolEntry] = []
        self.destroyed: list[PoolEntry] = []
        self.attempts = 0
        self.at_once = 0
        self.most_at_once = 0
        self.destroy_failures = 0
        self.hold_destroys: asyncio.Event | None = None

    async def create(self, wanted: Template) -> PoolEntry:
        self.attempts += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if self.manual:
                answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self.waiting.append((wanted, answer))
                await answer
            else:
                await asyncio.sleep(0)
            if wanted.key in self.failing:
                raise EntryFailed("container", "scripted")
        finally:
            self.at_once -= 1
        entry = entry_of(wanted, len(self.made), self.clock.monotonic())
        self.made.append(entry)
        return entry

    def finish(self, number: int = 0) -> None:
        """Let a waiting create succeed."""
        self.waiting.pop(number)[1].set_result(None)

    def fail(self, number: int = 0) -> None:
        """Let a waiting create fail."""
        self.waiting.pop(number)[1].set_exception(EntryFailed("container", "scripted"))

    async def destroy(self, entry: PoolEntry) -> None:
        if self.hold_destroys is not None:
            await self.hold_destroys.wait()
        await asyncio.sleep(0)
        if self.destroy_failures:
            self.destroy_failures -= 1
            raise EntryFailed("container", "scripted destroy")
        self.destroyed.append(entry)

    async def close(self, seconds: float) -> int:
        return 0


def entry_of(wanted: Template, number: int, created: float) -> PoolEntry:
    """An entry that no sandbox stands behind."""
    transport = WatchedTransport(FakeSupervisor(lambda code: None).attach())
    place = Path("/nowhere")
    paths = dict.fromkeys(("workspace", "merged", "upper", "quota", "final"), place)
    slot = Slot(entry_id=f"sbx_{number}", disk_bytes=wanted.resources.disk_bytes, phase=SlotPhase.PREPARED, **paths)
    return PoolEntry(
        entry_id=f"sbx_{number}",
        template=wanted,
        container_id=f"container-{number}",
        link=SupervisorLink(transport),
        slot=slot,
        created=created,
        image_digest=wanted.image_digest,
        transport=transport,
    )
