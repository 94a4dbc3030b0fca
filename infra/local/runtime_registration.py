"""Our runtime entries in a Docker daemon's configuration: added, checked and taken out, nothing else disturbed.

Owns the entries whose names begin with `gauntlet-`. An entry of any other name, and every other setting, is carried
through unchanged; a running daemon is told to re-read its file (SIGHUP) and is never restarted. The pure functions
come first, then the file, then the daemon.
"""

import copy
import json
import os
import signal
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PREFIX = "gauntlet-"
RUNSC = "gauntlet-runsc"
DEFAULT_CONFIG = Path("/etc/docker/daemon.json")
DEFAULT_SOCKET = Path("/var/run/docker.sock")
DEFAULT_PIDFILE = Path("/var/run/docker.pid")
RELOAD_SECONDS = 15.0
POLL_SECONDS = 0.05
PANIC_LOG_NAME = "%ID%.panic.log"
"""runsc puts the container's id in place of %ID%. The file exists, empty, from the start; Go's runtime writes it."""


class RegistrationError(Exception):
    """The daemon's configuration or the daemon itself does not allow the registration; the message says what to do."""


@dataclass(frozen=True)
class RuntimeEntry:
    """One runtime as Docker's `daemon.json` holds it."""

    path: str
    arguments: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the value for `daemon.json`'s `runtimes` object."""
        return {"path": self.path, "runtimeArgs": list(self.arguments)}


def runsc_entry(
    runsc: Path, *, panic_log_directory: Path | None = None, extra_arguments: Iterable[str] = ()
) -> RuntimeEntry:
    """Return the entry of the sandboxes' runtime.

    Args:
        runsc: absolute path of the program.
        panic_log_directory: where a crash of the sentry itself leaves `<container id>.panic.log`.
        extra_arguments: further runsc flags, such as `--pod-init-config=FILE`.

    `--oci-seccomp` is what makes runsc apply a seccomp profile at all.
    """
    panic = [] if panic_log_directory is None else [f"--panic-log={panic_log_directory / PANIC_LOG_NAME}"]
    fixed = ["--platform=systrap", "--network=none", "--oci-seccomp"]
    return RuntimeEntry(str(runsc), (*fixed, *panic, *extra_arguments))


def panic_log(directory: Path, container_id: str) -> Path:
    """Return the panic log of one container (full id); non-empty means that the sentry crashed."""
    return directory / PANIC_LOG_NAME.replace("%ID%", container_id)


def merge(daemon_json: Mapping[str, Any], entries: Mapping[str, RuntimeEntry]) -> dict[str, Any]:
    """Return the configuration with our entries set and everything else as it was.

    Raises:
        RegistrationError: a name that is not ours, or `runtimes` is not an object.
    """
    merged = copy.deepcopy(dict(daemon_json))
    runtimes = merged.setdefault("runtimes", {})
    if not isinstance(runtimes, dict):
        raise RegistrationError("daemon.json: `runtimes` is not an object; mend it by hand first")
    for name, entry in entries.items():
        _require_ours(name)
        runtimes[name] = entry.as_json()
    return merged


def remove(daemon_json: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the configuration without the named entries of ours; an emptied `runtimes` goes too.

    Raises:
        RegistrationError: a name that is not ours, or the entry to remove is the default runtime.
    """
    left = copy.deepcopy(dict(daemon_json))
    for name in names:
        _require_ours(name)
        if left.get("default-runtime") == name:
            raise RegistrationError(f"daemon.json: {name} is the default runtime; choose another one there first")
        if isinstance(left.get("runtimes"), dict):
            left["runtimes"].pop(name, None)
    if left.get("runtimes") == {}:
        del left["runtimes"]
    return left


def _require_ours(name: str) -> None:
    if not name.startswith(PREFIX):
        raise RegistrationError(f"runtime entry {name!r} is not ours: our names begin with {PREFIX}")


def read_config(path: Path = DEFAULT_CONFIG) -> dict[str, Any]:
    """Return the daemon's configuration; a missing or empty file is an empty one.

    Raises:
        RegistrationError: the file is not a JSON object.
    """
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text) if text.strip() else {}
    except FileNotFoundError:
        return {}
    except ValueError as broken:
        raise RegistrationError(f"{path} is not valid JSON ({broken}); mend it by hand first") from broken
    if not isinstance(found, dict):
        raise RegistrationError(f"{path} does not hold a JSON object; mend it by hand first")
    return found


def write_config(config: Mapping[str, Any], path: Path = DEFAULT_CONFIG) -> None:
    """Replace the file in one step, keeping its mode; a reader sees the old text or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
    handle, fresh = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps(config, indent=2) + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(fresh).chmod(mode)
        Path(fresh).replace(path)
    except BaseException:
        Path(fresh).unlink(missing_ok=True)
        raise


@dataclass(frozen=True)
class Daemon:
    """A running dockerd: its process and the file it reads."""

    pid: int
    config: Path


def find_daemon(socket_path: Path = DEFAULT_SOCKET, pidfile: Path = DEFAULT_PIDFILE) -> Daemon:
    """Return the dockerd behind a socket: by the listener's credentials, else (socket activation) by its pid file.

    Raises:
        RegistrationError: no dockerd can be named.
    """
    pid = _listener(socket_path)
    if pid is None or _command(pid)[:1] != ["dockerd"]:
        pid = _from_pidfile(pidfile)
    if pid is None:
        raise RegistrationError(f"no dockerd found behind {socket_path} nor in {pidfile}; run scripts/setup")
    command = _command(pid)
    for number, word in enumerate(command):
        if word.startswith("--config-file"):
            value = word.partition("=")[2] or "".join(command[number + 1 : number + 2])
            return Daemon(pid, Path(value))
    return Daemon(pid, DEFAULT_CONFIG)


def _listener(socket_path: Path) -> int | None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(RELOAD_SECONDS)
        try:
            client.connect(str(socket_path))
        except OSError:
            return None  # nobody listens there; the caller reports what it looked for
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


def _from_pidfile(pidfile: Path) -> int | None:
    try:
        pid = int(pidfile.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None  # absent or being written; the caller reports it
    return pid if _command(pid)[:1] == ["dockerd"] else None


def _command(pid: int) -> list[str]:
    """Return a process's argv with the program's bare name first, empty if it is gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [Path(words[0]).name, *words[1:]] if words else []


def registered(info: Mapping[str, Any], entries: Mapping[str, RuntimeEntry]) -> bool:
    """Return whether `docker info` (the SDK's `client.info()`) shows exactly these entries among its runtimes."""
    shown = info.get("Runtimes") or {}
    return all(
        name in shown
        and shown[name].get("path") == entry.path
        and tuple(shown[name].get("runtimeArgs") or ()) == entry.arguments
        for name, entry in entries.items()
    )


def apply(client: Any, daemon: Daemon, entries: Mapping[str, RuntimeEntry]) -> bool:
    """Register `entries` with a running daemon; return whether anything had to change.

    Args:
        client: a `docker.DockerClient` of that daemon.
        daemon: see `find_daemon`.
        entries: what must be registered.

    Raises:
        RegistrationError: the daemon does not show the entries after re-reading its file.
    """
    before = read_config(daemon.config)
    wanted = merge(before, entries)
    if wanted == before and registered(client.info(), entries):
        return False
    write_config(wanted, daemon.config)
    os.kill(daemon.pid, signal.SIGHUP)
    if not _await(lambda: registered(client.info(), entries)):
        raise RegistrationError(
            f"dockerd {daemon.pid} re-read {daemon.config} but does not show {', '.join(entries)}: see its log"
        )
    return True


def withdraw(client: Any, daemon: Daemon, names: Collection[str]) -> bool:
    """Take our entries out of a running daemon; return whether anything had to change."""
    before = read_config(daemon.config)
    left = remove(before, names)
    if left == before:
        return False
    write_config(left, daemon.config)
    os.kill(daemon.pid, signal.SIGHUP)
    if not _await(lambda: not set(names) & set(client.info().get("Runtimes") or {})):
        raise RegistrationError(f"dockerd {daemon.pid} still shows {', '.join(names)} after re-reading {daemon.config}")
    return True


def _await(condition: Any) -> bool:
    deadline = time.monotonic() + RELOAD_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
