"""Keeps one service running: starts it, restarts it with back-off when it ends, ends it when told to.

Run by path with the services' interpreter: `keeper.py SPEC`. The standard library only, since it must outlive every
change of the code it keeps. The child gets a session of its own, no descriptor of ours but its log, the service's
user, and SIGTERM if this process dies. `status.json` beside the spec says how things stand.
"""

from __future__ import annotations

import ctypes
import grp
import json
import os
import pwd
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FIRST_DELAY = 0.1
LAST_DELAY = 1.0
# A child that lived this long was well; the next end starts the back-off anew.
WELL_SECONDS = 10.0
# This many ends in a row without being well in between are a crash loop.
CRASH_LOOP = 5
STOP_GRACE = 45.0
LOG_BYTES = 16 * 1024 * 1024
PR_SET_PDEATHSIG = 1


class Keeper:
    """One service's keeper."""

    def __init__(self, spec_path: Path) -> None:
        self._spec: dict[str, Any] = json.loads(spec_path.read_text())
        self._status = spec_path.parent / "status.json"
        self._log = spec_path.parent / "service.log"
        self._child: subprocess.Popen[bytes] | None = None
        self._stop_ordered = threading.Event()
        self._quick_ends = 0
        self._restarts = 0

    def run(self) -> int:
        """Keep until told to stop."""
        if self._spec["cgroup_procs"]:  # before the first child, which inherits the group and its CPU shares
            Path(self._spec["cgroup_procs"]).write_text("0")
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        delay = FIRST_DELAY
        while not self._stop_ordered.is_set():
            began = time.monotonic()
            code = self._run_once()
            if self._stop_ordered.is_set():
                break
            well = time.monotonic() - began >= WELL_SECONDS
            self._quick_ends = 0 if well else self._quick_ends + 1
            delay = FIRST_DELAY if well else min(delay * 2, LAST_DELAY)
            self._restarts += 1
            self._write("restarting", 0, code)
            self._stop_ordered.wait(delay)
        self._write("stopped", 0, 0)
        return 0

    def _run_once(self) -> int:
        if self._log.exists() and self._log.stat().st_size > LOG_BYTES:
            self._log.replace(self._log.with_suffix(".log.1"))
        user = pwd.getpwnam(self._spec["user"])
        groups = [g.gr_gid for g in grp.getgrall() if user.pw_name in g.gr_mem]
        root = user.pw_uid == 0
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._spec["argv"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._spec["cwd"],
                env=self._spec["environment"],
                start_new_session=True,
                user=None if root else user.pw_uid,
                group=None if root else user.pw_gid,
                extra_groups=None if root else groups,
                umask=0o077,
                preexec_fn=_end_with_parent,
            )
        self._write("running", self._child.pid, None)
        if self._stop_ordered.is_set():  # the order came while the child was being made
            self._child.terminate()
        return self._child.wait()

    def _stop(self, number: int, frame: object) -> None:
        self._stop_ordered.set()
        child = self._child
        if child is not None and child.poll() is None:
            child.terminate()
            signal.signal(signal.SIGALRM, lambda *_: child.kill())
            signal.setitimer(signal.ITIMER_REAL, STOP_GRACE)

    def _write(self, state: str, pid: int, code: int | None) -> None:
        loop = self._quick_ends >= CRASH_LOOP
        status = {
            "state": "crash_loop" if loop and state != "stopped" else state,
            "child_pid": pid,
            "restarts": self._restarts,
            "last_exit": code,
        }
        fresh = self._status.with_suffix(".new")
        fresh.write_text(json.dumps(status))
        fresh.replace(self._status)


def _end_with_parent() -> None:
    """After the change of user, which would clear it: the child does not outlive its keeper."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


if __name__ == "__main__":
    os.chdir("/")
    sys.exit(Keeper(Path(sys.argv[1])).run())
