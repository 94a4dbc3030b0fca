"""Slot, container, READY: all of them, or nothing is left."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from daemon.pool.clock import SystemClock
from daemon.pool.factory import EntryFailed
from daemon.pool.sandboxes import SandboxFactory, SandboxSettings
from daemon.pool.template import profile_digest
from daemon.runtime.errors import CreateFailed, RuntimeTimeout
from daemon.runtime.fake import FakeRuntime
from daemon.runtime.types import SandboxSpec
from tests.support.fake_workspace import BookKeeping
from tests.support.pools import settle, template

PROFILE = '{"defaultAction": "SCMP_ACT_ERRNO"}'
ONE = template(profile_digest=profile_digest(PROFILE))


class Setup:
    def __init__(self, **settings: float) -> None:
        self.runtime = FakeRuntime()
        self.workspace = BookKeeping()
        self.refused: str | None = None
        self.factory = SandboxFactory(
            self.runtime,
            self.workspace,
            SystemClock(),
            SandboxSettings("main", {ONE.profile_digest: PROFILE}, **settings),  # type: ignore[arg-type]
            confirm=self.confirm,
        )

    async def confirm(self, container_id: str) -> None:
        assert container_id in self.runtime.containers
        if self.refused == "hang":
            await asyncio.Event().wait()
        elif self.refused:
            raise EntryFailed("ready", self.refused)

    async def nothing_left(self) -> None:
        async with asyncio.timeout(10):
            assert await self.factory.close(10) == 0
        assert self.runtime.containers == {}
        assert self.workspace.slots == {}


@pytest.fixture
async def it() -> AsyncIterator[Setup]:
    it = Setup(ready_seconds=0.2)
    yield it
    await it.runtime.close()


async def test_entry_is_ready_and_fits_its_template(it: Setup) -> None:
    entry = await it.factory.create(ONE)
    held = it.runtime.containers[entry.container_id]
    spec = held.spec
    assert (spec.image, spec.runtime, spec.resources) == (ONE.image_digest, ONE.runtime, ONE.resources)
    assert (spec.seccomp_profile, spec.template, spec.entry_id) == (PROFILE, ONE.key, entry.entry_id)
    (mount,) = spec.mounts
    assert (mount.source, mount.target, mount.read_only, mount.propagation) == (
        entry.slot.workspace,
        "/workspace",
        False,
        "rslave",
    )
    assert entry.alive
    assert await entry.link.ping() > 0
    await it.factory.destroy(entry)
    assert not entry.alive
    await it.factory.destroy(entry)
    await it.nothing_left()


async def test_no_slot(it: Setup) -> None:
    it.workspace.refuse = True
    with pytest.raises(EntryFailed, match="slot: no room"):
        await it.factory.create(ONE)
    assert it.runtime.created_total == 0
    await it.nothing_left()


async def test_no_container(it: Setup) -> None:
    async def refuse(spec: SandboxSpec) -> None:
        raise CreateFailed("no")

    it.runtime.before_start = refuse
    with pytest.raises(EntryFailed, match="container"):
        await it.factory.create(ONE)
    assert it.workspace.prepared == 1
    await it.nothing_left()


async def test_silent_supervisor(it: Setup) -> None:
    async def mute_when_made(spec: SandboxSpec) -> None:
        asyncio.get_running_loop().call_soon(mute)

    def mute() -> None:
        for held in it.runtime.containers.values():
            held.supervisor.mute = True

    it.runtime.before_start = mute_when_made
    with pytest.raises(EntryFailed, match="no READY within"):
        await it.factory.create(ONE)
    assert it.runtime.created_total == 1
    await it.nothing_left()


async def test_sandbox_that_dies_before_ready(it: Setup) -> None:
    async def die_when_made(spec: SandboxSpec) -> None:
        asyncio.get_running_loop().call_soon(die)

    def die() -> None:
        for container_id in it.runtime.containers:
            it.runtime.die(container_id, 2)

    it.runtime.before_start = die_when_made
    with pytest.raises(EntryFailed, match="ready"):
        await it.factory.create(ONE)
    await it.nothing_left()


@pytest.mark.parametrize("why", ["no trace session", "hang"])
async def test_sandbox_that_is_not_confirmed(it: Setup, why: str) -> None:
    it.refused = why
    with pytest.raises(EntryFailed, match="ready"):
        await it.factory.create(ONE)
    assert it.runtime.created_total == 1
    await it.nothing_left()


async def test_unknown_profile(it: Setup) -> None:
    with pytest.raises(EntryFailed, match="seccomp"):
        await it.factory.create(template())
    assert it.workspace.prepared == 0


async def test_cancelled_while_the_slot_is_made(it: Setup) -> None:
    it.workspace.hold = asyncio.Event()
    creating = asyncio.create_task(it.factory.create(ONE))
    await settle()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    it.workspace.hold.set()
    await it.nothing_left()
    assert it.workspace.prepared == 1


async def test_cancelled_while_the_container_is_made(it: Setup) -> None:
    go = asyncio.Event()

    async def hold(spec: SandboxSpec) -> None:
        await go.wait()

    it.runtime.before_start = hold
    creating = asyncio.create_task(it.factory.create(ONE))
    await settle()
    creating.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creating
    assert len(it.workspace.slots) == 1, "the slot waits for its container"
    go.set()
    await it.nothing_left()
    assert it.runtime.created_total == 1


async def test_deadline_over_everything() -> None:
    it = Setup(create_seconds=0.05)

    async def hold(spec: SandboxSpec) -> None:
        await asyncio.Event().wait()

    it.runtime.before_start = hold
    with pytest.raises(EntryFailed, match=r"0\.05 s"):
        await it.factory.create(ONE)
    await it.runtime.close()
    await it.nothing_left()


async def test_clean_up_is_repeated_until_confirmed(it: Setup) -> None:
    it.refused = "no trace session"
    it.workspace.busy = 1
    it.runtime.destroy_failures.append(RuntimeTimeout("destroy", 1))
    with pytest.raises(EntryFailed):
        await it.factory.create(ONE)
    await it.nothing_left()


async def test_destroy_that_is_not_confirmed_says_so(it: Setup) -> None:
    entry = await it.factory.create(ONE)
    it.runtime.destroy_failures.append(RuntimeTimeout("destroy", 1))
    with pytest.raises(RuntimeTimeout):
        await it.factory.destroy(entry)
    assert entry.entry_id in it.workspace.slots, "the slot of a sandbox that may live is kept"
    await it.factory.destroy(entry)
    await it.nothing_left()


def test_key_names_everything_that_is_fixed() -> None:
    base = template()
    assert base.key == template().key
    changes = [
        {"stack": "go122"},
        {"image_digest": "sha256:x"},
        {"profile_digest": "sha256:x"},
        {"runtime": "runc"},
        {"runtime_digest": "sha256:x"},
        {"network": "egress-1"},
    ]
    keys = {template(**change).key for change in changes} | {base.key}
    assert len(keys) == len(changes) + 1
