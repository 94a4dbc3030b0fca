"""Retained output of one stream of one exec: bounded, re-readable from an offset by any number of readers.

Owns the bytes kept in the daemon; what is shipped at all is decided by the supervisor's cap. Draining never waits
for a reader: readers pull.
"""

from __future__ import annotations

import asyncio

READ_CHUNK = 64 * 1024


class RetainedOutput:
    """Bytes `[base, end)` of a stream whose true length is `total`.

    `base` is above 0 only for an exec adopted from an earlier daemon: what came before was lost with that daemon.
    Bytes that do not follow on or pass the cap are counted, never kept: a reader's offsets are always true.
    """

    def __init__(self, cap: int) -> None:
        """`cap` in bytes."""
        self.cap = cap
        self.base = 0
        self.total = 0
        self.closed = False
        self._data = bytearray()
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def end(self) -> int:
        """Offset after the last kept byte."""
        return self.base + len(self._data)

    @property
    def truncated(self) -> bool:
        """True when the stream is longer than what is kept."""
        return self.total > len(self._data)

    def append(self, offset: int, data: bytes | memoryview) -> None:
        """Take what arrived at `offset`."""
        if self.total == 0:
            self.base = offset
        if offset == self.end:
            room = self.cap - len(self._data)
            self._data += data[:room]
        self.total = max(self.total, offset + len(data))
        self._wake()

    def close(self, total: int | None = None) -> None:
        """No more bytes will come; `total` is the true length."""
        if total is not None:
            self.total = max(self.total, total)
        self.closed = True
        self._wake()

    def read(self, offset: int, limit: int = READ_CHUNK) -> bytes:
        """Kept bytes from `offset`, at most `limit`; b"" when there are none (yet). Below `base` raises ValueError."""
        if offset < self.base:
            raise ValueError(f"offset {offset} lies before the first kept byte {self.base}")
        start = offset - self.base
        return bytes(self._data[start : start + limit])

    async def wait_more(self, offset: int) -> bool:
        """Wait until bytes at `offset` are kept (True), or the stream ended or its cap is reached (False)."""
        while offset >= self.end:
            if self.closed or len(self._data) >= self.cap:
                return False
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.add(waiter)
            try:
                await waiter
            finally:
                self._waiters.discard(waiter)
        return True

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
