"""Resource samples and peaks, with a clock and counters that the test owns."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from daemon.telemetry.resources import READ_SECONDS, Reading, ResourceSampler, Usage, recover
from daemon.telemetry.types import Clocks, Counters, Limits, Peaks, SourceGoneError
from formats import event

SECOND = 1_000_000_000
ZERO = Counters(0, 1_000, 10, 2_000, 0, 0, 0)
LIMITS = Limits(memory_bytes=1_000_000)


class Script:
    """Time and counters: each sleep of the sampler takes the next step; `end` parks it."""

    def __init__(self, *steps: Counters | None) -> None:
        self.steps = list(steps)
        self.index = 0
        self.now = 0
        self.parked = asyncio.Event()

    def read(self) -> Counters:
        step = self.steps[min(self.index, len(self.steps) - 1)]
        if step is None:
            raise SourceGoneError("gone")
        return step

    async def sleep(self, seconds: float) -> None:
        self.now += int(seconds * SECOND)
        self.index += 1
        if self.index >= len(self.steps) - 1:
            self.parked.set()
            await asyncio.Event().wait()

    def clocks(self) -> Clocks:
        return Clocks(lambda: 7_000 + self.now, lambda: self.now, self.sleep)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


def sampler(
    script: Script, threads: ThreadPoolExecutor, pids: object = None, limits: Limits = LIMITS
) -> tuple[ResourceSampler, list[event.Resource]]:
    emitted: list[event.Resource] = []

    async def emit(sample: event.Resource) -> None:
        emitted.append(sample)

    made = ResourceSampler(
        "att_1",
        script,
        Usage(limits),
        emit,
        pids=pids,  # type: ignore[arg-type]
        clocks=script.clocks(),
        executor=threads,
    )
    return made, emitted


async def finish(script: Script, made: ResourceSampler) -> bool:
    made.start()
    await asyncio.wait_for(script.parked.wait(), 10)
    return await made.stop()


def busy(share: float, count: int) -> list[Counters]:
    """Readings of a sandbox that uses `share` CPUs."""
    step = int(share * READ_SECONDS * SECOND)
    return [dataclasses.replace(ZERO, cpu_usage_ns=number * step) for number in range(count)]


async def test_one_event_every_five_seconds_and_one_at_the_end(threads: ThreadPoolExecutor) -> None:
    script = Script(*busy(0.5, 23))
    made, emitted = sampler(script, threads)
    assert await finish(script, made)
    assert [sample["timestamp_ns"] - 7_000 for sample in emitted] == [5 * SECOND, 10 * SECOND, 11 * SECOND]
    assert [sample["cpu_usage_percent"] for sample in emitted] == [50.0, 50.0, 50.0]
    assert made.usage.peaks.peak_cpu_percent == 50.0


async def test_an_attempt_shorter_than_an_interval_still_has_its_last_sample(
    threads: ThreadPoolExecutor,
) -> None:
    script = Script(ZERO)
    made, emitted = sampler(script, threads)
    assert await finish(script, made)
    assert len(emitted) == 1
    assert emitted[0]["memory_rss_bytes"] == 1_000


async def test_counters_that_vanish_leave_their_last_reading(threads: ThreadPoolExecutor) -> None:
    last = Counters(5, 960_000, 10, 970_000, 300, 400, 0)
    script = Script(ZERO, last, None)
    made, emitted = sampler(script, threads)
    assert await finish(script, made)
    assert len(emitted) == 1
    assert emitted[0]["memory_rss_bytes"] == 960_000
    assert emitted[0]["disk_write_bytes"] == 400
    assert made.usage.near_limit
    assert made.usage.peaks.disk_written_bytes == 400


async def test_counters_that_never_could_be_read_are_told(threads: ThreadPoolExecutor) -> None:
    script = Script(None)
    made, emitted = sampler(script, threads)
    made.start()
    assert not await made.stop()
    assert emitted == []
    assert made.usage.oom_kill_count == -1


async def test_processes_are_counted_and_their_source_may_fail(threads: ThreadPoolExecutor) -> None:
    answers: list[int | Exception | None] = [3, RuntimeError("link down"), None, 9]

    async def pids() -> int | None:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    script = Script(*busy(0.1, 31))
    made, emitted = sampler(script, threads, pids)
    await finish(script, made)
    assert [sample["pids_current"] for sample in emitted] == [3, None, None]
    await made.sample_now()
    assert made.usage.peaks.pids_peak == 9


async def test_sample_now_is_the_last_word_before_a_kill(threads: ThreadPoolExecutor) -> None:
    script = Script(ZERO, dataclasses.replace(ZERO, oom_kill_count=1, memory_rss_bytes=5_000))
    made, emitted = sampler(script, threads)
    made.start()
    await asyncio.wait_for(script.parked.wait(), 10)
    await made.sample_now()
    script.steps = [None]
    await made.stop()
    assert emitted[-1]["memory_rss_bytes"] == 5_000
    assert made.usage.oom_kill_count == 1


def reading(seconds: float, **changes: int) -> Reading:
    counters = dataclasses.replace(ZERO, **changes)  # type: ignore[arg-type]
    return Reading(counters, int(seconds * SECOND), int(seconds * SECOND))


def test_the_kernels_mark_counts_as_memory_only_after_a_kill_for_memory() -> None:
    usage = Usage(LIMITS)
    usage.take(reading(0, memory_rss_bytes=300, memory_high_water_bytes=999_000))
    assert usage.peaks.peak_memory_bytes == 300
    assert usage.peaks.memory_high_water_bytes == 999_000
    usage.take(reading(1, memory_rss_bytes=300, memory_high_water_bytes=999_000, oom_kill_count=1))
    assert usage.peaks.peak_memory_bytes == 999_000


@pytest.mark.parametrize(("rss", "near"), [(949_999, False), (950_000, True), (1_000_000, True)])
def test_near_the_limit_begins_at_95_percent_of_the_latest_reading(rss: int, near: bool) -> None:
    usage = Usage(LIMITS)
    usage.take(reading(0, memory_rss_bytes=1_000_000))
    usage.take(reading(1, memory_rss_bytes=rss))
    assert usage.near_limit is near


def test_a_sandbox_without_a_limit_is_never_near_it() -> None:
    usage = Usage(Limits(0))
    assert not usage.near_limit
    usage.take(reading(0, memory_rss_bytes=5))
    assert not usage.near_limit


def test_a_share_over_an_instant_is_no_peak() -> None:
    usage = Usage(LIMITS)
    usage.take(reading(0))
    usage.take(reading(5, cpu_usage_ns=SECOND))
    assert usage.sample(None)["cpu_usage_percent"] == 20.0
    usage.take(reading(5.01, cpu_usage_ns=SECOND + SECOND // 50))
    assert usage.sample(None)["cpu_usage_percent"] == 200.0
    assert usage.peaks.peak_cpu_percent == 20.0


def test_a_restart_keeps_peaks_and_totals_from_the_spool(tmp_path: Path) -> None:
    spool = tmp_path / "resource.jsonl"
    usage = Usage(LIMITS)
    usage.take(reading(0))
    usage.take(reading(5, cpu_usage_ns=SECOND, memory_rss_bytes=9_000, disk_read_bytes=70, disk_write_bytes=80))
    usage.take_pids(12)
    first = event.encode("resource", "att_1", 1, usage.sample(12))
    spool.write_bytes(first + event.encode_gap(event.gap("resource", "att_1", 2, None, "x")) + b'{"torn')
    peaks, reads = recover(spool)
    assert peaks == Peaks(9_000, 20.0, 80, 12)
    again = Usage(LIMITS, peaks, reads)
    again.take(reading(0, disk_write_bytes=30))
    sample = again.sample(1)
    assert (sample["disk_read_bytes"], sample["disk_write_bytes"]) == (70, 80)
    assert again.peaks.peak_memory_bytes == 9_000
    assert recover(tmp_path / "absent") == (Peaks(), 0)


def test_every_metric_of_the_specification_is_in_a_sample() -> None:
    usage = Usage(LIMITS)
    usage.take(reading(0))
    line = json.loads(event.encode("resource", "att_1", 1, usage.sample(4)))
    assert line.keys() >= {
        "timestamp_ns",
        "cpu_usage_percent",
        "memory_rss_bytes",
        "memory_cache_bytes",
        "disk_read_bytes",
        "disk_write_bytes",
        "pids_current",
        "oom_kill_count",
    }
