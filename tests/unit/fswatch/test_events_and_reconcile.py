"""What events tell, and that the final corrections make them agree with the diff, from any state at all."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from daemon.fswatch.changes import CREATE, DELETE, MODIFY, MOVED_FROM, MOVED_TO, Content
from daemon.fswatch.events import GONE, Told, fields, fold, told_by
from daemon.fswatch.reconcile import content_of, corrections, suspects
from daemon.workspace.baseline import Baseline, BaselineEntry
from formats import event
from formats.diff import DiffEntry


def line(operation: int, path: bytes, content: Content | None) -> bytes:
    return event.encode("filesystem", "att_1", 1, fields(5, operation, path, content))


def test_an_event_has_the_specifications_fields():
    told = json.loads(line(MODIFY, b"submissions/f", Content("file", 3, "abc")))
    assert told == {
        "kind": "filesystem",
        "attempt_id": "att_1",
        "sequence": 1,
        "timestamp_ns": 5,
        "event_type": "MODIFY",
        "file_path": "submissions/f",
        "file_size_bytes": 3,
        "content_hash_sha256": "abc",
    }


@given(st.binary(min_size=1).filter(lambda path: b"\0" not in path), st.sampled_from([CREATE, MODIFY, MOVED_TO]))
def test_any_path_survives(path: bytes, operation: int):
    content = Content("symlink", 4, None)
    assert fold([line(operation, path, content)]) == {path: Told("symlink", 4, None)}
    assert fold([line(operation, path, content), line(DELETE, path, None)]) == {path: GONE}


def test_gaps_tell_nothing():
    gap = event.encode_gap(event.gap("filesystem", "att_1", 1, None, "x"))
    assert fold([gap, line(MOVED_FROM, b"f", None)]) == {b"f": GONE}


NAMES = [b"a", b"b", b"c", b"d"]
CONTENTS = st.builds(Content, st.just("file"), st.integers(0, 2), st.sampled_from(["x", "y", None])) | st.builds(
    Content, st.just("dir"), st.none(), st.none()
)


def entry_of(path: bytes, content: Content) -> BaselineEntry:
    return BaselineEntry(path, content.type, 0o644, 0, 0, content.size or 0, content.sha256, None)  # type: ignore[arg-type]


@given(
    st.dictionaries(st.sampled_from(NAMES), CONTENTS),
    st.dictionaries(st.sampled_from(NAMES), CONTENTS),
    st.dictionaries(st.sampled_from(NAMES), CONTENTS | st.none()),
    st.sets(st.sampled_from(NAMES)),
)
def test_from_any_state_the_corrections_end_where_the_diff_does(before, after, told_contents, touched):
    """`touched` stands for what the diff lists though only mode or owner differ."""
    baseline = Baseline([entry_of(path, content) for path, content in before.items()])
    diff = []
    for path in NAMES:
        old, new = before.get(path), after.get(path)
        if new is None and old is not None:
            diff.append(DiffEntry(path, "deleted", old.type, 0o644, old.size or 0, old.sha256))  # type: ignore[arg-type]
        elif new is not None and (new != old or path in touched):
            change = "added" if old is None else "modified"
            diff.append(DiffEntry(path, change, new.type, 0o644, new.size or 0, new.sha256))  # type: ignore[arg-type]
    told = {
        path: GONE if content is None else Told(content.type, content.size, content.sha256)
        for path, content in told_contents.items()
    }
    made = list(corrections(dict(told), diff, baseline))
    assert len({path for _, path, _ in made}) == len(made)
    for operation, path, content in made:
        assert told.get(path) != told_by(operation, content)
        told[path] = told_by(operation, content)
    listed = {entry.path for entry in diff}
    for path in NAMES:
        final = after.get(path)
        wanted = GONE if final is None else Told(final.type, final.size, final.sha256)
        if path in listed or path in told:
            assert told[path] == wanted


def test_a_change_of_mode_alone_is_told():
    entry = DiffEntry(b"f", "modified", "file", 0o755, 3, "x")
    baseline = Baseline([entry_of(b"f", Content("file", 3, "x"))])
    assert list(corrections({}, [entry], baseline)) == [(MODIFY, b"f", content_of(entry))]


def test_suspects_are_changed_files_whose_bytes_were_not_seen():
    diff = [
        DiffEntry(b"seen", "added", "file", 0o644, 1, "x"),
        DiffEntry(b"changed", "added", "file", 0o644, 1, "x"),
        DiffEntry(b"unhashed", "modified", "file", 0o644, 1, "x"),
        DiffEntry(b"never", "added", "file", 0o644, 1, "x"),
        DiffEntry(b"gone", "deleted", "file", 0o644, 1, "x"),
        DiffEntry(b"dir", "added", "dir", 0o755, 0),
        DiffEntry(b"too-big", "added", "file", 0o644, 1, None),
    ]
    told = {
        b"seen": Told("file", 1, "x"),
        b"changed": Told("file", 1, "y"),
        b"unhashed": Told("file", 1, None),
        b"too-big": Told("file", 1, None),
    }
    assert list(suspects(told, diff)) == [b"changed", b"unhashed", b"never", b"too-big"]
