"""What the kernel says is mounted, and which loop devices have their image below a directory.

Observation only; ``reclaim.py`` and ``slots.py`` act on it.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from daemon.workspace import syscalls

_ESCAPE = re.compile(rb"\\([0-7]{3})")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    mount_id: int
    target: Path
    kind: str
    options: frozenset[str]
    shared: bool


def parse(text: bytes) -> list[Mount]:
    """The mounts of a mountinfo file, in the order in which they were mounted over each other."""
    mounts = []
    for line in text.splitlines():
        fields = line.split(b" ")
        dash = fields.index(b"-", 6)
        target = _ESCAPE.sub(lambda match: bytes([int(match[1], 8)]), fields[4])
        mounts.append(
            Mount(
                mount_id=int(fields[0]),
                target=Path(os.fsdecode(target)),
                kind=fields[dash + 1].decode(),
                options=frozenset(fields[5].decode().split(",")),
                shared=any(field.startswith(b"shared:") for field in fields[6:dash]),
            )
        )
    return mounts


def below(directory: Path) -> list[Mount]:
    """The mounts at or below ``directory`` in this mount namespace."""
    mounts = parse(Path("/proc/self/mountinfo").read_bytes())
    return [mount for mount in mounts if mount.target == directory or directory in mount.target.parents]


def is_mounted(path: Path) -> bool:
    """Whether something is mounted exactly there."""
    return any(mount.target == path for mount in below(path))


def unmount_all(mounts: Iterable[Mount]) -> list[str]:
    """Unmount, the latest first; what is busy is detached and goes with its last user. Returns the paths."""
    gone = []
    for mount in reversed(list(mounts)):
        if unmount(mount.target):
            gone.append(str(mount.target))
    return gone


def unmount(target: Path) -> bool:
    """Unmount one; False when nothing was mounted there."""
    try:
        syscalls.umount(target)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return False
        if error.errno != errno.EBUSY:
            raise
        syscalls.umount(target, detach=True)
    return True


def loop_devices(directory: Path) -> dict[Path, Path]:
    """Loop devices whose image lies (or lay, before its removal) below ``directory``: device → image."""
    found = {}
    for entry in Path("/sys/block").glob("loop*/loop/backing_file"):
        name = entry.parts[3]
        image = syscalls.loop_image(name)
        if image is not None and directory in image.parents:
            found[Path("/dev") / name] = image
    return found
