"""The recorder slows its sources before it loses an event, and says every loss."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from daemon.telemetry import recorder as module
from daemon.telemetry.recorder import Recorder
from daemon.telemetry.spool import SpoolFile
from daemon.telemetry.stream import BUFFER_FULL
from daemon.telemetry.types import AttemptFinishedError, AttemptUnknownError
from formats import event
from tests.support.events import sample

LIVENESS_SECONDS = 20


def on_disk(root: Path, kind: str = "resource") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "att_1" / f"{kind}.jsonl").read_bytes().splitlines()]


def nobody(attempt_id: str, kind: str, size: int) -> None:
    """Nobody ships."""


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Writes wait until this is set: a disk that takes its time."""
    gate = threading.Event()
    append = SpoolFile.append

    def slow(self: SpoolFile, lines: Sequence[bytes]) -> None:
        assert gate.wait(LIVENESS_SECONDS)
        append(self, lines)

    monkeypatch.setattr(SpoolFile, "append", slow)
    return gate


async def test_a_full_buffer_makes_the_source_wait_and_loses_nothing(tmp_path: Path, held: threading.Event) -> None:
    recorder = Recorder(tmp_path, nobody, buffer_bytes=2_000)
    recorder.start()
    await recorder.open("att_1")
    recorded: list[int] = []

    async def source() -> None:
        for number in range(1, 101):
            recorded.append(await recorder.record("att_1", "resource", sample(number)))

    task = asyncio.create_task(source())
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done
    assert 0 < len(recorded) < 60
    held.set()
    await asyncio.wait_for(task, LIVENESS_SECONDS)
    await recorder.close()
    assert [line["sequence"] for line in on_disk(tmp_path)] == recorded == list(range(1, 101))


async def test_events_given_together_wait_for_room_and_keep_their_order(tmp_path: Path, held: threading.Event) -> None:
    recorder = Recorder(tmp_path, nobody, buffer_bytes=2_000)
    recorder.start()
    await recorder.open("att_1")
    together = [sample(number) for number in range(1, 101)]
    task = asyncio.create_task(recorder.record_all("att_1", "resource", together))
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done
    held.set()
    await asyncio.wait_for(task, LIVENESS_SECONDS)
    await recorder.record_all("att_1", "resource", [])
    await recorder.close()
    lines = on_disk(tmp_path)
    assert event.sequence_problems(lines) == []
    assert [line["timestamp_ns"] for line in lines] == [fields["timestamp_ns"] for fields in together]


async def test_of_events_given_together_what_is_too_large_becomes_a_gap(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, nobody)
    recorder.start()
    await recorder.open("att_1")
    large = {**sample(2), "padding": "x" * event.MAX_LINE_BYTES}
    await recorder.record_all("att_1", "resource", [sample(1), large, sample(3)])
    await recorder.close()
    assert [line.get("sequence", line.get("gap")) for line in on_disk(tmp_path)] == [
        1,
        {"first": 2, "last": 2, "reason": "event_too_large"},
        3,
    ]
    with pytest.raises(AttemptUnknownError):
        await recorder.record_all("att_1", "resource", [sample(4)])


async def test_a_source_that_cannot_wait_loses_and_the_gap_says_exactly_what(
    tmp_path: Path, held: threading.Event
) -> None:
    recorder = Recorder(tmp_path, nobody, buffer_bytes=2_000)
    recorder.start()
    await recorder.open("att_1")
    results = [recorder.record_nowait("att_1", "resource", sample(number)) for number in range(100)]
    assert None in results
    held.set()
    await recorder.flush("att_1")
    assert recorder.record_nowait("att_1", "resource", sample(100)) == 101
    streams = await recorder.close_attempt("att_1")
    await recorder.close()
    lines = on_disk(tmp_path)
    assert event.sequence_problems(lines) == []
    kept = [line["sequence"] for line in lines if "sequence" in line]
    assert kept == [number for number in results if number is not None] + [101]
    (gap,) = [line["gap"] for line in lines if "gap" in line]
    assert gap["reason"] == BUFFER_FULL
    assert gap["last"] == 100
    assert (streams["resource"].events, streams["resource"].gaps) == (len(kept), 1)


async def test_losses_that_a_source_reports_are_said(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, nobody)
    recorder.start()
    await recorder.open("att_1")
    await recorder.record("att_1", "process", sample(1))
    recorder.record_loss("att_1", "process", 7, "sentry_dropped")
    recorder.record_loss("att_1", "process", None, "overflow")
    assert await recorder.record("att_1", "process", sample(1)) == 9
    await recorder.close()
    lines = on_disk(tmp_path, "process")
    assert event.sequence_problems(lines) == []
    assert [line["gap"] for line in lines if "gap" in line] == [
        {"first": 2, "last": 8, "reason": "sentry_dropped"},
        {"first": 9, "last": None, "reason": "overflow"},
    ]


async def test_a_disk_that_is_full_for_a_while_leaves_a_gap_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_RETRY_SECONDS", 0.01)
    append: Callable[..., None] = SpoolFile.append
    failing = True

    def filling(self: SpoolFile, lines: Sequence[bytes]) -> None:
        if failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(self, lines)

    monkeypatch.setattr(SpoolFile, "append", filling)
    recorder = Recorder(tmp_path, nobody)
    recorder.start()
    await recorder.open("att_1")
    for number in range(1, 11):
        await recorder.record("att_1", "resource", sample(number))
        await recorder.flush("att_1")
    failing = False
    for number in range(11, 16):
        await recorder.record("att_1", "resource", sample(number))
    streams = await recorder.close_attempt("att_1")
    await recorder.close()
    lines = on_disk(tmp_path)
    assert event.sequence_problems(lines) == []
    assert lines[0]["gap"] == {"first": 1, "last": 10, "reason": "spool_write: No space left on device"}
    assert [line["sequence"] for line in lines[1:]] == list(range(11, 16))
    assert (streams["resource"].events, streams["resource"].gaps) == (5, 1)


async def test_a_disk_that_takes_neither_the_spool_nor_the_log_ends_no_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_RETRY_SECONDS", 0.01)
    append: Callable[..., None] = SpoolFile.append
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def filling(self: SpoolFile, lines: Sequence[bytes]) -> None:
        if failures:
            raise failures.pop()
        append(self, lines)

    class FullLog:
        def error(self, event: str, **fields: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(SpoolFile, "append", filling)
    monkeypatch.setattr("daemon.telemetry.saying.log", FullLog())
    recorder = Recorder(tmp_path, nobody)
    recorder.start()
    await recorder.open("att_1")
    await recorder.record("att_1", "resource", sample(1))
    await asyncio.wait_for(recorder.flush("att_1"), LIVENESS_SECONDS)
    assert await recorder.record("att_1", "resource", sample(2)) == 2
    await asyncio.wait_for(recorder.close(), LIVENESS_SECONDS)
    assert event.sequence_problems(on_disk(tmp_path)) == []


async def test_a_disk_that_stays_full_cannot_hold_the_end_up_and_is_said_when_reopened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WRITE_RETRY_SECONDS", 0.01)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.1)

    def full(self: SpoolFile, lines: Sequence[bytes]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(SpoolFile, "append", full)
        recorder = Recorder(tmp_path, nobody)
        recorder.start()
        await recorder.open("att_1")
        await recorder.record("att_1", "resource", sample(1))
        await asyncio.wait_for(recorder.close(), LIVENESS_SECONDS)
    again = Recorder(tmp_path, nobody)
    again.start()
    await again.open("att_1")
    assert await again.record("att_1", "resource", sample(2)) == 2
    await again.close()
    lines = on_disk(tmp_path)
    assert lines[0]["gap"] == {"first": 1, "last": 1, "reason": "daemon_restart"}
    assert event.sequence_problems(lines) == []


async def test_a_waiting_source_learns_that_the_attempt_ended(tmp_path: Path, held: threading.Event) -> None:
    recorder = Recorder(tmp_path, nobody, buffer_bytes=500)
    recorder.start()
    await recorder.open("att_1")

    async def source() -> None:
        while True:
            await recorder.record("att_1", "resource", sample(1))

    task = asyncio.create_task(source())
    await asyncio.wait({task}, timeout=0.1)
    closing = asyncio.create_task(recorder.close_attempt("att_1"))
    await asyncio.wait({closing}, timeout=0.1)
    held.set()
    with pytest.raises((AttemptFinishedError, AttemptUnknownError)):
        await asyncio.wait_for(task, LIVENESS_SECONDS)
    await asyncio.wait_for(closing, LIVENESS_SECONDS)
    await recorder.close()
    assert event.sequence_problems(on_disk(tmp_path)) == []


async def test_one_kind_at_its_cap_leaves_the_others_open(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, nobody, cap_bytes=5 * 10_000)
    recorder.start()
    await recorder.open("att_1")
    for number in range(500):
        await recorder.record("att_1", "process", sample(number))
    await recorder.record("att_1", "tool_invocation", sample(1))
    streams = await recorder.close_attempt("att_1")
    await recorder.close()
    assert streams["process"].gaps == 1
    assert streams["process"].events < 100
    assert streams["tool_invocation"].events == 1
    assert (tmp_path / "att_1" / "process.jsonl").stat().st_size < 10_500
    assert event.sequence_problems(on_disk(tmp_path, "process")) == []


async def test_only_synced_bytes_are_told_to_the_shipper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    durable: dict[int, int] = {}
    told: list[int] = []
    fdatasync = os.fdatasync

    def syncing(handle: int) -> None:
        size = os.fstat(handle).st_size
        fdatasync(handle)
        durable[os.fstat(handle).st_ino] = size

    def synced(attempt_id: str, kind: str, size: int) -> None:
        told.append(size)
        assert size <= durable[(tmp_path / attempt_id / f"{kind}.jsonl").stat().st_ino]

    monkeypatch.setattr(os, "fdatasync", syncing)
    recorder = Recorder(tmp_path, synced)
    recorder.start()
    await recorder.open("att_1")
    for number in range(500):
        await recorder.record("att_1", "resource", sample(number))
        await asyncio.sleep(0)
    await recorder.close_attempt("att_1")
    assert told[-1] == (tmp_path / "att_1" / "resource.jsonl").stat().st_size
    await recorder.close()


async def test_an_attempt_that_is_not_open_is_an_error(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, nobody)
    recorder.start()
    with pytest.raises(AttemptUnknownError):
        await recorder.record("att_1", "resource", sample(1))
    with pytest.raises(AttemptUnknownError):
        await recorder.flush("att_1")
    with pytest.raises(AttemptUnknownError):
        await recorder.close_attempt("att_1")
    await recorder.close()
