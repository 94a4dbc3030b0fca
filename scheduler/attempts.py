"""The attempts as the domain reaches them: every read and every change goes through here.

Adds to the store what belongs to each change: the news to watchers and the bells of the loops that have work then.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from formats.record import State
from scheduler.clock import Clock
from scheduler.errors import AttemptUnknown
from scheduler.model import ACTIVE, FINAL, Attempt, RequestKey
from scheduler.store.port import Change, Changes, ControlStore, Order, Planner, When
from scheduler.store.threaded import StoreThread
from scheduler.watch import Hub, Wake


@dataclass
class Bells:
    """Who is woken by what. One bell a loop, since a bell is heard once.

    `queue` by places and queued work, `judging` by work to judge, `records` by ends, `orders` by ends and cancels.
    """

    queue: Wake = field(default_factory=Wake)
    judging: Wake = field(default_factory=Wake)
    records: Wake = field(default_factory=Wake)
    orders: Wake = field(default_factory=Wake)


class Attempts:
    """Reads and changes attempts."""

    def __init__(self, store: ControlStore, thread: StoreThread, hub: Hub, bells: Bells, clock: Clock) -> None:
        self._store = store
        self._thread = thread
        self._hub = hub
        self.bells = bells
        self.clock = clock

    async def insert(self, request: RequestKey, attempt: Attempt, max_depth: int) -> Attempt:
        """Queue an attempt, once per request. Raises RequestIdReused, QueueFull."""
        attempt, made = await self._thread.run(self._store.insert_attempt, request, attempt, max_depth)
        if made:
            self._tell(attempt)
        return attempt

    async def get(self, attempt_id: str) -> Attempt:
        """One attempt. Raises AttemptUnknown."""
        attempt = await self._thread.run(self._store.attempt, attempt_id)
        if attempt is None:
            raise AttemptUnknown(attempt_id)
        return attempt

    async def known(self, attempt_id: str) -> Attempt | None:
        """One attempt, or None."""
        return await self._thread.run(self._store.attempt, attempt_id)

    async def find(self, when: When, *, order: Order = "oldest", limit: int | None = None) -> list[Attempt]:
        """The attempts for which `when` holds."""
        return await self._thread.run(self._store.find, when, order=order, limit=limit)

    async def change(
        self,
        attempt_id: str,
        when: When,
        changes: Changes,
        request: RequestKey | None = None,
        *,
        told_again: bool = False,
    ) -> Change:
        """Compare and set, and tell; `told_again` as in the port. Raises AttemptUnknown, RequestIdReused."""
        change = await self._thread.run(self._store.change, attempt_id, when, changes, request, told_again=told_again)
        if change.applied:
            self._tell(change.attempt)
        return change

    async def assign(self, planner: Planner) -> list[Attempt]:
        """Place queued attempts as `planner` decides."""
        placed = await self._thread.run(self._store.assign, planner)
        for attempt in placed:
            self._tell(attempt)
        return placed

    def _tell(self, attempt: Attempt) -> None:
        self._hub.publish(attempt)
        if attempt.state is State.JUDGING:
            self.bells.judging.ring()
        if attempt.state is State.QUEUED or attempt.state not in ACTIVE:
            self.bells.queue.ring()
        if attempt.state in FINAL:
            self.bells.records.ring()
        if attempt.state in FINAL or attempt.cancel_reason is not None:
            self.bells.orders.ring()
