"""The bounded way from the reader's thread to the event loop, one for each attempt.

When it is full, whole batches are dropped and their records counted: the kernel's queue is emptied all the same, and
the count becomes a gap record.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from daemon.fswatch.changes import Batch, Change

LIMIT_BYTES = 16 << 20
# A change's own objects, apart from its path.
_CHANGE_BYTES = 200


class Post(NamedTuple):
    """What has come since the last look. `ended` says that nothing more will come."""

    changes: list[Change]
    dropped: int
    lost: int
    overflow: bool
    ended: bool


class Inbox:
    """`wake` is called from the putting thread, once for each time that the inbox stops being empty."""

    def __init__(self, wake: Callable[[], None], limit_bytes: int = LIMIT_BYTES) -> None:
        self._wake = wake
        self._limit = limit_bytes
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self._bytes = self._dropped = self._lost = 0
        self._overflow = self._ended = False

    def put(self, batch: Batch) -> None:
        """Take a batch, or count it as dropped."""
        size = sum(_CHANGE_BYTES + len(change.path) for change in batch.changes)
        with self._lock:
            was_empty = self._empty()
            if self._bytes + size > self._limit:
                self._dropped += len(batch.changes)
            else:
                self._changes += batch.changes
                self._bytes += size
            self._lost += batch.lost
            self._overflow = self._overflow or batch.overflow
            wake = was_empty and not self._empty()
        if wake:
            self._wake()

    def end(self) -> None:
        """Nothing more will come."""
        with self._lock:
            self._ended = True
        self._wake()

    def get(self) -> Post:
        """Everything that has come."""
        with self._lock:
            post = Post(self._changes, self._dropped, self._lost, self._overflow, self._ended)
            self._clear()
        return post

    def _empty(self) -> bool:
        return not (self._changes or self._dropped or self._lost or self._overflow)

    def _clear(self) -> None:
        self._changes = []
        self._bytes = self._dropped = self._lost = 0
        self._overflow = False
