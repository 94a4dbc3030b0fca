"""The end of a container, confirmed: nothing of it runs, nothing of it lies about.

The engine's word is not enough. Under runsc a sentry or gofer may outlive the engine's idea of the container for a
moment (or for ever, when its shim was killed), and a failed start leaves state files of runsc behind.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

import docker
import docker.errors

from daemon.runtime.docker_leftovers import Runsc, process_stat, tidy
from daemon.runtime.docker_observe import cgroup_paths
from daemon.runtime.errors import RuntimeTimeout

POLL_SECONDS = 0.02
STRAGGLER_SECONDS = 2.0
"""How long processes may take to die by themselves after the container's end."""


@dataclass(frozen=True, slots=True)
class HostProcess:
    """A host process of a container, by pid and start time in clock ticks: a pid alone may already be another's."""

    pid: int
    started: int
    container_id: str

    @property
    def alive(self) -> bool:
        """It still runs; a zombie does not."""
        found = process_stat(self.pid)
        return found is not None and found[0] not in "ZX" and found[1] == self.started

    def kill(self) -> None:
        """SIGKILL, if it is still in a group of its container: nothing else on the host may ever be hit."""
        with suppress(OSError):
            if self.alive and self.container_id in (Path("/proc") / str(self.pid) / "cgroup").read_text():
                os.kill(self.pid, SIGKILL)


def destroy(client: docker.APIClient, container_id: str, runsc: Runsc | None, deadline: float) -> None:
    """Kill, wait, confirm, remove, tidy. Blocking; `deadline` is `time.monotonic()`. Raises RuntimeTimeout."""
    try:
        seen = client.inspect_container(container_id)
    except docker.errors.NotFound:
        seen = None
    if seen is not None:
        container_id = seen["Id"]
        processes = host_processes(seen)
        with suppress(docker.errors.NotFound, docker.errors.APIError):
            client.kill(container_id)  # refused when it does not run: the state below decides, not this answer
        _await_stopped(client, container_id, deadline)
        confirm_gone(processes, deadline)
        _remove(client, container_id, deadline)
    tidy(container_id, runsc)


def host_processes(seen: dict[str, Any]) -> tuple[HostProcess, ...]:
    """Everything that runs for a container now: under runsc the sentry and the gofer."""
    pid = seen["State"].get("Pid") or 0
    if not pid:
        return ()
    try:
        pids = cgroup_paths(pid, seen["Id"]).host_pids
    except OSError:  # gone or going; what of it is left, if anything, the engine's own removal ends
        return ()
    found = ((one, process_stat(one)) for one in pids)
    return tuple(HostProcess(one, stat[1], seen["Id"]) for one, stat in found if stat is not None)


def confirm_gone(processes: Iterable[HostProcess], deadline: float) -> None:
    """Return when none of them is alive; what lingers is killed by pid. Raises RuntimeTimeout."""
    left = [one for one in processes if one.alive]
    kill_at = time.monotonic() + STRAGGLER_SECONDS
    while left:
        now = time.monotonic()
        if now >= deadline:
            raise RuntimeTimeout(f"the end of host processes {[one.pid for one in left]}")
        if now >= kill_at:
            for one in left:
                one.kill()
        time.sleep(POLL_SECONDS)
        left = [one for one in left if one.alive]


def _await_stopped(client: docker.APIClient, container_id: str, deadline: float) -> None:
    while True:
        try:
            state = client.inspect_container(container_id)["State"]
        except docker.errors.NotFound:
            return
        if not state["Running"] and not state.get("Paused"):
            return
        if time.monotonic() >= deadline:
            raise RuntimeTimeout(f"the end of container {container_id[:12]}")
        time.sleep(POLL_SECONDS)


def _remove(client: docker.APIClient, container_id: str, deadline: float) -> None:
    while True:
        try:
            client.remove_container(container_id, force=True, v=True)
        except docker.errors.NotFound:
            return
        except docker.errors.APIError as error:
            # 409: someone else's removal is under way. 5xx: a device still busy for a moment.
            if time.monotonic() >= deadline:
                raise RuntimeTimeout(
                    f"the removal of container {container_id[:12]} ({error.explanation})", 0
                ) from error
            time.sleep(POLL_SECONDS * 5)
        else:
            return
