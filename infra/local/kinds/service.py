"""One supervised service: its configuration, its keeper, its health.

Create answers only when the service is healthy; a service that never gets there is ended and its log's end is told.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from infra.local import processes, shares
from infra.local.kinds.base import ALIVE, Kind, ResourceFailed, State
from infra.local.places import Places

HEALTHY_SECONDS = 60.0
POLL_SECONDS = 0.05
# The keeper gives its child 45 s.
STOP_SECONDS = 60.0
PURGE_SECONDS = 180
LOG_TAIL_BYTES = 3_000
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Service(Kind):
    """`gauntlet:local:Service`."""

    outputs = ("pid", "started")
    inputs = ("instance", "name", "module", "config", "user", "endpoints", "code", "python", "gid", "purge")
    replaced_by = ("instance", "name")

    def create(self, inputs: Mapping[str, Any]) -> tuple[str, State]:
        """Write spec and configuration, start the keeper, wait for health."""
        directory = _directory(inputs)
        _write_files(inputs, directory)
        with (directory / "keeper.log").open("ab") as log:
            keeper = subprocess.Popen(
                [inputs["python"], "-I", f"{inputs['code']}/infra/local/keeper.py", str(directory / "spec.json")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                close_fds=True,
                cwd="/",
                env={"PATH": PATH, "LANG": "C.UTF-8"},
            )
        started = processes.start_time(keeper.pid) or ""
        outputs = {**inputs, "pid": keeper.pid, "started": started, ALIVE: True}
        problem = _await_health(inputs, directory, keeper)
        if problem:
            processes.end(keeper.pid, started, STOP_SECONDS)
            raise ResourceFailed(f"service {inputs['name']} {problem}\n{_tail(directory)}")
        return f"{inputs['instance']}/{inputs['name']}", outputs

    def read(self, resource_id: str, state: Mapping[str, Any]) -> State | None:
        """Always there, so that a `destroy` cleans up after it; `alive` says whether it still does its work."""
        alive = (
            processes.alive(int(state["pid"]), state["started"])
            and _status(_directory(state)).get("state") == "running"
            and all(_serving(endpoint) for endpoint in state["endpoints"])
        )
        return {**state, ALIVE: alive}

    def update(self, resource_id: str, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> State:
        """End the old, start the new."""
        self._end(state)
        return self.create(inputs)[1]

    def delete(self, resource_id: str, state: Mapping[str, Any]) -> None:
        """End it, then let it clean up what outlives it."""
        self._end(state)
        if state.get("purge"):
            _run_purge(state)
        for endpoint in state["endpoints"]:
            Path(endpoint.removeprefix("unix://")).unlink(missing_ok=True)
        shutil.rmtree(_directory(state), ignore_errors=True)
        shares.remove(str(state["instance"]))

    def _end(self, state: Mapping[str, Any]) -> None:
        if not processes.end(int(state["pid"]), state["started"], STOP_SECONDS):
            raise ResourceFailed(f"service {state['name']}: its keeper (pid {state['pid']}) does not end")


def _directory(inputs: Mapping[str, Any]) -> Path:
    return Places(inputs["instance"]).services / str(inputs["name"])


def _argv(inputs: Mapping[str, Any], directory: Path) -> list[str]:
    return [inputs["python"], "-m", inputs["module"], "--config", str(directory / "config.json")]


def _environment(inputs: Mapping[str, Any]) -> dict[str, str]:
    code = inputs["code"]
    return {"PATH": PATH, "LANG": "C.UTF-8", "HOME": "/", "PYTHONPATH": f"{code}:{code}/proto", "PYTHONUNBUFFERED": "1"}


def _write_files(inputs: Mapping[str, Any], directory: Path) -> None:
    gid = int(inputs["gid"]) if inputs["user"] != "root" else 0
    directory.mkdir(mode=0o750, exist_ok=True)
    os.chown(directory, 0, gid)
    spec = {
        "argv": _argv(inputs, directory),
        "environment": _environment(inputs),
        "user": inputs["user"],
        "cwd": "/",
        "cgroup_procs": _joined_by(str(inputs["instance"])),
    }
    for name, text in (("config.json", inputs["config"]), ("spec.json", json.dumps(spec))):
        path = directory / name
        path.write_text(text)
        os.chown(path, 0, gid)
        path.chmod(0o640)
    (directory / "status.json").unlink(missing_ok=True)


def _joined_by(instance: str) -> str:
    try:
        return shares.ensure(instance)
    except OSError as error:
        raise ResourceFailed(
            f"the services' CPU shares cannot be set ({error}): make {shares.CGROUP_ROOT} writable for root"
        ) from error


def _await_health(inputs: Mapping[str, Any], directory: Path, keeper: subprocess.Popen[bytes]) -> str:
    """Empty once the service is healthy, else what is wrong."""
    deadline = time.monotonic() + HEALTHY_SECONDS
    while time.monotonic() < deadline:
        if keeper.poll() is not None:
            return f"has no keeper: it ended with {keeper.returncode}"
        status = _status(directory)
        if status.get("state") == "crash_loop" or status.get("restarts", 0) >= 3:
            return f"ends as soon as it starts (exit code {status.get('last_exit')})"
        if status.get("state") == "running" and all(_serving(endpoint) for endpoint in inputs["endpoints"]):
            return ""
        time.sleep(POLL_SECONDS)
    return f"is not healthy after {HEALTHY_SECONDS:.0f} s"


def _serving(endpoint: str) -> bool:
    if not Path(endpoint.removeprefix("unix://")).exists():
        return False
    with grpc.insecure_channel(endpoint) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=2.0)
        except grpc.RpcError:
            return False  # not up yet, or not any more: that is the answer
    return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)


def _status(directory: Path) -> dict[str, Any]:
    try:
        status: dict[str, Any] = json.loads((directory / "status.json").read_text())
    except FileNotFoundError:
        return {}
    return status


def _tail(directory: Path) -> str:
    log = directory / "service.log"
    return log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace") if log.exists() else ""


def _run_purge(state: Mapping[str, Any]) -> None:
    directory = _directory(state)
    done = subprocess.run(
        [*_argv(state, directory), "--purge"],
        env=_environment(state),
        cwd="/",
        capture_output=True,
        text=True,
        check=False,
        timeout=PURGE_SECONDS,
    )
    if done.returncode != 0:
        raise ResourceFailed(f"service {state['name']} could not clean up: {done.stderr.strip()[-LOG_TAIL_BYTES:]}")
