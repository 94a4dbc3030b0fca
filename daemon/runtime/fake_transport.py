"""One attachment to a fake PID 1: whole frames to it, its bytes back. Owns buffering and end, not the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from daemon.supervisor.frames import Decoder, Frame
from daemon.supervisor.transport import ByteTransport


class FakeTransport(ByteTransport):
    """One attachment to a fake PID 1."""

    def __init__(self, handle: Callable[[Frame], None], detach: Callable[[FakeTransport], None]) -> None:
        """Attached at once; `handle` takes the client's frames, `detach` is told of the client's close."""
        self._handle = handle
        self._detach = detach
        self._decoder = Decoder()
        self._buffer = bytearray()
        self._changed = asyncio.Event()
        self._ended = False

    async def read(self, n: int) -> bytes:
        """See the port."""
        while not self._buffer and not self._ended:
            self._changed.clear()
            await self._changed.wait()
        data = bytes(self._buffer[:n])
        del self._buffer[:n]
        return data

    async def write(self, data: bytes) -> None:
        """See the port."""
        if self._ended:
            raise BrokenPipeError("the sandbox is gone")
        if not self._decoder.buffered:
            data = data.lstrip(b"\0")  # the run of zeros before a SYNC; no frame begins with one
        for frame in self._decoder.feed(data):
            self._handle(frame)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """See the port."""
        self._detach(self)
        self.end()

    def deliver(self, data: bytes) -> None:
        """Output of PID 1."""
        self._buffer += data
        self._changed.set()

    def end(self) -> None:
        """The stream is over, once what was delivered is read."""
        self._ended = True
        self._changed.set()
