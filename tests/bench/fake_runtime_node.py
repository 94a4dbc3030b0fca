"""`python -m tests.bench.fake_runtime_node --config FILE`: the real daemon on the in-memory runtime, for its memory.

Everything but the containers is real: sockets, pools, attempts, journal, workspaces with their mounts, telemetry.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from daemon import allocator
from daemon.config import load
from daemon.node import Node
from daemon.runtime.fake import FakeRuntime
from wire import logs


async def _run(path: Path) -> None:
    node = Node(load(path), FakeRuntime())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, node.stop)
    await node.run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True)
    logs.configure("daemon")
    allocator.steady()
    asyncio.run(_run(parser.parse_args().config))
