"""The event store's port: what every adapter promises. Calls block; callers on an event loop use a thread.

A stream is one attempt and kind. Its lines are numbered from 0 as in the spool, events and gap records alike; a line
is stored once, whatever is sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

DEFAULT_PAGE_SIZE = 1_000
MAX_PAGE_SIZE = 5_000


@dataclass(frozen=True, slots=True)
class EventQuery:
    """Which events. Times are nanoseconds since the epoch; `until_ns` is exclusive; None means no bound."""

    attempt_id: str
    kind: str | None = None
    since_ns: int | None = None
    until_ns: int | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """Lines as they were spooled, without the newline, in order of time, kind and sequence.

    A gap record has no time of its own: it stands where the event before it stands. `next_page_token` is empty at
    the end.
    """

    lines: list[bytes]
    next_page_token: str


@dataclass(frozen=True, slots=True)
class EventCounts:
    """Events and gap records of one attempt by kind; kinds without any are absent."""

    events: dict[str, int] = field(default_factory=dict)
    gaps: dict[str, int] = field(default_factory=dict)


class EventStore(ABC):
    """Appends batches by line cursor and reads them back."""

    @abstractmethod
    def append(self, node_id: str, attempt_id: str, kind: str, first_line: int, lines: Sequence[bytes]) -> int:
        """Store a batch in one step and return the next line expected.

        Lines below the cursor are already stored and ignored. A line that is no event of this stream is kept as a
        gap record with the reason `malformed`. Raises SequenceGapError when the batch begins above the cursor,
        BadRequestError for an unknown kind, StoreUnavailableError when the database cannot be reached.
        """

    @abstractmethod
    def cursor(self, attempt_id: str, kind: str) -> int:
        """The next line expected; 0 for a stream never seen."""

    @abstractmethod
    def list_events(self, query: EventQuery, *, page_size: int = DEFAULT_PAGE_SIZE, page_token: str = "") -> EventPage:
        """One page. Raises BadRequestError for a page_token that this store did not give."""

    @abstractmethod
    def counts(self, attempt_id: str) -> EventCounts:
        """Events and gaps by kind."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""
