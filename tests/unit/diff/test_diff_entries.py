"""The diff's format: what is written can be read, and the digest has one meaning."""

from __future__ import annotations

import hashlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.diff import DiffEntry, canonical, diff_digest, read_lines

PATHS = st.binary(min_size=1, max_size=30)
ENTRIES = st.builds(
    DiffEntry,
    path=PATHS,
    change=st.sampled_from(["added", "modified", "deleted"]),
    type=st.sampled_from(["file", "dir", "symlink", "fifo", "socket", "char", "block"]),
    mode=st.integers(0, 0o7777),
    size=st.integers(0, 1 << 50),
    sha256=st.one_of(st.none(), st.binary(min_size=32, max_size=32).map(bytes.hex)),
    target=st.one_of(st.none(), PATHS),
)


@given(st.lists(ENTRIES))
def test_lines_come_back(entries: list[DiffEntry]) -> None:
    text = b"".join(entry.to_line() for entry in entries)
    assert text.count(b"\n") == len(entries), "a newline in a name never splits a line"
    assert list(read_lines(text.splitlines())) == entries


@given(ENTRIES)
def test_path_bytes_only_when_needed(entry: DiffEntry) -> None:
    data = entry.to_json()
    valid = entry.path.decode("utf-8", "replace").encode() == entry.path
    assert ("path_bytes" in data) is not valid
    assert ("target" in data) is (entry.target is not None)


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.path), st.randoms())
def test_digest_does_not_depend_on_order(entries: list[DiffEntry], chance: random.Random) -> None:
    shuffled = entries[:]
    chance.shuffle(shuffled)
    assert diff_digest(shuffled) == diff_digest(entries)
    lines = b"".join(entry.to_line() for entry in canonical(entries))
    assert diff_digest(entries) == f"sha256:{hashlib.sha256(lines).hexdigest()}"


def test_the_form_of_a_line() -> None:
    entry = DiffEntry(b"challenge/\xff\n", "added", "symlink", 0o777, 3, target=b"a\xfe")
    assert json.loads(entry.to_line()) == {
        "path": "challenge/\ufffd\n",
        "path_bytes": "Y2hhbGxlbmdlL/8K",
        "change": "added",
        "type": "symlink",
        "mode": 511,
        "size": 3,
        "sha256": None,
        "target": "a\ufffd",
        "target_bytes": "Yf4=",
    }
    file = DiffEntry(b"a", "modified", "file", 0o644, 0, "00")
    assert file.to_line() == b'{"change":"modified","mode":420,"path":"a","sha256":"00","size":0,"type":"file"}\n'


@pytest.mark.parametrize(
    "change",
    [
        {"path": b"b"}, {"change": "added"}, {"type": "dir"}, {"mode": 0o600}, {"size": 1}, {"sha256": "01"},
        {"target": b"x"},
    ],
)  # fmt: skip
def test_every_field_is_in_the_digest(change: dict[str, object]) -> None:
    fields = {"path": b"a", "change": "modified", "type": "file", "mode": 0o644, "size": 0, "sha256": "00"}
    assert diff_digest([DiffEntry(**fields)]) != diff_digest([DiffEntry(**{**fields, **change})])  # type: ignore[arg-type]


@pytest.mark.parametrize("line", [b"", b"{}", b"[]", b'{"path": "a"}', b"\xff", b'{"path":"a","path_bytes":"!"}'])
def test_other_lines_are_refused_by_number(line: bytes) -> None:
    good = DiffEntry(b"a", "added", "dir", 0, 0).to_line()
    with pytest.raises(ValueError, match="line 2"):
        list(read_lines([good, line]))
