"""Collector, database, trace sink and daemon are killed (SIGKILL) one after another and then all at once, under load.

Every process is the real one; only sandboxes are missing: sentries and one source in the daemon are synthetic, and
offer 20,000 events a second by their clocks. No time is asserted: a slow machine writes the same events later. What
must hold at the end: the store's lines are the spool's, each once; what a killed process had spooled is still there;
every number is an event or lies in a gap record; every event that was offered and is missing died with a process.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from daemon.trace.client import TraceClient
from formats import event
from records.events.port import EventQuery, EventStore
from tests.support.collector import Collector
from tests.support.environment import until
from tests.support.events import START_NS
from tests.support.loaded_node import KIND, LoadedNodeProcess
from tests.support.loaded_sentry import FIRST_PID, LoadedSentry
from tests.support.postgres import Cluster
from tests.support.trace_sink import SinkProcess, attached, container_id

ATTEMPTS = ["att_1", "att_2"]
# Two events each; with the daemon's own 5,000 an attempt that is 20,000 events a second.
PROCESSES_A_SECOND = 2_500
# Offered between one death and the next: about a second's.
QUOTA = 20_000
# A session may be attached while everything else starts as well.
BIND_SECONDS = 60.0
PATIENCE_SECONDS = 300.0


class Service(Protocol):
    """A process of the scenario."""

    def start(self) -> None:
        """Start it and wait until it serves."""

    def kill(self) -> object:
        """kill -9."""


class Stage:
    """Everything that runs, and how it dies."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.cluster.initialise()
        self.cluster.start()
        self.sink = SinkProcess()
        self.collector = Collector(self.sink.root, self.cluster.new_database())
        self.node = LoadedNodeProcess(
            self.sink.root, self.sink.root / "node", self.collector.endpoint, self.sink.endpoint, ATTEMPTS
        )
        self.sentries: dict[str, LoadedSentry] = {}
        self.before: list[tuple[Path, bytes]] = []

    def close(self) -> None:
        """End whatever runs."""
        self.node.close()
        self.collector.stop()
        self.cluster.stop()
        self.sink.close()

    def spooled(self, attempt_id: str, kind: str) -> Path:
        return self.sink.spool / attempt_id / f"{kind}.jsonl"

    def remember(self) -> None:
        """What the spool holds now, while its writer is dead: whole lines, as bytes."""
        for path in sorted(self.sink.spool.glob("*/*.jsonl")):
            data = path.read_bytes()
            self.before.append((path, data[: data.rfind(b"\n") + 1]))

    def offered(self) -> int:
        told = sum(2 * sentry.processes for sentry in self.sentries.values())
        return told + sum(map(self.node.offered, ATTEMPTS))

    async def more(self) -> None:
        """Wait until another QUOTA of events was offered."""
        target = self.offered() + QUOTA
        await until(lambda: self.offered() >= target, PATIENCE_SECONDS)

    async def bind(self, client: TraceClient) -> None:
        """Begin: each attempt has its sandbox."""
        for attempt_id in ATTEMPTS:
            sentry = await asyncio.to_thread(LoadedSentry, self.sink.socket, container_id(), PROCESSES_A_SECOND)
            await client.expect(sentry.container_id)
            assert not await client.bind(sentry.container_id, attempt_id)
            self.sentries[attempt_id] = sentry

    async def attach_again(self, client: TraceClient) -> None:
        """What the daemon does for its attempts when it meets a new sink."""
        listener = self.sink.listen_for_attach()
        try:
            for attempt_id, sentry in self.sentries.items():
                connecting = asyncio.create_task(asyncio.to_thread(attached, listener))
                binding = asyncio.create_task(client.bind(sentry.container_id, attempt_id, running=True))
                name, sock = await connecting
                assert name == sentry.container_id
                assert await binding
                sentry.attached(sock)
        finally:
            listener.close()
            self.sink.handover.unlink()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    try:
        made.collector.start()
        made.sink.start()
        yield made
    finally:
        made.close()


async def test_everything_may_die_and_nothing_spooled_is_lost_or_doubled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("daemon.trace.client.BIND_SECONDS", BIND_SECONDS)
    client = stage.sink.client()
    await stage.bind(client)
    stage.node.start()
    for sentry in stage.sentries.values():
        sentry.start()
    # The database comes first: a collector waits for it.
    services: list[Service] = [stage.cluster, stage.collector, stage.sink, stage.node]
    for dying in ([stage.collector], [stage.cluster], [stage.sink], [stage.node], services):
        await stage.more()
        for one in dying:
            await asyncio.to_thread(one.kill)
        await asyncio.to_thread(stage.remember)
        for one in dying:
            await asyncio.to_thread(one.start)
        if stage.sink in dying:
            await stage.attach_again(client)
    await stage.more()
    for sentry in stage.sentries.values():
        await asyncio.to_thread(sentry.stop)
    stage.node.enough()
    await until(lambda: all(map(stage.node.end, ATTEMPTS)), PATIENCE_SECONDS)
    await client.close()
    for path, data in stage.before:
        assert path.read_bytes().startswith(data), f"{path} lost lines that a dead process had spooled"
    store = stage.collector.store()
    for attempt_id in ATTEMPTS:
        end = stage.node.end(attempt_id)
        assert end is not None
        assert end["stored"]
        counts = await asyncio.to_thread(store.counts, attempt_id)
        assert (counts.events, counts.gaps) == (end["counts"], end["gaps"])
        for kind in (KIND, "process"):
            lines = stage.spooled(attempt_id, kind).read_bytes().splitlines()
            assert sorted(await asyncio.to_thread(stored, store, attempt_id, kind)) == sorted(lines)
            decoded = [json.loads(line) for line in lines]
            assert event.sequence_problems(decoded) == []
            assert end["counts"][kind] == sum("gap" not in line for line in decoded)
        check_source(stage, attempt_id)
        check_sentry(stage, attempt_id)
    store.close()


def lines_of(stage: Stage, attempt_id: str, kind: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A spool file's events and gap records."""
    decoded = [json.loads(line) for line in stage.spooled(attempt_id, kind).read_bytes().splitlines()]
    return [line for line in decoded if "gap" not in line], [line["gap"] for line in decoded if "gap" in line]


def check_source(stage: Stage, attempt_id: str) -> None:
    """The daemon died twice: each time at most one offered event had no number yet, the others are events or gaps."""
    events, gaps = lines_of(stage, attempt_id, KIND)
    offered = stage.node.offered(attempt_id)
    told = [(line["timestamp_ns"] - START_NS) // 1_000 for line in events]
    assert len(set(told)) == len(told), "an event twice"
    assert set(told) <= set(range(1, offered + 1))
    assert {gap["reason"] for gap in gaps} <= {"daemon_restart"}
    missing = sum(gap["last"] - gap["first"] + 1 for gap in gaps)
    assert offered - 2 <= len(told) + missing <= offered


def check_sentry(stage: Stage, attempt_id: str) -> None:
    """The sink died twice: each time the end of one connection is missing, and gap records say so."""
    events, gaps = lines_of(stage, attempt_id, "process")
    sentry = stage.sentries[attempt_id]
    assert [gap["reason"] for gap in gaps].count("trace_session_lost") == 2
    assert {gap["reason"] for gap in gaps} <= {"trace_session_lost", "daemon_restart"}
    told = Counter((line["event"], line["pid"]) for line in events if line["pid"] >= FIRST_PID)
    assert set(told.values()) == {1}, "an event twice"
    assert len(sentry.runs) == 3
    for number, (first, last) in enumerate(sentry.runs):
        pids = range(first, last)
        whole = {pid for pid in pids if ("process_spawn", pid) in told and ("process_exit", pid) in told}
        assert whole == set(pids[: len(whole)]), "a hole amid a connection"
        assert whole, "nothing of a connection"
        # The last connection was not cut.
        assert number < 2 or whole == set(pids)


def stored(store: EventStore, attempt_id: str, kind: str) -> list[bytes]:
    """Every line that the store has of a stream."""
    found: list[bytes] = []
    token = ""
    while True:
        page = store.list_events(EventQuery(attempt_id, kind), page_size=5_000, page_token=token)
        found += page.lines
        token = page.next_page_token
        if not token:
            return found
