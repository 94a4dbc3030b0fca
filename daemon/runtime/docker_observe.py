"""Docker's answers as observations, and a container's cgroup directories. Pure but for reading /proc."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from daemon.runtime.types import CgroupPaths, ContainerState, Observation

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
_STATES = {
    "created": ContainerState.CREATED,
    "running": ContainerState.RUNNING,
    "restarting": ContainerState.RUNNING,
    "paused": ContainerState.PAUSED,
    "exited": ContainerState.EXITED,
    "dead": ContainerState.EXITED,
    "removing": ContainerState.REMOVING,
}


def observation(answer: Mapping[str, Any]) -> Observation:
    """From the answer of `GET /containers/{id}/json`."""
    state = answer["State"]
    seen = _STATES.get(state["Status"], ContainerState.UNKNOWN)
    ended = seen is ContainerState.EXITED
    return Observation(
        container_id=answer["Id"],
        name=answer["Name"].lstrip("/"),
        state=seen,
        exit_code=state["ExitCode"] if ended else None,
        oom_killed=bool(state["OOMKilled"]),
        started_at_ns=wall_ns(state["StartedAt"]),
        finished_at_ns=wall_ns(state["FinishedAt"]) if ended else None,
        labels=answer["Config"].get("Labels") or {},
        image_digest=answer["Image"],
        error=state.get("Error") or "",
    )


def wall_ns(text: str) -> int | None:
    """Nanoseconds since the epoch of an RFC 3339 time; None for Docker's year 1 (it never happened).

    The standard parser stops at microseconds.
    """
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"not an RFC 3339 time: {text!r}")
    if text.startswith("0001-"):
        return None
    whole = datetime.fromisoformat(found[1] + found[3].replace("Z", "+00:00")).astimezone(UTC)
    return int(whole.timestamp()) * 1_000_000_000 + int((found[2] or "").ljust(9, "0"))


def cgroup_paths(pid: int, container_id: str, proc: Path = Path("/proc")) -> CgroupPaths:
    """The directories of a container whose first process is `pid` of this host, with everything that runs in them.

    Raises ProcessLookupError when the process is gone or going: a process that exits is moved to the root group, and
    whoever took that for the container's own would hold every process of the host for a part of it.
    """
    try:
        membership = _membership((proc / str(pid) / "cgroup").read_text())
    except FileNotFoundError as error:
        raise ProcessLookupError(f"process {pid} is gone") from error
    membership = {name: path for name, path in membership.items() if container_id in path}
    if not membership:
        raise ProcessLookupError(f"process {pid} is in no group of container {container_id[:12]}")
    mounts = _mounts((proc / "self" / "mountinfo").read_text())
    legacy = {name: path for name, path in membership.items() if name and not name.startswith("name=")}
    if legacy:
        found = {name: _resolve(mounts.get(name), legacy.get(name)) for name in legacy}
        holder = found.get("memory") or found.get("pids") or found.get("cpu")
        host_pids = _pids(holder)
        return CgroupPaths(
            version=1,
            memory=found.get("memory"),
            cpu=found.get("cpu"),
            cpuacct=found.get("cpuacct"),
            pids=found.get("pids"),
            blkio=found.get("blkio"),
            host_pids=host_pids,
        )
    unified = _resolve(mounts.get(""), membership.get(""))
    return CgroupPaths(2, unified, unified, unified, unified, unified, _pids(unified))


def _membership(text: str) -> dict[str, str]:
    """Controller → path from /proc/PID/cgroup; the unified hierarchy is the controller ""."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        for name in controllers.split(","):
            found[name] = path
    return found


def _mounts(text: str) -> dict[str, tuple[Path, str]]:
    """Controller → (mount point, root of the mount) from /proc/self/mountinfo."""
    found: dict[str, tuple[Path, str]] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        fields, (kind, _, options) = left.split(), right.split(maxsplit=2)
        place = (Path(fields[4]), fields[3])
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            for name in options.split(","):
                found.setdefault(name, place)
    return found


def _resolve(place: tuple[Path, str] | None, path: str | None) -> Path | None:
    if place is None or path is None:
        return None
    point, root = place
    inside = path.removeprefix(root) if root != "/" and path.startswith(root) else path
    return point / inside.lstrip("/")


def _pids(directory: Path | None) -> tuple[int, ...]:
    if directory is None:
        return ()
    return tuple(int(line) for line in (directory / "cgroup.procs").read_text().split())
