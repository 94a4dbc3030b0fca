"""Snapshot A as a list: what every path was before the agent came.

Made once per template from the unpacked workspace, kept beside it, and the only thing a diff is compared with: the
lower layer itself is not read again.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path

from daemon.workspace.layout import walk_tree
from formats.diff import EntryType

_CHUNK = 1 << 20
_TYPES: tuple[tuple[int, EntryType], ...] = (
    (stat.S_IFREG, "file"),
    (stat.S_IFDIR, "dir"),
    (stat.S_IFLNK, "symlink"),
    (stat.S_IFIFO, "fifo"),
    (stat.S_IFSOCK, "socket"),
    (stat.S_IFCHR, "char"),
    (stat.S_IFBLK, "block"),
)
_TYPE_OF = dict(_TYPES)


def type_of(mode: int) -> EntryType:
    """The type a st_mode stands for."""
    return _TYPE_OF[stat.S_IFMT(mode)]


@dataclass(frozen=True, slots=True)
class BaselineEntry:
    """One path of Snapshot A; fields as in ``formats.diff.DiffEntry``."""

    path: bytes
    type: EntryType
    mode: int
    uid: int
    gid: int
    size: int
    sha256: str | None
    target: bytes | None


class Baseline:
    """Snapshot A, looked up by path."""

    def __init__(self, entries: Iterable[BaselineEntry]) -> None:
        self._entries = sorted(entries, key=lambda entry: entry.path)
        self._paths = [entry.path for entry in self._entries]
        self._by_path = {entry.path: entry for entry in self._entries}
        self._children: dict[bytes, list[bytes]] = {}
        for path in self._paths:
            parent, _, name = path.rpartition(b"/")
            self._children.setdefault(parent, []).append(name)

    def __iter__(self) -> Iterator[BaselineEntry]:
        return iter(self._entries)

    def get(self, path: bytes) -> BaselineEntry | None:
        """What was at ``path``."""
        return self._by_path.get(path)

    def children(self, path: bytes) -> list[bytes]:
        """The names in the directory ``path``; none when it was no directory."""
        return self._children.get(path, [])

    def under(self, path: bytes) -> Iterator[BaselineEntry]:
        """Everything below ``path``, sorted by path bytes."""
        prefix = path + b"/"
        for index in range(bisect.bisect_left(self._paths, prefix), len(self._paths)):
            if not self._paths[index].startswith(prefix):
                return
            yield self._entries[index]

    @property
    def digest(self) -> str:
        """``sha256:…`` over path, type, mode, size and content or target of every entry, sorted."""
        digest = hashlib.sha256()
        for entry in self._entries:
            fields = [_text(entry.path), entry.type, entry.mode, entry.size, entry.sha256, _text(entry.target)]
            digest.update(json.dumps(fields, separators=(",", ":")).encode() + b"\n")
        return f"sha256:{digest.hexdigest()}"

    def dump(self) -> bytes:
        """As JSON lines."""
        rows = []
        for entry in self._entries:
            path, *middle, target = astuple(entry)
            rows.append(json.dumps([_text(path), *middle, _text(target)]))
        return "".join(f"{row}\n" for row in rows).encode()

    @classmethod
    def load(cls, text: bytes) -> Baseline:
        """The inverse of `dump`."""
        entries = []
        for line in text.splitlines():
            path, kind, mode, uid, gid, size, sha256, target = json.loads(line)
            exact = base64.b64decode(target) if target is not None else None
            entries.append(BaselineEntry(base64.b64decode(path), kind, mode, uid, gid, size, sha256, exact))
        return cls(entries)

    @classmethod
    def scan(cls, root: Path) -> Baseline:
        """Read a tree of ours (a checked package: bounded depth, nothing but files, directories and links)."""
        entries = []
        for path in walk_tree(root):
            if path == root:
                continue
            status = path.lstat()
            kind = type_of(status.st_mode)
            target = os.fsencode(os.readlink(path)) if kind == "symlink" else None  # noqa: PTH115 (exact)
            sizes = {"file": status.st_size, "symlink": len(target or b"")}
            entries.append(
                BaselineEntry(
                    path=os.fsencode(path.relative_to(root)),
                    type=kind,
                    mode=stat.S_IMODE(status.st_mode),
                    uid=status.st_uid,
                    gid=status.st_gid,
                    size=sizes.get(kind, 0),
                    sha256=_file_sha256(path) if kind == "file" else None,
                    target=target,
                )
            )
        return cls(entries)


def _text(data: bytes | None) -> str | None:
    return base64.b64encode(data).decode() if data is not None else None


def _file_sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
