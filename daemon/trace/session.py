"""The trace session that every sandbox is created with: which points, which fields, which socket.

Pure but for writing the two files: `pod_init` for the runtime entry's `--pod-init-config`, `session` for attaching to
a container that runs. Context fields are numbers only: a sentry cannot send a text that is no UTF-8, so a process of
an ill-chosen name or directory would vanish from the trace with every event that mentioned it. The one exception is
ATTEMPTED, of which the numbers are asked for as well.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from daemon.trace.calls import ARCH_PRCTL, DENIED, EXECUTING, MAKING, SIGNALS

# One session a sandbox, and this is its only legal name.
NAME = "Default"
CONTEXT = ("time", "thread_id", "group_id", "parent_thread_group_id")
SENTRY_POINTS = ("container/start", "sentry/clone", "sentry/execve", "sentry/exit_notify_parent")
# execve with the name and the arguments, but not the environment; a name may be relative.
ATTEMPTED = ("syscall/execve/exit", "syscall/execveat/exit")
# A full socket is tried again for about five seconds: the agent is slowed before an event is lost.
RETRIES = 500
BACKOFF, BACKOFF_MAX = "25us", "10ms"


def points() -> list[str]:
    """Every point: the sentry's own, signals at both ends (a target may be gone before the call ends), refusals."""
    signals = [f"syscall/sysno/{number}/{end}" for number in SIGNALS for end in ("enter", "exit")]
    ends = (*DENIED, *sorted(MAKING), *sorted(EXECUTING), ARCH_PRCTL)
    return [*SENTRY_POINTS, *signals, *(f"syscall/sysno/{number}/exit" for number in ends), *ATTEMPTED]


def context(point: str) -> list[str]:
    """What is asked for of the process that makes an event."""
    return [*CONTEXT, "cwd"] if point in ATTEMPTED else [*CONTEXT]


def session(endpoint: Path) -> dict[str, Any]:
    """The session's object. Without a listener at `endpoint` no container starts: that is wanted."""
    return {
        "name": NAME,
        # An older or newer runsc may lack a field; it must not run untraced because of that.
        "ignore_missing": True,
        "points": [{"name": name, "context_fields": context(name)} for name in points()],
        "sinks": [
            {
                "name": "remote",
                "ignore_setup_error": False,
                "config": {
                    "endpoint": str(endpoint),
                    "retries": RETRIES,
                    "backoff": BACKOFF,
                    "backoff_max": BACKOFF_MAX,
                },
            }
        ],
    }


def write_files(endpoint: Path, pod_init: Path, attach: Path) -> None:
    """Write both files, each in one step. Raises OSError."""
    made = session(endpoint)
    for path, value in ((pod_init, {"trace_session": made}), (attach, made)):
        fresh = path.with_name(f".{path.name}.new")
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
