"""The event of one change, as the spool keeps it, and back again: what the events of an attempt say is where. Pure.

`Told` is the state that a reader arrives at who takes, for every path, the last event that names it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from daemon.fswatch.changes import ENTERING, LEAVING, MODIFY, NAMES, Content
from formats import event

_PRESENT = frozenset(name for bit, name in NAMES.items() if bit & (ENTERING | MODIFY))
_ABSENT = frozenset(name for bit, name in NAMES.items() if bit & LEAVING)


class Told(NamedTuple):
    """What was last told of a path; `type` None when it was told to be gone."""

    type: str | None
    size: int | None
    sha256: str | None


GONE = Told(None, None, None)


def fields(
    time_ns: int,
    operation: int,
    path: bytes,
    content: Content | None,
    source: str | None = None,
    *,
    merged: bool = False,
) -> event.Filesystem:
    """The event's fields. `file_type` is told of what is no regular file, `path_bytes` (base64) of what is no UTF-8."""
    text = path.decode("utf-8", "replace")
    told: event.Filesystem = {
        "timestamp_ns": time_ns,
        "event_type": NAMES[operation],
        "file_path": text,
        "file_size_bytes": content.size if content is not None else None,
        "content_hash_sha256": content.sha256 if content is not None else None,
    }
    if text.encode() != path:
        told["path_bytes"] = base64.b64encode(path).decode()
    if content is not None and content.type != "file":
        told["file_type"] = content.type  # type: ignore[typeddict-item]
    if source is not None:
        told["source"] = source  # type: ignore[typeddict-item]
    if merged:
        told["merged"] = True
    return told


def fold(lines: Iterable[bytes]) -> dict[bytes, Told]:
    """The state that the events of a spool file tell. Gap records and lines of other kinds say nothing."""
    told: dict[bytes, Told] = {}
    for line in lines:
        value = json.loads(line)
        kind = value.get("event_type")
        if kind in _PRESENT:
            told[path_of(value)] = Told(
                value.get("file_type", "file"), value["file_size_bytes"], value["content_hash_sha256"]
            )
        elif kind in _ABSENT:
            told[path_of(value)] = GONE
    return told


def told_by(operation: int, content: Content | None) -> Told:
    """What one event tells of its path."""
    if operation & LEAVING:
        return GONE
    return Told(content.type, content.size, content.sha256) if content is not None else Told("file", None, None)


def path_of(value: dict[str, Any]) -> bytes:
    """The exact path of an event."""
    exact = value.get("path_bytes")
    return base64.b64decode(exact) if exact is not None else str(value["file_path"]).encode()
