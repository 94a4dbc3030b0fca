"""A moment of calm around each claim: nothing is made in the background while an agent waits for its first command.

A hand-out leaves a place in the pool, and the new sandbox's start would take the CPUs, the mount table and the engine
from the very claim that caused it. So it waits until the claim is over and a little longer; a stream of claims cannot
hold it up for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# A warm claim and a first command, several times over.
HOLD_SECONDS = 0.25
LONGEST_SECONDS = 1.0


class Calm:
    """Use on one event loop. `resume` is called whenever a calm ends."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS, longest_seconds: float = LONGEST_SECONDS) -> None:
        self.resume: Callable[[], None] = lambda: None
        self._hold = hold_seconds
        self._longest = longest_seconds
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._over.set()

    @property
    def now(self) -> bool:
        """Whether background work should wait."""
        return not self._over.is_set()

    def hold(self) -> None:
        """Begin a calm, or prolong the present one as far as it may go."""
        loop = asyncio.get_running_loop()
        if not self.now:
            self._since = loop.time()
        end = min(loop.time() + self._hold, self._since + self._longest)
        if self._timer is not None:
            if self._timer.when() >= end:  # as late as it may be: made anew again and again, it would never come
                return
            self._timer.cancel()
        self._over.clear()
        self._timer = loop.call_at(end, self._end)

    async def over(self) -> None:
        """Return once there is no calm."""
        await self._over.wait()

    def _end(self) -> None:
        self._timer = None
        self._over.set()
        self.resume()
