"""How fast telemetry travels from a source to the event store, and how late it arrives. Run it, or call `rows`.

A synthetic source records at the daemon's own entry (`Telemetry.record`); the collector is a real process. The rate
is stored events over the time from the first record to the last acknowledgement; the lag is from `record` to the
acknowledgement that the event is durable in the store, at a steady load. Beside it stands the store alone, given
ready lines in this process.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict

from daemon.telemetry.facade import Telemetry
from tests.support.collector import Collector
from tests.support.events import lines, sample
from tests.support.postgres import Cluster

ATTEMPTS = 4
ROUNDS = 5
EVENTS_A_ROUND = 40_000
STEADY_RATE = 20_000
STEADY_SECONDS = 10
# Every this many events one is followed to the store.
FOLLOWED = 100
TARGET_RATE = 20_000
TARGET_LAG_MS = 500.0


class Row(TypedDict):
    """One line of the table; `target` is for p50 of a rate and for p99 of a lag."""

    name: str
    p50: float
    p95: float
    p99: float
    unit: str
    beside: float | None
    ratio: float | None
    target: float | None


def row(name: str, values: Sequence[float], unit: str, beside: float | None = None, target: float | None = None) -> Row:
    """Percentiles of measured values; for a rate p95 and p99 are its slow end."""
    ordered = sorted(values, reverse=unit.endswith("/s"))

    def at(share: float) -> float:
        return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 2)

    p50 = round(statistics.median(ordered), 2)
    ratio = round(p50 / beside, 3) if beside else None
    return {
        "name": name,
        "p50": p50,
        "p95": at(0.95),
        "p99": at(0.99),
        "unit": unit,
        "beside": beside,
        "ratio": ratio,
        "target": target,
    }


def store_alone(collector: Collector) -> list[float]:
    """Events a second that the store takes from one caller in batches of a thousand."""
    store = collector.store()
    rates = []
    for number in range(ROUNDS):
        attempt_id = f"att_alone_{number}"
        batches = [lines(first + 1, 1_000, attempt_id) for first in range(0, 20_000, 1_000)]
        began = time.perf_counter()
        for index, batch in enumerate(batches):
            store.append("node", attempt_id, "resource", index * 1_000, batch)
        rates.append(20_000 / (time.perf_counter() - began))
    store.close()
    return rates


async def rates(telemetry: Telemetry) -> list[float]:
    """Events a second from source to store, several attempts at once, as fast as they go."""
    found = []
    for number in range(ROUNDS):
        attempts = [f"att_rate_{number}_{index}" for index in range(ATTEMPTS)]
        for attempt_id in attempts:
            await telemetry.open(attempt_id)

        async def source(attempt_id: str) -> None:
            for event in range(EVENTS_A_ROUND // ATTEMPTS):
                await telemetry.record(attempt_id, "process", sample(event))
                if event % 100 == 0:
                    await asyncio.sleep(0)

        began = time.perf_counter()
        await asyncio.gather(*map(source, attempts))
        ends = await asyncio.gather(*(telemetry.finish(attempt_id, 120) for attempt_id in attempts))
        seconds = time.perf_counter() - began
        assert all(end.stored and not end.gaps for end in ends)
        found.append(sum(end.telemetry_events for end in ends) / seconds)
    return found


async def lags(telemetry: Telemetry) -> list[float]:
    """Milliseconds from record to acknowledgement at STEADY_RATE."""
    attempts = [f"att_lag_{index}" for index in range(ATTEMPTS)]
    for attempt_id in attempts:
        await telemetry.open(attempt_id)
    found: list[float] = []
    followers: list[asyncio.Task[None]] = []

    async def follow(attempt_id: str, number: int, began: float) -> None:
        await telemetry.wait_stored(attempt_id, "process", number)
        found.append((time.perf_counter() - began) * 1_000)

    tick = 0.01
    a_tick = int(STEADY_RATE * tick / ATTEMPTS)
    begin = time.perf_counter()
    for index in range(int(STEADY_SECONDS / tick)):
        for attempt_id in attempts:
            for event in range(a_tick):
                number = await telemetry.record(attempt_id, "process", sample(event))
                if number % FOLLOWED == 0:
                    followers.append(asyncio.create_task(follow(attempt_id, number, time.perf_counter())))
        await asyncio.sleep(max(0.0, begin + (index + 1) * tick - time.perf_counter()))
    await asyncio.gather(*followers)
    for attempt_id in attempts:
        end = await telemetry.finish(attempt_id, 60)
        assert end.stored
        assert not end.gaps
    return found


async def _measure(directory: Path, url: str | None, dialect: str) -> list[Row]:
    collector = Collector(directory, url)
    alone = row(f"telemetry store alone ({dialect})", store_alone(collector), "events/s", target=TARGET_RATE)
    collector.start()
    telemetry = Telemetry(directory / "state", "node-bench", collector.endpoint)
    await telemetry.start()
    try:
        rate = row(
            f"telemetry source to store ({dialect})",
            await rates(telemetry),
            "events/s",
            beside=alone["p50"],
            target=TARGET_RATE,
        )
        lag = row(
            f"telemetry lag at {STEADY_RATE} events/s ({dialect})",
            await lags(telemetry),
            "ms",
            target=TARGET_LAG_MS,
        )
    finally:
        await telemetry.close()
        collector.stop()
    return [alone, rate, lag]


def rows() -> list[Row]:
    """Measure on SQLite and on PostgreSQL; about a minute."""
    found: list[Row] = []
    cluster = Cluster()
    cluster.initialise()
    cluster.start()
    try:
        for dialect, url in (("sqlite", None), ("postgresql", cluster.new_database())):
            directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
            try:
                found += asyncio.run(_measure(directory, url, dialect))
            finally:
                shutil.rmtree(directory)
    finally:
        cluster.stop()
    return found


def main() -> None:
    """Print the table and, as the last line, the rows in JSON."""
    measured = rows()
    for line in measured:
        print(
            f"{line['name']:<48} p50 {line['p50']:>12,.2f}  p95 {line['p95']:>12,.2f}  p99 {line['p99']:>12,.2f} "
            f"{line['unit']:<9} target {line['target']}",
            file=sys.stderr,
        )
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
