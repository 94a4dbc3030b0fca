"""CPU time that one event costs each process on its way, in microseconds. Run it, or call `rows`.

CPU time is what a loaded machine distorts least: waiting for a core is not in it. Each row's process is a real one and
is asked by its pid, user and system time together: the trace sink from socket to spool, the daemon's own telemetry
from `record` to acknowledgement (this process), the collector over SQLite, and over PostgreSQL with the server beside
it. The start of each process and its first events are not in the figures.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import psutil

from daemon.telemetry.facade import Telemetry
from tests.bench.telemetry.spool_to_store import Row, row
from tests.bench.telemetry.trace_cost import FAMILIES, rate
from tests.support.collector import Collector
from tests.support.events import sample
from tests.support.postgres import Cluster
from tests.support.trace_sink import SinkProcess

ROUNDS = 3
ATTEMPTS = 4
EVENTS = 40_000
EVENTS_A_FAMILY = 2
WARM_UP = 1_000


def used(pid: int) -> float:
    """Microseconds of CPU that a process has used, with what its living and ended children used."""
    process = psutil.Process(pid)
    total = 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system
    ended = process.cpu_times()
    return (total + ended.children_user + ended.children_system) * 1e6


def sink() -> list[Row]:
    """The trace sink's."""
    process = SinkProcess()
    try:
        process.start()
        assert process.process is not None
        pid = process.process.pid
        asyncio.run(rate(process, 0))
        found = []
        for number in range(1, ROUNDS + 1):
            before = used(pid)
            asyncio.run(rate(process, number))
            found.append((used(pid) - before) / (FAMILIES * EVENTS_A_FAMILY))
    finally:
        process.close()
    return [row("trace sink, CPU of an event", found, "us")]


async def _load(telemetry: Telemetry, number: int, count: int) -> None:
    attempts = [f"att_{number}_{index}" for index in range(ATTEMPTS)]
    for attempt_id in attempts:
        await telemetry.open(attempt_id)
    for event in range(count // ATTEMPTS):
        for attempt_id in attempts:
            await telemetry.record(attempt_id, "process", sample(event))
        if event % 100 == 0:
            await asyncio.sleep(0)
    ends = await asyncio.gather(*(telemetry.finish(attempt_id, 120) for attempt_id in attempts))
    assert all(end.stored and not end.gaps for end in ends)


async def _path(directory: Path, dialect: str, cluster: Cluster | None) -> list[Row]:
    collector = Collector(directory, None if cluster is None else cluster.new_database())
    collector.start()
    assert collector.process is not None
    clocks: dict[str, Callable[[], float]] = {
        "daemon's telemetry": lambda: time.process_time() * 1e6,
        "collector": partial(used, collector.process.pid),
    }
    if cluster is not None:
        clocks["database server"] = partial(used, cluster.pid)
    telemetry = Telemetry(directory / "state", "node-bench", collector.endpoint)
    await telemetry.start()
    found: dict[str, list[float]] = {name: [] for name in clocks}
    try:
        await _load(telemetry, 0, WARM_UP)
        for number in range(1, ROUNDS + 1):
            before = {name: clock() for name, clock in clocks.items()}
            await _load(telemetry, number, EVENTS)
            for name, clock in clocks.items():
                found[name].append((clock() - before[name]) / EVENTS)
    finally:
        await telemetry.close()
        collector.stop()
    return [row(f"{name}, CPU of an event ({dialect})", values, "us") for name, values in found.items()]


def path(dialect: str) -> list[Row]:
    """The daemon's, the collector's and a database server's."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    try:
        if dialect == "sqlite":
            return asyncio.run(_path(directory, dialect, None))
        cluster = Cluster()
        cluster.initialise()
        cluster.start()
        try:
            return asyncio.run(_path(directory, dialect, cluster))
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(directory)


def rows() -> list[Row]:
    """About a minute."""
    return [*sink(), *path("sqlite"), *path("postgresql")]


if __name__ == "__main__":
    for line in rows():
        print(f"{line['name']:<60} p50 {line['p50']:>8,.2f}  slowest {line['p99']:>8,.2f} {line['unit']}")
