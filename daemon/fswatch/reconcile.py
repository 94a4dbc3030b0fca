"""The final comparison: what the events told against what the diff says, and the files that cannot be trusted. Pure.

After `corrections` are told, the last event of every path agrees with the diff: existence, type, size and hash. Told
and not listed in the diff means: as Snapshot A has it. Directories and links are compared by type and size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from daemon.fswatch.changes import CREATE, DELETE, MODIFY, Content
from daemon.fswatch.events import GONE, Told
from daemon.workspace.baseline import BaselineEntry
from formats.diff import DiffEntry


class Correction(NamedTuple):
    """An event to synthesise; `content` None for what is gone."""

    operation: int
    path: bytes
    content: Content | None


class Before(Protocol):
    """Snapshot A, by path."""

    def get(self, path: bytes) -> BaselineEntry | None:
        """What was at a path."""
        ...


def corrections(told: Mapping[bytes, Told], diff: Iterable[DiffEntry], before: Before) -> Iterator[Correction]:
    """What has to be told so that the events end where the diff does. `diff` is read once, in its order."""
    listed: set[bytes] = set()
    for entry in diff:
        known = told.get(entry.path)
        if known is not None:
            listed.add(entry.path)
        if entry.change == "deleted":
            if known != GONE:
                yield Correction(DELETE, entry.path, None)
            continue
        content = content_of(entry)
        if not _agrees(known, content):
            there = entry.change == "modified" if known is None else known != GONE
            yield Correction(MODIFY if there else CREATE, entry.path, content)
    for path, known in told.items():
        if path in listed:
            continue
        entry_before = before.get(path)
        if entry_before is None:
            if known != GONE:
                yield Correction(DELETE, path, None)
            continue
        content = content_of(entry_before)
        if not _agrees(known, content):
            yield Correction(CREATE if known == GONE else MODIFY, path, content)


def suspects(told: Mapping[bytes, Told], diff: Iterable[DiffEntry]) -> Iterator[bytes]:
    """Changed files whose final bytes are not those that were last hashed while the agent ran.

    After a crash such a file may be half of what its writer meant. One that was never hashed is among them.
    """
    for entry in diff:
        if entry.type == "file" and entry.change != "deleted":
            known = told.get(entry.path)
            if known is None or known.sha256 is None or known.sha256 != entry.sha256:
                yield entry.path


def content_of(entry: DiffEntry | BaselineEntry) -> Content:
    """An entry as an event tells it."""
    size = entry.size if entry.type in ("file", "symlink") else None
    return Content(entry.type, size, entry.sha256)


def _agrees(known: Told | None, content: Content) -> bool:
    return known is not None and known == Told(content.type, content.size, content.sha256)
