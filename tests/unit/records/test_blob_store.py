"""Blobs: whole or absent, checked when read, safe against names that are no digest."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

import pytest

from records.blobs import Blob, BlobStore
from records.errors import BlobCorruptError, BlobMissingError, BlobTooLargeError


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "blobs", max_bytes=1_000)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff" * 500])
def test_what_was_put_comes_back(blobs: BlobStore, data: bytes) -> None:
    assert blobs.put(data) == Blob(digest(data), len(data))
    assert blobs.put(data) == Blob(digest(data), len(data))
    assert blobs.get(digest(data)) == data
    assert blobs.contains(digest(data))


def test_the_cap_ends_a_blob_and_leaves_nothing(blobs: BlobStore) -> None:
    blobs.put(b"x" * 1_000)
    with pytest.raises(BlobTooLargeError, match="1000"):
        blobs.put(b"y" * 1_001)
    writer = blobs.writer()
    writer.write(b"z" * 600)
    with pytest.raises(BlobTooLargeError):
        writer.write(b"z" * 600)
    with pytest.raises(ValueError, match="already"):
        writer.write(b"z")
    assert not blobs.contains(digest(b"y" * 1_001))
    assert list((blobs.root / "tmp").iterdir()) == []


def test_an_unfinished_blob_is_not_visible(blobs: BlobStore) -> None:
    with blobs.writer() as writer:
        writer.write(b"half")
        assert not blobs.contains(digest(b"half"))
        assert len(list((blobs.root / "tmp").iterdir())) == 1
    assert list((blobs.root / "tmp").iterdir()) == []
    with pytest.raises(BlobMissingError):
        blobs.get(digest(b"half"))


def test_what_a_kill_left_half_written_is_removed_at_the_next_start(blobs: BlobStore) -> None:
    pid = os.fork()
    if pid == 0:
        blobs.writer().write(b"half")
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    assert len(list((blobs.root / "tmp").iterdir())) == 1
    assert BlobStore(blobs.root).remove_unfinished() == 1
    assert list((blobs.root / "tmp").iterdir()) == []


def test_changed_bytes_are_found_when_read(blobs: BlobStore) -> None:
    blob = blobs.put(b"right")
    blobs.path(blob.digest).write_bytes(b"wrong")
    with pytest.raises(BlobCorruptError):
        blobs.get(blob.digest)


def test_a_truncated_blob_is_mended_by_the_next_put(blobs: BlobStore) -> None:
    blob = blobs.put(b"right")
    blobs.path(blob.digest).write_bytes(b"")
    assert blobs.put(b"right") == blob
    assert blobs.get(blob.digest) == b"right"


@pytest.mark.parametrize(
    "name",
    [
        "",
        "sha256:",
        "sha256:" + "g" * 64,
        "sha256:" + "A" * 64,
        "../../etc/passwd",
        "sha256:../" + "a" * 61,
        "sha256:" + "a" * 64 + "\n",
        "md5:" + "a" * 64,
    ],
)
def test_what_is_no_digest_names_no_file(blobs: BlobStore, name: str) -> None:
    with pytest.raises(BlobMissingError, match="no digest"):
        blobs.get(name)


def test_writers_of_the_same_bytes_meet(blobs: BlobStore) -> None:
    found: list[Blob] = []
    threads = [threading.Thread(target=lambda: found.append(blobs.put(b"same"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [Blob(digest(b"same"), 4)] * 8
    assert blobs.get(digest(b"same")) == b"same"


def test_nobody_else_can_read_a_blob(blobs: BlobStore) -> None:
    path = blobs.path(blobs.put(b"secret").digest)
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("data", "pieces"), [(b"", []), (b"abcde", [b"ab", b"cd", b"e"]), (b"abcd", [b"ab", b"cd"])])
def test_a_blob_comes_in_pieces(blobs: BlobStore, data: bytes, pieces: list[bytes]) -> None:
    assert list(blobs.pieces(blobs.put(data).digest, 2)) == pieces


def test_pieces_of_what_is_not_there_or_was_changed(blobs: BlobStore) -> None:
    for wrong in (digest(b"never"), "", "sha256:../../x"):
        with pytest.raises(BlobMissingError):
            next(blobs.pieces(wrong, 2))
    kept = blobs.put(b"abcd").digest
    blobs.path(kept).write_bytes(b"abcx")
    read = blobs.pieces(kept, 2)
    assert [next(read), next(read)] == [b"ab", b"cx"]
    with pytest.raises(BlobCorruptError, match="the bytes on disk are others"):
        next(read)
