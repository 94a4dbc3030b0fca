"""How full a quota file system is, as the agent meets it: what an unprivileged writer may still take. Blocking, short.

`f_bfree` would not do: ext4 keeps clusters for itself, so a writer gets ENOSPC while some are free. With large folios
it refuses a write of 64 KiB already while 30 blocks (120 KiB) are left to it (measured on Linux 6.18).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

HIGH_RATIO = 0.8
FULL_BYTES = 128 << 10


@dataclass(frozen=True, slots=True)
class Fullness:
    """One look. `full`: the next block or file would get ENOSPC. `used_ratio`: 0 to 1, of blocks or inodes."""

    full: bool
    used_ratio: float

    @property
    def high(self) -> bool:
        """Whether it is time to say so."""
        return self.full or self.used_ratio >= HIGH_RATIO


def measure(quota: Path) -> Fullness:
    """Look at a mounted quota file system. Raises OSError when it is gone."""
    status = os.statvfs(quota)
    used = status.f_blocks - status.f_bfree
    blocks = used / (used + status.f_bavail) if used + status.f_bavail else 1.0
    inodes = 1 - status.f_favail / status.f_files if status.f_files else 0.0
    return Fullness(
        full=status.f_bavail * status.f_frsize < FULL_BYTES or (status.f_files > 0 and status.f_favail == 0),
        used_ratio=max(blocks, inodes),
    )
