"""The audit ledger in memory: for simulations and for the contract tests. Lost with its process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

from formats.canonical import Json
from records.ledger import chain
from records.ledger.port import Entry, Ledger, Report


class MemoryLedger(Ledger):
    """Keeps entries in a list that only grows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: list[Entry] = []

    def append(self, attempt_id: str, record: Mapping[str, Json], *, revise: bool = False) -> Entry:
        """See Ledger."""
        encoded = chain.encode(attempt_id, record)
        with self._lock:
            head = self._entries[-1] if self._entries else None
            entry, new = chain.decide(attempt_id, encoded, self._latest(attempt_id), head, revise=revise)
            if new:
                self._entries.append(entry)
            return entry

    def _latest(self, attempt_id: str) -> Entry | None:
        return next((entry for entry in reversed(self._entries) if entry.attempt_id == attempt_id), None)

    def get(self, attempt_id: str, revision: int | None = None) -> Entry | None:
        """See Ledger."""
        with self._lock:
            if revision is None:
                return self._latest(attempt_id)
            return next((e for e in self._entries if e.attempt_id == attempt_id and e.revision == revision), None)

    def entries(self, after_sequence: int = 0) -> Iterator[Entry]:
        """See Ledger."""
        with self._lock:
            found = [entry for entry in self._entries if entry.sequence > after_sequence]
        yield from found

    def verify(self) -> Report:
        """See Ledger."""
        return chain.check(self.entries())

    def close(self) -> None:
        """See Ledger."""
