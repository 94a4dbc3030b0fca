"""Claims against the fake runtime: a claim that races with an entry's death, drains, other templates, event outages."""

from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from daemon.pool.claim import PoolExhausted, acquire
from daemon.pool.clock import SystemClock
from daemon.pool.entry import PoolEntry
from daemon.pool.manager import PoolManager
from daemon.pool.sandboxes import SandboxFactory, SandboxSettings
from daemon.pool.template import profile_digest
from daemon.runtime.fake import FakeRuntime
from daemon.runtime.types import Resources
from daemon.supervisor.errors import CallFailed
from tests.support.fake_workspace import BookKeeping
from tests.support.pools import MIB, eventually, template

PROFILE = "{}"
ONE = template(profile_digest=profile_digest(PROFILE))


class Setup:
    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.workspace = BookKeeping()
        self.factory = SandboxFactory(
            self.runtime, self.workspace, SystemClock(), SandboxSettings("main", {ONE.profile_digest: PROFILE})
        )
        self.manager = PoolManager(self.factory, SystemClock())

    async def ready(self, count: int) -> None:
        await eventually(lambda: sum(status.ready for status in self.manager.status()) == count)

    async def assign(self, entry: PoolEntry) -> str:
        await entry.link.assign({"MARK": entry.entry_id})
        return entry.entry_id


@pytest.fixture
async def it() -> AsyncIterator[Setup]:
    it = Setup()
    yield it
    assert await it.manager.close(10) == 0
    await it.runtime.close()


async def test_claim_takes_a_warm_entry(it: Setup) -> None:
    it.manager.set_target(ONE, 1)
    await it.ready(1)
    got = await acquire(it.manager, ONE, it.assign)
    assert (got.launch_type, got.result) == ("WARM", got.entry.entry_id)
    await it.factory.destroy(got.entry)
    it.manager.gone(got.entry.entry_id)


async def test_claim_that_races_with_deaths_gets_a_live_entry(it: Setup) -> None:
    it.manager.set_target(ONE, 3)
    await it.ready(3)
    tried = []

    async def assign_late(entry: PoolEntry) -> str:
        tried.append(entry)
        if len(tried) < 3:
            it.runtime.die(entry.container_id, 137)  # dies in the claim's hands, after every check
        return await it.assign(entry)

    got = await acquire(it.manager, ONE, assign_late)
    assert got.launch_type == "WARM"
    assert got.entry is tried[2]
    assert got.entry.alive
    await it.factory.destroy(got.entry)
    it.manager.gone(got.entry.entry_id)
    await it.ready(3)
    assert len(it.runtime.containers) == len(it.workspace.slots) == 3, "the dead ones are destroyed"


async def test_claim_whose_every_entry_dies_starts_cold(it: Setup) -> None:
    it.manager.set_target(ONE, 2)
    await it.ready(2)
    it.manager.drain()
    it.manager.resume()
    await it.ready(2)
    warm = {entry for pool in it.manager._pools.values() for entry in pool.idle}

    async def assign_late(entry: PoolEntry) -> str:
        if entry in warm:
            it.runtime.die(entry.container_id, 137)
        return await it.assign(entry)

    got = await acquire(it.manager, ONE, assign_late)
    assert got.entry not in warm
    assert got.entry.alive
    await it.factory.destroy(got.entry)
    it.manager.gone(got.entry.entry_id)


async def test_exhausted_pool_is_said_as_such(it: Setup) -> None:
    with pytest.raises(PoolExhausted, match="python311"):
        await acquire(it.manager, ONE, it.assign, warm_only=True)
    got = await acquire(it.manager, ONE, it.assign)
    assert got.launch_type == "COLD"
    (status,) = it.manager.status()
    assert (status.target, status.allocated) == (0, 1)
    it.manager.retire(got.entry)
    await it.ready(0)


async def test_failed_assignment_retires_the_entry(it: Setup) -> None:
    it.manager.set_target(ONE, 1)
    await it.ready(1)

    async def assign_twice(entry: PoolEntry) -> None:
        await entry.link.assign({"A": "1"})
        await entry.link.assign({"A": "2"})

    with pytest.raises(CallFailed):
        await acquire(it.manager, ONE, assign_twice)
    with pytest.raises(CallFailed):
        await acquire(it.manager, template(profile_digest=ONE.profile_digest, stack="go122"), assign_twice)
    assert sum(status.allocated for status in it.manager.status()) == 0


async def test_other_resources_do_not_match(it: Setup) -> None:
    it.manager.set_target(ONE, 1)
    await it.ready(1)
    bigger = Resources(memory_bytes=1024 * MIB, cpu_millis=1000, disk_bytes=256 * MIB, pids=128, tmp_bytes=64 * MIB)
    assert it.manager.take(template(profile_digest=ONE.profile_digest, resources=bigger)) is None


async def test_superseded_template_serves_nobody(it: Setup) -> None:
    it.manager.set_target(ONE, 2)
    await it.ready(2)
    new = template(profile_digest=ONE.profile_digest, image_digest="sha256:" + "7" * 64)
    it.manager.supersede(ONE, new)
    assert it.manager.take(ONE) is None

    def only_the_new_one() -> bool:
        it.manager.reconcile()
        return [status.template.key for status in it.manager.status()] == [new.key]

    await eventually(only_the_new_one)
    await it.ready(2)
    entry = it.manager.take(new)
    assert entry is not None
    assert entry.image_digest == new.image_digest
    it.manager.retire(entry)


async def test_drained_node_hands_out_nothing_and_can_resume(it: Setup) -> None:
    it.manager.set_target(ONE, 2)
    await it.ready(2)
    running = it.manager.take(ONE)
    assert running is not None
    it.manager.drain()
    assert it.manager.take(ONE) is None
    await eventually(lambda: it.manager.held() == 1)
    assert set(it.runtime.containers) == {running.container_id}
    it.manager.resume()
    await it.ready(2)
    it.manager.retire(running)


async def test_deaths_reach_the_pool_through_events_even_after_an_outage(it: Setup) -> None:
    it.manager.set_target(ONE, 2)
    await it.ready(2)
    first, second = (entry for pool in it.manager._pools.values() for entry in pool.idle)
    async with aclosing(it.runtime.events("main")) as events:
        it.manager.observe(await anext(events))
        assert it.manager.status()[0].ready == 2
        # The pipe is cut off from the story: what is tested is what the runtime tells.
        first.transport.when_ended = second.transport.when_ended = None
        it.runtime.die(first.container_id, 1)
        it.manager.observe(await anext(events))
        assert first.died
        it.runtime.engine_down()
        it.runtime.die(second.container_id, 1)
        it.runtime.engine_up()
        it.manager.observe(await anext(events))
        assert second.died
    await it.ready(2)


async def test_adopted_sandbox_counts_until_it_is_gone(it: Setup) -> None:
    it.manager.adopt(ONE, "sbx_old")
    assert it.manager.held() == 1
    it.manager.gone("sbx_old")
    it.manager.gone("sbx_old")
    assert it.manager.status() == []
