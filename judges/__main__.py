"""`python -m judges --config FILE`: run one judge worker until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog
from pydantic import ValidationError

from judges.config import JudgeConfig, load
from judges.worker import JudgeWorker
from wire import logs
from wire.running import run_service

log = structlog.get_logger(__name__)


def main() -> int:
    """Parse, configure, run; returns the exit code: 0 stopped, 2 bad settings."""
    parser = argparse.ArgumentParser(prog="judges", description="A judge worker of Gauntlet Sandbox.")
    parser.add_argument("--config", type=Path, required=True)
    path = parser.parse_args().config
    logs.configure("judge")
    try:
        config = load(path)
    except (OSError, ValidationError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 2
    run_service(_run(config))
    return 0


async def _run(config: JudgeConfig) -> None:
    work = asyncio.ensure_future(JudgeWorker(config).run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, work.cancel)
    log.info("judge_ready", worker_id=config.worker_id)
    try:
        await work
    except asyncio.CancelledError:
        if not work.cancelled():
            raise


if __name__ == "__main__":
    sys.exit(main())
