"""The clocks of an attempt: boot time for limits, wall clock for records. Injected, so that tests own both.

Limits count on CLOCK_BOOTTIME with the host's boot id beside it: neither a jump of the wall clock nor a suspended
host changes a limit, and a reading from before a reboot is recognised as such.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Protocol

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# A sleep is counted on CLOCK_MONOTONIC, which stands still while a host is suspended: look again this often.
LONGEST_SLEEP_SECONDS = 30.0


class AttemptClock(Protocol):
    """What an attempt needs to know of time."""

    boot_id: str

    def boottime_ns(self) -> int:
        """Nanoseconds since the host booted."""
        ...

    def wall_ns(self) -> int:
        """Nanoseconds since the epoch."""
        ...

    async def sleep_until(self, boottime_ns: int) -> None:
        """Return once `boottime_ns` has passed."""
        ...


class HostClock:
    """The host's own."""

    def __init__(self) -> None:
        self.boot_id = BOOT_ID.read_text().strip()

    def boottime_ns(self) -> int:
        """CLOCK_BOOTTIME."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    async def sleep_until(self, boottime_ns: int) -> None:
        """Sleep in pieces, looking at the clock in between."""
        while (left := boottime_ns - self.boottime_ns()) > 0:  # noqa: ASYNC110
            # The clock that counts is not the one that sleeps: there is no event to wait for.
            await asyncio.sleep(min(left / 1e9, LONGEST_SLEEP_SECONDS))
