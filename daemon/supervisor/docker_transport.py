"""ByteTransport over Docker's attach stream: PID 1's stdout carries frames, its stderr log lines.

Docker multiplexes both with 8-byte headers (stream number, three zero bytes, big-endian length). The container needs
`stdin_open=True` and no tty; closing this transport leaves PID 1's stdin open.
"""

from __future__ import annotations

import asyncio
import socket
import struct

from daemon.supervisor.errors import ProtocolError
from daemon.supervisor.streams import STREAM_LIMIT, StreamTransport

_HEADER = struct.Struct(">BxxxI")
STDOUT = 1
STDERR = 2


class DockerAttachTransport(StreamTransport):
    """Demultiplexes one attach connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Use `over`."""
        super().__init__(reader, writer)
        self._kind = 0
        self._left = 0

    @classmethod
    async def over(cls, sock: socket.socket) -> DockerAttachTransport:
        """Take over the raw socket of docker-py's `attach_socket(params={stdin, stdout, stderr, stream: 1})._sock`.

        The HTTP upgrade has been read by docker-py; the socket is made non-blocking and closed with the transport.
        """
        sock.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=sock, limit=STREAM_LIMIT)
        return cls(reader, writer)

    async def read(self, n: int) -> bytes:
        """Bytes of stdout; log lines are put aside."""
        while True:
            while self._left == 0:  # a block may be empty
                if not await self._next_header():
                    return b""
            data = await super().read(min(n, self._left))
            if not data:
                return b""
            self._left -= len(data)
            if self._kind == STDOUT:
                return data
            self.log.add(data)

    async def _next_header(self) -> bool:
        try:
            header = await self._reader.readexactly(_HEADER.size)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        if header[1:4] != b"\0\0\0" or header[0] not in (STDOUT, STDERR):
            raise ProtocolError(f"not an attach header: {header.hex()} (was the container made with a tty?)")
        self._kind, self._left = _HEADER.unpack(header)
        return True
