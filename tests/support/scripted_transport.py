"""An in-memory ByteTransport whose peer is the test: it reads what was sent and says what comes back."""

from __future__ import annotations

import asyncio

from daemon.supervisor.frames import PREAMBLE, Decoder, Frame, FrameType, encode
from daemon.supervisor.transport import ByteTransport


class ScriptedTransport(ByteTransport):
    """The link's side; `frame()` and `say()` are the peer's."""

    def __init__(self) -> None:
        self._to_link: asyncio.Queue[bytes] = asyncio.Queue()
        self._from_link: asyncio.Queue[bytes] = asyncio.Queue()
        self._decoder = Decoder()
        self._frames: list[Frame] = []
        self.preambles = 0
        self.broken = False

    async def read(self, n: int) -> bytes:
        return await self._to_link.get()

    async def write(self, data: bytes) -> None:
        if self.broken:
            raise BrokenPipeError("peer is gone")
        self._from_link.put_nowait(data)

    async def close(self) -> None:
        self._to_link.put_nowait(b"")

    def diagnosis(self) -> str:
        return "last words"

    def say(self, *frames: Frame, before: bytes = b"") -> None:
        """Send frames to the link in one piece."""
        self._to_link.put_nowait(before + b"".join(map(encode, frames)))

    def hang_up(self) -> None:
        """End of the stream."""
        self._to_link.put_nowait(b"")

    async def frame(self) -> Frame:
        """The next frame the link sent; preambles are counted and skipped."""
        while not self._frames:
            data = await self._from_link.get()
            if data.startswith(PREAMBLE):
                self.preambles += 1
                data = data[len(PREAMBLE) :]
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    async def expect(self, kind: FrameType) -> Frame:
        """The next frame, which must be of this type."""
        frame = await self.frame()
        assert frame.type == kind, f"{FrameType(frame.type).name} instead of {kind.name}"
        return frame
