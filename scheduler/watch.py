"""In-process news: watchers of one attempt, and loops that wait for work.

Owns no state: what is missed while nobody listens is in the store, so a watcher subscribes first and then reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from scheduler.model import Attempt


class Wake:
    """One loop's bell: rung as often as there is news, heard once."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        """Say that there may be work."""
        self._event.set()

    async def wait(self, timeout: float) -> bool:
        """Wait for a ring, at most `timeout` seconds; whether it rang. The bell is quiet afterwards."""
        try:
            async with asyncio.timeout(timeout):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True


class Hub:
    """Tells watchers about changes of their attempt."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[asyncio.Queue[Attempt]]] = {}

    def publish(self, attempt: Attempt) -> None:
        """Pass a changed attempt on. Never blocks: an attempt changes a dozen times in its life at most."""
        for queue in self._watchers.get(attempt.attempt_id, ()):
            queue.put_nowait(attempt)

    @contextmanager
    def subscribe(self, attempt_id: str) -> Iterator[asyncio.Queue[Attempt]]:
        """A queue of the changes from now on."""
        queue: asyncio.Queue[Attempt] = asyncio.Queue()
        self._watchers.setdefault(attempt_id, set()).add(queue)
        try:
            yield queue
        finally:
            self._watchers[attempt_id].discard(queue)
            if not self._watchers[attempt_id]:
                del self._watchers[attempt_id]


async def follow(first: Attempt, changes: asyncio.Queue[Attempt]) -> AsyncIterator[Attempt]:
    """The present state, then each change that shows, to the final state with its record kept.

    `changes` must have been subscribed before `first` was read. What was published in between is not repeated:
    a change that differs in nothing public is left out.
    """
    yield first
    attempt, shown = first, _public(first)
    while not attempt.over:
        attempt = await changes.get()
        if _public(attempt) != shown:
            shown = _public(attempt)
            yield attempt


def _public(attempt: Attempt) -> tuple[object, ...]:
    return (attempt.public_state, attempt.outcome, attempt.node_id, attempt.reason, attempt.flags)
