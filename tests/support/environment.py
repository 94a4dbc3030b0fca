"""A whole environment for tests: collector, scheduler, daemon, judge worker as real processes on a real engine.

One instance with places of its own, so that it shares the host with a `make run`. Every process is ended by pid;
`stop` purges and then asserts that no container, mount, loop device or socket of it is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import docker
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from images.build import ensure_image
from infra.local import runtime_registration as registration
from tests.support.engines import RunningEngine

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1024**2
LIVENESS_SECONDS = 30.0
ENDPOINTS = {
    "collector": ("collector",),
    "trace": ("trace",),
    "scheduler": ("scheduler", "scheduler-agents"),
    "node": ("node", "node-agents"),
}
MODULES = {
    "collector": "records.collector",
    "scheduler": "scheduler",
    "trace": "daemon.trace",
    "node": "daemon",
    "judge": "judges",
}
DEFAULTS = {"memory_bytes": 256 * MIB, "cpu_millis": 1_000, "disk_bytes": 96 * MIB, "pids": 128, "tmp_bytes": 32 * MIB}
POLICY = {"memory_bytes": 1024 * MIB, "cpu_millis": 2_000, "disk_bytes": 512 * MIB, "pids": 256, "tmp_bytes": 256 * MIB}


class Environment:
    """One environment. `start` brings up what is named; the rest can be started by name.

    On the machine's engine, or on a private one, which is gone before long and is not tidied.
    """

    def __init__(
        self,
        *,
        node: Mapping[str, Any] | None = None,
        scheduler: Mapping[str, Any] | None = None,
        engine: RunningEngine | None = None,
    ) -> None:
        self.instance = f"t{secrets.token_hex(4)}"
        # Socket paths are short by law (108 bytes); /tmp is where short paths are.
        self.root = Path(tempfile.mkdtemp(prefix="gt-", dir="/tmp"))
        self.root.chmod(0o711)
        self.state = self.root / "s"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.docker = docker.from_env() if engine is None else engine.client()
        self._engine = engine
        # An entry of its own: where sentries connect is fixed by the entry.
        self.runtime = f"{registration.RUNSC}-{self.instance}"
        runsc = Path(self.docker.info()["Runtimes"][registration.RUNSC]["path"])
        pod_init = self.root / "s" / "trace" / "pod-init.json"
        entry = registration.runsc_entry(
            runsc, panic_log_directory=self.root / "p", extra_arguments=[f"--pod-init-config={pod_init}"]
        )
        (self.root / "p").mkdir(mode=0o700)
        with _registering():
            daemon = registration.find_daemon() if engine is None else registration.Daemon(engine.pid, engine.config)
            registration.withdraw(self.docker, daemon, _left_behind(registration.read_config(daemon.config)))
            registration.apply(self.docker, daemon, {self.runtime: entry})
        self._configs = {
            "collector": {"endpoint": self.endpoint("collector"), "database_url": f"sqlite:///{self.state}/events.db"},
            "scheduler": {
                "state_dir": str(self.state / "scheduler"),
                "operator_endpoint": self.endpoint("scheduler"),
                "agent_endpoint": self.endpoint("scheduler-agents"),
                "token_key_file": str(self.state / "token.key"),
                "events_db": str(self.state / "events.db"),
                "audit_db": str(self.state / "audit.db"),
                **(scheduler or {}),
            },
            "trace": {
                "trace_socket": f"{self.root}/sentries.sock",
                "endpoint": self.endpoint("trace"),
                "nodes": {"node-0": str(self.state / "node")},
                "files": str(pod_init.parent),
                "runsc": str(runsc),
                **({} if engine is None else {"runsc_root": str(engine.runtime_root)}),
            },
            "node": {
                "node_id": "node-0",
                "instance": self.instance,
                "state_dir": str(self.state / "node"),
                "endpoint": self.endpoint("node"),
                "agent_endpoint": self.endpoint("node-agents"),
                "scheduler_endpoint": self.endpoint("scheduler"),
                "collector_endpoint": self.endpoint("collector"),
                "token_key_file": str(self.state / "token.key"),
                "seccomp_profile": str(REPOSITORY / "seccomp" / "profile.json"),
                "runtime": self.runtime,
                "trace_endpoint": self.endpoint("trace"),
                "disk_reserve_bytes": 0,
                "stacks": {
                    "python311": {
                        "image": ensure_image("python311", self.docker).tag,
                        "defaults": DEFAULTS,
                        "policy": POLICY,
                        "pool_target": 1,
                    }
                },
                **({} if engine is None else _on(engine)),
                **(node or {}),
            },
            "judge": {"worker_id": "judge-0", "scheduler_endpoint": self.endpoint("scheduler")},
        }

    def endpoint(self, name: str) -> str:
        """A unix endpoint of this environment."""
        return f"unix://{self.root}/{name}.sock"

    def start(self, *names: str) -> None:
        """Start services (all by default, in order) and wait until each is healthy."""
        for directory in (self.state, self.state / "scheduler"):
            directory.mkdir(mode=0o700, exist_ok=True)
        key = self.state / "token.key"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(32))
            key.chmod(0o600)
        for name in names or ("collector", "scheduler", "trace", "node", "judge"):
            self._start(name)

    def _start(self, name: str) -> None:
        config = self.root / f"{name}.json"
        config.write_text(json.dumps(self._configs[name]))
        told = self.log(name).stat().st_size if self.log(name).exists() else 0
        with self.log(name).open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", MODULES[name], "--config", str(config)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto", "PYTHONWARNINGS": "ignore"},
            )
        deadline = time.monotonic() + LIVENESS_SECONDS
        # It has no socket to ask: its log says when it can be told to end.
        while name == "judge" and b'"judge_ready"' not in self.log(name).read_bytes()[told:]:
            assert time.monotonic() < deadline, f"{name} is not ready:\n{self.tail(name)}"
            time.sleep(0.02)
        for socket in ENDPOINTS.get(name, ()):
            while not _serving(self.endpoint(socket)):
                assert self.processes[name].poll() is None, f"{name} ended:\n{self.tail(name)}"
                assert time.monotonic() < deadline, f"{name} is not healthy:\n{self.tail(name)}"
                time.sleep(0.02)

    def log(self, name: str) -> Path:
        """A service's log."""
        return self.root / f"{name}.log"

    def tail(self, name: str) -> str:
        """The end of a service's log."""
        return self.log(name).read_bytes()[-6000:].decode(errors="replace") if self.log(name).exists() else ""

    def kill(self, name: str, number: int = signal.SIGKILL) -> int:
        """Signal a service and wait for its end; returns its exit code."""
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=60)

    def containers(self) -> list[Any]:
        """Containers of this instance, in whatever state."""
        return self.docker.containers.list(
            all=True, filters={"label": f"gauntlet.instance={self.instance}"}, ignore_removed=True
        )

    def mounts(self) -> list[str]:
        """Mount points below this environment."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [path for line in lines if (path := line.split()[4]).startswith(str(self.root))]

    def loop_devices(self) -> list[str]:
        """Loop devices whose file is below this environment."""
        files = Path("/sys/block").glob("loop*/loop/backing_file")
        return [str(f) for f in files if f.read_text().startswith(str(self.root))]

    def stop(self) -> None:
        """End everything and assert that nothing is left."""
        unclean = []
        for name in ("judge", "node", "trace", "scheduler", "collector"):
            if name in self.processes and (code := self.kill(name, signal.SIGTERM)) != 0:
                unclean.append(f"{name} ended with {code}:\n{self.tail(name)}")
        if (self.root / "node.json").exists():
            subprocess.run(
                [sys.executable, "-m", "daemon", "--config", str(self.root / "node.json"), "--purge"],
                check=True,
                timeout=120,
                cwd="/",
                env={**os.environ, "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto"},
            )
        left = {
            "containers": [c.name for c in self.containers()],
            "mounts": self.mounts(),
            "loop devices": self.loop_devices(),
            "sockets": [str(p) for p in self.root.glob("*.sock")],
        }
        if self._engine is None:
            with _registering():
                registration.withdraw(self.docker, registration.find_daemon(), [self.runtime])
        self.docker.close()
        shutil.rmtree(self.root)
        assert not any(left.values()), left
        assert not unclean, "\n".join(unclean)


@contextlib.contextmanager
def _registering() -> Iterator[None]:
    """One test process at a time reads, changes and writes the engine's file."""
    with Path("/tmp/gauntlet-test-registration.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _on(engine: RunningEngine) -> dict[str, Any]:
    """A node's settings for a private engine."""
    return {"docker_host": engine.host, "runtime_state_dir": str(engine.runtime_root)}


def _left_behind(config: Mapping[str, Any]) -> list[str]:
    """Entries of test environments that were killed: their directory is gone."""
    found = []
    for name, entry in config.get("runtimes", {}).items():
        places = re.findall(r"--pod-init-config=(/tmp/gt-[^/]+)/", " ".join(entry.get("runtimeArgs", ())))
        if re.fullmatch(f"{registration.RUNSC}-t[0-9a-f]{{8}}", name) and places and not Path(places[0]).exists():
            found.append(name)
    return found


def _serving(endpoint: str) -> bool:
    if not Path(endpoint.removeprefix("unix://")).exists():
        return False
    with grpc.insecure_channel(endpoint) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
        except grpc.RpcError:
            return False
    return answer.status == health_pb2.HealthCheckResponse.SERVING


def gauntlet(environment: Environment, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run the command line against an environment."""
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments],
        input=stdin,
        capture_output=True,
        timeout=180,
        check=False,
        env={
            **os.environ,
            "GAUNTLET_ENDPOINT": environment.endpoint("scheduler"),
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto",
            "PYTHONWARNINGS": "ignore",
            "COLUMNS": "200",
        },
    )


async def until(condition: Any, seconds: float = LIVENESS_SECONDS) -> Any:
    """Wait until `condition()` is true, asking again; for what no event tells."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.05)
    return found


ATTEMPT = re.compile(rb"att_[a-z0-9]+")
