"""Runs last (by its place): the session has left no container, mount, loop device, process or socket behind."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.support.leftovers import snapshot

SETTLE_SECONDS = 15


def test_the_look_finds_what_is_there():
    """A look that sees nothing would prove nothing."""
    program = "import time; time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program, "-m", "daemon", "--config", "/tmp/gt-probe/node.json"])
    try:
        assert any(line.startswith(f"{process.pid} ") for line in snapshot().processes)
    finally:
        process.kill()
        process.wait()


def test_nothing_is_left(before):
    deadline = time.monotonic() + SETTLE_SECONDS
    while (left := snapshot().beyond(before)) and time.monotonic() < deadline:
        time.sleep(0.5)  # the kernel and the engine let go of things after their last user; nothing tells when
    assert left == {}
