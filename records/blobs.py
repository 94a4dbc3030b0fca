"""Content-addressed bytes on disk: what the agent wrote, under its SHA-256.

A blob appears whole, by rename, or not at all; it is checked again when it is read. Two writers of the same bytes
meet at the same file. Nothing is counted or removed here: the store's directory is dropped as a whole. Calls block.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from formats.canonical import DIGEST_PREFIX
from records.errors import BlobCorruptError, BlobMissingError, BlobTooLargeError

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
_DIGEST = re.compile(DIGEST_PREFIX + r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Blob:
    """A stored blob. `digest` is `sha256:<hex>`."""

    digest: str
    size: int


class BlobWriter:
    """Writes one blob piece by piece; `commit` or `abort` ends it. As a context manager it aborts what is left."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._hash = hashlib.sha256()
        self._temporary = store.root / "tmp" / secrets.token_hex(16)
        self._file: int | None = os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add bytes. Raises BlobTooLargeError past the store's cap; the writer is aborted then."""
        if self._file is None:
            raise ValueError("the blob was already committed or aborted")
        if self.size + len(data) > self._store.max_bytes:
            self.abort()
            raise BlobTooLargeError(f"more than {self._store.max_bytes} bytes in one blob")
        self._hash.update(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.size += len(data)

    def commit(self) -> Blob:
        """Make the blob durable and visible under its digest."""
        if self._file is None:
            raise ValueError("the blob was already committed or aborted")
        blob = Blob(DIGEST_PREFIX + self._hash.hexdigest(), self.size)
        target = self._store.path(blob.digest)
        # Equal bytes are there already unless the disk lost some: a wrong size is written over.
        if not (target.is_file() and target.stat().st_size == self.size):
            os.fsync(self._file)
            target.parent.mkdir(mode=0o700, exist_ok=True)
            self._temporary.rename(target)
            _sync_directory(target.parent)
            _sync_directory(target.parent.parent)
        self.abort()
        return blob

    def abort(self) -> None:
        """Drop what was written. Idempotent, and harmless after `commit`."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._temporary.unlink(missing_ok=True)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()


class BlobStore:
    """Blobs under one directory, fanned out by the digest's first byte."""

    def __init__(self, root: Path, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self.root = root
        self.max_bytes = max_bytes
        for name in ("tmp", "sha256"):
            (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)

    def remove_unfinished(self) -> int:
        """Remove temporary files of an earlier life; for the store's one writing process, at its start."""
        left = list((self.root / "tmp").iterdir())
        for path in left:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        return len(left)

    def path(self, digest: str) -> Path:
        """Where a digest's bytes are. Raises BlobMissingError for what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise BlobMissingError(f"{digest[:80]!r} is no digest; write sha256:<64 hex digits>")
        name = digest.removeprefix(DIGEST_PREFIX)
        return self.root / "sha256" / name[:2] / name

    def writer(self) -> BlobWriter:
        """A new blob."""
        return BlobWriter(self)

    def put(self, data: bytes) -> Blob:
        """Store bytes. Raises BlobTooLargeError."""
        with self.writer() as writer:
            writer.write(data)
            return writer.commit()

    def contains(self, digest: str) -> bool:
        """Whether a digest's bytes are here."""
        return self.path(digest).is_file()

    def get(self, digest: str) -> bytes:
        """A blob's bytes, checked. Raises BlobMissingError, BlobCorruptError."""
        try:
            data = self.path(digest).read_bytes()
        except FileNotFoundError:
            raise BlobMissingError(f"no blob {digest}") from None
        if DIGEST_PREFIX + hashlib.sha256(data).hexdigest() != digest:
            raise BlobCorruptError(f"{digest}: the bytes on disk are others")
        return data

    def pieces(self, digest: str, size: int) -> Iterator[bytes]:
        """A blob's bytes in pieces of `size`, without holding it whole.

        Raises BlobMissingError before the first piece; BlobCorruptError after the last one, when they do not add up
        to the digest.
        """
        try:
            file = self.path(digest).open("rb")
        except FileNotFoundError:
            raise BlobMissingError(f"no blob {digest}") from None
        with file:
            hashed = hashlib.sha256()
            while piece := file.read(size):
                hashed.update(piece)
                yield piece
        if DIGEST_PREFIX + hashed.hexdigest() != digest:
            raise BlobCorruptError(f"{digest}: the bytes on disk are others")


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
