"""How many attempts a second the scheduler brings from QUEUED to RUNNING, on SQLite and on PostgreSQL.

The whole domain of the scheduler in this process (queue, dispatcher, claims, reports) with a real database; the nodes
are in-process doubles that answer at once, so that only the scheduler's own work and its database count. Every
attempt is queued before the nodes join. Beside it stand the commits a second that the same database takes from one
thread, one row each.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import structlog
from sqlalchemy import Engine, update

from formats.record import State
from records.database import writing
from scheduler.clock import SystemClock
from scheduler.store.engine import open_engine
from scheduler.store.schema import attempts as table
from scheduler.store.sql import SqlStore
from scheduler.watch import Hub
from tests.bench.figures import Figure, Target, figure
from tests.bench.options import Options
from tests.support.fake_daemon import FakeNode
from tests.support.postgres import Cluster
from tests.support.scheduling import Bench, challenge_directory

ROUNDS = 5
ATTEMPTS = 500
NODES = 4
COMMITS = 300
TARGETS = {"sqlite": 300.0, "postgresql": 500.0}
LIVENESS_SECONDS = 300
LIMITS = {"global_max": 100_000, "per_challenge_max": 100_000, "max_queue_depth": 100_000}


def run(options: Options) -> list[Figure]:
    """Two figures a dialect. Each round has a fresh database."""
    found: list[Figure] = []
    cluster = Cluster()
    cluster.initialise()
    cluster.start()
    level = structlog.get_config()["wrapper_class"]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    try:
        for dialect, target in TARGETS.items():
            rates, commits = [], []
            for number in range((2 if options.quick else ROUNDS) + 1):
                rate, floor = asyncio.run(_round(dialect, cluster, ATTEMPTS // (5 if options.quick else 1)))
                if number:  # the first one warms up
                    rates.append(rate)
                    commits.append(floor)
            beside = figure(f"commits of one row ({dialect})", commits, "commits/s")
            pairs = list(zip(rates, commits, strict=True))
            name = f"scheduler: QUEUED to RUNNING ({dialect})"
            bound = [Target("p50", "≥", target)]
            found += [beside, figure(name, rates, "assignments/s", beside=beside, pairs=pairs, targets=bound)]
    finally:
        structlog.configure(wrapper_class=level)
        cluster.stop()
    return found


async def _round(dialect: str, cluster: Cluster, count: int) -> tuple[float, float]:
    """(attempts a second, commits a second)."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    engine = open_engine(cluster.new_database() if dialect == "postgresql" else str(directory / "control.db"))
    nodes = {f"node-{number}": FakeNode(f"node-{number}", capacity=count) for number in range(NODES)}
    bench = Bench(directory, store=SqlStore(engine), clock=SystemClock(), nodes=nodes, limits=LIMITS)
    try:
        await bench.core.start()
        digest = await bench.upload(challenge_directory(directory))
        for node in nodes.values():
            await node.put_challenge(digest)
        submitted = [await bench.submit(digest, f"agent-{number}") for number in range(count)]
        names = [attempt.attempt_id for attempt in submitted]
        with ExitStack() as stack:
            began = time.perf_counter()
            running = asyncio.gather(*(_running(stack, bench.core.hub, name) for name in names))
            await asyncio.gather(*(bench.heartbeat(name) for name in nodes))
            async with asyncio.timeout(LIVENESS_SECONDS):
                await running
            rate = count / (time.perf_counter() - began)
        return rate, await asyncio.to_thread(_commits, engine, names[0])
    finally:
        await bench.core.stop()
        bench.store.close()
        shutil.rmtree(directory)


async def _running(stack: ExitStack, hub: Hub, attempt_id: str) -> None:
    changes = stack.enter_context(hub.subscribe(attempt_id))
    while (await changes.get()).state is not State.RUNNING:
        pass


def _commits(engine: Engine, attempt_id: str) -> float:
    began = time.perf_counter()
    for number in range(COMMITS):
        with writing(engine) as db:
            db.execute(update(table).where(table.c.attempt_id == attempt_id).values(claim_tries=number))
    return COMMITS / (time.perf_counter() - began)
