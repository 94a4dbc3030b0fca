"""Private Docker engines for tests: of either flavour, with roots of their own, gone without a trace afterwards.

`running_engine("current")` is the engine built from modules, `running_engine("debian")` is Debian's older one; setup
fetches both into the cache. Neither knows of the machine's own daemon: data, sockets, pid files and containerd are
apart, no bridge is made and no firewall rule written.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import docker

from infra.local.runtime_registration import RUNSC, RuntimeEntry, runsc_entry
from scripts.provision.docker_engine import Engine, current_engine, debian_engine
from scripts.provision.engine_process import identity
from scripts.provision.places import bin_directory

Flavour = Literal["current", "debian"]
FLAVOURS: tuple[Flavour, ...] = ("current", "debian")
START_SECONDS = 60.0
STOP_SECONDS = 60.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class RunningEngine:
    """A private engine while its context lasts."""

    flavour: Flavour
    root: Path
    pid: int

    @property
    def socket(self) -> Path:
        """Its API socket."""
        return self.root / "docker.sock"

    @property
    def host(self) -> str:
        """The value for DOCKER_HOST."""
        return f"unix://{self.socket}"

    @property
    def config(self) -> Path:
        """Its daemon.json."""
        return self.root / "daemon.json"

    @property
    def runtime_root(self) -> Path:
        """What `runsc --root=` needs for its containers (`ps`, `kill`, `trace`)."""
        return self.root / "exec" / "runtime-runc" / "moby"

    @property
    def panic_logs(self) -> Path:
        """Where a crashed sentry leaves its log."""
        return self.root / "panic"

    @property
    def log(self) -> Path:
        """The daemon's log."""
        return self.root / "dockerd.log"

    def client(self) -> "docker.DockerClient":
        """Return a new client; the caller closes it."""
        return docker.DockerClient(base_url=self.host, timeout=60)


@contextlib.contextmanager
def running_engine(
    flavour: Flavour, *, extra_runtimes: Mapping[str, RuntimeEntry] | None = None
) -> Iterator[RunningEngine]:
    """Start an engine of that flavour and end it afterwards, with everything it started and wrote.

    Args:
        flavour: which engine.
        extra_runtimes: entries beside `gauntlet-runsc`, which is always there.

    Raises:
        RuntimeError: it did not start, did not end, or left a mount behind; carries the end of its log.
    """
    programs = current_engine() if flavour == "current" else debian_engine()
    # A short path: containerd's sockets lie under it and may have no more than 108 bytes.
    root = Path(tempfile.mkdtemp(prefix=f"g-{flavour[:3]}-", dir="/var/tmp"))
    process = _start(programs, root, extra_runtimes or {})
    engine = RunningEngine(flavour, root, process.pid)
    try:
        _await_answer(engine, process)
        yield engine
    finally:
        _remove_containers(engine)
        _stop(engine, process)
        _unmount_below(root)
        shutil.rmtree(root)


def _start(programs: Engine, root: Path, extra_runtimes: Mapping[str, RuntimeEntry]) -> "subprocess.Popen[bytes]":
    runtimes = {
        RUNSC: runsc_entry((bin_directory() / "runsc").resolve(), panic_log_directory=root / "panic"),
        **extra_runtimes,
    }
    config = {
        "data-root": str(root / "data"),
        "exec-root": str(root / "exec"),
        "pidfile": str(root / "dockerd.pid"),
        "hosts": [f"unix://{root / 'docker.sock'}"],
        "bridge": "none",
        "iptables": False,
        "ip6tables": False,
        "userland-proxy": False,
        "runtimes": {name: entry.as_json() for name, entry in runtimes.items()},
    }
    (root / "daemon.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    path = os.pathsep.join([*map(str, programs.directories), "/usr/sbin:/usr/bin:/sbin:/bin"])
    with (root / "dockerd.log").open("ab") as log:
        return subprocess.Popen(
            [str(programs.dockerd), "--config-file", str(root / "daemon.json")],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": path, "HOME": "/root"},
            start_new_session=True,
        )


def _await_answer(engine: RunningEngine, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{engine.flavour} dockerd ended with {process.returncode}:\n{_log_end(engine)}")
        if _answers(engine.socket):
            return
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{engine.flavour} dockerd did not answer:\n{_log_end(engine)}")


def _answers(path: Path) -> bool:
    """Ask for `/_ping` without the SDK, whose client leaks its socket when it cannot be made."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(START_SECONDS)
        try:
            connection.connect(str(path))
            connection.sendall(b"GET /_ping HTTP/1.0\r\nHost: docker\r\n\r\n")
            return connection.recv(64).partition(b"\r\n")[0].endswith(b"200 OK")
        except OSError:
            return False  # not listening yet


def _remove_containers(engine: RunningEngine) -> None:
    """Remove what a test left, so that no shim outlives the daemon; a daemon that a test killed is no error."""
    if not _answers(engine.socket):
        return
    with contextlib.closing(engine.client()) as client:
        for container in client.containers.list(all=True, ignore_removed=True):
            with contextlib.suppress(docker.errors.NotFound):
                container.remove(force=True)


def _stop(engine: RunningEngine, process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise RuntimeError(f"{engine.flavour} dockerd had to be killed:\n{_log_end(engine)}") from None
    finally:
        for pid in processes_below(engine.root):
            _end(pid)


def processes_below(root: Path) -> list[int]:
    """Return the processes whose command line names a path below `root`: its dockerd, containerd, shims."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                if os.fsencode(f"{root}/") in (entry / "cmdline").read_bytes() and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return found


def _end(pid: int) -> None:
    before = identity(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + STOP_SECONDS
    while before is not None and identity(pid) == before:
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {pid} of a private engine does not end")
        time.sleep(POLL_SECONDS)


def mounts_below(root: Path) -> list[str]:
    """Return the mount points below `root`, deepest first."""
    points = [line.split()[1] for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines()]
    return sorted((p for p in points if p.startswith(f"{root}/")), key=len, reverse=True)


def _unmount_below(root: Path) -> None:
    for point in mounts_below(root):
        subprocess.run(["umount", "-l", point], check=True, capture_output=True, timeout=60)


def _log_end(engine: RunningEngine) -> str:
    return "\n".join(engine.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
