"""`python -m records.collector --config FILE`: runs the collector until SIGTERM.

The configuration is YAML or JSON: `endpoint` (unix:///path), `database_url`, and optionally `socket_group` (a group
that may open the socket beside its owner). Exit codes: 0 ended in order, 1 it could not serve, 2 usage or a bad
configuration. A kill -9 at any instruction loses nothing that was acknowledged.
"""

from __future__ import annotations

import argparse
import asyncio
import grp
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import structlog
from gauntlet.telemetry.v1 import collector_service_pb2_grpc as pb_grpc
from pydantic import BaseModel, ConfigDict, Field

from formats.problems import FormatError, Problem, load_yaml, validate
from records.collector.service import SERVICE, CollectorService
from records.database import DatabaseUrlError, open_engine
from records.errors import StoreUnavailableError
from records.events.sql import SqlEventStore, create_schema
from records.translate import translate
from wire import logs
from wire.running import run_service
from wire.server import EndpointError, Server

# SQLite has one writer; more threads would only wait for its lock.
WORKERS = 4
STORE_PATIENCE_SECONDS = 30.0
STORE_RETRY_SECONDS = 0.5

log = structlog.get_logger(__name__)


class Config(BaseModel):
    """The configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    endpoint: str = Field(min_length=1)
    database_url: str = Field(min_length=1)
    socket_group: str | None = None


def read_config(path: Path) -> Config:
    """The configuration in a file. Raises FormatError naming file, key and remedy."""
    try:
        text = path.read_bytes()
    except OSError as error:
        remedy = "pass the path of a configuration file"
        raise FormatError([Problem(str(path), "", str(error.strerror), remedy)]) from error
    return validate(Config, load_yaml(text, str(path)), str(path))


async def _open_store(url: str) -> SqlEventStore:
    """The store with its schema; waits for a database that is still starting. Raises StoreUnavailableError."""
    engine = open_engine(url)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STORE_PATIENCE_SECONDS
    while True:
        try:
            await asyncio.to_thread(create_schema, engine)
            return SqlEventStore(engine)
        except StoreUnavailableError as error:
            if loop.time() > deadline:
                raise
            log.warning("store_unavailable", error=str(error))
            await asyncio.sleep(STORE_RETRY_SECONDS)


async def serve(config: Config, stop: asyncio.Event) -> None:
    """Serve until `stop`. Raises EndpointError, StoreUnavailableError."""
    group = None if config.socket_group is None else grp.getgrnam(config.socket_group).gr_gid
    store = await _open_store(config.database_url)
    with ThreadPoolExecutor(WORKERS, "store") as executor:
        service = CollectorService(store, executor)
        server = Server(
            config.endpoint,
            {SERVICE: (pb_grpc.add_CollectorServiceServicer_to_server, service)},
            translate=translate,
            socket_mode=0o600 if group is None else 0o660,
            socket_gid=group,
        )
        await server.start()
        log.info("collector_ready", endpoint=config.endpoint)
        await stop.wait()
        await server.stop()
    store.close()
    log.info("collector_stopped")


async def _main(config: Config) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await serve(config, stop)
    except DatabaseUrlError as error:
        print(f"database_url: {error}", file=sys.stderr)
        return 2
    except KeyError:
        print(f"socket_group: no group {config.socket_group!r} on this machine", file=sys.stderr)
        return 2
    except (EndpointError, StoreUnavailableError, OSError) as error:
        log.error("collector_failed", error=str(error))
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the collector; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m records.collector", description="Run the collector.")
    parser.add_argument("--config", type=Path, required=True, help="YAML or JSON: endpoint, database_url")
    try:
        config = read_config(parser.parse_args(arguments).config)
    except FormatError as error:
        print(error, file=sys.stderr)
        return 2
    return run_service(_main(config))


if __name__ == "__main__":
    logs.configure("collector")
    sys.exit(main())
