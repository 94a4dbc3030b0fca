"""The clock a pool lives by, injected so that tests own time. Monotonic only: a wall clock's jump ages nothing."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic seconds, and waiting for them."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment, never going back."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return when that many seconds have passed."""
        ...


class SystemClock:
    """The machine's own."""

    def monotonic(self) -> float:
        """Seconds since boot."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""
        await asyncio.sleep(seconds)
