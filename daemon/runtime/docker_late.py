"""Containers that may or may not exist after the engine vanished under a create: swept until that is known."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from daemon.runtime.errors import RuntimeFault

FIRST_SECONDS = 0.2
LAST_SECONDS = 5.0
QUIET_LOOKS = 3
"""Looks in a row that must find nothing: an engine that just came back may still be finishing the create."""

Destroy = Callable[[str], Awaitable[bool]]
_log = structlog.get_logger()


class LateSweeper:
    """Names to destroy on sight. `destroy(name)` says whether something was there."""

    def __init__(self, destroy: Destroy) -> None:
        """Nothing to sweep yet."""
        self._destroy = destroy
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, name: str) -> None:
        """Look for `name` from now on. On the event loop only."""
        if name not in self._tasks:
            task = asyncio.ensure_future(self._sweep(name))
            self._tasks[name] = task
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

    async def _sweep(self, name: str) -> None:
        wait, quiet = FIRST_SECONDS, 0
        while quiet < QUIET_LOOKS:
            await asyncio.sleep(wait)
            wait = min(wait * 2, LAST_SECONDS)
            try:
                found = await self._destroy(name)
            except RuntimeFault as error:
                _log.warning("late_container_unknown", name=name, error=str(error))
                quiet = 0
                continue
            if found:
                _log.info("late_container_destroyed", name=name)
                return
            quiet += 1

    async def close(self) -> None:
        """Stop looking; what is left is the next start's reclaim to find, by its label."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
