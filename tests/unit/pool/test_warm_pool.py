"""One pool: targets, hand-out checks, replacement, death."""

import asyncio

import pytest

from daemon.pool.manager import PoolManager
from daemon.pool.pool import PoolSettings, WarmPool
from daemon.pool.template import Template
from tests.support.pools import ManualClock, ScriptedFactory, settle, template

ONE = template()


class Setup:
    def __init__(self, *, manual: bool = False, target: int = 0, **settings: float) -> None:
        self.clock = ManualClock()
        self.factory = ScriptedFactory(self.clock, manual=manual)
        self.may_create = True
        self.alerts: list[tuple[Template, str]] = []
        self.settings = PoolSettings(**settings)  # type: ignore[arg-type]
        self.pool = WarmPool(
            ONE,
            self.factory,
            self.clock,
            self.settings,
            may_create=lambda: self.may_create,
            alert=lambda *alert: self.alerts.append(alert),
        )
        if target:
            self.pool.set_target(target)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        status = self.pool.status()
        return status.ready, status.creating, status.allocated, status.terminating


async def test_reaches_its_target_two_creates_at_a_time() -> None:
    it = Setup(target=5)
    await settle()
    assert it.counts == (5, 0, 0, 0)
    assert it.factory.attempts == 5
    assert it.factory.most_at_once == 2


async def test_hundred_reconciles_during_slow_creates_make_exactly_the_target() -> None:
    it = Setup(manual=True, target=3)
    await settle()
    for _ in range(100):
        it.pool.reconcile()
    await settle()
    assert it.counts == (0, 2, 0, 0)
    while it.factory.waiting:
        it.factory.finish()
        await settle()
        for _ in range(100):
            it.pool.reconcile()
    assert it.counts == (3, 0, 0, 0)
    assert it.factory.attempts == 3


async def test_taken_entry_is_replaced_and_never_returns() -> None:
    it = Setup(target=2)
    await settle()
    seen = set()
    for _ in range(10):
        entry = it.pool.take()
        assert entry is not None
        assert entry.entry_id not in seen
        seen.add(entry.entry_id)
        await settle()
    assert it.counts == (2, 0, 10, 0)
    assert it.factory.destroyed == []


async def test_oldest_is_taken_first() -> None:
    it = Setup(target=3)
    await settle()
    assert it.pool.take() is it.factory.made[0]
    assert it.pool.take() is it.factory.made[1]


async def test_empty_pool_says_so_at_once() -> None:
    it = Setup(manual=True, target=1)
    assert it.pool.take() is None


async def test_age_is_refused_at_hand_out_however_late_the_refresher_is() -> None:
    it = Setup(manual=True, target=2)
    await settle()
    it.factory.finish()
    it.factory.finish()
    await settle()
    assert it.counts == (2, 0, 0, 0)
    it.clock.now += it.settings.max_age  # the refresher has not run
    assert it.pool.take() is not None, "exactly as old as allowed"
    it.clock.now += 0.001
    assert it.pool.take() is None
    await settle()
    assert it.factory.made[1] in it.factory.destroyed


async def test_dead_entries_are_refused_at_hand_out() -> None:
    it = Setup(target=3)
    await settle()
    first, second, third = it.factory.made
    first.died = True
    await second.transport.close()
    assert it.pool.take() is third
    await settle()
    assert {first, second} <= set(it.factory.destroyed)
    assert it.counts == (3, 0, 1, 0)


async def test_entry_of_another_image_is_refused_at_hand_out() -> None:
    it = Setup(target=2)
    await settle()
    it.factory.made[0].image_digest = "sha256:" + "9" * 64
    assert it.pool.take() is it.factory.made[1]


async def test_idle_death_told_by_the_runtime_is_replaced() -> None:
    it = Setup(target=2)
    await settle()
    victim = it.factory.made[0]
    assert it.pool.entry_died(victim.container_id)
    assert not it.pool.entry_died("somebody else")
    await settle()
    assert victim in it.factory.destroyed
    assert it.counts == (2, 0, 0, 0)


async def test_idle_death_told_by_the_pipe_is_replaced_without_anyone_asking() -> None:
    it = Setup(target=1)
    await settle()
    victim = it.factory.made[0]
    await victim.transport.close()
    await settle()
    assert victim in it.factory.destroyed
    assert it.counts == (1, 0, 0, 0)


async def test_death_of_a_taken_entry_is_not_the_pools_affair() -> None:
    it = Setup(target=1)
    await settle()
    entry = it.pool.take()
    assert entry is not None
    await entry.transport.close()
    assert not it.pool.entry_died(entry.container_id)
    await settle()
    assert it.factory.destroyed == []


async def test_old_entries_are_replaced_before_they_are_useless() -> None:
    it = Setup(manual=True, target=1)
    await settle()
    it.factory.finish()
    await settle()
    old = it.factory.made[0]
    await it.clock.advance(it.settings.max_age - it.settings.tick + 1)
    it.pool.reconcile()
    await settle()
    assert it.counts == (1, 1, 0, 0), "the old one serves until its replacement is there"
    it.factory.finish()
    await settle()
    assert it.factory.destroyed == [old]
    assert it.pool.take() is it.factory.made[1]


async def test_lower_target_ends_the_oldest() -> None:
    it = Setup(target=4)
    await settle()
    it.pool.set_target(1)
    await settle()
    assert it.factory.destroyed == it.factory.made[:3]
    assert it.counts == (1, 0, 0, 0)
    it.pool.set_target(0)
    await settle()
    assert it.counts == (0, 0, 0, 0)
    with pytest.raises(ValueError, match="python311"):
        it.pool.set_target(-1)


async def test_creates_pause_and_go_on_by_themselves() -> None:
    it = Setup()
    it.may_create = False
    it.pool.set_target(2)
    await it.clock.advance(10)
    assert it.factory.attempts == 0
    it.may_create = True
    await it.clock.advance(it.settings.paused_retry)
    assert it.counts == (2, 0, 0, 0)


async def test_ending_entries_count_until_they_are_gone() -> None:
    it = Setup(target=2)
    await settle()
    it.factory.hold_destroys = asyncio.Event()
    for number in range(6):  # everything that appears dies at once, and none can be destroyed
        for entry in it.pool.idle:
            it.pool.entry_died(entry.container_id)
        await settle()
        assert sum(it.counts) <= 2 * it.pool.target, number
    assert it.counts[3] == 4
    it.factory.hold_destroys.set()
    await settle()
    assert it.counts == (2, 0, 0, 0)


async def test_destroy_that_fails_is_repeated_until_done() -> None:
    it = Setup(target=1)
    await settle()
    it.factory.destroy_failures = 3
    it.pool.set_target(0)
    await settle()
    assert it.counts == (0, 0, 0, 1)
    await it.clock.advance(60)
    assert it.counts == (0, 0, 0, 0)
    assert it.factory.destroyed == it.factory.made


async def test_close_leaves_only_what_was_handed_out() -> None:
    it = Setup(manual=True, target=3)
    await settle()
    it.factory.finish()
    it.factory.finish()
    await settle()
    taken = it.pool.take()
    assert taken is not None
    assert await it.pool.close(10) == 0
    assert it.factory.destroyed == [it.factory.made[1]]
    assert it.counts == (0, 0, 1, 0)
    it.pool.reconcile()
    await settle()
    assert it.factory.at_once == 0


async def test_fifty_concurrent_claims_on_five_entries() -> None:
    clock = ManualClock()
    factory = ScriptedFactory(clock, manual=True)
    manager = PoolManager(factory, clock)
    manager.set_target(ONE, 5)
    await settle()
    while factory.waiting:
        factory.finish()
        await settle()
    start = asyncio.Event()

    async def claim() -> object:
        await start.wait()
        return manager.take(ONE)

    claims = [asyncio.create_task(claim()) for _ in range(50)]
    await settle()
    start.set()
    taken = [entry for entry in await asyncio.gather(*claims) if entry is not None]
    assert len(taken) == 5
    assert len({id(entry) for entry in taken}) == 5
    await manager.close()
