"""One sentry's connection on its way to an attempt: identity, packets in order, the process tree.

Identity is fixed once, by the first packet (container/start) or by the sink that attached the session itself; no
later message can change it. Facts of a container that no attempt holds are dropped: the platform's own start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from daemon.trace.attempt import DROPPED, MALFORMED, TracedAttempt
from daemon.trace.facts import Fact
from daemon.trace.points import PointError, Started, decode
from daemon.trace.reader import Connection
from daemon.trace.tree import Tree
from daemon.trace.unseen import Unseen

# Packets between two turns of the event loop.
BATCH = 200
TICK_SECONDS = 1.0
COUNTER = 1 << 32

log = structlog.get_logger(__name__)


class Traced:
    """A container with a trace session. `ended` is set when its sentry has closed the connection and all is read."""

    def __init__(self, connection: Connection, identified: Callable[[Traced], None]) -> None:
        """`identified` is called once the container is known."""
        self.connection = connection
        self.container_id = ""
        self.attempt: TracedAttempt | None = None
        self.tree = Tree(self._now)
        self.unseen = Unseen(self.tree)
        self.ended = asyncio.Event()
        self.received = 0
        self._identified = identified
        self._known = asyncio.Event()
        self._stamp = 0
        self._dropped = 0
        self._oversized = 0
        self._malformed = 0

    def identify(self, container_id: str) -> None:
        """Fix whose connection this is. The first word counts."""
        if not self.container_id:
            self.container_id = container_id
            self._known.set()
            self._identified(self)

    async def run(self) -> None:
        """Take packets until the end."""
        try:
            if await self._first():
                over = False
                while not over:
                    # Looked at first: what came before the end is queued by then.
                    over = self.connection.ended
                    await self._batch()
                    if self.attempt is not None:
                        await self.attempt.tick()
                    if not over:
                        await self.connection.wait(TICK_SECONDS)
        finally:
            self.ended.set()

    async def _first(self) -> bool:
        """Identify by the first packet, unless somebody else does meanwhile; False when nobody can."""
        while not self.container_id:
            for stamp_ns, packet in self.connection.take(1):
                self._stamp = stamp_ns
                self.received += 1
                try:
                    dropped, point = decode(packet)
                except PointError as error:
                    self._refuse(error)
                    return False
                if dropped:
                    self._drop(dropped)
                if isinstance(point, Started):
                    self.identify(point.container_id)
                else:
                    log.warning("trace_without_start", peer_pid=self.connection.peer_pid)
                    return False
            if self.connection.ended and not self.container_id:
                return False
            if not self.container_id:
                await self.connection.wait(TICK_SECONDS)
        return True

    async def _batch(self) -> None:
        """Work off what is queued."""
        while packets := self.connection.take(BATCH):
            facts: list[Fact] = []
            for stamp_ns, packet in packets:
                # Our clock may be set back; the order of a stream's times is the order of its numbers.
                if stamp_ns > self._stamp:
                    self._stamp = stamp_ns
                try:
                    dropped, point = decode(packet)
                except PointError as error:
                    await self.record(facts)
                    facts = []
                    self._refuse(error)
                    continue
                if dropped != self._dropped:
                    # What came before a loss stands before it.
                    await self.record(facts)
                    facts = []
                    self._drop(dropped)
                if point is not None:
                    facts += self.tree.feed(point)
            self.received += len(packets)
            await self.record(facts)
            await asyncio.sleep(0)
        if self.connection.oversized != self._oversized:
            self._lose(self.connection.oversized - self._oversized, DROPPED)
            self._oversized = self.connection.oversized

    async def record(self, facts: Sequence[Fact]) -> None:
        """Give facts to the attempt, if there is one."""
        if facts and self.attempt is not None:
            await self.attempt.record(facts)

    def _refuse(self, error: PointError) -> None:
        """A packet that no honest sentry sends: said once."""
        self._malformed += 1
        if self._malformed == 1:
            log.warning("trace_malformed", container_id=self.container_id, error=str(error))
            self._lose(None, MALFORMED)

    def _drop(self, dropped: int) -> None:
        """A counter of 32 bits, from somebody who may lie: it only ever adds."""
        self._lose((dropped - self._dropped) % COUNTER, DROPPED)
        self._dropped = dropped

    def _lose(self, count: int | None, reason: str) -> None:
        log.warning("trace_loss", container_id=self.container_id, count=count, reason=reason)
        if self.attempt is not None:
            self.attempt.dropped += count or 0
            self.attempt.lose(count, reason)

    def _now(self) -> int:
        return self._stamp or time.time_ns()
