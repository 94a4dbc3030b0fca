"""Creates that keep failing: bounded attempts, one alert, recovery, and no other template disturbed."""

from daemon.pool.breaker import Breaker, BreakerSettings
from daemon.pool.manager import PoolManager
from daemon.pool.template import Template
from tests.support.pools import ManualClock, ScriptedFactory, settle, template

BAD, GOOD = template("rust_stable"), template("python311")


class Setup:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.factory = ScriptedFactory(self.clock)
        self.alerts: list[Template] = []
        self.manager = PoolManager(self.factory, self.clock, alert=lambda one, error: self.alerts.append(one))


async def test_failing_template_is_tried_a_bounded_number_of_times() -> None:
    it = Setup()
    it.factory.failing.add(BAD.key)
    it.manager.set_target(BAD, 5)
    await settle()
    assert it.factory.attempts == 3
    for _ in range(100):
        it.manager.reconcile()
    await settle()
    assert it.factory.attempts == 3
    (status,) = it.manager.status()
    assert status.breaker_open
    assert "scripted" in status.last_error
    await it.clock.advance(3600)
    assert 60 <= it.factory.attempts <= 70, "one probe a minute at the longest back-off"
    assert it.alerts == [BAD]


async def test_recovers_by_itself() -> None:
    it = Setup()
    it.factory.failing.add(BAD.key)
    it.manager.set_target(BAD, 4)
    await it.clock.advance(600)
    it.factory.failing.clear()
    await it.clock.advance(61)
    (status,) = it.manager.status()
    assert (status.ready, status.breaker_open, status.last_error) == (4, False, "")
    it.factory.failing.add(BAD.key)
    while it.manager.take(BAD):
        pass
    await settle()
    assert it.alerts == [BAD, BAD], "a new outage is a new alert"


async def test_other_templates_go_on() -> None:
    it = Setup()
    it.factory.failing.add(BAD.key)
    it.manager.set_target(BAD, 5)
    it.manager.set_target(GOOD, 5)
    await settle()
    good, bad = it.manager.status()
    assert (good.ready, good.breaker_open) == (5, False)
    assert (bad.ready, bad.breaker_open) == (0, True)
    assert it.manager.take(BAD) is None
    assert it.manager.take(GOOD) is not None


async def test_hanging_template_blocks_no_other() -> None:
    it = Setup()
    it.factory.manual = True
    it.manager.set_target(BAD, 5)
    await settle()
    assert len(it.factory.waiting) == 2
    it.factory.manual = False
    it.manager.set_target(GOOD, 5)
    await settle()
    assert it.manager.status()[0].ready == 5


async def test_cold_claim_is_tried_although_the_breaker_is_open() -> None:
    it = Setup()
    it.factory.failing.add(BAD.key)
    it.manager.set_target(BAD, 1)
    await settle()
    it.factory.failing.clear()
    entry = await it.manager.cold(BAD)
    (status,) = it.manager.status()
    assert (status.allocated, status.breaker_open) == (1, True)
    it.manager.gone(entry.entry_id)
    assert it.manager.status()[0].allocated == 0


def test_states() -> None:
    breaker = Breaker(BreakerSettings(threshold=2, first_seconds=1, longest_seconds=4))
    assert breaker.allowance(0, 0) is None
    assert not breaker.failed(0, "a")
    assert breaker.allowance(0, 0) == 1
    assert breaker.failed(0, "b")
    assert breaker.open
    assert breaker.allowance(0.9, 0) == 0
    assert breaker.allowance(1, 0) == 1
    waits = []
    for now in (1, 10, 100):
        assert not breaker.failed(now, "c")
        assert breaker.retry_at is not None
        waits.append(breaker.retry_at - now)
    assert waits == [2, 4, 4]
    assert breaker.succeeded()
    assert not breaker.open
    assert breaker.allowance(0, 0) is None
    assert not breaker.succeeded()
