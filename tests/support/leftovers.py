"""What this machine holds that tests may have made: containers, mounts, loop devices, processes, places in /tmp.

Taken at the start of a session and compared at its end. What was there before, or belongs to somebody else, is not
ours to judge: the environment `local` of `make run` may be up beside the tests, with sandboxes that come and go; no
test ever touches it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, fields
from pathlib import Path

import docker
import docker.errors

OURS = re.compile(r"gauntlet|/gt-|/pytest-of-")
THE_USERS = re.compile(r"/gauntlet/local/|^local-\d+ ")
# Programs that only tests start; each must have ended with its test.
PROGRAMS = re.compile(
    r"-m (records\.collector|scheduler|daemon|daemon\.trace|judges) --config /tmp/|dockerd --config-file /tmp/|"
    r"kube-apiserver|etcd --|cilium-verdict|postgres -D /tmp/"
)


@dataclass(frozen=True)
class Leftovers:
    """A snapshot."""

    containers: frozenset[str]
    mounts: frozenset[str]
    loop_devices: frozenset[str]
    processes: frozenset[str]
    sockets: frozenset[str]

    def beyond(self, before: Leftovers) -> dict[str, list[str]]:
        """What is here and was not `before`, by kind; empty when nothing is."""
        new = {f.name: sorted(getattr(self, f.name) - getattr(before, f.name)) for f in fields(self)}
        new = {kind: [name for name in names if not THE_USERS.search(name)] for kind, names in new.items()}
        return {kind: names for kind, names in new.items() if names}


def snapshot() -> Leftovers:
    """What there is now."""
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    backing = [f.read_text().strip() for f in Path("/sys/block").glob("loop*/loop/backing_file")]
    return Leftovers(
        containers=frozenset(_containers()),
        mounts=frozenset(path for path in mounts if OURS.search(path)),
        loop_devices=frozenset(path for path in backing if OURS.search(path)),
        processes=frozenset(_processes()),
        sockets=frozenset(str(p) for p in Path("/run/gauntlet").glob("*/*.sock"))
        if os.path.isdir("/run/gauntlet")
        else frozenset(),
    )


def _containers() -> list[str]:
    try:
        client = docker.from_env()
    except docker.errors.DockerException:
        return []  # no engine, no containers; the tests that need one say so themselves
    try:
        found = client.containers.list(all=True, filters={"label": "gauntlet.instance"}, ignore_removed=True)
        return [f"{container.labels['gauntlet.instance']} {container.name}" for container in found]
    finally:
        client.close()


def _processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we looked
            if PROGRAMS.search(command):
                found.append(f"{entry.name} {command[:120]}")
    return found
