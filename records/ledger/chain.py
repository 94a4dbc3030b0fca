"""How ledger entries are made and checked: pure, shared by every adapter.

An entry's hash covers its place, its attempt, its record and the hash before it, so no entry can change, move or
vanish from the middle without breaking every later one. What was cut off at the end is found only against a head
hash kept elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from formats.canonical import CanonicalError, Json, canonical
from records.errors import BadRequestError, RecordConflictError
from records.ledger.port import FIRST_REVISION, FIRST_SEQUENCE, GENESIS_HASH, Entry, Report

LEAF_PREFIX = b"\x00"
MAX_PROBLEMS = 100
MAX_RECORD_BYTES = 1 << 20


def encode(attempt_id: str, record: Mapping[str, Json]) -> bytes:
    """A record's canonical JSON. Raises BadRequestError when it is another attempt's, too large or has none."""
    if record.get("attempt_id") != attempt_id:
        raise BadRequestError("record", f"attempt_id is {record.get('attempt_id')!r}, expected {attempt_id!r}")
    try:
        encoded = canonical(record)
    except CanonicalError as error:
        raise BadRequestError("record", str(error)) from error
    if len(encoded) > MAX_RECORD_BYTES:
        raise BadRequestError("record", f"{len(encoded)} bytes; at most {MAX_RECORD_BYTES} are kept")
    return encoded


def entry_hash(sequence: int, attempt_id: str, revision: int, record: bytes, previous_hash: str) -> str:
    """SHA-256(0x00 ‖ canonical JSON of the entry without its hash); the record stands in it as it is."""
    head = canonical({"attempt_id": attempt_id, "previous_hash": previous_hash})
    tail = canonical({"revision": revision, "sequence": sequence})
    # `record` sorts between previous_hash and revision, so the whole is canonical without parsing it again.
    body = head[:-1] + b',"record":' + record + b"," + tail[1:]
    return hashlib.sha256(LEAF_PREFIX + body).hexdigest()


def decide(
    attempt_id: str, record: bytes, latest: Entry | None, head: Entry | None, *, revise: bool
) -> tuple[Entry, bool]:
    """The entry that holds a record, and whether it is new. Raises RecordConflictError.

    `latest` is the attempt's latest revision, `head` the ledger's last entry.
    """
    if latest is not None and latest.record == record:
        return latest, False
    if latest is not None and not revise:
        raise RecordConflictError(attempt_id)
    sequence = FIRST_SEQUENCE if head is None else head.sequence + 1
    revision = FIRST_REVISION if latest is None else latest.revision + 1
    previous = GENESIS_HASH if head is None else head.entry_hash
    hashed = entry_hash(sequence, attempt_id, revision, record, previous)
    return Entry(sequence, attempt_id, revision, record, previous, hashed), True


@dataclass(slots=True)
class Checker:
    """Reads entries in order and collects what does not hold."""

    entries: int = 0
    head_hash: str = GENESIS_HASH
    problems: list[str] = field(default_factory=list)
    _revisions: dict[str, int] = field(default_factory=dict)
    _sequence: int = FIRST_SEQUENCE - 1

    def take(self, entry: Entry) -> None:
        """Check the next entry."""
        place = f"entry {entry.sequence} ({entry.attempt_id}, revision {entry.revision})"
        if entry.sequence != self._sequence + 1:
            self.say(f"{place}: expected sequence {self._sequence + 1}")
        if entry.previous_hash != self.head_hash:
            self.say(f"{place}: its link does not match the entry before it")
        computed = entry_hash(entry.sequence, entry.attempt_id, entry.revision, entry.record, entry.previous_hash)
        if computed != entry.entry_hash:
            self.say(f"{place}: its content does not match its hash")
        revision = self._revisions.get(entry.attempt_id, FIRST_REVISION - 1) + 1
        if entry.revision != revision:
            self.say(f"{place}: expected revision {revision}")
        self._revisions[entry.attempt_id] = entry.revision
        self._sequence, self.head_hash = entry.sequence, entry.entry_hash
        self.entries += 1

    def say(self, problem: str) -> None:
        """Keep a problem; past MAX_PROBLEMS only that there are more."""
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(problem)
        elif len(self.problems) == MAX_PROBLEMS:
            self.problems.append("and more")

    def report(self) -> Report:
        """What was found."""
        return Report(self.entries, self.head_hash, tuple(self.problems))


def check(entries: Iterable[Entry]) -> Report:
    """Check a whole ledger."""
    checker = Checker()
    for entry in entries:
        checker.take(entry)
    return checker.report()
