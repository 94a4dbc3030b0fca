"""News to watchers and bells."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from formats.record import Outcome, State
from scheduler.model import Attempt
from scheduler.watch import Hub, Wake, follow
from tests.support.scheduling import new_attempt


async def seen(first: Attempt, *changes: Attempt) -> list[tuple[State, bool]]:
    queue: asyncio.Queue[Attempt] = asyncio.Queue()
    for change in changes:
        queue.put_nowait(change)
    async with asyncio.timeout(10):
        return [(attempt.public_state, attempt.over) async for attempt in follow(first, queue)]


def at(state: State, **changes: Any) -> Attempt:
    return replace(new_attempt("att_1"), state=state, **changes)


async def test_an_attempt_that_is_over_is_shown_once() -> None:
    assert await seen(at(State.SCORED, recorded=True)) == [(State.SCORED, True)]


async def test_changes_that_do_not_show_are_left_out() -> None:
    shown = await seen(
        at(State.QUEUED),
        at(State.QUEUED),
        at(State.RUNNING),
        at(State.RUNNING, cancel_reason="x"),
        at(State.SCORED, outcome=Outcome.CANCELLED),
        at(State.SCORED, outcome=Outcome.CANCELLED, recorded=True),
    )
    assert [state for state, _ in shown] == [State.QUEUED, State.RUNNING, State.JUDGING, State.SCORED]


async def test_a_failed_attempt_shows_its_end_once_and_the_stream_ends_with_the_record() -> None:
    assert await seen(at(State.FAILED), at(State.FAILED, recorded=True)) == [(State.FAILED, False)]


async def test_watchers_hear_their_attempt_only_and_leave_nothing_behind() -> None:
    hub = Hub()
    with hub.subscribe("att_1") as one, hub.subscribe("att_1") as two, hub.subscribe("att_2") as other:
        hub.publish(new_attempt("att_1"))
        assert (one.qsize(), two.qsize(), other.qsize()) == (1, 1, 0)
    hub.publish(new_attempt("att_1"))
    assert one.qsize() == 1 and not hub._watchers


async def test_a_bell_that_rang_before_is_heard_once() -> None:
    bell = Wake()
    bell.ring()
    bell.ring()
    assert await bell.wait(10)
    assert not await bell.wait(0)
