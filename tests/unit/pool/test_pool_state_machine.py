"""Any order of claims, deaths, failures, time and targets: what holds of a pool always, and what once it is quiet."""

import asyncio
from collections.abc import Coroutine

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from daemon.pool.entry import PoolEntry
from daemon.pool.manager import PoolManager
from daemon.pool.pool import PoolSettings
from tests.support.pools import ManualClock, ScriptedFactory, settle, template

ONE = template()
SETTINGS = PoolSettings()


class PoolMachine(RuleBasedStateMachine):
    """A manager with one pool; creates end when a rule says so."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.factory = ScriptedFactory(self.clock, manual=True)
        self.paused = False
        self.target = 0
        self.highest_target = 0
        self.taken: list[PoolEntry] = []
        self.live_taken: list[PoolEntry] = []
        self.manager = PoolManager(self.factory, self.clock, SETTINGS, may_create=lambda: not self.paused)

    def run(self, work: Coroutine[object, object, object]) -> object:
        return self.loop.run_until_complete(work)

    @rule(wanted=st.integers(0, 4))
    def set_target(self, wanted: int) -> None:
        async def work() -> None:
            self.manager.set_target(ONE, wanted)
            await settle()

        self.target = wanted
        self.highest_target = max(self.highest_target, wanted)
        self.run(work())

    @precondition(lambda self: self.factory.waiting)
    @rule(data=st.data(), good=st.booleans())
    def end_a_create(self, data: st.DataObject, good: bool) -> None:
        number = data.draw(st.integers(0, len(self.factory.waiting) - 1))

        async def work() -> None:
            (self.factory.finish if good else self.factory.fail)(number)
            await settle()

        self.run(work())

    @rule()
    def take(self) -> None:
        async def work() -> None:
            entry = self.manager.take(ONE)
            now = self.clock.monotonic()
            if entry is not None:
                assert entry not in self.taken, "handed out twice"
                assert entry not in self.factory.destroyed, "handed out after its end"
                assert entry.alive, "handed out dead"
                assert now - entry.created <= SETTINGS.max_age, "handed out too old"
                self.taken.append(entry)
                self.live_taken.append(entry)
            await settle()

        self.run(work())

    @precondition(lambda self: self.factory.made)
    @rule(data=st.data(), by_pipe=st.booleans())
    def die(self, data: st.DataObject, by_pipe: bool) -> None:
        entry = data.draw(st.sampled_from(self.factory.made))

        async def work() -> None:
            if by_pipe:
                await entry.transport.close()
            else:
                self.manager.entry_died(entry.container_id)
            await settle()

        self.run(work())

    @precondition(lambda self: self.live_taken)
    @rule(retire=st.booleans())
    def give_back(self, retire: bool) -> None:
        entry = self.live_taken.pop()

        async def work() -> None:
            if retire:
                self.manager.retire(entry)
            else:
                self.manager.gone(entry.entry_id)
            await settle()

        self.run(work())

    @rule(seconds=st.sampled_from([0.5, 1.0, 30.0, 61.0, 290.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.run(self.clock.advance(seconds))

    @rule(seconds=st.sampled_from([1.0, 250.0, 400.0]))
    def refresher_is_late(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(paused=st.booleans())
    def pause(self, paused: bool) -> None:
        self.paused = paused

    @rule(times=st.integers(1, 100))
    def reconcile(self, times: int) -> None:
        async def work() -> None:
            for _ in range(times):
                self.manager.reconcile()
            await settle()

        self.run(work())

    @invariant()
    def creates_are_bounded(self) -> None:
        assert self.factory.at_once <= SETTINGS.creates

    @invariant()
    def never_more_than_wanted_twice(self) -> None:
        for status in self.manager.status():
            assert status.ready <= self.highest_target
            assert status.ready + status.creating + status.terminating <= 2 * self.highest_target + SETTINGS.creates

    @invariant()
    def allocated_is_what_was_taken(self) -> None:
        assert sum(status.allocated for status in self.manager.status()) == len(self.live_taken)

    @invariant()
    def nothing_is_lost(self) -> None:
        idle = {entry for pool in self.manager._pools.values() for entry in pool.idle}
        gone = set(self.factory.destroyed)
        for entry in self.factory.made:
            if entry not in self.taken:
                assert (entry in idle) != (entry in gone), "neither idle nor destroyed, or both"

    def teardown(self) -> None:
        self.run(self._quiet())
        self.loop.close()

    async def _quiet(self) -> None:
        # Left alone, with creates that succeed, a pool reaches its target; closed, it holds nothing.
        self.paused = False
        for _ in range(20):
            await self.clock.advance(70)
            while self.factory.waiting:
                self.factory.finish()
                await settle()
            self.manager.reconcile()
            await settle()
        for status in self.manager.status():
            assert (status.ready, status.terminating, status.breaker_open) == (status.target, 0, False)
        assert sum(status.target for status in self.manager.status()) == self.target
        assert await self.manager.close() == 0
        assert set(self.factory.made) - set(self.taken) <= set(self.factory.destroyed)
        assert len(self.factory.destroyed) == len(set(self.factory.destroyed)), "destroyed twice"


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
