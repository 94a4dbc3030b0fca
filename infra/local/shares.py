"""The services' share of the CPUs: a control group of their own, worth eight times what all sandboxes together are.

A busy agent then cannot starve the daemon that watches it, so that a late heartbeat or a slow kill never becomes an
attempt's fate. Owns the group's directory; the keeper joins it. Leaves out limits: the services may use every idle CPU.
"""

from __future__ import annotations

from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")
TIMES = 8
# What Docker's own group has when nobody changed it, so all its containers together.
V1_DEFAULT_SHARES = 1024
V2_DEFAULT_WEIGHT = 100


def group(instance: str, root: Path = CGROUP_ROOT) -> Path | None:
    """Where the instance's group is or would be; None on a machine without a CPU controller."""
    for parent, sign in ((root / "cpu", "cpu.shares"), (root / "cpu,cpuacct", "cpu.shares")):
        if (parent / sign).exists():
            return parent / f"gauntlet-{instance}"
    controllers = root / "cgroup.controllers"
    if controllers.exists() and "cpu" in controllers.read_text().split():
        return root / f"gauntlet-{instance}"
    return None


def ensure(instance: str, root: Path = CGROUP_ROOT) -> str:
    """Make the group; returns the file that a process joins it by, empty where there is no CPU controller.

    Raises OSError when the hierarchy may not be written.
    """
    directory = group(instance, root)
    if directory is None:
        return ""
    unified = directory.parent == root
    if unified:
        (root / "cgroup.subtree_control").write_text("+cpu")
    directory.mkdir(exist_ok=True)
    if unified:
        (directory / "cpu.weight").write_text(str(V2_DEFAULT_WEIGHT * TIMES))
    else:
        (directory / "cpu.shares").write_text(str(V1_DEFAULT_SHARES * TIMES))
    return str(directory / "cgroup.procs")


def remove(instance: str, root: Path = CGROUP_ROOT) -> bool:
    """Remove the group if nobody is in it any more; returns whether it is gone."""
    directory = group(instance, root)
    if directory is None or not directory.exists():
        return True
    try:
        directory.rmdir()
    except OSError:
        return False  # another service of the instance still runs in it, and removes it when it ends
    return True
