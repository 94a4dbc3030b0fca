"""The scheduler's domain put together: durable state in, orders to nodes out. Opens no socket and no database."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from records.ledger.port import Ledger
from scheduler.attempts import Attempts, Bells
from scheduler.cancelling import Cancelling
from scheduler.challenges import Challenges
from scheduler.claim import Claimer
from scheduler.clock import Clock
from scheduler.config import SchedulerConfig
from scheduler.daemon_port import Connect
from scheduler.dispatcher import Dispatcher
from scheduler.finisher import Finisher
from scheduler.gateway import Gateway
from scheduler.judging import Judging
from scheduler.nodes import Nodes
from scheduler.observer import Observer
from scheduler.orders import Orders
from scheduler.queue import Queue
from scheduler.recorder import Recorder
from scheduler.reports import Reports
from scheduler.store.port import ControlStore
from scheduler.store.threaded import StoreThread
from scheduler.tasks import Tasks
from scheduler.watch import Hub


@dataclass(frozen=True)
class Ports:
    """What the domain is plugged into."""

    store: ControlStore
    ledger: Ledger
    connect: Connect
    clock: Clock


class Core:
    """The domain: durable state in, orders to nodes out."""

    def __init__(self, config: SchedulerConfig, ports: Ports, token_key: bytes) -> None:
        self.ports = ports
        self.thread = StoreThread("control")
        self._ledger_thread = StoreThread("ledger")
        self._tasks = Tasks()
        self.hub = Hub()
        bells = Bells()
        store, clock = ports.store, ports.clock
        self.attempts = Attempts(store, self.thread, self.hub, bells, clock)
        self.challenges = Challenges(config.challenges, store, self.thread, clock)
        self.nodes = Nodes(
            store,
            self.thread,
            clock,
            ports.connect,
            bells,
            lease_seconds=config.node_lease_seconds,
            tick_seconds=config.tick_seconds,
            stale_seconds=config.node_stale_seconds,
        )
        self.queue = Queue(self.attempts, self.challenges, config.limits, lambda: self.nodes.stacks())
        self.cancelling = Cancelling(self.attempts)
        self.gateway = Gateway(self.attempts, self.nodes, token_key)
        finisher = Finisher(self.attempts)
        reports = Reports(self.attempts, self.nodes, finisher)
        self.observer = Observer(
            self.attempts,
            self.challenges,
            self.nodes,
            reports,
            finisher,
            self._tasks,
            tick_seconds=config.tick_seconds,
            ending_seconds=config.ending_seconds,
        )
        claimer = Claimer(self.attempts, self.challenges, self.nodes, reports)
        self.dispatcher = Dispatcher(self.attempts, self.queue, self.nodes, claimer, self._tasks)
        self.orders = Orders(self.attempts, self.nodes, self._tasks)
        self.recorder = Recorder(self.attempts, ports.ledger, self._ledger_thread)
        self.judging = Judging(
            self.attempts,
            store,
            self.thread,
            lease_seconds=config.judging_lease_seconds,
            retry_seconds=config.judging_retry_seconds,
        )

    async def start(self) -> None:
        """Take up what an earlier life left, then begin. The order matters: nodes first, then their attempts."""
        clock = self.ports.clock
        await self.thread.run(self.ports.store.adopt_clock, clock.boot_id, clock.steady())
        await asyncio.to_thread(self.challenges.sweep)
        await self.nodes.load()
        self.observer.start()
        self.dispatcher.start()
        self._tasks.loop(self.recorder.step, "recorder")
        self._tasks.loop(self.orders.step, "orders")
        self._tasks.loop(self.judging.step, "judging")

    async def stop(self) -> None:
        """End the background work; what was begun is taken up by the next life."""
        await self._tasks.stop()
        await self.nodes.close()
        await asyncio.to_thread(self.thread.close)
        await asyncio.to_thread(self._ledger_thread.close)
