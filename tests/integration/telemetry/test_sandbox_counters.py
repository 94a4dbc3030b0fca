"""Counters of real containers, under runc and under gVisor: what the sandbox used is what is read."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from daemon.runtime.docker_observe import cgroup_paths
from daemon.runtime.types import CgroupPaths
from daemon.telemetry.cgroup import CgroupSource
from daemon.telemetry.pids import CgroupPids, RunscPids
from daemon.telemetry.types import Counters, PidsSource, SourceGoneError
from tests.support.mini_image import mini_image

pytestmark = pytest.mark.docker

MIB = 1 << 20
LIVENESS_SECONDS = 60
# Holds 32 MiB in a variable, writes 24 MiB to the bound directory, burns CPU, and stays.
WORK = """
dd if=/dev/zero of=/workspace/written bs=1048576 count=24 2>/dev/null; sync
awk 'BEGIN { kept = "x"; while (length(kept) < 33554432) kept = kept kept; while (1) n++ }'
"""


@pytest.fixture(params=["runc", "gauntlet-runsc"])
def container(request: pytest.FixtureRequest) -> Iterator[Any]:
    client = docker.from_env(timeout=60)
    # On a real disk: a write to a tmpfs is no write to storage.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as directory:
        made = client.containers.create(
            mini_image(client.api),
            ["/bin/sh", "-c", WORK],
            runtime=request.param,
            network_mode="none",
            mem_limit=256 * MIB,
            volumes={directory: {"bind": "/workspace", "mode": "rw"}},
        )
        try:
            made.start()
            made.reload()
            yield made
        finally:
            made.remove(force=True)
            client.close()


def groups(container: Any) -> CgroupPaths:
    return cgroup_paths(container.attrs["State"]["Pid"], container.id)


def until(source: CgroupSource, holds: Callable[[Counters], bool]) -> Counters:
    deadline = time.monotonic() + LIVENESS_SECONDS
    while True:
        counters = source.read()
        if holds(counters):
            return counters
        assert time.monotonic() < deadline, counters
        time.sleep(0.1)


async def test_the_guests_own_tasks_are_counted_and_not_the_sentrys_threads(container: Any) -> None:
    until(CgroupSource(groups(container)), lambda seen: seen.memory_rss_bytes >= 32 * MIB)
    runtime = container.attrs["HostConfig"]["Runtime"]
    if runtime == "runc":
        pids_group = groups(container).pids
        assert pids_group is not None
        count: PidsSource = CgroupPids(pids_group)
    else:
        entry = container.client.info()["Runtimes"][runtime]
        count = RunscPids(Path(entry["path"]), Path("/var/run/docker/runtime-runc/moby"), container.id)
    # The shell and awk; a process of dd or sync may still be ending.
    assert await count() in (2, 3)
    container.kill()
    container.wait()
    with pytest.raises(SourceGoneError):
        for _ in range(100):
            await count()
            await asyncio.sleep(0.1)


def test_memory_cpu_and_writes_of_a_sandbox_are_seen_until_it_is_gone(container: Any) -> None:
    source = CgroupSource(groups(container))
    busy = until(source, lambda seen: seen.disk_write_bytes >= 24 * MIB and seen.memory_rss_bytes >= 32 * MIB)
    assert busy.memory_rss_bytes < 256 * MIB
    assert busy.memory_high_water_bytes is None or busy.memory_high_water_bytes >= busy.memory_rss_bytes
    assert busy.oom_kill_count == 0
    later = until(source, lambda seen: seen.cpu_usage_ns > busy.cpu_usage_ns + 100_000_000)
    assert later.disk_write_bytes >= busy.disk_write_bytes
    container.kill()
    with contextlib.suppress(docker.errors.NotFound):
        container.wait()
    deadline = time.monotonic() + LIVENESS_SECONDS
    with pytest.raises(SourceGoneError):
        while time.monotonic() < deadline:
            source.read()
            time.sleep(0.1)
