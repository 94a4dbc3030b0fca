"""`python -m scheduler --config FILE`: run until SIGTERM or SIGINT.

Exit codes: 0 stopped in order, 1 could not start (one message on stderr says why), 2 usage.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog

from formats.problems import FormatError
from records.database import DatabaseUrlError
from records.errors import StoreUnavailableError
from scheduler.config import SchedulerConfig, load_config
from scheduler.main import AlreadyRunning, Scheduler
from wire import logs
from wire.running import run_service
from wire.server import EndpointError

log = structlog.get_logger(__name__)

CANNOT_START = (FormatError, DatabaseUrlError, StoreUnavailableError, AlreadyRunning, EndpointError)


async def run(config: SchedulerConfig) -> None:
    """Serve until a signal asks for the end."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    scheduler = Scheduler(config)
    try:
        await scheduler.start()
        await stopped.wait()
        log.info("stopping")
    finally:
        await scheduler.stop()


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m scheduler", description="The Gauntlet scheduler.")
    parser.add_argument("--config", type=Path, required=True, help="settings, JSON or TOML")
    arguments = parser.parse_args(argv)
    logs.configure("scheduler")
    try:
        run_service(run(load_config(arguments.config)))
    except CANNOT_START as error:
        print(f"scheduler: cannot start: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
