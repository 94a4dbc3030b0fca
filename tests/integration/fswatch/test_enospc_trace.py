"""Calls that fail with ENOSPC, heard from the kernel: exactly those, and only while somebody listens."""

from __future__ import annotations

import secrets
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from daemon.fswatch.enospc import EnospcTrace, cgroup_of
from tests.support.environment import REPOSITORY

WRITE = (
    "import os, sys\n"
    "try: os.write(os.open(sys.argv[1], os.O_WRONLY), b'x')\n"
    "except OSError: pass\n"
    "print(flush=True); input()"
)


@pytest.fixture
def name() -> str:
    return f"gauntlet-t{secrets.token_hex(4)}"


@pytest.fixture
def trace(name: str) -> Iterator[EnospcTrace]:
    made = EnospcTrace(name)
    yield made
    made.close()


def write_to(path: str) -> tuple[int, str]:
    """Write to a file in a process of its own; its id, and its control groups as the trace's reader sees them."""
    with subprocess.Popen(["/usr/bin/python3", "-c", WRITE, path], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        process.stdout.readline()
        groups = cgroup_of(process.pid)
        process.communicate(b"\n", timeout=10)
    return process.pid, groups


def heard(trace: EnospcTrace, seconds: float = 10.0) -> list[int]:
    return trace.read() if select.select([trace], [], [], seconds)[0] else []


def test_a_failed_call_names_its_process(trace: EnospcTrace):
    trace.switch(True)
    write_to("/dev/null")
    pid, groups = write_to("/dev/full")
    assert pid in heard(trace)
    assert ":/" in groups


def test_nothing_is_heard_when_it_is_off(trace: EnospcTrace):
    trace.switch(True)
    trace.switch(False)
    write_to("/dev/full")
    assert heard(trace, 0) == []


def test_a_later_life_takes_over_what_a_killed_one_left_switched_on(name: str):
    leave = f"import os\nfrom daemon.fswatch.enospc import EnospcTrace\nEnospcTrace({name!r}).switch(True)\nos._exit(9)"
    assert subprocess.run([sys.executable, "-c", leave], cwd=REPOSITORY).returncode == 9
    later = EnospcTrace(name)
    try:
        write_to("/dev/full")
        assert heard(later, 0) == []
        later.switch(True)
        pid, _ = write_to("/dev/full")
        assert pid in heard(later)
    finally:
        later.close()


def test_a_thread_that_is_gone_has_no_groups():
    assert cgroup_of(2**22 + 1) == ""
