"""Every attempt of this node, in memory, and who watches them change.

A watcher that falls behind loses only intermediate states: it gets each attempt's latest state, never a stale one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import UnknownAttempt


class Watch:
    """One watcher's pending changes: attempt ids, each at most once, in order of their latest change."""

    def __init__(self) -> None:
        self._pending: dict[str, LiveAttempt] = {}
        self._wake = asyncio.Event()

    def notify(self, attempt: LiveAttempt) -> None:
        """Queue an attempt."""
        self._pending.pop(attempt.facts.attempt_id, None)
        self._pending[attempt.facts.attempt_id] = attempt
        self._wake.set()

    async def changes(self) -> AsyncIterator[LiveAttempt]:
        """Changed attempts, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._pending:
                yield self._pending.pop(next(iter(self._pending)))


class Registry:
    """Attempts by id and by container."""

    def __init__(self) -> None:
        self._attempts: dict[str, LiveAttempt] = {}
        self._watches: set[Watch] = set()

    def add(self, attempt: LiveAttempt) -> None:
        """Make an attempt known."""
        self._attempts[attempt.facts.attempt_id] = attempt
        self.changed(attempt)

    def remove(self, attempt: LiveAttempt) -> None:
        """Forget it; watchers get its last state."""
        if self._attempts.get(attempt.facts.attempt_id) is attempt:
            del self._attempts[attempt.facts.attempt_id]
        self.changed(attempt)

    def find(self, attempt_id: str) -> LiveAttempt | None:
        """The attempt, or None."""
        return self._attempts.get(attempt_id)

    def get(self, attempt_id: str) -> LiveAttempt:
        """The attempt. Raises UnknownAttempt."""
        found = self._attempts.get(attempt_id)
        if found is None:
            raise UnknownAttempt(attempt_id)
        return found

    def by_container(self, container_id: str) -> LiveAttempt | None:
        """The attempt that holds a container, or None."""
        return next((a for a in self._attempts.values() if a.facts.container_id == container_id), None)

    def __iter__(self) -> Iterator[LiveAttempt]:
        """A snapshot of every attempt."""
        return iter(tuple(self._attempts.values()))

    def changed(self, attempt: LiveAttempt) -> None:
        """Tell every watcher."""
        for watch in self._watches:
            watch.notify(attempt)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """A watch that holds from now on."""
        watch = Watch()
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)
