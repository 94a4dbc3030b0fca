"""The daemon's memory (resident set): with 16 sandboxes, and over many made and ended, on both runtimes.

The fake runtime stands in a real daemon process (see `fake_runtime_node`), so that thousands of lives take minutes;
the real one is a whole environment's node without a scheduler. Each life is a claim, a release and whatever follows.
Memory counts as flat when the last tenth of a run is where the second tenth was: the first one fills caches.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import psutil

from daemon.workspace import mountinfo
from tests.bench.figures import Figure, Target, figure
from tests.bench.node_calls import NodeCalls, node_calls, start
from tests.bench.options import Options
from tests.support.challenge_files import make_challenge
from tests.support.collector import Collector
from tests.support.environment import DEFAULTS, POLICY, REPOSITORY, Environment

SANDBOXES = 16
AT_ONCE = {"fake": 4, "real": 2}
SAMPLES = 40
MIB = 1024**2
START_SECONDS = 60
FLAT = Target("ratio", "≤", 1.05)


async def run(options: Options) -> list[Figure]:
    """Five figures, MiB."""
    figures: list[Figure] = []
    with _directory() as directory:
        async with _fake_node(directory) as (pid, node):
            figures += await _held(node, directory, pid)
            figures += await _cycles(node, directory, pid, "fake", options.fake_cycles)
    with _directory() as directory:
        environment = Environment(node={"capacity": SANDBOXES})
        try:
            await asyncio.to_thread(start, environment, "scheduler")
            async with node_calls(environment.endpoint("node")) as node:
                pid = environment.processes["node"].pid
                figures += await _cycles(node, directory, pid, "real", options.real_cycles)
                await node.quiet(lambda: len(environment.containers()))
        finally:
            await asyncio.to_thread(environment.stop)
    return figures


async def _held(node: NodeCalls, directory: Path, pid: int) -> list[Figure]:
    """Memory of an idle daemon, and with SANDBOXES attempts running."""
    digest = await node.put(make_challenge(directory / "answer"), directory / "package.tar")
    idle = figure("daemon memory, idle", [_resident(pid)], "MiB")
    attempts = [(await node.claim(node.claim_request(digest)))[1].attempt_id for _ in range(SANDBOXES)]
    values = [_resident(pid)]
    for attempt_id in attempts:
        await node.release(attempt_id)
    held = figure(
        f"daemon memory, {SANDBOXES} sandboxes (fake runtime)",
        values,
        "MiB",
        beside=idle,
        targets=[Target("p99", "<", 120)],
    )
    return [idle, held]


async def _cycles(node: NodeCalls, directory: Path, pid: int, kind: str, count: int) -> list[Figure]:
    """Memory while `count` sandboxes are made, claimed and ended."""
    digest = await node.put(make_challenge(directory / f"answer-{kind}"), directory / "package.tar")
    values: list[float] = []
    todo = iter(range(count))
    step = max(1, count // SAMPLES)

    async def lives() -> None:
        for number in todo:
            attempt = (await node.claim(node.claim_request(digest)))[1]
            await node.release(attempt.attempt_id)
            if number % step == 0:
                values.append(_resident(pid))

    await asyncio.gather(*(lives() for _ in range(AT_ONCE[kind])))
    values.append(_resident(pid))
    tenth = max(1, len(values) // 10)
    early = figure(f"daemon memory, second tenth of {count:,} ({kind})", values[tenth : 2 * tenth], "MiB")
    late = statistics.median(values[-tenth:])
    whole = figure(
        f"daemon memory over {count:,} sandboxes ({kind} runtime)",
        values,
        "MiB",
        beside=early,
        pairs=[(late, early.p50)],
        targets=[FLAT],
    )
    return [early, whole]


def _resident(pid: int) -> float:
    """MiB."""
    size: int = psutil.Process(pid).memory_info().rss
    return size / MIB


@contextmanager
def _directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


@asynccontextmanager
async def _fake_node(directory: Path) -> AsyncIterator[tuple[int, NodeCalls]]:
    """A daemon on the fake runtime and its collector: (pid, connection). Asserts at the end that no mount is left."""
    collector = Collector(directory)
    collector.start()
    process = None
    try:
        config = _config(directory, collector.endpoint)
        log = directory / "node.log"
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: ASYNC220 - started once, before anything is measured
                [sys.executable, "-m", "tests.bench.fake_runtime_node", "--config", str(config)],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stderr=output,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto"},
            )
        async with node_calls(f"unix://{directory}/node.sock") as node:
            await _ready(process, log)
            yield process.pid, node
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
        collector.stop()
    if mounts := mountinfo.below(directory):
        raise RuntimeError(f"mounts were left: {mounts}")


async def _ready(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while "node_ready" not in (told := await asyncio.to_thread(log.read_text)):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the daemon did not start: {told[-2000:]}")
        await asyncio.sleep(0.05)


def _config(directory: Path, collector: str) -> Path:
    key = directory / "token.key"
    key.write_bytes(os.urandom(32))
    stack = {"image": "fake:1", "defaults": DEFAULTS, "policy": POLICY, "pool_target": 2}
    values = {
        "node_id": "node-0",
        "instance": f"b{secrets.token_hex(4)}",
        "state_dir": str(directory / "state"),
        "endpoint": f"unix://{directory}/node.sock",
        "agent_endpoint": f"unix://{directory}/agents.sock",
        "scheduler_endpoint": f"unix://{directory}/no-scheduler.sock",
        "collector_endpoint": collector,
        "token_key_file": str(key),
        "seccomp_profile": str(REPOSITORY / "seccomp" / "profile.json"),
        "runtime": "fake",
        "stacks": {"python311": stack},
        "capacity": SANDBOXES,
        "disk_reserve_bytes": 0,
    }
    path = directory / "node.json"
    path.write_text(json.dumps(values))
    return path
