"""What an engine leaves of a container it no longer knows: runsc's state, panic logs, orphaned processes.

A start that fails under an older engine leaves the sandbox's state files and, for ever, its shim; so may an engine
that was killed at the wrong moment. Everything here is found by the container's id, 64 hex digits nobody else has.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGKILL
from typing import Any

RUNSC_SECONDS = 20
ORPHAN_SECONDS = 5.0
POLL_SECONDS = 0.02
PROGRAMS = ("containerd-shim", "runsc", "runc")

_FULL_ID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Runsc:
    """Where runsc is, where it keeps its state (`<exec-root>/runtime-runc/moby`), its panic log's pattern or ""."""

    program: Path
    root: Path
    panic_log: str = ""

    @classmethod
    def registered(cls, entry: Mapping[str, Any], root: Path) -> Runsc:
        """From the engine's `Runtimes` entry: `{"path": …, "runtimeArgs": […]}`."""
        flag = "--panic-log="
        logs = [word.removeprefix(flag) for word in entry.get("runtimeArgs") or () if word.startswith(flag)]
        return cls(Path(entry["path"]), root, logs[-1] if logs else "")

    def state_files(self, container_id: str) -> list[Path]:
        """What runsc keeps of one container; nothing once it is deleted."""
        return sorted((*self.root.glob(f"{container_id}_sandbox:*"), *self.root.glob(f"runsc-{container_id}.sock")))

    def delete(self, container_id: str) -> None:
        """Make runsc forget a container that the engine no longer knows, with its processes. Blocking."""
        subprocess.run(
            [self.program, f"--root={self.root}", "delete", "--force", container_id],
            check=False,  # the files go either way
            capture_output=True,
            timeout=RUNSC_SECONDS,
        )
        for path in self.state_files(container_id):
            path.unlink(missing_ok=True)

    def panic_files(self, container_id: str) -> list[Path]:
        """The panic logs of one container."""
        if "%ID%" not in self.panic_log and "%CID%" not in self.panic_log:
            return []  # one file for all containers tells nothing about one
        pattern = self.panic_log.replace("%ID%", container_id).replace("%CID%", container_id)
        for variable in ("%TIMESTAMP%", "%COMMAND%", "%TEST%"):
            pattern = pattern.replace(variable, "*")
        path = Path(pattern)
        return sorted(path.parent.glob(path.name))


def tidy(container_id: str, runsc: Runsc | None, *, failed_start: bool = False) -> None:
    """Remove what is left of a container the engine no longer knows. Blocking; a name instead of an id does nothing.

    The process table is searched only after a failed start, or when runsc's state betrays that something went wrong.
    """
    if not _FULL_ID.fullmatch(container_id):
        return
    suspicious = failed_start
    if runsc is not None:
        if runsc.state_files(container_id):
            suspicious = True
            runsc.delete(container_id)
        for path in runsc.panic_files(container_id):
            path.unlink(missing_ok=True)
    if suspicious:
        end_orphans(container_id)


def end_orphans(container_id: str) -> None:
    """Kill runtime processes and shims that carry the id on their command line, and wait for them. Blocking."""
    deadline = time.monotonic() + ORPHAN_SECONDS
    for pid, started in list(orphans(container_id)):
        with suppress(ProcessLookupError):
            os.kill(pid, SIGKILL)
        while time.monotonic() < deadline:
            found = process_stat(pid)
            if found is None or found[0] in "ZX" or found[1] != started:
                break
            time.sleep(POLL_SECONDS)


def orphans(container_id: str, proc: Path = Path("/proc")) -> Iterator[tuple[int, int]]:
    """(pid, start time) of every runtime process and shim of a container, by command line."""
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(FileNotFoundError, ProcessLookupError):
            words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if Path(words[0]).name.startswith(PROGRAMS) and any(container_id in word for word in words[1:]):
                found = process_stat(int(entry.name), proc)
                if found is not None:
                    yield int(entry.name), found[1]


def process_stat(pid: int, proc: Path = Path("/proc")) -> tuple[str, int] | None:
    """(state letter, start time) from /proc/PID/stat; None when there is no such process."""
    try:
        text = (proc / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return fields[0], int(fields[19])
