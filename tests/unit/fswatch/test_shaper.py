"""Changes to events: order, quiet periods, storms, and the bound on what is held."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemon.fswatch import shaper
from daemon.fswatch.changes import CREATE, DELETE, MODIFY, MOVED_FROM, MOVED_TO, RESCAN, Change, Content
from daemon.fswatch.shaper import MAX_WAIT_SECONDS, QUIET_SECONDS, Shaper

FILE = Content("file", 3, "abc")


class Feed:
    """A shaper with a clock of its own, whose looks find what `now` holds."""

    def __init__(self, **options: int) -> None:
        self.shaper = Shaper(**options)  # type: ignore[arg-type]
        self.now = 100.0
        self.there: dict[bytes, Content] = {}
        self.told: list[tuple[int, bytes, Content | None]] = []

    def feed(self, operation: int, path: bytes, *, directory: bool = False, source: str | None = None) -> None:
        self.shaper.feed(Change(int(self.now * 1e9), operation, path, directory, source), self.now)
        self._tell()

    def wait(self, seconds: float = QUIET_SECONDS) -> None:
        self.now += seconds
        for path in self.shaper.due(self.now):
            self.shaper.looked(path, self.there.get(path), self.now, self.now)
        self._tell()

    def _tell(self) -> None:
        self.told += [(item.change.operation, item.change.path, item.content) for item in self.shaper.ready()]


def test_a_created_file_waits_for_its_content():
    feed = Feed()
    feed.there[b"f"] = FILE
    feed.feed(CREATE, b"f")
    assert feed.told == []
    feed.wait()
    assert feed.told == [(CREATE, b"f", FILE)]


def test_a_written_file_is_created_at_once_and_told_when_quiet():
    feed = Feed()
    feed.there[b"f"] = FILE
    feed.feed(CREATE, b"f")
    feed.feed(MODIFY, b"f")
    assert feed.told == [(CREATE, b"f", None)]
    feed.wait(QUIET_SECONDS / 2)
    feed.feed(MODIFY, b"f")
    feed.wait(QUIET_SECONDS / 2)
    assert len(feed.told) == 1
    feed.wait(QUIET_SECONDS / 2)
    assert feed.told[1:] == [(MODIFY, b"f", FILE)]


def test_a_file_that_is_never_quiet_is_told_all_the_same():
    feed = Feed()
    feed.there[b"f"] = FILE
    for _ in range(int(2.5 * MAX_WAIT_SECONDS / 0.1)):
        feed.feed(MODIFY, b"f")
        feed.wait(0.1)
    assert len(feed.told) == 2


def test_order_is_kept_behind_what_waits():
    feed = Feed()
    feed.feed(MOVED_FROM, b"a")
    feed.feed(MOVED_TO, b"b")
    feed.feed(DELETE, b"c")
    feed.feed(CREATE, b"d", directory=True)
    assert [operation for operation, _, _ in feed.told] == [MOVED_FROM]
    feed.wait()
    assert [(operation, path) for operation, path, _ in feed.told] == [
        (MOVED_FROM, b"a"),
        (MOVED_TO, b"b"),
        (DELETE, b"c"),
        (CREATE, b"d"),
    ]


def test_what_leaves_settles_what_was_pending():
    feed = Feed()
    feed.feed(CREATE, b"f")
    feed.feed(MODIFY, b"f")
    feed.feed(DELETE, b"f")
    assert feed.told == [(CREATE, b"f", None), (MODIFY, b"f", None), (DELETE, b"f", None)]
    feed.wait()
    assert len(feed.told) == 3


def test_a_directory_that_moves_settles_what_was_written_in_it():
    feed = Feed()
    for path in (b"d/e/f", b"da"):
        feed.feed(CREATE, path)
        feed.feed(MODIFY, path)
    feed.feed(MOVED_FROM, b"d", directory=True)
    assert [(operation, path) for operation, path, _ in feed.told] == [
        (CREATE, b"d/e/f"),
        (CREATE, b"da"),
        (MODIFY, b"d/e/f"),
        (MOVED_FROM, b"d"),
    ]
    feed.there[b"da"] = FILE
    feed.wait()
    assert feed.told[4:] == [(MODIFY, b"da", FILE)]


def test_of_many_written_files_a_directory_that_moves_settles_all(monkeypatch: pytest.MonkeyPatch):
    """Looking through them for each of a storm of renames would cost more than the agent pays."""
    monkeypatch.setattr(shaper, "MAX_LOOKED_THROUGH", 3)
    feed = Feed()
    for path in (b"a", b"b", b"c", b"d/f"):
        feed.feed(MODIFY, path)
    feed.feed(MOVED_FROM, b"d", directory=True)
    assert [path for _, path, _ in feed.told] == [b"a", b"b", b"c", b"d/f", b"d"]


def test_a_look_that_began_before_a_new_file_came_is_not_its_content():
    feed = Feed()
    feed.feed(CREATE, b"f")
    feed.now += QUIET_SECONDS
    assert feed.shaper.due(feed.now) == [b"f"]
    asked = feed.now
    feed.now += 0.01
    feed.feed(DELETE, b"f")
    feed.feed(CREATE, b"f")
    feed.shaper.looked(b"f", FILE, asked, feed.now)
    feed._tell()
    assert feed.told == [(CREATE, b"f", None), (DELETE, b"f", None)]
    other = feed.there[b"f"] = Content("file", 9, "def")
    feed.wait()
    assert feed.told[2:] == [(CREATE, b"f", other)]


def test_a_write_during_the_look_is_waited_for():
    feed = Feed()
    feed.feed(MODIFY, b"f")
    feed.now += QUIET_SECONDS
    assert feed.shaper.due(feed.now) == [b"f"]
    asked = feed.now
    feed.now += 0.01
    feed.feed(MODIFY, b"f")
    feed.shaper.looked(b"f", FILE, asked, feed.now)
    assert feed.told == []
    later = feed.there[b"f"] = Content("file", 9, "def")
    feed.wait()
    assert feed.told == [(MODIFY, b"f", later)]


def test_content_that_changed_while_it_was_read_is_read_again():
    feed = Feed()
    feed.feed(MODIFY, b"f")
    feed.there[b"f"] = Content("file", 1, None, stable=False)
    feed.wait()
    assert feed.told == []
    feed.there[b"f"] = FILE
    feed.wait()
    assert feed.told == [(MODIFY, b"f", FILE)]


def test_a_listing_adds_nothing_to_what_was_reported():
    feed = Feed()
    feed.feed(CREATE, b"f", source=RESCAN)
    feed.feed(CREATE, b"g")
    feed.feed(CREATE, b"g", source=RESCAN)
    feed.wait()
    assert [(operation, path) for operation, path, _ in feed.told] == [(CREATE, b"f"), (CREATE, b"g")]


def test_what_is_held_is_bounded_and_nothing_is_lost():
    feed = Feed(max_held=100)
    for number in range(1000):
        feed.feed(CREATE, b"%d" % number)
        feed.feed(MODIFY, b"m%d" % number)
    assert len(feed.shaper) <= 201
    feed.wait()
    left = feed.shaper.end()
    told = [path for _, path, _ in feed.told] + [item.change.path for item in left]
    assert sorted(told) == sorted(b"%d" % n for n in range(1000)) + sorted(b"m%d" % n for n in range(1000))


def test_the_end_names_what_has_no_content_yet():
    feed = Feed()
    feed.feed(CREATE, b"f")
    feed.feed(DELETE, b"g")
    feed.feed(MODIFY, b"h")
    left = [(item.change.operation, item.change.path, item.ready) for item in feed.shaper.end()]
    assert left == [(CREATE, b"f", False), (DELETE, b"g", True), (MODIFY, b"h", False)]
    assert len(feed.shaper) == 0


STEP = st.tuples(
    st.sampled_from([CREATE, MODIFY, DELETE, MOVED_FROM, MOVED_TO]),
    st.sampled_from([b"a", b"b", b"c"]),
    st.sampled_from([0.0, 0.01, QUIET_SECONDS, 1.0]),
)


@given(st.lists(STEP, max_size=60))
def test_whatever_comes_comes_out_in_order(steps: list[tuple[int, bytes, float]]):
    """Per path: comings and goings in their order, each once; a write is told at least once after the last write."""
    feed = Feed()
    feed.there = dict.fromkeys((b"a", b"b", b"c"), FILE)
    for operation, path, seconds in steps:
        feed.feed(operation, path)
        feed.wait(seconds)
    for _ in range(4):
        feed.wait(2 * MAX_WAIT_SECONDS)
    assert len(feed.shaper) == 0
    for path in (b"a", b"b", b"c"):
        given_ = [operation for operation, at, _ in steps if at == path]
        told = [operation for operation, at, _ in feed.told if at == path]
        assert [o for o in told if o != MODIFY] == [o for o in given_ if o != MODIFY]
        if given_ and given_[-1] == MODIFY:
            assert told[-1] == MODIFY
        assert told.count(MODIFY) <= given_.count(MODIFY)
