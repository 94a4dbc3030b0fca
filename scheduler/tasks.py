"""Background work of one process: tasks that are counted, logged when they fail, and ended together.

A loop that fails is logged and begun again after a pause; it never ends quietly.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import structlog

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
Work = Callable[[], Coroutine[Any, Any, None]]


class Tasks:
    """The tasks of a process. `only` keeps one task per key."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._keys: dict[object, asyncio.Task[None]] = {}

    def start(self, work: Work, name: str) -> asyncio.Task[None]:
        """Run `work()` once; a failure is logged."""
        task = asyncio.create_task(_logged(work, name), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def only(self, key: object, work: Work, name: str) -> bool:
        """Run `work()` unless a task with the same key still runs; whether it was started."""
        running = self._keys.get(key)
        if running is not None and not running.done():
            return False
        task = self.start(work, name)
        self._keys[key] = task
        task.add_done_callback(lambda done: self._keys.pop(key, None) if self._keys.get(key) is done else None)
        return True

    def loop(self, step: Callable[[], Awaitable[None]], name: str) -> asyncio.Task[None]:
        """Run `step` again and again; it waits for its own work."""

        async def forever() -> None:
            while True:
                try:
                    await step()
                except Exception:
                    log.exception("loop_failed", loop=name)
                    await asyncio.sleep(PAUSE_SECONDS)

        return self.start(forever, name)

    async def stop(self) -> None:
        """Cancel everything and wait until it ended."""
        pending = list(self._tasks)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)


async def _logged(work: Work, name: str) -> None:
    try:
        # Made here and not by the caller: a task that is cancelled before its first step leaves nothing unawaited.
        await work()
    except Exception:
        log.exception("task_failed", task=name)
