"""What `gauntlet doctor` looks at: one check for each part of the machine, with what to do when it is missing.

Owns looking only: it starts, installs and mends nothing, and needs no service of ours. Printing is `cli.diagnosis`'s.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException

from cli.doctor_watch import mechanism

RUNTIME = "gauntlet-runsc"
IMAGE_REPOSITORY = "gauntlet-sandbox"
MINIMUM_API = (1, 40)
MINIMUM_RUNSC = 20260905
MINIMUM_FREE_BYTES = 10 * 1024**3
ASK_SECONDS = 20.0
# What a sentry's socket must hold: the arguments and the environment of one execve. The trace sink raises it.
SEND_BUFFER_BYTES = 4 << 20
SEND_BUFFER = Path("/proc/sys/net/core/wmem_default")
SETUP = "run: scripts/setup"
UP = "run: make run (the stack `local` brings it)"


@dataclass(frozen=True)
class Check:
    """What was found out about one part."""

    name: str
    ok: bool
    detail: str
    """What was found, in a few words."""
    remedy: str
    """The one thing to do when it is not ok."""


class Machine:
    """How the checks ask: programs on PATH and in setup's directory, and one Docker client for all of them."""

    def __init__(self, client: Any | None, docker_trouble: str = "") -> None:
        self.client = client
        self.docker_trouble = docker_trouble

    def find(self, program: str) -> Path | None:
        """Return a program's path: setup's directory first, then PATH and the system directories."""
        path = os.pathsep.join(
            [str(tools_directory()), os.environ.get("PATH", ""), "/usr/local/go/bin:/usr/sbin:/sbin"]
        )
        found = shutil.which(program, path=path)
        return Path(found) if found else None

    def ask(self, *command: str) -> str:
        """Return a program's output, or "" if it cannot be run, fails or takes too long."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
        except (OSError, subprocess.SubprocessError):
            return ""  # the check words it as "does not answer"
        return done.stdout.strip() if done.returncode == 0 else ""


def tools_directory() -> Path:
    """Return the directory where setup links what it installed."""
    cache = os.environ.get("GAUNTLET_CACHE_DIR") or str(Path.home() / ".cache" / "gauntlet")
    return Path(cache) / "bin"


def run_checks() -> list[Check]:
    """Return every check's result, in the order in which a person would mend things."""
    with _machine() as machine:
        return [check(machine) for check in CHECKS]


@contextlib.contextmanager
def _machine() -> Iterator[Machine]:
    client, trouble = None, ""
    try:
        client = docker.from_env(timeout=int(ASK_SECONDS))
        client.ping()
    except DockerException as refusal:
        client, trouble = None, str(refusal)
    try:
        yield Machine(client, trouble)
    finally:
        if client is not None:
            client.close()


def python_environment(machine: Machine) -> Check:
    """Python's version, and whether the generated protocol code is importable."""
    version = ".".join(map(str, sys.version_info[:3]))
    try:
        from gauntlet.scheduler.v1 import scheduler_service_pb2  # noqa: F401 - importing it is the check
    except ImportError as missing:
        return Check("python", False, f"{version}, {missing}", SETUP)
    return Check("python", sys.version_info >= (3, 11), f"{version} ({sys.prefix})", SETUP)


def privileges(machine: Machine) -> Check:
    """Root: mounts, cgroups and the engine need it."""
    return Check("root", os.geteuid() == 0, f"user id {os.geteuid()}", "run with sudo: daemons mount file systems")


def docker_engine(machine: Machine) -> Check:
    """A Docker engine that answers and is not too old."""
    if machine.client is None:
        return Check("docker", False, f"no engine answers ({machine.docker_trouble})", SETUP)
    version = machine.client.version()
    api = tuple(int(part) for part in version["ApiVersion"].split("."))
    detail = f"engine {version['Version']}, API {version['ApiVersion']}"
    return Check("docker", api >= MINIMUM_API, detail, "upgrade Docker: https://docs.docker.com/engine/install")


def runtime(machine: Machine) -> Check:
    """Our runtime entry, with the flags that matter."""
    if machine.client is None:
        return Check("runtime", False, "cannot be asked without an engine", SETUP)
    entry = (machine.client.info().get("Runtimes") or {}).get(RUNTIME)
    if entry is None:
        return Check("runtime", False, f"{RUNTIME} is not registered", UP)
    missing = [flag for flag in ("--network=none", "--oci-seccomp") if flag not in (entry.get("runtimeArgs") or [])]
    if missing:
        return Check("runtime", False, f"{RUNTIME} lacks {' '.join(missing)}", UP)
    if not Path(entry["path"]).exists():
        return Check("runtime", False, f"{RUNTIME} points to {entry['path']}, which is gone", UP)
    return Check("runtime", True, f"{RUNTIME} = {entry['path']}", UP)


def trace(machine: Machine) -> Check:
    """Whether what processes do is heard: an environment's entry names a session and its sink listens; told of each."""
    if machine.client is None:
        return Check("trace", False, "cannot be asked without an engine", SETUP)
    runtimes = machine.client.info().get("Runtimes") or {}
    entries = {name: entry for name, entry in runtimes.items() if name.startswith(f"{RUNTIME}-")}
    if not entries:
        return Check("trace", False, "no environment is up, so no sandbox is heard", UP)
    troubles = {name: _untraced(entry.get("runtimeArgs") or []) for name, entry in sorted(entries.items())}
    heard = [name for name, trouble in troubles.items() if not trouble]
    unheard = [f"{name}: {trouble}" for name, trouble in troubles.items() if trouble]
    if not heard:
        return Check("trace", False, "; ".join(unheard), UP)
    buffer = int(SEND_BUFFER.read_text(encoding="ascii"))
    if buffer < SEND_BUFFER_BYTES:
        detail = f"{SEND_BUFFER} is {buffer}: the largest execve events are lost (each as a gap record)"
        return Check("trace", False, detail, f"sysctl -w net.core.wmem_default={SEND_BUFFER_BYTES}")
    # Another environment that is down, or ended without `make down`, concerns only itself.
    return Check("trace", True, "; ".join([f"heard: {', '.join(heard)}", *unheard]), UP)


def _untraced(arguments: list[str]) -> str:
    """Why an entry's sandboxes are not heard; empty when they are."""
    flag = "--pod-init-config="
    named = [Path(word.removeprefix(flag)) for word in arguments if word.startswith(flag)]
    if not named:
        return "process and escape telemetry is off (no trace session)"
    try:
        sinks = json.loads(named[-1].read_bytes())["trace_session"]["sinks"]
        sockets = [Path(sink["config"]["endpoint"]) for sink in sinks]
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{named[-1]} cannot be read ({error})"
    missing = [str(path) for path in sockets if not path.is_socket()]
    return f"no sink listens at {', '.join(missing)}: no sandbox can start" if missing else ""


def runsc(machine: Machine) -> Check:
    """gVisor's program, new enough for the systrap platform."""
    found = machine.find("runsc")
    if found is None:
        return Check("runsc", False, "not found", SETUP)
    printed = machine.ask(str(found), "--version")
    dated = re.search(r"release-(\d{8})", printed)
    if dated is None:
        return Check("runsc", False, f"{found} does not say its version", SETUP)
    return Check("runsc", int(dated[1]) >= MINIMUM_RUNSC, f"{dated[0]} ({found})", SETUP)


def image(machine: Machine) -> Check:
    """At least one stack's image in the engine."""
    if machine.client is None:
        return Check("image", False, "cannot be asked without an engine", SETUP)
    tags = sorted(tag for found in machine.client.images.list(IMAGE_REPOSITORY) for tag in found.tags)
    return Check("image", bool(tags), ", ".join(tags) or f"no {IMAGE_REPOSITORY} image in the engine", UP)


def pulumi(machine: Machine) -> Check:
    """The Pulumi CLI."""
    found = machine.find("pulumi")
    version = machine.ask(str(found), "version") if found else ""
    return Check("pulumi", bool(version), f"{version} ({found})" if version else "not found", SETUP)


def language_host(machine: Machine) -> Check:
    """Pulumi's Python language host, beside the CLI or on PATH."""
    cli = machine.find("pulumi")
    beside = cli.resolve().parent / "pulumi-language-python" if cli else None
    found = beside if beside is not None and beside.exists() else machine.find("pulumi-language-python")
    return Check("language host", found is not None, str(found or "not found"), SETUP)


def programs(machine: Machine) -> Check:
    """What workspaces and image builds call."""
    wanted = ("mkfs.ext4", "mount", "losetup", "debootstrap", "go")
    missing = [name for name in wanted if machine.find(name) is None]
    return Check("programs", not missing, f"missing: {', '.join(missing)}" if missing else ", ".join(wanted), SETUP)


def kernel(machine: Machine) -> Check:
    """Overlay and ext4 file systems, loop devices, and a cgroup hierarchy with memory and pids."""
    known = Path("/proc/filesystems").read_text(encoding="utf-8").split()
    missing = [name for name in ("overlay", "ext4") if name not in known and not _loadable(machine, name)]
    if not Path("/dev/loop-control").exists():
        missing.append("loop devices")
    version = _cgroup_version()
    if version is None:
        missing.append("cgroups with memory and pids")
    remedy = "use a kernel with these (on a container host: run it privileged, with /dev and /sys/fs/cgroup)"
    return Check("kernel", not missing, f"missing: {', '.join(missing)}" if missing else f"cgroup {version}", remedy)


def _loadable(machine: Machine, module: str) -> bool:
    return bool(machine.ask("modprobe", "--dry-run", "--first-time", "--verbose", module))


def _cgroup_version() -> str | None:
    root = Path("/sys/fs/cgroup")
    controllers = root / "cgroup.controllers"
    if controllers.exists():
        return "v2" if {"memory", "pids"} <= set(controllers.read_text(encoding="utf-8").split()) else None
    return "v1" if (root / "memory").is_dir() and (root / "pids").is_dir() else None


def disk(machine: Machine) -> Check:
    """Free space where containers and workspaces go."""
    root = str(machine.client.info().get("DockerRootDir") or "/var") if machine.client is not None else "/var"
    free = shutil.disk_usage(root if Path(root).exists() else "/").free
    wanted = f"{MINIMUM_FREE_BYTES // 1024**3} GB"
    return Check(
        "disk", free >= MINIMUM_FREE_BYTES, f"{free / 1024**3:.0f} GB free under {root}", f"free {wanted} there"
    )


def filesystem_watch(machine: Machine) -> Check:
    """How workspaces are watched here; both ways work."""
    remedy = "nothing is missing; inotify sees new directories a moment late, which the final comparison makes good"
    return Check("filesystem watch", True, mechanism(), remedy)


CHECKS: tuple[Callable[[Machine], Check], ...] = (
    python_environment,
    privileges,
    programs,
    kernel,
    filesystem_watch,
    disk,
    docker_engine,
    runsc,
    runtime,
    trace,
    image,
    pulumi,
    language_host,
)
