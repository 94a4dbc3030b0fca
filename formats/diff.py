"""The entries of a workspace diff: their JSON, their order, their digest.

Owns the format only; how a workspace is read belongs to the daemon. One entry a line, canonical JSON (sorted keys, no
spaces, ASCII), sorted by the bytes of the path.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

Change = Literal["added", "modified", "deleted"]
EntryType = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]


@dataclass(frozen=True, slots=True)
class DiffEntry:
    """One path that differs from Snapshot A. A deleted entry describes what Snapshot A had there."""

    path: bytes  # relative to /workspace, no leading slash
    change: Change
    type: EntryType
    mode: int  # permission bits, st_mode & 0o7777
    size: int  # bytes of a file, length of a symlink's target, else 0 (a directory's size depends on the disk)
    sha256: str | None = None  # hex, regular files; None otherwise, or when the hash budget was spent
    target: bytes | None = None  # of a symlink, as it stands: nothing was followed

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON data. Bytes that are no UTF-8 become U+FFFD, with `…_bytes` (base64) beside them."""
        data: dict[str, Any] = {
            "change": self.change,
            "mode": self.mode,
            "path": self.path.decode("utf-8", "replace"),
            "sha256": self.sha256,
            "size": self.size,
            "type": self.type,
        }
        if data["path"].encode() != self.path:
            data["path_bytes"] = base64.b64encode(self.path).decode()
        if self.target is not None:
            data["target"] = self.target.decode("utf-8", "replace")
            if data["target"].encode() != self.target:
                data["target_bytes"] = base64.b64encode(self.target).decode()
        return data

    def to_line(self) -> bytes:
        """The canonical line, newline included. Newlines in names are escaped by JSON, so a line is an entry."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":")).encode() + b"\n"

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DiffEntry:
        """The inverse of `to_json`. Raises KeyError or ValueError for other data."""
        return cls(
            path=_bytes(data, "path"),
            change=data["change"],
            type=data["type"],
            mode=int(data["mode"]),
            size=int(data["size"]),
            sha256=data["sha256"],
            target=_bytes(data, "target") if "target" in data else None,
        )


def _bytes(data: dict[str, Any], key: str) -> bytes:
    exact = data.get(f"{key}_bytes")
    return base64.b64decode(exact, validate=True) if exact is not None else str(data[key]).encode()


def canonical(entries: Iterable[DiffEntry]) -> list[DiffEntry]:
    """The entries in their one order."""
    return sorted(entries, key=lambda entry: entry.path)


def diff_digest(entries: Iterable[DiffEntry]) -> str:
    """`sha256:…` over the canonical lines, whatever order the entries come in."""
    digest = hashlib.sha256()
    for entry in canonical(entries):
        digest.update(entry.to_line())
    return f"sha256:{digest.hexdigest()}"


def read_lines(lines: Iterable[bytes]) -> Iterator[DiffEntry]:
    """The entries of a JSON-lines file. Raises ValueError naming the line that is none."""
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if not isinstance(data, dict):
                raise ValueError("not an object")
            yield DiffEntry.from_json(data)
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"line {number} is no diff entry: {error!r}") from error
