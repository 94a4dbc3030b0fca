"""Counters read from control groups of both versions: pure parsers on recorded text, and this machine's own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from daemon.runtime.docker_observe import cgroup_paths
from daemon.runtime.types import CgroupPaths
from daemon.telemetry.cgroup import (
    CgroupSource,
    memory_v1,
    memory_v2,
    parse_pairs,
)
from daemon.telemetry.pids import CgroupPids, parse_stats
from daemon.telemetry.types import SourceGoneError

STAT_V1 = """cache 1048576
rss 4194304
shmem 524288
hierarchical_memory_limit 536870912
total_cache 9000000
total_rss 10000000
total_shmem 8000000
"""
STAT_V2 = "anon 10000000\nfile 9000000\nkernel 5\nshmem 8000000\n"
IO = "rchar: 1\nwchar: 2\nsyscr: 3\nsyscw: 4\nread_bytes: 868352\nwrite_bytes: 67125248\n"
STAT = "{pid} (name with ) in it) S 1 1 1 0 -1 4194560 1 0 0 0 1 2 0 0 20 0 1 0 {start} 1 2\n"


def test_guest_memory_is_rss_and_shmem_and_cache_is_the_rest() -> None:
    for memory in (memory_v1(parse_pairs(STAT_V1)), memory_v2(parse_pairs(STAT_V2))):
        assert memory.rss == 18_000_000
        assert memory.cache == 1_000_000


def test_cache_is_never_negative() -> None:
    assert memory_v1({"total_cache": 1, "total_shmem": 2}).cache == 0
    assert memory_v2({"file": 1, "shmem": 2}).cache == 0


def test_odd_lines_are_left_out() -> None:
    assert parse_pairs("oom_kill 3\nbad\n\nx y\nmax 1 2\nneg -1\n") == {"oom_kill": 3}


def paths(version: Literal[1, 2], memory: Path | None, cpuacct: Path | None) -> CgroupPaths:
    return CgroupPaths(version, memory, None, cpuacct, None, None, ())


def make_process(proc: Path, pid: int, read: int, written: int, start: int = 100) -> None:
    (proc / str(pid)).mkdir(parents=True, exist_ok=True)
    (proc / str(pid) / "stat").write_text(STAT.format(pid=pid, start=start))
    (proc / str(pid) / "io").write_text(f"read_bytes: {read}\nwrite_bytes: {written}\n")


@pytest.fixture(params=[1, 2])
def group(tmp_path: Path, request: pytest.FixtureRequest) -> CgroupPaths:
    version: Literal[1, 2] = request.param
    memory = tmp_path / "memory"
    cpu = tmp_path / "cpu" if version == 1 else memory
    for path in {memory, cpu}:
        path.mkdir()
    (memory / "cgroup.procs").write_text("10\n11\n")
    (memory / "memory.stat").write_text(STAT_V1 if version == 1 else STAT_V2)
    if version == 1:
        (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
        (memory / "memory.max_usage_in_bytes").write_text("20000000\n")
        (cpu / "cpuacct.usage").write_text("5000000000\n")
    else:
        (memory / "memory.events").write_text("low 0\noom 3\noom_kill 2\n")
        (memory / "memory.peak").write_text("20000000\n")
        (memory / "cpu.stat").write_text("usage_usec 5000000\nuser_usec 1\n")
    return paths(version, memory, cpu)


def test_both_versions_give_the_same_counters(group: CgroupPaths, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    make_process(proc, 10, 100, 1_000)
    make_process(proc, 11, 1, 2)
    counters = CgroupSource(group, proc).read()
    assert counters.cpu_usage_ns == 5_000_000_000
    assert counters.memory_rss_bytes == 18_000_000
    assert counters.memory_high_water_bytes == 20_000_000
    assert (counters.disk_read_bytes, counters.disk_write_bytes) == (101, 1_002)
    assert counters.oom_kill_count == 2


def test_what_an_ended_process_wrote_still_counts(group: CgroupPaths, tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    make_process(proc, 10, 100, 1_000)
    make_process(proc, 11, 1, 2)
    source = CgroupSource(group, proc)
    source.read()
    (group.memory / "cgroup.procs").write_text("10\n12\n")
    make_process(proc, 10, 100, 1_500)
    assert source.read().disk_write_bytes == 1_502
    # A new process under an old number is another process.
    (group.memory / "cgroup.procs").write_text("11\n")
    make_process(proc, 11, 0, 7, start=999)
    assert source.read().disk_write_bytes == 1_509


def test_a_group_that_vanished_says_so(group: CgroupPaths, tmp_path: Path) -> None:
    source = CgroupSource(group, tmp_path / "proc")
    source.read()
    (group.memory / "cgroup.procs").unlink()
    with pytest.raises(SourceGoneError):
        source.read()


def test_a_kernel_without_a_peak_has_none(tmp_path: Path, group: CgroupPaths) -> None:
    if group.version == 2:
        (group.memory / "memory.peak").unlink()
        assert CgroupSource(group, tmp_path / "proc").read().memory_high_water_bytes is None


@pytest.mark.parametrize("missing", ["memory", "cpuacct"])
def test_a_group_without_a_controller_is_no_source(missing: str) -> None:
    there = Path("/cg/there")
    with pytest.raises(SourceGoneError, match="not mounted"):
        CgroupSource(paths(1, None if missing == "memory" else there, None if missing == "cpuacct" else there))


def test_this_machines_own_counters_can_be_read(tmp_path: Path) -> None:
    """The real kernel's files, whichever version this machine has, of the group that this process is in."""
    own = cgroup_paths(os.getpid(), "")
    assert own.memory is not None
    assert own.memory.exists(), "a container that sees the tree from elsewhere cannot run these tests"
    payload = tmp_path / "payload"
    source = CgroupSource(own)
    if own.version == 2 and not (own.memory / "memory.events").exists():  # the root of version 2 has not every file
        with pytest.raises(SourceGoneError):
            source.read()
        return
    before = source.read()
    with payload.open("wb") as file:
        file.write(os.urandom(8 << 20))
        file.flush()
        os.fsync(file.fileno())
    after = source.read()
    assert after.cpu_usage_ns > before.cpu_usage_ns > 0
    assert after.memory_rss_bytes > 1 << 20


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"data":{"pids":{}}}',
        b'{"data":{"pids":{"current":-1}}}',
        b'{"data":{"pids":{"current":true}}}',
        b'{"data":{"pids":{"current":1e3}}}',
        b'{"data":{"pids":{"current":9999999999}}}',
        b"[" * 50_000,
    ],
)
def test_what_the_sentry_answers_is_checked(answer: bytes) -> None:
    assert parse_stats(b'{"type":"stats","data":{"pids":{"current":9}}}') == 9
    with pytest.raises(SourceGoneError, match="no count"):
        parse_stats(answer)


async def test_tasks_of_a_group(tmp_path: Path) -> None:
    (tmp_path / "pids.current").write_text("12\n")
    assert await CgroupPids(tmp_path)() == 12
    with pytest.raises(SourceGoneError):
        await CgroupPids(tmp_path / "gone")()
