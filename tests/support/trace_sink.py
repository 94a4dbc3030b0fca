"""A trace sink as a real process, with a stand-in for runsc that hands the sentry's end of a session to the test."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from daemon.trace.client import TraceClient
from formats import event

REPOSITORY = Path(__file__).resolve().parents[2]
NODE = "node-0"
LIVENESS_SECONDS = 20.0
# As runsc does: connect, greet, give the descriptor away, leave.
RUNSC = """#!{python}
import json, socket, sys
words = [word for word in sys.argv[1:] if not word.startswith("--root")]
if words[:2] == ["trace", "create"]:
    with open(words[3].removeprefix("--config=")) as file:
        endpoint = json.load(file)["sinks"][0]["config"]["endpoint"]
    with socket.socket(socket.AF_UNIX) as test:
        try:
            test.connect("{handover}")
        except OSError:
            sys.exit("no such container")
        sentry = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sentry.connect(endpoint)
        sentry.send(b"\\x08\\x01")
        assert sentry.recv(64) == b"\\x08\\x01"
        socket.send_fds(test, [words[4].encode()], [sentry.fileno()])
elif words[:2] == ["trace", "procfs"]:
    print("PROCFS DUMP")
    print(json.dumps({{"args": ["sleep", "99"], "status": {{"pid": 10, "ppid": 1, "vm_rss": 64}}}}))
elif words[:1] == ["ps"]:
    print("UID PID PPID PGID C TTY STIME TIME CMD")
    print("1000 10 1 10 0 ? 10:00 20ms sleep")
"""


class SinkProcess:
    """One sink; `kill` and `start` again as often as wanted."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gts-", dir="/tmp"))
        self.socket = self.root / "sentries.sock"
        self.endpoint = f"unix://{self.root}/trace.sock"
        self.spool = self.root / "node" / "spool"
        self.handover = self.root / "handover.sock"
        self.process: subprocess.Popen[bytes] | None = None
        runsc = self.root / "runsc"
        runsc.write_text(RUNSC.format(python=sys.executable, handover=self.handover))
        runsc.chmod(0o755)
        config = {
            "trace_socket": str(self.socket),
            "endpoint": self.endpoint,
            "nodes": {NODE: str(self.root / "node")},
            "files": str(self.root / "trace"),
            "runsc": str(runsc),
        }
        (self.root / "config.json").write_text(json.dumps(config))

    def start(self) -> None:
        """Start it and wait until it serves."""
        with (self.root / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "daemon.trace", "--config", str(self.root / "config.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto", "PYTHONWARNINGS": "ignore"},
            )
        deadline = time.monotonic() + LIVENESS_SECONDS
        while not self._serving():
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.02)

    def _serving(self) -> bool:
        with grpc.insecure_channel(self.endpoint) as channel:
            try:
                answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
            except grpc.RpcError:
                return False
        return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Signal it and wait for its end."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=LIVENESS_SECONDS)
        self.process = None
        return code

    def close(self) -> None:
        """End it and remove what it kept."""
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.root)

    def log(self) -> str:
        """What it logged."""
        return (self.root / "log").read_text(errors="replace")

    def client(self) -> TraceClient:
        """A daemon's client; the caller closes it."""
        made = TraceClient(self.endpoint, NODE)
        made.start()
        return made

    def lines(self, attempt_id: str, kind: str = "process") -> list[dict[str, Any]]:
        """What is spooled, whole lines only."""
        path = self.spool / attempt_id / f"{kind}.jsonl"
        if not path.exists():
            return []
        return [event.decode(line) for line in path.read_bytes().split(b"\n")[:-1]]

    def listen_for_attach(self) -> socket.socket:
        """Be the container that runsc attaches a session to; `accept` and `recv_fds` give the sentry's end."""
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(LIVENESS_SECONDS)
        listener.bind(str(self.handover))
        listener.listen()
        return listener


def container_id() -> str:
    """An id that nobody has."""
    return secrets.token_hex(32)


def attached(listener: socket.socket) -> tuple[str, socket.socket]:
    """The container that runsc was asked to attach, and the sentry's end. Blocking."""
    connection, _ = listener.accept()
    with connection:
        name, handles, _, _ = socket.recv_fds(connection, 128, 1)
    return name.decode(), socket.socket(fileno=handles[0])
