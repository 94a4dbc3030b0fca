"""What a store keeps of one line, and how pages are cut: shared by every adapter, pure.

Order is (time, kind, line). A gap record has no time: it takes that of the line before it in its stream.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import NamedTuple

from formats import event
from records.errors import BadRequestError
from records.events.port import DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

MAX_NAME = 128


@dataclass(slots=True)
class StreamState:
    """Where one stream stands: next line, the last time seen, the next sequence, and what was counted."""

    next_line: int = 0
    last_ns: int = 0
    next_sequence: int = event.FIRST_SEQUENCE
    events: int = 0
    gaps: int = 0


class Row(NamedTuple):
    """One line as it is kept."""

    line: int
    timestamp_ns: int
    body: bytes


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """Where a page ended."""

    timestamp_ns: int
    kind: str
    line: int

    def token(self) -> str:
        """As an opaque page token."""
        text = json.dumps([self.timestamp_ns, self.kind, self.line], separators=(",", ":"))
        return base64.urlsafe_b64encode(text.encode()).decode()


def check_stream(attempt_id: str, kind: str) -> None:
    """Raise BadRequestError unless the names can name a stream."""
    if not (attempt_id.isprintable() and 1 <= len(attempt_id) <= MAX_NAME):
        raise BadRequestError("attempt_id", f"1 to {MAX_NAME} printable characters are expected")
    if kind not in event.KINDS:
        raise BadRequestError("kind", f"{kind!r} is unknown; one of {', '.join(event.KINDS)}")


def take(state: StreamState, attempt_id: str, kind: str, line: bytes) -> Row:
    """The row for a stream's next line; moves `state` on."""
    body = line.rstrip(b"\n")
    try:
        value = event.decode(body)
        if value["kind"] != kind or value["attempt_id"] != attempt_id:
            raise event.EventError("kind or attempt_id is another stream's")
    except event.EventError as error:
        # The line was somebody's event: its place is kept, and the loss is said.
        missing = state.next_sequence
        record = event.gap(kind, attempt_id, missing, missing, f"malformed: {error}"[:500])
        value, body = dict(record), event.encode_gap(record).rstrip(b"\n")
    if event.is_gap(value):
        state.gaps += 1
        first, last = value["gap"]["first"], value["gap"]["last"]
        state.next_sequence = first if last is None else last + 1
    else:
        state.events += 1
        state.last_ns = value["timestamp_ns"]
        state.next_sequence = value["sequence"] + 1
    row = Row(state.next_line, state.last_ns, body)
    state.next_line += 1
    return row


def page_size(asked: int) -> int:
    """How many lines a page holds: 1000 for zero, 5000 at most. Raises BadRequestError below zero."""
    if asked < 0:
        raise BadRequestError("page_size", "a negative size is not possible; 0 means the default")
    return min(asked or DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE)


def position(token: str) -> Position | None:
    """The position behind a token, None for an empty one. Raises BadRequestError."""
    if not token:
        return None
    try:
        timestamp_ns, kind, line = json.loads(base64.urlsafe_b64decode(token.encode("ascii")))
        if not (type(timestamp_ns) is int and type(line) is int and kind in event.KINDS):
            raise ValueError("another shape")
        if not (0 <= timestamp_ns < 2**63 and 0 <= line < 2**63):
            raise ValueError("out of range")
    except (ValueError, TypeError, binascii.Error) as error:
        raise BadRequestError("page_token", "not a token of this service; pass the last answer's") from error
    return Position(timestamp_ns, kind, line)


def begin_after(after: Position | None, kind: str) -> tuple[int, int] | None:
    """The (time, line) after which a kind's rows follow a position; None from the start."""
    if after is None:
        return None
    if kind == after.kind:
        return after.timestamp_ns, after.line
    # Kinds that sort before the position's are done with its time, those behind it are not.
    return (after.timestamp_ns, 2**63 - 1) if kind < after.kind else (after.timestamp_ns - 1, 2**63 - 1)
