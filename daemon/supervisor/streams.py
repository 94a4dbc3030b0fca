"""ByteTransport over a pair of asyncio streams, and a bounded memory of PID 1's log lines."""

from __future__ import annotations

import asyncio

from daemon.supervisor.transport import ByteTransport

LOG_BYTES = 8 * 1024
STREAM_LIMIT = 1 << 20


class LogTail:
    """The last LOG_BYTES of a log; the text is PID 1's own, but odd bytes are shown, not trusted."""

    def __init__(self) -> None:
        """Empty."""
        self._data = b""

    def add(self, data: bytes) -> None:
        """Keep the tail."""
        self._data = (self._data + data)[-LOG_BYTES:]

    def text(self) -> str:
        """What is kept."""
        return self._data.decode("utf-8", "backslashreplace").strip()


class StreamTransport(ByteTransport):
    """Reader and writer of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Takes both over."""
        self._reader = reader
        self._writer = writer
        self.log = LogTail()

    async def read(self, n: int) -> bytes:
        """Whatever has come; a reset is an end."""
        try:
            return await self._reader.read(n)
        except ConnectionError:
            return b""

    async def write(self, data: bytes) -> None:
        """Write and wait for room."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Close the writer; a blocked read ends."""
        if self._writer.is_closing():
            return
        self._writer.close()
        self._reader.feed_eof()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            return  # the peer was faster

    def diagnosis(self) -> str:
        """The log's tail."""
        return self.log.text()
