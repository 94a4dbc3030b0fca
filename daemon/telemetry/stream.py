"""One stream in memory: its numbers, its buffered lines, its losses. No I/O but the mark; no waiting.

Numbers are given out once and in order. Every number ends as a line in the spool or inside a gap record, whatever is
refused, dropped or fails to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from daemon.telemetry.spool import SpoolFile
from formats import event

RESTART = "daemon_restart"
SPOOL_CAP = "spool_cap"
BUFFER_FULL = "buffer_full"
TOO_LARGE = "event_too_large"


class Stream:
    """An attempt's events of one kind, between their sources and their spool file."""

    def __init__(self, attempt_id: str, kind: str, file: SpoolFile, cap_bytes: int) -> None:
        self.attempt_id = attempt_id
        self.kind = kind
        self.file = file
        self.events = file.tally.events
        self.gaps = file.tally.gaps
        self.pending: list[bytes] = []
        self.pending_bytes = 0
        # Lines that were ever buffered and lines that the writer is done with: equal when nothing is in flight.
        self.accepted = 0
        self.settled = 0
        self._cap = cap_bytes
        self._bytes = file.tally.size
        self._capped = False
        self._next = file.tally.next_sequence
        # Every number below is in the file or in `pending`.
        self._buffered_to = self._next
        self._batch_from = self._next
        self._lost: tuple[int, int, str] | None = None
        marked = file.mark.get()
        if marked > self._next:
            self.lose(marked - self._next, RESTART)
            self.flush_loss()
        file.mark.set(self._next)

    def add(self, fields: Mapping[str, Any]) -> tuple[int, bool]:
        """Number one event and buffer it. Returns its number, and False when it was lost instead."""
        number = self._next
        try:
            line = event.encode(self.kind, self.attempt_id, number, fields)
        except event.EventError:
            self.lose(1, TOO_LARGE)
            return number, False
        # Once over, the stream stays closed: else small events would pass while large ones are lost.
        self._capped = self._capped or self._bytes + len(line) > self._cap
        if self._capped:
            self.lose(1, SPOOL_CAP)
            return number, False
        self._next = number + 1
        self.file.mark.set(self._next)
        self.flush_loss()
        self._buffer(line)
        self.events += 1
        self._buffered_to = self._next
        return number, True

    def lose(self, count: int, reason: str) -> None:
        """Count numbers as lost; the gap record follows with the next line, or with `flush_loss`."""
        first = self._next
        self._next += count
        self.file.mark.set(self._next)
        if self._lost is not None and self._lost[2] == reason:
            self._lost = (self._lost[0], self._next - 1, reason)
            return
        self.flush_loss()
        self._lost = (first, self._next - 1, reason)

    def lose_unknown(self, reason: str) -> None:
        """Say a loss whose length nobody knows, here and now."""
        self.flush_loss()
        self._buffer_gap(self._next, None, reason)

    def flush_loss(self) -> None:
        """Buffer the gap record of the losses so far."""
        if self._lost is not None:
            first, last, reason = self._lost
            self._lost = None
            self._buffer_gap(first, last, reason)
            self._buffered_to = last + 1

    def _buffer_gap(self, first: int, last: int | None, reason: str) -> None:
        self._buffer(event.encode_gap(event.gap(self.kind, self.attempt_id, first, last, reason)))
        self.gaps += 1

    def _buffer(self, line: bytes) -> None:
        self.pending.append(line)
        self.pending_bytes += len(line)
        self._bytes += len(line)
        self.accepted += 1

    def take(self) -> tuple[list[bytes], int]:
        """Hand the buffered lines to the writer, and the first number that they cover."""
        lines, self.pending, self.pending_bytes = self.pending, [], 0
        first, self._batch_from = self._batch_from, self._buffered_to
        return lines, first

    def written(self, lines: list[bytes]) -> None:
        """The writer wrote a batch."""
        self.settled += len(lines)

    def failed(self, lines: list[bytes], first: int, reason: str) -> None:
        """The writer could not: what the batch held becomes one gap record, ahead of what came since."""
        prefixes = event.prefixes(self.kind, self.attempt_id)
        self.events -= sum(line.startswith(prefixes[0]) for line in lines)
        self.gaps -= sum(line.startswith(prefixes[1]) for line in lines)
        self._bytes -= sum(map(len, lines))
        self.settled += len(lines)
        last = self._batch_from - 1
        self._batch_from = first
        missing = event.gap(self.kind, self.attempt_id, first, last if last >= first else None, reason)
        since, self.pending = self.pending, []
        self._buffer(event.encode_gap(missing))
        self.gaps += 1
        self.pending += since
