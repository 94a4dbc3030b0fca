"""The values that telemetry takes and gives, and its errors. No behaviour."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

# How many guest processes there are now; None when nobody can say at the moment.
PidsSource = Callable[[], Awaitable[int | None]]


@dataclass(frozen=True, slots=True)
class Clocks:
    """Time, injected. `wall_ns` stamps records; `monotonic_ns` and `sleep` (seconds) measure and wait."""

    wall_ns: Callable[[], int] = time.time_ns
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep


class TelemetryError(Exception):
    """Base of this package's errors."""


class AttemptUnknownError(TelemetryError):
    """The attempt was never opened here, or was discarded."""


class AttemptFinishedError(TelemetryError):
    """The attempt's telemetry is complete; nothing may follow it."""


class SourceGoneError(TelemetryError):
    """The counters vanished with their container."""


@dataclass(frozen=True, slots=True)
class Counters:
    """One reading of a sandbox's counters. Totals count since the sandbox began; None where the host has none."""

    cpu_usage_ns: int
    memory_rss_bytes: int
    memory_cache_bytes: int
    memory_high_water_bytes: int | None
    disk_read_bytes: int
    disk_write_bytes: int
    oom_kill_count: int | None


class ResourceSource(Protocol):
    """Where a sandbox's counters are read."""

    def read(self) -> Counters:
        """Read them; may block for a moment. Raises SourceGoneError when the sandbox is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """The sandbox's limits, for the evidence."""

    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Peaks:
    """Highest values seen. `memory_high_water_bytes` is the kernel's own mark, page cache included."""

    peak_memory_bytes: int = 0
    peak_cpu_percent: float = 0.0
    disk_written_bytes: int = 0
    pids_peak: int = 0
    memory_high_water_bytes: int = 0


@dataclass(frozen=True, slots=True)
class ElsewhereEnd:
    """What another process spooled of an attempt, once nothing more can follow: events and gap records by kind.

    `dropped` counts what never reached it, as far as anybody knows; `pids_refused`: the limit of processes was met.
    """

    counts: dict[str, int]
    gaps: dict[str, int]
    blocked_syscalls: int
    complete: bool
    dropped: int = 0
    pids_refused: bool = False


class Elsewhere(Protocol):
    """Another process that writes some kinds of events into the same spool."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds that it alone writes."""
        ...

    async def finish(self, attempt_id: str) -> ElsewhereEnd:
        """End an attempt there; never raises for a process that is away. May still record events of other kinds."""
        ...


@dataclass(frozen=True, slots=True)
class Finished:
    """An attempt's telemetry when nothing more can follow.

    `counts` and `gaps` count events and gap records by kind. `stored` is False when the collector had not confirmed
    every line before the deadline: the spool keeps them and they are still shipped. `oom_kill_count` is -1 when the
    counter was never read. `trace_complete` is False when process or escape events were lost.
    """

    counts: dict[str, int]
    gaps: dict[str, int]
    peaks: Peaks
    memory_near_limit: bool
    oom_kill_count: int
    stored: bool
    blocked_syscalls: int = 0
    trace_complete: bool = True
    trace_dropped: int = 0
    pids_refused: bool = False

    @property
    def telemetry_events(self) -> int:
        """Events of all kinds, gaps not counted."""
        return sum(self.counts.values())

    @property
    def telemetry_gaps(self) -> int:
        """Gap records, those of resource samples aside: a missing sample hides no act."""
        return sum(number for kind, number in self.gaps.items() if kind != "resource")
