"""Which host processes belong to a container: a mistake here ends somebody else's."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from daemon.runtime.docker_destroy import HostProcess, confirm_gone, host_processes
from daemon.runtime.docker_observe import cgroup_paths
from daemon.runtime.errors import RuntimeTimeout

CONTAINER = "ab" * 32


def proc(tmp_path: Path, cgroup: str, mountinfo: str) -> Path:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "cgroup").write_text(cgroup)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "mountinfo").write_text(mountinfo)
    return tmp_path


def group(root: Path, *pids: int) -> Path:
    root.mkdir(parents=True)
    (root / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return root


def test_legacy_groups(tmp_path: Path) -> None:
    memory = group(tmp_path / "memory" / "docker" / CONTAINER, 42, 43)
    cpu = group(tmp_path / "cpu,cpuacct" / "docker" / CONTAINER, 42, 43)
    mounts = (
        f"30 20 0:26 / {tmp_path}/memory rw,nosuid - cgroup cgroup rw,memory\n"
        f"31 20 0:27 / {tmp_path}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
        f"32 20 0:28 / {tmp_path}/unified rw - cgroup2 none rw\n"
    )
    cgroup = f"9:name=systemd:/\n4:memory:/docker/{CONTAINER}\n3:cpu,cpuacct:/docker/{CONTAINER}\n0::/\n"
    mkdir(tmp_path / "proc_")
    found = cgroup_paths(42, CONTAINER, proc(tmp_path / "proc_", cgroup, mounts))
    assert (found.version, found.memory, found.cpu, found.cpuacct) == (1, memory, cpu, cpu)
    assert (found.pids, found.blkio) == (None, None)
    assert found.host_pids == (42, 43)


def test_unified_group_in_a_scope(tmp_path: Path) -> None:
    scope = f"/system.slice/docker-{CONTAINER}.scope"
    directory = group(tmp_path / f"cg{scope}", 42)
    mkdir(tmp_path / "proc_")
    place = proc(tmp_path / "proc_", f"0::{scope}\n", f"30 20 0:26 / {tmp_path}/cg rw - cgroup2 cgroup2 rw\n")
    found = cgroup_paths(42, CONTAINER, place)
    assert (found.version, found.memory, found.pids, found.host_pids) == (2, directory, directory, (42,))


def test_mount_of_a_part_of_the_hierarchy(tmp_path: Path) -> None:
    directory = group(tmp_path / f"cg/docker/{CONTAINER}", 42)
    mkdir(tmp_path / "proc_")
    mounts = f"30 20 0:26 /pod7 {tmp_path}/cg rw - cgroup2 cgroup2 rw\n"
    place = proc(tmp_path / "proc_", f"0::/pod7/docker/{CONTAINER}\n", mounts)
    assert cgroup_paths(42, CONTAINER, place).memory == directory


def test_exiting_process_in_the_root_group_is_nobody(tmp_path: Path) -> None:
    # Seen on a real engine: destroy took every process of the host for the sandbox's.
    group(tmp_path / "memory", 1, 2, 3)
    mkdir(tmp_path / "proc_")
    mounts = f"30 20 0:26 / {tmp_path}/memory rw - cgroup cgroup rw,memory\n"
    place = proc(tmp_path / "proc_", "4:memory:/\n0::/\n", mounts)
    with pytest.raises(ProcessLookupError):
        cgroup_paths(42, CONTAINER, place)


def test_own_process_is_never_a_containers() -> None:
    assert host_processes({"Id": CONTAINER, "State": {"Pid": os.getpid()}}) == ()
    assert host_processes({"Id": CONTAINER, "State": {"Pid": 0}}) == ()


def test_stranger_is_waited_for_but_never_killed() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        started = int(Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[19])
        stranger = HostProcess(sleeper.pid, started, CONTAINER)
        assert stranger.alive
        stranger.kill()
        with pytest.raises(RuntimeTimeout):
            confirm_gone([stranger], time.monotonic())
        assert sleeper.poll() is None
        assert not HostProcess(sleeper.pid, started + 1, CONTAINER).alive
        sleeper.kill()
        confirm_gone([stranger], time.monotonic() + 10)


def mkdir(path: Path) -> None:
    path.mkdir()
