"""One attempt's disk, as the reader's thread sees it: when to tell, and whether to look again soon.

Tells only what is new: that it is high, and that it is full. Remembers for this process; the evidence is elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from daemon.fswatch.fullness import Fullness, measure


class Disk:
    """Every call comes from the reader's thread. `tell` hands on to the event loop."""

    def __init__(self, quota: Path, container_id: str, tell: Callable[[Fullness], None]) -> None:
        self._quota = quota
        self._container_id = container_id
        self._tell = tell
        self._last = Fullness(False, 0.0)

    def owns(self, cgroup: str) -> bool:
        """Whether a thread of these control groups is the sandbox's."""
        return bool(self._container_id) and self._container_id in cgroup

    def full(self) -> None:
        """A call of the sandbox met ENOSPC."""
        if not self._last.full:
            self._last = Fullness(True, max(self._last.used_ratio, 1.0))
            self._tell(self._last)

    def look(self) -> bool:
        """Whether to look again soon: the disk is nearly full, and was never seen to be full."""
        try:
            now = measure(self._quota)
        except OSError:
            return False  # it is being taken down
        if (now.full and not self._last.full) or (now.high and not self._last.high):
            self._last = now
            self._tell(now)
        return now.high and not self._last.full
