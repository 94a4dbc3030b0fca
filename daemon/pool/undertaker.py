"""Ends things in the background and does not forget them: repeated with back-off until done, counted until then.

Used for entries that leave a pool and for what a failed create had made. Destruction thus never lies on the claim's
path, and what could not be destroyed yet still counts as held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from daemon.pool.clock import Clock

FIRST_SECONDS = 0.5
LAST_SECONDS = 30.0

_log = structlog.get_logger()


class Undertaker:
    """Work by name; the same name is worked on once at a time."""

    def __init__(self, clock: Clock) -> None:
        """Nothing to end yet."""
        self._clock = clock
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def pending(self) -> int:
        """How many are not confirmed gone."""
        return len(self._tasks)

    def bury(self, name: str, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run `work` until it returns without an error. The task may be awaited (shielded) and never fails."""
        task = self._tasks.get(name)
        if task is None:
            task = asyncio.create_task(self._until_done(name, work), name=f"end {name}")
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))
        return task

    async def gone(self, name: str) -> None:
        """Wait until nothing of that name is left to end."""
        task = self._tasks.get(name)
        if task is not None:
            await asyncio.wait({task})

    async def _until_done(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        wait = FIRST_SECONDS
        while True:
            try:
                await work()
            except Exception:  # noqa: BLE001 - giving up for any reason would leak a sandbox; the log says why
                _log.exception("end_not_confirmed", name=name, retry_in_seconds=wait)
            else:
                return
            await self._clock.sleep(wait)
            wait = min(wait * 2, LAST_SECONDS)

    async def close(self, seconds: float) -> int:
        """Wait for what is under way; returns how many were left (the next start's reclaim finds them)."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()), timeout=seconds)
        left = list(self._tasks.values())
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        return len(left)
