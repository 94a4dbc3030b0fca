"""A transport that remembers whether its stream has ended, so that a pool can tell a dead entry without a call."""

from __future__ import annotations

from collections.abc import Callable

from daemon.supervisor.transport import ByteTransport


class WatchedTransport(ByteTransport):
    """Passes everything through; `ended` is set by the end of the stream, a failed write, or close.

    `when_ended` is called once, at that moment.
    """

    def __init__(self, inner: ByteTransport) -> None:
        """Watch `inner`."""
        self._inner = inner
        self.ended = False
        self.when_ended: Callable[[], None] | None = None

    async def read(self, n: int) -> bytes:
        """As the inner one; b"" is the end."""
        try:
            data = await self._inner.read(n)
        except Exception:
            self._end()
            raise
        if not data:
            self._end()
        return data

    async def write(self, data: bytes) -> None:
        """As the inner one."""
        try:
            await self._inner.write(data)
        except OSError:
            self._end()
            raise

    async def close(self) -> None:
        """As the inner one."""
        self._end()
        await self._inner.close()

    def diagnosis(self) -> str:
        """As the inner one."""
        return self._inner.diagnosis()

    def _end(self) -> None:
        tell, self.when_ended = self.when_ended, None
        self.ended = True
        if tell is not None:
            tell()
