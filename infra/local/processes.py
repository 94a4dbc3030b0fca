"""Processes by pid and start time, so that a pid that was given to somebody else is never touched."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path


def start_time(pid: int) -> str | None:
    """The kernel's start time of a live process; None when there is none (a zombie is none)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]


def alive(pid: int, started: str) -> bool:
    """Whether exactly that process lives."""
    return pid > 0 and start_time(pid) == started


def end(pid: int, started: str, grace_seconds: float) -> bool:
    """SIGTERM, up to `grace_seconds`, SIGKILL; returns whether the process is gone. Idempotent."""
    if not alive(pid, started):
        return True
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, 10.0)):
            if not alive(pid, started):
                return True
            signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], seconds)[0]:
                return True
    except ProcessLookupError:
        return True
    finally:
        os.close(handle)
    return not alive(pid, started)
