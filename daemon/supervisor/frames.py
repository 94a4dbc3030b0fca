"""Frame codec of the supervisor's protocol: pure, bounded, incremental.

Owns the header, its checksums and the frame numbers; what the frames mean is `link`'s. The table is documented in
images/supervisor/PROTOCOL.md and bound to the Go side by images/supervisor/testdata/frames.json.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from zlib import crc32

from daemon.supervisor.errors import ProtocolError

MAGIC = b"GSF\x01"
HEADER_SIZE = 32
MAX_PAYLOAD = 512 * 1024
NONCE_SIZE = 16
CHUNK = 64 * 1024
FLAG_EOF = 0x01
FLAG_CLOSED = 0x02

# Twice the longest frame in zeros: the first half completes whatever a dead client left torn, the second is the run
# after which the supervisor believes a SYNC again.
PREAMBLE = bytes(2 * (MAX_PAYLOAD + HEADER_SIZE))

_HEAD = struct.Struct(">4sBBHIIQI")
_SUM = struct.Struct(">I")


class FrameType(IntEnum):
    """Numbers of the frames; below 0x80 the client may send them, above only the supervisor does."""

    SYNC = 0x01
    HELLO = 0x02
    PING = 0x03
    ASSIGN = 0x04
    LIST_EXECS = 0x05
    KILL_ALL = 0x06
    STOP = 0x07
    EXEC = 0x10
    STDIN = 0x11
    SIGNAL = 0x12
    FILE_OPEN = 0x20
    FILE_DATA = 0x21  # both ways
    FILE_ACK = 0x22  # both ways
    FILE_END = 0x23
    FILE_ABORT = 0x24
    SYNC_ACK = 0x81
    READY = 0x82
    PONG = 0x83
    REPLY = 0x84
    ERROR = 0x85
    STARTED = 0x90
    STDOUT = 0x91
    STDERR = 0x92
    EXITED = 0x93
    STDIN_ACK = 0x94
    REFUSED = 0x95
    FILE_ENTRIES = 0xA0
    FILE_REPLY = 0xA1
    FILE_ERROR = 0xA2


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. `type` is a plain int so that an unknown number survives decoding."""

    type: int
    flags: int = 0
    stream: int = 0
    offset: int = 0
    payload: bytes = b""


def encode(frame: Frame) -> bytes:
    """Header and payload. Raises ValueError for a payload over MAX_PAYLOAD."""
    if len(frame.payload) > MAX_PAYLOAD:
        raise ValueError(f"payload of {len(frame.payload)} bytes, at most {MAX_PAYLOAD} fit a frame")
    head = _HEAD.pack(
        MAGIC,
        frame.type,
        frame.flags,
        0,
        frame.stream,
        len(frame.payload),
        frame.offset,
        crc32(frame.payload),
    )
    return head + _SUM.pack(crc32(head)) + frame.payload


class Decoder:
    """Bytes in, frames out. The client's side never guesses: anything torn raises ProtocolError and ends the link.

    `after(marker)` makes it discard everything up to and including the marker first (the SYNC handshake).
    """

    def __init__(self) -> None:
        """Start in step with the peer."""
        self._buffer = bytearray()
        self._marker: bytes | None = None

    def after(self, marker: bytes) -> None:
        """Discard until `marker` has passed."""
        self._marker = marker

    @property
    def synchronised(self) -> bool:
        """False while a marker is awaited."""
        return self._marker is None

    @property
    def buffered(self) -> int:
        """Bytes held back for an unfinished frame."""
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Take bytes, yield every frame they complete; exhaust the iterator before feeding again."""
        self._buffer += data
        if self._marker is not None and not self._pass_marker(self._marker):
            return
        position = 0
        try:
            while len(self._buffer) - position >= HEADER_SIZE:
                frame, end = self._parse(position)
                if frame is None:
                    break
                position = end
                yield frame
        finally:
            del self._buffer[:position]

    def _pass_marker(self, marker: bytes) -> bool:
        found = self._buffer.find(marker)
        if found < 0:
            del self._buffer[: max(0, len(self._buffer) - len(marker) + 1)]
            return False
        del self._buffer[: found + len(marker)]
        self._marker = None
        return True

    def _parse(self, position: int) -> tuple[Frame | None, int]:
        body = position + HEADER_SIZE
        head = bytes(self._buffer[position : body - 4])
        magic, kind, flags, reserved, stream, length, offset, check = _HEAD.unpack(head)
        if magic != MAGIC or _SUM.unpack_from(self._buffer, body - 4)[0] != crc32(head):
            raise ProtocolError(f"not a frame header: {head.hex()}")
        if reserved:
            raise ProtocolError(f"reserved header field is {reserved}, expected 0")
        if length > MAX_PAYLOAD:
            raise ProtocolError(f"frame of {length} bytes, at most {MAX_PAYLOAD} are allowed")
        end = body + length
        if len(self._buffer) < end:
            return None, position
        payload = bytes(self._buffer[body:end])
        if crc32(payload) != check:
            raise ProtocolError(f"payload checksum of frame type {kind:#x} on stream {stream} is wrong")
        return Frame(kind, flags, stream, offset, payload), end
