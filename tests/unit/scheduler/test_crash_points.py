"""Killed at every write: four attempts with four different ends, the process dead at its k-th write, for every k.

A life writes to the control store, the ledger and the node. The k-th write of the first life kills it, before its
effect or after it; a second life on the same store, ledger and node must bring everything to its end: nothing lost,
nothing twice. Clients repeat their requests with the same ids, as real ones do.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb

from formats.record import Fault, Outcome, State, parse_record
from records.ledger.memory import MemoryLedger
from scheduler.errors import LeaseLost
from scheduler.model import Attempt, Priority, RequestKey
from scheduler.store.engine import open_engine
from scheduler.store.memory import MemoryStore
from scheduler.store.port import ControlStore
from scheduler.store.sql import SqlStore
from tests.support.crashing import Crash, Fuse, FusedDaemon, FusedLedger, FusedStore
from tests.support.fake_daemon import FakeNode
from tests.support.scheduling import Bench, ManualClock, challenge_directory, request_key

EXPECTED = {
    "submits": (State.SCORED, Outcome.SUBMITTED, Fault.NONE),
    "eats-memory": (State.SCORED, Outcome.OOM_KILLED, Fault.AGENT),
    "is-lost": (State.VOIDED, Outcome.VOIDED, Fault.PLATFORM),
    "is-cancelled": (State.SCORED, Outcome.CANCELLED, Fault.NONE),
}
RESULT = judging_pb.JudgeResult(judge="objective", score=50.0, documents={"test_results.json": b"{}"})


class World:
    """What outlives a life: database, ledger, node, clock, and the clients' memory of their requests."""

    def __init__(self, directory: Path, store: ControlStore) -> None:
        self.directory = directory
        self.store = store
        self.ledger = MemoryLedger()
        self.clock = ManualClock()
        self.node = FakeNode("node-1", capacity=3)
        self.node.on_running = self._running
        self.submits: dict[str, RequestKey] = {agent: request_key(agent) for agent in EXPECTED}
        self.cancel = request_key("cancel")
        self.deliveries: Counter[str] = Counter()

    def _running(self, held: daemon_pb.SandboxAttempt) -> None:
        """The agent acts a little later, whatever becomes of the scheduler."""
        agent = self.node.agents[held.attempt_id]
        ends: dict[str, Callable[[], None]] = {
            "submits": lambda: self.node.end(held.attempt_id, signals=[("SIGTERM", "submit")]),
            "eats-memory": lambda: self.node.end(
                held.attempt_id, daemon_pb.END_CAUSE_SANDBOX_DIED, container_exit_code=137, oom_kill_count=1
            ),
            "is-lost": lambda: self.node.lose(held.attempt_id),
        }
        if agent in ends:
            asyncio.get_running_loop().call_soon(ends[agent])

    def bench(self, fuse: Fuse) -> Bench:
        return Bench(
            self.directory,
            store=cast(ControlStore, FusedStore(self.store, fuse)),
            ledger=FusedLedger(self.ledger, fuse),
            clock=self.clock,
            nodes={"node-1": self.node},
            wrap=lambda client: FusedDaemon(client, fuse),
        )

    async def live(self, bench: Bench, challenge: Path) -> None:
        """What the clients do, to the end of all four attempts."""
        await bench.start()
        digest = await bench.upload(challenge)
        attempts: dict[str, Attempt] = {}
        for agent, key in self.submits.items():
            attempts[agent] = await bench.core.queue.submit(
                key, challenge_digest=digest, agent_id=agent, priority=Priority.PRACTICE, supersedes=None
            )
        worker = asyncio.create_task(self.work(bench))
        try:
            cancelled = attempts["is-cancelled"].attempt_id
            await bench.until(cancelled, lambda a: a.state not in (State.QUEUED, State.STARTING))
            await bench.core.cancelling.cancel(self.cancel, cancelled)
            for attempt in attempts.values():
                await bench.until(attempt.attempt_id, lambda a: a.over and a.released)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)

    async def work(self, bench: Bench) -> None:
        """A judge worker."""
        while True:
            leased = await bench.core.judging.lease("worker", 5.0)
            if leased is None or leased.judging_lease_id is None:
                continue
            try:
                await bench.core.judging.complete(leased.judging_lease_id, [RESULT], "")
                self.deliveries[leased.attempt_id] += 1
            except LeaseLost:
                continue

    def check(self, where: str) -> None:
        attempts = self.store.find({})
        assert Counter(a.agent_id for a in attempts) == Counter(list(EXPECTED)), where
        for attempt in attempts:
            ended = (attempt.state, attempt.outcome, attempt.fault)
            assert ended == EXPECTED[attempt.agent_id], (where, attempt.reason)
            assert attempt.recorded and attempt.released, where
            entry = self.ledger.get(attempt.attempt_id)
            assert entry is not None, where
            record = parse_record(entry.record)
            assert (record.state, record.outcome, record.fault) == ended, where
            assert (self.node.made[attempt.attempt_id], self.node.most_live[attempt.attempt_id]) == (1, 1), where
            assert self.node.live[attempt.attempt_id] == 0, where
        appended = Counter(entry.attempt_id for entry in self.ledger.entries())
        assert appended == Counter(a.attempt_id for a in attempts), where
        assert self.ledger.verify().intact, where


async def life_and_death(world: World, challenge: Path, fuse: Fuse) -> bool:
    """A life that may die; whether it died."""
    bench = world.bench(fuse)
    life = asyncio.create_task(world.live(bench, challenge))
    async with asyncio.timeout(20):
        while not life.done() and not fuse.blown:
            await asyncio.wait({life}, timeout=0.01)
    died = fuse.blown
    life.cancel()
    (result,) = await asyncio.gather(life, return_exceptions=True)
    await bench.core.stop()
    world.node.cut_streams()
    if not died and isinstance(result, BaseException):
        raise result
    return died


async def play(directory: Path, store: ControlStore, challenge: Path, blow_at: int, after_effect: bool) -> bool:
    """One death and the life after it; False when the first life ended before its k-th write."""
    world = World(directory, store)
    died = await life_and_death(world, challenge, Fuse(blow_at, after_effect=after_effect))
    if died:
        # A worker of the first life may have taken its lease into the grave.
        world.clock.advance(61)
        assert not await life_and_death(world, challenge, Fuse(0, after_effect=False))
    world.check(f"dead at write {blow_at}, {'after' if after_effect else 'before'} its effect")
    return died


@pytest.mark.slow
@pytest.mark.parametrize("after_effect", [False, True], ids=["before the effect", "after the effect"])
async def test_dead_at_every_write(tmp_path: Path, after_effect: bool) -> None:
    challenge = challenge_directory(tmp_path / "in")
    for blow_at in itertools.count(1):
        directory = tmp_path / str(blow_at)
        directory.mkdir()
        if not await play(directory, MemoryStore(), challenge, blow_at, after_effect):
            break
    assert blow_at > 25  # the scenario really writes


@pytest.mark.slow
@pytest.mark.parametrize("blow_at", range(3, 40, 6))
async def test_dead_at_a_write_to_sqlite(tmp_path: Path, blow_at: int) -> None:
    store = SqlStore(open_engine(str(tmp_path / "control.db")))
    try:
        await play(tmp_path, store, challenge_directory(tmp_path / "in"), blow_at, after_effect=True)
    finally:
        store.close()


def test_a_blown_fuse_stops_every_later_write() -> None:
    fuse = Fuse(2, after_effect=True)
    assert [fuse.before(), fuse.before()] == [False, True]
    with pytest.raises(Crash):
        fuse.before()
