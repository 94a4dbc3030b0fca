"""`python -m daemon --config FILE`: run one node's daemon until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog
from pydantic import ValidationError

from daemon.attempts.journal import JournalError
from daemon.config import DaemonConfig, load
from daemon.node import Node
from daemon.runtime.docker import DEFAULT_RUNSC_ROOT, DockerRuntime
from daemon.runtime.errors import RuntimeFault
from daemon.state import UnsafeState
from wire import logs
from wire.server import EndpointError

log = structlog.get_logger(__name__)


def main() -> int:
    """Parse, configure, run; returns the exit code: 0 stopped, 1 could not go on, 2 bad settings."""
    parser = argparse.ArgumentParser(prog="daemon", description="One node of Gauntlet Sandbox.")
    parser.add_argument("--config", type=Path, required=True)
    path = parser.parse_args().config
    logs.configure("daemon")
    try:
        config = load(path)
    except (OSError, ValidationError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    try:
        asyncio.run(_run(config))
    except (RuntimeFault, EndpointError, UnsafeState, JournalError, OSError) as error:
        log.error("daemon_cannot_run", error=str(error))
        return 1
    return 0


async def _run(config: DaemonConfig) -> None:
    socket = Path(config.docker_host.removeprefix("unix://"))
    runtime = DockerRuntime(socket, runtime=config.runtime, runsc_root=config.runtime_state_dir or DEFAULT_RUNSC_ROOT)
    node = Node(config, runtime)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    await node.run()


if __name__ == "__main__":
    sys.exit(main())
