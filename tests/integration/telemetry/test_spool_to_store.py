"""From a source to the event store through real processes; whoever is killed, nothing spooled is lost or doubled."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from daemon.telemetry.facade import Telemetry
from daemon.telemetry.types import AttemptFinishedError, AttemptUnknownError
from formats import event
from records.events.port import EventQuery, EventStore
from tests.support.collector import ROOT, Collector
from tests.support.events import sample

LIVENESS_SECONDS = 60


def stored(store: EventStore, attempt_id: str, kind: str | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    token = ""
    while True:
        page = store.list_events(EventQuery(attempt_id, kind), page_size=5_000, page_token=token)
        found += [json.loads(line) for line in page.lines]
        token = page.next_page_token
        if not token:
            return found


def open_below(place: Path) -> list[str]:
    """This process's open spool files."""
    held = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink()]
    return [path for path in held if path.startswith(f"{place}/state/") and path.endswith(".jsonl")]


@contextlib.asynccontextmanager
async def running(place: Path, collector: Collector):  # type: ignore[no-untyped-def]
    telemetry = Telemetry(place / "state", "node-1", collector.endpoint)
    await telemetry.start()
    try:
        yield telemetry
    finally:
        await telemetry.close()


async def test_every_event_arrives_once_and_in_order(place: Path, collector: Collector) -> None:
    async with running(place, collector) as telemetry:
        await telemetry.open("att_1")
        numbers = [await telemetry.record("att_1", "process", sample(n)) for n in range(1, 2_501)]
        await telemetry.record("att_1", "resource", sample(1))
        finished = await telemetry.finish("att_1", timeout=LIVENESS_SECONDS)
        assert numbers == list(range(1, 2_501))
        assert finished.stored
        assert finished.counts == {"process": 2_500, "resource": 1}
        assert finished.telemetry_events == 2_501
        assert finished.gaps == {}
    store = collector.store()
    assert [line["sequence"] for line in stored(store, "att_1", "process")] == numbers
    assert store.counts("att_1").events == finished.counts
    store.close()


async def test_a_claim_that_failed_leaves_no_file_open_and_may_come_again(place: Path, collector: Collector) -> None:
    async with running(place, collector) as telemetry:
        await telemetry.open("att_1")
        assert open_below(place)
        await telemetry.abandon("att_1")
        await telemetry.abandon("att_1")
        assert not open_below(place)
        await telemetry.open("att_1")
        assert await telemetry.record("att_1", "process", sample(1)) == 1


async def test_nothing_may_follow_the_end_and_the_end_is_told_again(place: Path, collector: Collector) -> None:
    async with running(place, collector) as telemetry:
        await telemetry.open("att_1")
        call = telemetry.begin_tool("att_1", "exec", {"argv": ["true"]})
        call.end(exit_code=0)
        assert await telemetry.record_tool("att_1", call) == 1
        first, second = await asyncio.gather(
            telemetry.finish("att_1", LIVENESS_SECONDS), telemetry.finish("att_1", LIVENESS_SECONDS)
        )
        assert first == second
        with pytest.raises(AttemptUnknownError):
            await telemetry.record("att_1", "process", sample(1))
        with pytest.raises(AttemptFinishedError):
            await telemetry.open("att_1")
        with pytest.raises(AttemptUnknownError):
            await telemetry.finish("att_never")
    async with running(place, collector) as restarted:
        assert await restarted.finish("att_1", LIVENESS_SECONDS) == first
        assert restarted.spooled() == ["att_1"]
        assert await restarted.discard("att_1")
        assert await restarted.discard("att_1")
        assert restarted.spooled() == []


async def test_killing_the_collector_again_and_again_under_load_loses_and_doubles_nothing(
    place: Path, collector: Collector
) -> None:
    store = collector.store()
    totals: dict[str, int] = {}
    async with running(place, collector) as telemetry:
        enough = asyncio.Event()

        async def kill_while_it_stores() -> None:
            for _ in range(3):
                seen = await asyncio.to_thread(store.cursor, "att_1", "process")
                while await asyncio.to_thread(store.cursor, "att_1", "process") == seen:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # the store is another process's: it can only be asked
                await asyncio.to_thread(collector.kill)
                await asyncio.to_thread(collector.start)
            enough.set()

        async def load(attempt_id: str) -> None:
            await telemetry.open(attempt_id)
            number = 0
            while not enough.is_set():
                for _ in range(200):
                    number += 1
                    await telemetry.record(attempt_id, "process", sample(number))
                await asyncio.sleep(0.02)
            totals[attempt_id] = number

        await asyncio.wait_for(asyncio.gather(kill_while_it_stores(), load("att_1"), load("att_2")), LIVENESS_SECONDS)
        for attempt_id, total in totals.items():
            finished = await telemetry.finish(attempt_id, timeout=LIVENESS_SECONDS)
            assert finished.stored
            assert finished.counts == {"process": total}
    for attempt_id, total in totals.items():
        assert total >= 1_000
        assert [line["sequence"] for line in stored(store, attempt_id)] == list(range(1, total + 1))
        assert store.counts(attempt_id).events == {"process": total}
    store.close()


async def test_a_collector_that_is_down_is_waited_for_and_caught_up_with(place: Path, collector: Collector) -> None:
    collector.kill()
    async with running(place, collector) as telemetry:
        await telemetry.open("att_1")
        for number in range(1, 101):
            await telemetry.record("att_1", "filesystem", sample(number))
        finished = await telemetry.finish("att_1", timeout=0.5)
        assert not finished.stored
        assert finished.counts == {"filesystem": 100}
        assert not await telemetry.discard("att_1")
        await asyncio.to_thread(collector.start)
        finished = await telemetry.finish("att_1", timeout=LIVENESS_SECONDS)
        assert finished.stored
        assert await telemetry.discard("att_1")
    store = collector.store()
    assert len(stored(store, "att_1")) == 100
    store.close()


SOURCE = """
import asyncio, pathlib, sys
from daemon.telemetry.facade import Telemetry
from tests.support.events import sample

async def main():
    telemetry = Telemetry(pathlib.Path(sys.argv[1]), "node-1", sys.argv[2])
    await telemetry.start()
    await telemetry.resume("att_1")
    while True:
        call = telemetry.begin_tool("att_1", "exec", {"argv": ["true"]})
        await telemetry.record("att_1", "process", sample(1))
        await telemetry.record("att_1", "process", sample(1))
        call.end(exit_code=0)
        print(await telemetry.record_tool("att_1", call), flush=True)

asyncio.run(main())
"""


async def test_a_killed_daemon_keeps_every_answered_call_and_says_what_it_lost(
    place: Path, collector: Collector
) -> None:
    answered: set[int] = set()
    for _ in range(4):
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            SOURCE,
            str(place / "state"),
            collector.endpoint,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proto'}"},
        )
        assert process.stdout is not None
        for _ in range(200):
            answered.add(int(await asyncio.wait_for(process.stdout.readline(), LIVENESS_SECONDS)))
        process.send_signal(signal.SIGKILL)
        rest = (await process.stdout.read()).splitlines(keepends=True)
        answered |= {int(line) for line in rest if line.endswith(b"\n")}
        await process.wait()
    async with running(place, collector) as telemetry:
        await telemetry.resume("att_1")
        finished = await telemetry.finish("att_1", LIVENESS_SECONDS)
        assert finished.stored
    store = collector.store()
    counts = store.counts("att_1")
    assert (counts.events, counts.gaps) == (finished.counts, finished.gaps)
    for kind in ("tool_invocation", "process"):
        assert event.sequence_problems(stored(store, "att_1", kind)) == []
    calls = {line["sequence"] for line in stored(store, "att_1", "tool_invocation") if "sequence" in line}
    assert len(answered) >= 800
    assert answered <= calls
    store.close()
