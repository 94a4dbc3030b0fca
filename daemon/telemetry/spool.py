"""The spool: what was recorded, as JSON lines on the node's disk, one file per attempt and kind.

`<root>/<attempt_id>/<kind>.jsonl` beside `<kind>.mark`, eight bytes that hold the next sequence number.

Durability: lines are handed to the kernel in batches, a batch whole or not at all, so a kill -9 loses no line that
was written; fsync follows within SYNC_SECONDS and at the end, so a power cut loses that much. Only lines that were
fsynced are shipped: the collector never knows a line that this file could lose. A number is marked in shared memory
before its event is buffered, so after a kill -9 the numbers between the last line and the mark are known to be lost
and are said as a gap record.

Calls block; the writer runs them in its thread. Owns no buffer, no cap and no transport.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from daemon.telemetry.saying import say
from formats import event

SYNC_SECONDS = 0.2
_MARK = struct.Struct("<Q")
_READ_BYTES = 1 << 20


@dataclass(slots=True)
class Tally:
    """What a spool file holds: its whole lines, how many are events and gap records, the next sequence."""

    size: int = 0
    lines: int = 0
    events: int = 0
    gaps: int = 0
    next_sequence: int = event.FIRST_SEQUENCE

    def add(self, line: bytes, prefixes: tuple[bytes, bytes]) -> None:
        """Count one whole line, its newline included. One that is no event is left to the store to say so."""
        self.size += len(line)
        self.lines += 1
        of_event, of_gap = prefixes
        try:
            if line.startswith(of_event):
                self.next_sequence = int(line[len(of_event) : line.index(b",", len(of_event))]) + 1
                self.events += 1
            elif line.startswith(of_gap):
                missing = event.decode(line)["gap"]
                self.next_sequence = missing["first"] if missing["last"] is None else missing["last"] + 1
                self.gaps += 1
            else:
                raise event.EventError("not a line of this stream")
        except ValueError as error:
            say("error", "spool_line_malformed", line=self.lines - 1, error=str(error))
            self.next_sequence += 1


class Mark:
    """The next sequence number of a stream, in memory that outlives a kill -9 of this process."""

    def __init__(self, path: Path) -> None:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_size < _MARK.size:
                os.ftruncate(handle, _MARK.size)
            self._memory = mmap.mmap(handle, _MARK.size)
        finally:
            os.close(handle)

    def get(self) -> int:
        """The number; 0 when none was ever set."""
        return int(_MARK.unpack_from(self._memory)[0])

    def set(self, number: int) -> None:
        """Remember a number."""
        _MARK.pack_into(self._memory, 0, number)

    def close(self) -> None:
        """Let go of the memory."""
        self._memory.close()


class SpoolFile:
    """One stream's file, open for appending. Opening it mends what a kill left: a torn last line is cut off."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.path = directory / f"{kind}.jsonl"
        self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            self.tally = scan(self._handle, event.prefixes(kind, directory.name))
            if os.fstat(self._handle).st_size:
                os.ftruncate(self._handle, self.tally.size)
                os.fsync(self._handle)
            self.mark = Mark(directory / f"{kind}.mark")
        except BaseException:
            os.close(self._handle)
            raise
        self.synced_size = self.tally.size

    def append(self, lines: Sequence[bytes]) -> None:
        """Write whole lines, all or none. Raises OSError, the file then being as before."""
        data = b"".join(lines)
        before = self.tally.size
        written = 0
        try:
            while written < len(data):
                written += os.write(self._handle, data[written:] if written else data)
        except OSError:
            os.ftruncate(self._handle, before)
            raise
        self.tally.size = before + len(data)
        self.tally.lines += len(lines)

    def sync(self) -> int:
        """Make everything written so far durable; returns the durable size. May run beside `append`."""
        size = self.tally.size
        if self._handle >= 0 and size != self.synced_size:
            if self.synced_size == 0:
                sync_directory(self.path.parent)
            os.fdatasync(self._handle)
            self.synced_size = size
        return size

    def close(self) -> None:
        """Sync and close. Raises OSError when the sync failed; the file is closed all the same."""
        try:
            self.sync()
        finally:
            handle, self._handle = self._handle, -1
            self.mark.close()
            os.close(handle)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def scan(handle: int, prefixes: tuple[bytes, bytes]) -> Tally:
    """What a file holds up to its last newline."""
    tally = Tally()
    rest = b""
    offset = 0
    while chunk := os.pread(handle, _READ_BYTES, offset):
        offset += len(chunk)
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()
        for part in parts:
            tally.add(part + b"\n", prefixes)
    return tally


def scan_file(directory: Path, kind: str) -> Tally:
    """What a stream's file holds, of whatever writer; nothing when there is none. Raises OSError."""
    try:
        handle = os.open(directory / f"{kind}.jsonl", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return Tally()
    try:
        return scan(handle, event.prefixes(kind, directory.name))
    finally:
        os.close(handle)


@dataclass(slots=True)
class Place:
    """Where a reader stands: a line and the byte it begins at."""

    line: int = 0
    offset: int = 0


def read_lines(path: Path, place: Place, end: int, max_lines: int, max_bytes: int) -> list[bytes]:
    """The next whole lines from a place on, newline left off, up to byte `end`; does not move the place."""
    with path.open("rb") as file:
        data = os.pread(file.fileno(), min(max_bytes, end - place.offset), place.offset)
    return data[: data.rfind(b"\n") + 1].split(b"\n")[:-1][:max_lines]


def seek(path: Path, line: int, end: int) -> Place:
    """The place of a line; the last one before `end` when the file is shorter."""
    place = Place()
    while place.line < line:
        lines = read_lines(path, place, end, line - place.line, _READ_BYTES)
        if not lines:
            break
        place.line += len(lines)
        place.offset += sum(map(len, lines)) + len(lines)
    return place
