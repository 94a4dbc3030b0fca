"""`python -m daemon.trace --config FILE`: run one machine's trace sink until SIGTERM or SIGINT.

The configuration is YAML or JSON: `trace_socket` (where sentries connect), `endpoint` (unix:///path, the control
socket), `nodes` (each daemon's state directory by node id), `files` (a directory for the session's two files;
`pod-init.json` in it is what the runtime entry's --pod-init-config names), `runsc` and `runsc_root`. Runs as root:
runsc does. Exit codes: 0 stopped, 1 could not serve, 2 a bad configuration.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import structlog
from gauntlet.telemetry.v1 import trace_service_pb2_grpc as pb_grpc
from pydantic import BaseModel, ConfigDict, Field

from daemon.state import UnsafeState, prepare_state
from daemon.trace.runsc import DEFAULT_ROOT, Runsc
from daemon.trace.service import SERVICE, TraceService, translate
from daemon.trace.sink import Sink
from formats.problems import FormatError, Problem, load_yaml, validate
from wire import logs
from wire.running import run_service
from wire.server import EndpointError, Server

# An event larger than a sentry's socket buffer is dropped without a second try, and a buffer is as large as this says
# when the sandbox is created. An execve holds at most 2 MiB of arguments and environment.
SEND_BUFFER_BYTES = 4 << 20
SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
# The reader must not wait long for the interpreter while events are worked off.
SWITCH_SECONDS = 0.0005

log = structlog.get_logger(__name__)


class Config(BaseModel):
    """The configuration file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    trace_socket: Path
    endpoint: str = Field(min_length=1)
    nodes: dict[str, Path] = Field(min_length=1)
    files: Path
    runsc: Path
    runsc_root: Path = DEFAULT_ROOT


def read_config(path: Path) -> Config:
    """The configuration in a file. Raises FormatError naming file, key and remedy."""
    try:
        text = path.read_bytes()
    except OSError as error:
        remedy = "pass the path of a configuration file"
        raise FormatError([Problem(str(path), "", str(error.strerror), remedy)]) from error
    return validate(Config, load_yaml(text, str(path)), str(path))


def raise_send_buffer(path: Path = SEND_BUFFER, size: int = SEND_BUFFER_BYTES) -> None:
    """See to it that the sockets of sandboxes made from now on hold the largest event."""
    try:
        if int(path.read_text()) < size:
            path.write_text(str(size))
            log.info("send_buffer_raised", size_bytes=size)
    except OSError as error:
        # Larger events are lost then, each as a gap record: worth a word, no reason to hear nothing at all.
        log.warning("send_buffer_small", path=str(path), wanted_bytes=size, error=str(error))


async def serve(config: Config, stop: asyncio.Event) -> None:
    """Serve until `stop`. Raises EndpointError, OSError, UnsafeState."""
    for directory in (config.files, *config.nodes.values()):
        prepare_state(directory)
    raise_send_buffer()
    sink = Sink(config.trace_socket, config.files, dict(config.nodes), Runsc(config.runsc, config.runsc_root))
    await sink.start()
    server = Server(
        config.endpoint,
        {SERVICE: (pb_grpc.add_TraceServiceServicer_to_server, TraceService(sink))},
        translate=translate,
    )
    await server.start()
    log.info("trace_ready", endpoint=config.endpoint, sink_id=sink.sink_id)
    await stop.wait()
    await server.stop()
    await sink.stop()
    log.info("trace_stopped")


async def _main(config: Config) -> int:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await serve(config, stop)
    except (EndpointError, UnsafeState, OSError) as error:
        log.error("trace_failed", error=str(error))
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Run the sink; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m daemon.trace", description="Run the trace sink.")
    parser.add_argument("--config", type=Path, required=True, help="YAML or JSON; see the module's description")
    try:
        config = read_config(parser.parse_args(arguments).config)
    except FormatError as error:
        print(error, file=sys.stderr)
        return 2
    sys.setswitchinterval(SWITCH_SECONDS)
    return run_service(_main(config))


if __name__ == "__main__":
    logs.configure("trace")
    sys.exit(main())
