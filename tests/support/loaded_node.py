"""`python -m tests.support.loaded_node CONFIG DIRECTORY ATTEMPT…`: the real daemon under a load of telemetry.

The runtime is the in-memory one; all else is the daemon's own. A synthetic source in it offers filesystem events of
each attempt at RATE a second where the daemon's own sources do, until `DIRECTORY/enough` exists; then it ends each
attempt's telemetry and writes what that answered to `DIRECTORY/<attempt>.end`. How many events were offered stands in
`DIRECTORY/<attempt>.offered`, in memory that outlives a kill -9: the next life goes on from there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from daemon import allocator
from daemon.attempts.context import NodeContext
from daemon.config import DaemonConfig, load
from daemon.node import Node
from daemon.runtime.fake import FakeRuntime
from daemon.telemetry.facade import Telemetry
from daemon.telemetry.spool import Mark
from daemon.workspace.manager import WorkspaceManager
from tests.support.events import sample
from wire import logs

REPOSITORY = Path(__file__).resolve().parents[2]
KIND = "filesystem"
RATE = 5_000
TICK_SECONDS = 0.01
START_SECONDS = 60
STORED_SECONDS = 240.0
GIB = 1024**3


class LoadedNode(Node):
    """The daemon with one source more."""

    def __init__(self, config: DaemonConfig, directory: Path, attempts: list[str]) -> None:
        super().__init__(config, FakeRuntime())
        self._directory = directory
        self._attempts = attempts

    async def _context(self, executor: ThreadPoolExecutor, workspace: WorkspaceManager, profile: str) -> NodeContext:
        node = await super()._context(executor, workspace, profile)
        self._telemetry = node.telemetry
        return node

    async def _serve(self, *works: Coroutine[Any, Any, None]) -> None:
        sources = [self._source(self._telemetry, attempt_id) for attempt_id in self._attempts]
        await super()._serve(*works, *sources)

    async def _source(self, telemetry: Telemetry, attempt_id: str) -> None:
        offered = Mark(self._directory / f"{attempt_id}.offered")
        enough, loop = self._directory / "enough", asyncio.get_running_loop()
        end = self._directory / f"{attempt_id}.end"
        await telemetry.resume(attempt_id)
        begin, number = loop.time(), offered.get()
        for tick in range(1, sys.maxsize):
            if enough.exists():
                break
            for _ in range(int(RATE * TICK_SECONDS)):
                number += 1
                # First, so that an event whose writer dies was offered in any case.
                offered.set(number)
                await telemetry.record(attempt_id, KIND, sample(number))
            await asyncio.sleep(max(0.0, begin + tick * TICK_SECONDS - loop.time()))
        finished = await telemetry.finish(attempt_id, STORED_SECONDS)
        fresh = end.with_suffix(".new")
        fresh.write_text(json.dumps(dataclasses.asdict(finished)))
        fresh.replace(end)
        await asyncio.Event().wait()  # the daemon's tasks never end by themselves


class LoadedNodeProcess:
    """One such daemon as a process; `kill` and `start` again as often as wanted."""

    def __init__(self, root: Path, state: Path, collector: str, trace: str, attempts: list[str]) -> None:
        self.directory = root / "load"
        self.directory.mkdir(mode=0o700)
        self._log = root / "node.log"
        self._attempts = attempts
        self._process: subprocess.Popen[bytes] | None = None
        key = root / "token.key"
        key.write_bytes(secrets.token_bytes(32))
        limits = {"memory_bytes": GIB, "cpu_millis": 1_000, "disk_bytes": GIB, "pids": 128, "tmp_bytes": GIB}
        config = {
            "node_id": "node-0",
            "instance": f"t{secrets.token_hex(4)}",
            "state_dir": str(state),
            "endpoint": f"unix://{root}/node.sock",
            "agent_endpoint": f"unix://{root}/agents.sock",
            "scheduler_endpoint": f"unix://{root}/no-scheduler.sock",
            "collector_endpoint": collector,
            "trace_endpoint": trace,
            "token_key_file": str(key),
            "seccomp_profile": str(REPOSITORY / "seccomp" / "profile.json"),
            "runtime": "fake",
            "stacks": {"python311": {"image": "fake:1", "defaults": limits, "policy": limits, "pool_target": 0}},
            "disk_reserve_bytes": 0,
        }
        self._config = root / "node.json"
        self._config.write_text(json.dumps(config))

    def start(self) -> None:
        """Start it and wait until it serves."""
        told = self.log().count("node_ready")
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.loaded_node", self._config, self.directory, *self._attempts],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto", "PYTHONWARNINGS": "ignore"},
            )
        deadline = time.monotonic() + START_SECONDS
        while self.log().count("node_ready") == told:
            assert self._process.poll() is None, self.log()[-4000:]
            assert time.monotonic() < deadline, self.log()[-4000:]
            time.sleep(0.02)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Signal it and wait for its end."""
        assert self._process is not None
        self._process.send_signal(number)
        code = self._process.wait(timeout=START_SECONDS)
        self._process = None
        return code

    def close(self) -> None:
        """End it in order, if it runs; its files stay."""
        if self._process is not None:
            self.kill(signal.SIGTERM)

    def log(self) -> str:
        """What it logged."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def offered(self, attempt_id: str) -> int:
        """How many events of an attempt its source has offered so far."""
        path = self.directory / f"{attempt_id}.offered"
        return int.from_bytes(path.read_bytes(), "little") if path.exists() else 0

    def enough(self) -> None:
        """Let its source end."""
        (self.directory / "enough").touch()

    def end(self, attempt_id: str) -> dict[str, Any] | None:
        """What the attempt's end answered; None before it."""
        path = self.directory / f"{attempt_id}.end"
        return json.loads(path.read_text()) if path.exists() else None


async def _run(config: Path, directory: Path, attempts: list[str]) -> None:
    node = LoadedNode(load(config), directory, attempts)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, node.stop)
    await node.run()


if __name__ == "__main__":
    logs.configure("daemon")
    allocator.steady()
    asyncio.run(_run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
