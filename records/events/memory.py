"""The event store in memory: for simulations and for the contract tests. Lost with its process."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Sequence

from records.errors import SequenceGapError
from records.events import lines as rules
from records.events.port import DEFAULT_PAGE_SIZE, EventCounts, EventPage, EventQuery, EventStore


class MemoryEventStore(EventStore):
    """Keeps every line in sorted lists."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._states: dict[tuple[str, str], rules.StreamState] = {}
        self._rows: dict[str, list[tuple[rules.Position, bytes]]] = {}

    def append(self, node_id: str, attempt_id: str, kind: str, first_line: int, lines: Sequence[bytes]) -> int:
        """See EventStore."""
        rules.check_stream(attempt_id, kind)
        with self._lock:
            state = self._states.get((attempt_id, kind), rules.StreamState())
            if first_line > state.next_line:
                raise SequenceGapError(attempt_id, kind, first_line, state.next_line)
            rows = self._rows.setdefault(attempt_id, [])
            for line in lines[state.next_line - first_line :]:
                row = rules.take(state, attempt_id, kind, line)
                bisect.insort(rows, (rules.Position(row.timestamp_ns, kind, row.line), row.body))
            self._states[(attempt_id, kind)] = state
            return state.next_line

    def cursor(self, attempt_id: str, kind: str) -> int:
        """See EventStore."""
        rules.check_stream(attempt_id, kind)
        with self._lock:
            return self._states.get((attempt_id, kind), rules.StreamState()).next_line

    def list_events(self, query: EventQuery, *, page_size: int = DEFAULT_PAGE_SIZE, page_token: str = "") -> EventPage:
        """See EventStore."""
        size, after = rules.page_size(page_size), rules.position(page_token)
        rules.check_stream(query.attempt_id, query.kind or "resource")
        with self._lock:
            found = [
                (place, body)
                for place, body in self._rows.get(query.attempt_id, [])
                if (query.kind is None or place.kind == query.kind)
                and (query.since_ns is None or place.timestamp_ns >= query.since_ns)
                and (query.until_ns is None or place.timestamp_ns < query.until_ns)
                and (after is None or place > after)
            ]
        token = found[size - 1][0].token() if len(found) > size else ""
        return EventPage([body for _, body in found[:size]], token)

    def counts(self, attempt_id: str) -> EventCounts:
        """See EventStore."""
        with self._lock:
            own = [(kind, state) for (attempt, kind), state in self._states.items() if attempt == attempt_id]
        return EventCounts(
            {kind: state.events for kind, state in own if state.events},
            {kind: state.gaps for kind, state in own if state.gaps},
        )

    def close(self) -> None:
        """See EventStore."""
