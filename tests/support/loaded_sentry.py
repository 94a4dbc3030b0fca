"""A sentry that tells of processes at a steady rate, from a thread, over one connection after another.

Each process is made, runs a program and ends: three packets, two events. No pid comes twice, so each event can be told
from every other. When its sink dies, what was on its way is lost, as with a real sentry, and it waits for the socket
of the session that the next sink attaches.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.support.sentry import Sentry, clone, execve, exited

TICK_SECONDS = 0.01
# Below it are those that the stand-in for runsc lists.
FIRST_PID = 100
PATIENCE_SECONDS = 60
# One connection's processes: the first pid, and the first that was not sent whole.
Run = tuple[int, int]


class LoadedSentry:
    """Tells of `rate` processes a second from `start` until `stop`."""

    def __init__(self, path: Path, container_id: str, rate: int) -> None:
        self.container_id = container_id
        self.processes = 0
        self.runs: list[Run] = []
        self._socket = Sentry(path, container_id).socket
        self._rate = rate
        self._enough = threading.Event()
        self._renewed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sentry", daemon=True)

    def start(self) -> None:
        """Begin to tell."""
        self._thread.start()

    def stop(self) -> None:
        """Tell no more and hang up: the sandbox has ended."""
        self._enough.set()
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()
        self._socket.close()

    def attached(self, sock: socket.socket) -> None:
        """A new session's socket: go on over it."""
        sock.settimeout(PATIENCE_SECONDS)
        self._next_socket = sock
        self._renewed.set()

    def _run(self) -> None:
        began = time.monotonic()
        first = FIRST_PID
        for tick in range(1, 1 << 62):
            for _ in range(max(1, int(self._rate * TICK_SECONDS))):
                pid = FIRST_PID + self.processes
                try:
                    for packet in (clone(1, pid), execve(pid, "cc", "-c", f"{pid}.c"), exited(pid)):
                        self._socket.send(packet)
                except OSError:
                    self.runs.append((first, pid))
                    first = pid + 1
                    self._renew()
                self.processes += 1
            if self._enough.wait(max(0.0, began + tick * TICK_SECONDS - time.monotonic())):
                break
        self.runs.append((first, FIRST_PID + self.processes))

    def _renew(self) -> None:
        """Wait for the next session."""
        with suppress(OSError):
            self._socket.close()
        assert self._renewed.wait(PATIENCE_SECONDS), "no session was attached"
        self._renewed.clear()
        self._socket = self._next_socket
