"""A claim that failed half-way: what the sink began for it goes away again, and what was told stays."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from daemon.trace import sink as sinks
from daemon.trace.runsc import Runsc
from daemon.trace.sink import Sink
from tests.support.sentry import Sentry, clone, execve
from tests.support.trace_sink import container_id

LIVENESS = 10.0


@pytest.fixture
async def sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sink]:
    monkeypatch.setattr(sinks, "ABANDONED_SECONDS", 0.2)
    made = Sink(tmp_path / "s.sock", tmp_path, {"node-0": tmp_path / "node"}, Runsc(Path("/bin/false")))
    await made.start()
    yield made
    await made.stop()


async def bound(sink: Sink, tmp_path: Path, attempt_id: str) -> Sentry:
    container = container_id()
    sentry = await asyncio.to_thread(Sentry, tmp_path / "s.sock", container)
    async with asyncio.timeout(LIVENESS):
        await sink.expect(container)
    await sink.bind("node-0", container, attempt_id, False)
    return sentry


def until(condition: Callable[[], bool]) -> None:
    """Blocking, since nothing tells."""
    deadline = time.monotonic() + LIVENESS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_nothing_is_left_of_an_attempt_that_never_ran(sink: Sink, tmp_path: Path) -> None:
    sentry = await bound(sink, tmp_path, "att_empty")
    directory = tmp_path / "node" / "spool" / "att_empty"
    assert directory.is_dir()
    sentry.close()
    await asyncio.to_thread(until, lambda: not directory.exists())


async def test_what_a_daemon_keeps_beside_it_stays(sink: Sink, tmp_path: Path) -> None:
    sentry = await bound(sink, tmp_path, "att_kept")
    directory = tmp_path / "node" / "spool" / "att_kept"
    (directory / "resource.jsonl").write_text("{}\n")
    sentry.close()
    await asyncio.to_thread(until, lambda: not (directory / "process.jsonl").exists())
    assert [path.name for path in directory.iterdir()] == ["resource.jsonl"]


async def test_what_was_told_stays_and_is_closed(sink: Sink, tmp_path: Path) -> None:
    sentry = await bound(sink, tmp_path, "att_told")
    sentry.send(clone(1, 10), execve(10, "sh"))
    sentry.close()
    directory = tmp_path / "node" / "spool" / "att_told"
    await asyncio.to_thread(until, (directory / "trace_finished.json").exists)
    assert (directory / "process.jsonl").read_bytes().count(b"\n") == 2
