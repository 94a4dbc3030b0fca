"""The audit ledger's port: append and read, nothing else. Calls block; callers on an event loop use a thread.

Every entry carries the hash of the one before it, so that a changed, removed or reordered entry is found by
`verify`. Its own hash is SHA-256(0x00 ‖ canonical entry), the leaf hash of RFC 6962, so that a Merkle log can stand
on the same entries.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from formats.canonical import Json

GENESIS_HASH = "0" * 64
FIRST_SEQUENCE = 1
FIRST_REVISION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One appended record. Hashes are 64 hexadecimal digits; `record` is canonical JSON exactly as stored."""

    sequence: int
    attempt_id: str
    revision: int
    record: bytes
    previous_hash: str
    entry_hash: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a verification found. `problems` is empty when everything holds."""

    entries: int
    head_hash: str
    problems: tuple[str, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing was found."""
        return not self.problems


class Ledger(ABC):
    """Append-only by construction: no method changes or removes an entry, and the database refuses it too."""

    @abstractmethod
    def append(self, attempt_id: str, record: Mapping[str, Json], *, revise: bool = False) -> Entry:
        """Append a record, durable on return.

        Idempotent by attempt_id: bytes equal to the latest revision give that entry again. Other bytes raise
        RecordConflictError, or append the next revision when `revise`. Raises CanonicalError for a record that has
        no canonical JSON, BadRequestError when record["attempt_id"] is another one's, StoreUnavailableError.
        """

    @abstractmethod
    def get(self, attempt_id: str, revision: int | None = None) -> Entry | None:
        """An attempt's entry, its latest revision unless one is named; None when there is none."""

    @abstractmethod
    def entries(self, after_sequence: int = 0) -> Iterator[Entry]:
        """Entries in order, beginning after a sequence."""

    @abstractmethod
    def verify(self) -> Report:
        """Recompute every hash, every link, every sequence and revision."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the database."""
