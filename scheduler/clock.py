"""The two clocks: wall time for records, a steady one for every age and every deadline.

The steady clock is CLOCK_BOOTTIME, which goes on while the machine sleeps and knows no jumps. Its readings mean
something within one boot only; `boot_id` tells which, so that readings kept in the database can be rebased after one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Clock(ABC):
    """Where every module of the room reads time."""

    @abstractmethod
    def wall_ns(self) -> int:
        """Nanoseconds since the epoch; may jump. For records only."""

    @abstractmethod
    def steady(self) -> float:
        """Seconds since some fixed point of this boot; never jumps."""

    @property
    @abstractmethod
    def boot_id(self) -> str:
        """Which boot `steady` belongs to."""


class SystemClock(Clock):
    """The machine's clocks."""

    def __init__(self) -> None:
        self._boot_id = _BOOT_ID.read_text().strip()

    def wall_ns(self) -> int:
        """Wall time."""
        return time.time_ns()

    def steady(self) -> float:
        """Time since boot."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def boot_id(self) -> str:
        """The kernel's boot id."""
        return self._boot_id
