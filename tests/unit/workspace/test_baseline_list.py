"""Snapshot A as a list."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from daemon.workspace.baseline import Baseline, BaselineEntry

NAME = st.sampled_from([b"a", b"b", b"a.b", b"a-", b"\xff", b"new\nline"])
PATHS = st.lists(st.lists(NAME, min_size=1, max_size=4).map(b"/".join), unique=True)


def listed(paths: list[bytes]) -> Baseline:
    return Baseline(BaselineEntry(path, "dir", 0o755, 0, 0, 0, None, None) for path in paths)


@given(PATHS)
def test_under_and_children_agree_with_the_plain_question(paths: list[bytes]) -> None:
    baseline = listed(paths)
    for path in [*paths, b"a", b"zzz"]:
        assert [entry.path for entry in baseline.under(path)] == sorted(p for p in paths if p.startswith(path + b"/"))
        expected = [p[len(path) + 1 :] for p in sorted(paths) if p.startswith(path + b"/")]
        assert baseline.children(path) == [name for name in expected if b"/" not in name]
    assert baseline.children(b"") == [path for path in sorted(paths) if b"/" not in path]


@given(PATHS)
def test_a_list_comes_back(paths: list[bytes]) -> None:
    baseline = Baseline(
        BaselineEntry(path, "symlink" if index % 2 else "file", index, 1000, 0, index, None, path[:1] or None)
        for index, path in enumerate(paths)
    )
    again = Baseline.load(baseline.dump())
    assert list(again) == list(baseline) and again.digest == baseline.digest


def test_the_digest_sees_every_field_it_names() -> None:
    fields = {"path": b"a", "type": "file", "mode": 1, "uid": 1, "gid": 1, "size": 1, "sha256": "00", "target": None}
    changes = ({"path": b"b"}, {"type": "dir"}, {"mode": 2}, {"size": 2}, {"sha256": "01"}, {"target": b"x"}, {})
    digests = [Baseline([BaselineEntry(**{**fields, **change})]).digest for change in changes]  # type: ignore[arg-type]
    assert len(set(digests)) == len(changes)
