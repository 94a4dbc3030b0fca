"""`python -m daemon --config FILE`: run one node's daemon until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from pydantic import ValidationError

from daemon import allocator
from daemon.attempts.journal import JournalError
from daemon.config import DaemonConfig, load
from daemon.fswatch.facade import remove_traces
from daemon.node import Node
from daemon.runtime.docker import DEFAULT_RUNSC_ROOT, DockerRuntime
from daemon.runtime.errors import RuntimeFault
from daemon.state import UnsafeState
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from daemon.workspace.model import WorkspaceError
from wire import logs
from wire.running import run_service
from wire.server import EndpointError

log = structlog.get_logger(__name__)


def main() -> int:
    """Parse, configure, run; returns the exit code: 0 stopped, 1 could not go on, 2 bad settings."""
    parser = argparse.ArgumentParser(prog="daemon", description="One node of Gauntlet Sandbox.")
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--purge", action="store_true", help="remove every sandbox and mount of this node, then leave")
    arguments = parser.parse_args()
    path = arguments.config
    logs.configure("daemon")
    allocator.steady()
    try:
        config = load(path)
    except (OSError, ValidationError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    try:
        run_service(_purge(config) if arguments.purge else _run(config))
    except (RuntimeFault, WorkspaceError, EndpointError, UnsafeState, JournalError, OSError) as error:
        log.error("daemon_cannot_run", error=str(error))
        return 1
    return 0


def _runtime(config: DaemonConfig) -> DockerRuntime:
    socket = Path(config.docker_host.removeprefix("unix://"))
    return DockerRuntime(socket, runtime=config.runtime, runsc_root=config.runtime_state_dir or DEFAULT_RUNSC_ROOT)


async def _purge(config: DaemonConfig) -> None:
    """For the end of an environment: sandboxes, slots, mounts and journal go; artifacts stay."""
    runtime = _runtime(config)
    for seen in await runtime.list(config.instance):
        await runtime.destroy(seen.container_id)
    with ThreadPoolExecutor(1) as executor:
        workspace = WorkspaceManager(WorkspaceConfig(config.state_dir, config.disk_reserve_bytes), executor)
        await workspace.start()
        await workspace.reclaim(frozenset())
        await workspace.close()
    await runtime.close()
    await asyncio.to_thread(remove_traces, config.instance)
    for journal in config.state_dir.glob("journal.db*"):
        journal.unlink()
    spool = config.state_dir / "spool"
    if spool.exists():
        shutil.rmtree(spool)


async def _run(config: DaemonConfig) -> None:
    runtime = _runtime(config)
    node = Node(config, runtime)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    await node.run()


if __name__ == "__main__":
    sys.exit(main())
