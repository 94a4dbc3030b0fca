"""The byte pipe under a supervisor link, as a port.

Adapters: `docker_transport` (attach of a container), `local_transport` (a process of this machine, for tests).
"""

from __future__ import annotations

from abc import ABC, abstractmethod


class ByteTransport(ABC):
    """A duplex byte stream to PID 1's stdin and from its stdout."""

    @abstractmethod
    async def read(self, n: int) -> bytes:
        """Up to `n` bytes, b"" at the end of the stream. Never raises for an ordinary end (reset included)."""

    @abstractmethod
    async def write(self, data: bytes) -> None:
        """Write all of `data`, waiting while the peer is slow; raises OSError when the stream is gone."""

    @abstractmethod
    async def close(self) -> None:
        """Release the stream; a blocked `read` returns b"". Idempotent. PID 1 goes on running."""

    def diagnosis(self) -> str:
        """The last lines PID 1 logged on stderr, bounded; "" when there are none."""
        return ""
