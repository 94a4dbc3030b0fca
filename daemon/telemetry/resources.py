"""Resource samples of one sandbox: an event every five seconds and one at the end, and the peaks for the record.

Counters are read twice a second, since they vanish with their container: the last reading is what the end is judged
by. Owns no counter (`cgroup`) and no spool.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from daemon.telemetry.saying import say
from daemon.telemetry.types import Clocks, Counters, Limits, Peaks, PidsSource, ResourceSource, SourceGoneError
from formats import event

EVENT_SECONDS = 5.0
READ_SECONDS = 0.5
PIDS_SECONDS = 2.0
NEAR_LIMIT = 0.95
# A share measured over less says more about the scheduler's slices than about the sandbox.
MIN_CPU_INTERVAL_NS = 1_000_000_000

Emit = Callable[[event.Resource], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters and when they were read."""

    counters: Counters
    wall_ns: int
    monotonic_ns: int


class Usage:
    """What the readings add up to: pure."""

    def __init__(self, limits: Limits, earlier: Peaks = Peaks(), earlier_reads: int = 0) -> None:  # noqa: B008
        self._limits = limits
        self._earlier_reads = earlier_reads
        self.peaks = earlier
        self.latest: Reading | None = None
        self._base: Reading | None = None
        self._emitted: Reading | None = None
        self._cpu_measured = earlier.peak_cpu_percent > 0
        self._oom_kill_count = -1

    def take(self, reading: Reading) -> None:
        """A new reading."""
        counters, peaks = reading.counters, self.peaks
        if counters.oom_kill_count is not None:
            self._oom_kill_count = max(self._oom_kill_count, counters.oom_kill_count)
        high = counters.memory_high_water_bytes or 0
        # The kernel's mark includes page cache; only when it killed for memory was no cache left to give.
        certain = high if self._oom_kill_count > 0 else 0
        self.peaks = dataclasses.replace(
            peaks,
            peak_memory_bytes=max(peaks.peak_memory_bytes, counters.memory_rss_bytes, certain),
            disk_written_bytes=max(peaks.disk_written_bytes, counters.disk_write_bytes),
            memory_high_water_bytes=max(peaks.memory_high_water_bytes, high),
        )
        self._earlier_reads = max(self._earlier_reads, counters.disk_read_bytes)
        self.latest = reading
        if self._base is None:
            self._base = reading

    def take_pids(self, pids: int) -> None:
        """A new count of guest processes."""
        self.peaks = dataclasses.replace(self.peaks, pids_peak=max(self.peaks.pids_peak, pids))

    @property
    def pending(self) -> bool:
        """Whether the latest reading has not become an event."""
        return self.latest is not None and self.latest is not self._emitted

    @property
    def near_limit(self) -> bool:
        """Whether the latest reading was within five percent of the memory limit."""
        if self.latest is None or self._limits.memory_bytes <= 0:
            return False
        return self.latest.counters.memory_rss_bytes >= NEAR_LIMIT * self._limits.memory_bytes

    @property
    def oom_kill_count(self) -> int:
        """The counter's last value, -1 when it was never read."""
        return self._oom_kill_count

    def sample(self, pids: int | None) -> event.Resource:
        """The latest reading's event. The share of CPU is since the event before it."""
        latest, base = self.latest, self._base
        assert latest is not None and base is not None
        elapsed = latest.monotonic_ns - base.monotonic_ns
        used = latest.counters.cpu_usage_ns - base.counters.cpu_usage_ns
        percent = round(100.0 * used / elapsed, 1) if elapsed > 0 and used > 0 else 0.0
        if elapsed >= MIN_CPU_INTERVAL_NS or not self._cpu_measured:
            self._cpu_measured = self._cpu_measured or elapsed >= MIN_CPU_INTERVAL_NS
            peak = max(self.peaks.peak_cpu_percent, percent)
            self.peaks = dataclasses.replace(self.peaks, peak_cpu_percent=peak)
        self._base = self._emitted = latest
        counters = latest.counters
        return {
            "timestamp_ns": latest.wall_ns,
            "cpu_usage_percent": percent,
            "memory_rss_bytes": counters.memory_rss_bytes,
            "memory_cache_bytes": counters.memory_cache_bytes,
            # Totals never go back, also when a restart forgot the processes that had ended.
            "disk_read_bytes": self._earlier_reads,
            "disk_write_bytes": self.peaks.disk_written_bytes,
            "pids_current": pids,
            "oom_kill_count": max(0, self._oom_kill_count),
        }


def recover(spool: Path) -> tuple[Peaks, int]:
    """Peaks and read bytes from the samples that an earlier life spooled; zeros without any."""
    peaks, reads = Peaks(), 0
    if not spool.exists():
        return peaks, reads
    with spool.open("rb") as file:
        for line in file:
            try:
                sample = json.loads(line)
                peaks = Peaks(
                    max(peaks.peak_memory_bytes, sample["memory_rss_bytes"]),
                    max(peaks.peak_cpu_percent, sample["cpu_usage_percent"]),
                    max(peaks.disk_written_bytes, sample["disk_write_bytes"]),
                    max(peaks.pids_peak, sample["pids_current"] or 0),
                )
                reads = max(reads, sample["disk_read_bytes"])
            except (ValueError, KeyError, TypeError):
                continue  # a gap record, or a torn last line
    return peaks, reads


class ResourceSampler:
    """Reads one sandbox's counters until stopped."""

    def __init__(
        self,
        attempt_id: str,
        source: ResourceSource,
        usage: Usage,
        emit: Emit,
        *,
        pids: PidsSource | None = None,
        clocks: Clocks,
        executor: Executor,
    ) -> None:
        self._attempt_id = attempt_id
        self._source = source
        self.usage = usage
        self._emit = emit
        self._pids = pids
        self._clocks = clocks
        self._executor = executor
        self._lock = asyncio.Lock()
        self._last_pids: int | None = None
        self._gone = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sample."""
        self._task = asyncio.create_task(self._loop())

    async def _loop(self) -> None:
        due_ns = self._clocks.monotonic_ns() + int(EVENT_SECONDS * 1e9)
        while await self.read():
            if self._clocks.monotonic_ns() >= due_ns:
                due_ns += int(EVENT_SECONDS * 1e9)
                await self._count_pids()
                await self._emit(self.usage.sample(self._last_pids))
            await self._clocks.sleep(READ_SECONDS)

    async def read(self) -> bool:
        """Read the counters once; False when they are gone."""
        async with self._lock:
            if self._gone:
                return False
            loop = asyncio.get_running_loop()
            try:
                counters = await loop.run_in_executor(self._executor, self._source.read)
            except SourceGoneError as error:
                self._gone = True
                say("info", "counters_gone", attempt_id=self._attempt_id, error=str(error))
                return False
            self.usage.take(Reading(counters, self._clocks.wall_ns(), self._clocks.monotonic_ns()))
            return True

    async def sample_now(self) -> None:
        """Read counters and processes once more, before they vanish."""
        if await self.read():
            await self._count_pids()

    async def _count_pids(self) -> None:
        if self._pids is None:
            return
        try:
            self._last_pids = await asyncio.wait_for(self._pids(), PIDS_SECONDS)
        except Exception as error:  # noqa: BLE001 - a foreign callback: its failure costs one number, not the sampler
            say("warning", "pids_unreadable", attempt_id=self._attempt_id, error=repr(error))
            self._last_pids = None
        if self._last_pids is not None:
            self.usage.take_pids(self._last_pids)

    async def stop(self) -> bool:
        """Stop and make the last reading an event. False when nothing was ever read."""
        if self._task is not None:
            self._task.cancel()
            (result,) = await asyncio.gather(self._task, return_exceptions=True)
            if isinstance(result, Exception):
                say("error", "sampler_failed", attempt_id=self._attempt_id, exc_info=result)
        await self.sample_now()
        if self.usage.pending:
            await self._emit(self.usage.sample(self._last_pids))
        return self.usage.latest is not None
