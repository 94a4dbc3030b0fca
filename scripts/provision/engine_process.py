"""A dockerd of our own: started detached, recorded by pid and start time, ended only if it is still that
process.

Owns the process and its record in the state directory. Which program to start is `docker_engine`'s decision.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.provision.commands import ask, find
from scripts.provision.console import SetupError, say, slow_step
from scripts.provision.places import private_directory, state_directory

SOCKET = Path("/var/run/docker.sock")
CONFIG = Path("/etc/docker/daemon.json")
START_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1

_children: "list[subprocess.Popen[bytes]]" = []
"""Engines that this very process started: kept so that they can be waited for, should it also end them."""


def record_file() -> Path:
    """Return the file that says which dockerd setup started."""
    return state_directory() / "dockerd.json"


def log_file() -> Path:
    """Return the log of the dockerd that setup starts."""
    return state_directory() / "dockerd.log"


def identity(pid: int) -> str | None:
    """Return what tells this process from a later one with the same pid (boot id and start tick), or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"


def recorded_pid() -> int | None:
    """Return the pid of the dockerd that setup started, if that very process is alive."""
    try:
        record = json.loads(record_file().read_text(encoding="utf-8"))
        pid, wanted = int(record["pid"]), str(record["identity"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as broken:
        raise SetupError(f"{record_file()} cannot be read: {broken!r}", f"remove {record_file()}") from broken
    return pid if identity(pid) == wanted else None


def ours_is_running() -> bool:
    """Return whether the dockerd that setup started is alive."""
    return recorded_pid() is not None


def engine_flags(configured: Sequence[str]) -> list[str]:
    """Return flags for an engine without network set-up, leaving out those that `daemon.json` sets itself.

    Sandboxes have no network, so no bridge and no firewall rule is needed; dockerd refuses a setting that is
    given both as a flag and in its file.
    """
    flags = {"bridge": "none", "iptables": "false", "ip6tables": "false", "userland-proxy": "false"}
    return [f"--{name}={value}" for name, value in flags.items() if name not in configured]


def start(dockerd: Path, directories: Sequence[Path], *, without_network: bool) -> int:
    """Start dockerd on its usual socket in a session of its own and return its pid once it listens.

    Args:
        dockerd: the program.
        directories: what goes in front of its PATH (its containerd, shim and runc).
        without_network: leave bridge and firewall alone (no iptables here, and sandboxes need neither).

    Raises:
        SetupError: it ended, or did not listen in time; the message points at the log.
    """
    if os.geteuid() != 0:
        raise SetupError("starting dockerd needs root", "run: sudo -E scripts/setup")
    private_directory(state_directory())
    configured = json.loads(CONFIG.read_text(encoding="utf-8")) if CONFIG.exists() else {}
    flags = engine_flags(list(configured)) if without_network else []
    host = next(iter(configured.get("hosts") or []), f"unix://{SOCKET}")
    if "hosts" not in configured:
        flags.append(f"--host={host}")
    if CONFIG.exists():
        flags.append(f"--config-file={CONFIG}")
    path = os.pathsep.join([*map(str, directories), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"])
    with slow_step("docker", f"starting {dockerd}"), log_file().open("ab") as log:
        process = subprocess.Popen(
            [str(dockerd), *flags],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )
        _children.append(process)
        record = {"pid": process.pid, "identity": identity(process.pid), "command": [str(dockerd), *flags]}
        record_file().write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        _await_answer(process, host)
    say("docker", f"no engine was running: started one, pid {process.pid}, log {log_file()}; make down ends it")
    return process.pid


def _await_answer(process: "subprocess.Popen[bytes]", host: str) -> None:
    deadline = time.monotonic() + START_SECONDS
    docker = find("docker")
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SetupError(f"dockerd ended with exit code {process.returncode}", f"read the end of {log_file()}")
        if docker and ask([str(docker), "--host", host, "info"]) is not None:
            return
        time.sleep(POLL_SECONDS)
    raise SetupError(f"dockerd did not answer within {START_SECONDS:.0f} s", f"read the end of {log_file()}")


def stop() -> bool:
    """End the dockerd that setup started and wait for it; return False if there is none of ours.

    Raises:
        SetupError: it did not end in time.
    """
    pid = recorded_pid()
    if pid is None:
        record_file().unlink(missing_ok=True)
        return False
    alive = identity(pid)
    with slow_step("docker", f"ending the engine that setup started (pid {pid})"):
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while identity(pid) == alive:
            if time.monotonic() > deadline:
                raise SetupError(f"dockerd {pid} did not end within {STOP_SECONDS:.0f} s", f"read {log_file()}")
            time.sleep(POLL_SECONDS)
    _children[:] = [child for child in _children if child.poll() is None]
    record_file().unlink(missing_ok=True)
    return True
