"""A scheduler process and a node, with real sockets in a short directory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_daemon import FakeNode, daemon_server
from tests.support.scheduler_process import Clients, SchedulerProcess
from tests.support.scheduling import challenge_directory
from wire.server import Server


class Node:
    """A fake node behind a real server that a test stops and starts."""

    def __init__(self, endpoint: str, capacity: int = 4) -> None:
        self.fake = FakeNode("node-1", capacity)
        self.endpoint = endpoint
        self._server: Server | None = None

    async def up(self) -> None:
        self._server = daemon_server(self.fake, self.endpoint)
        await self._server.start()

    async def down(self) -> None:
        if self._server is not None:
            self.fake.cut_streams()
            await self._server.stop(0.1)
            self._server = None


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="gs-", dir="/tmp"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def challenge(tmp_path: Path) -> Path:
    return challenge_directory(tmp_path / "in")


@pytest.fixture
async def node(short: Path) -> AsyncIterator[Node]:
    node = Node(f"unix://{short}/node.sock")
    await node.up()
    yield node
    await node.down()


@pytest.fixture
async def make_scheduler(short: Path) -> AsyncIterator[Callable[..., SchedulerProcess]]:
    """Makes processes on the one state directory and ends them."""
    made: list[SchedulerProcess] = []

    def make(**changes: Any) -> SchedulerProcess:
        made.append(SchedulerProcess(short, **changes))
        return made[-1]

    yield make
    for process in made:
        await process.close()
        if process.log.exists():
            print(process.log.read_text())  # shown by pytest when the test failed


@pytest.fixture
async def scheduler(make_scheduler: Callable[..., SchedulerProcess]) -> SchedulerProcess:
    process = make_scheduler()
    await process.start()
    return process


@pytest.fixture
async def clients(scheduler: SchedulerProcess, node: Node) -> Clients:
    """Clients of a scheduler that knows the node."""
    clients = scheduler.connect()
    await clients.heartbeat("node-1", node.endpoint)
    return clients
