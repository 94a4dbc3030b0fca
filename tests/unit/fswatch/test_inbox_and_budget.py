"""The bounds: what is held between the threads, and what is hashed while an agent works."""

from __future__ import annotations

from daemon.fswatch import content
from daemon.fswatch.changes import CREATE, Batch, Change
from daemon.fswatch.content import LiveBudget
from daemon.fswatch.inbox import Inbox


def batch(count: int) -> Batch:
    return Batch([Change(1, CREATE, b"f%d" % number, False) for number in range(count)])


def test_everything_comes_out_once():
    woken: list[int] = []
    inbox = Inbox(lambda: woken.append(1))
    inbox.put(batch(2))
    inbox.put(Batch(lost=3))
    inbox.put(Batch(overflow=True))
    post = inbox.get()
    assert (len(post.changes), post.dropped, post.lost, post.overflow, post.ended) == (2, 0, 3, True, False)
    assert woken == [1]  # once for all that came before the look
    assert inbox.get() == ([], 0, 0, False, False)
    inbox.put(batch(1))
    inbox.end()
    assert woken == [1, 1, 1]
    assert inbox.get().ended


def test_what_does_not_fit_is_counted():
    inbox = Inbox(lambda: None, limit_bytes=5_000)
    for _ in range(10):
        inbox.put(batch(10))
    post = inbox.get()
    assert (len(post.changes), post.dropped) == (20, 80)
    inbox.put(batch(10))
    assert (len(inbox.get().changes), inbox.get().dropped) == (10, 0)


def test_hashing_is_bounded_in_all_and_a_second():
    now = [0.0]
    budget = LiveBudget(10 * content.LIVE_FILE_BYTES, lambda: now[0])
    assert not budget.take(content.LIVE_FILE_BYTES + 1)
    assert budget.take(content.LIVE_FILE_BYTES)
    assert budget.take(content.LIVE_FILE_BYTES)  # the burst is spent
    assert not budget.take(1)
    now[0] = content.LEAST_COST_BYTES / content.RATE_BYTES_PER_SECOND
    assert budget.take(1)
    assert not budget.take(1)
    now[0] = 1e6
    taken = 0
    while budget.take(content.LIVE_FILE_BYTES):
        taken += 1
        now[0] += 1e6
    assert taken == 7  # ten in all: two before, and a little for the small one
