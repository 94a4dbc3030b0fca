"""Calls while the pipe to a sandbox is gone: they wait for its death or for a new pipe, else are told to come again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptEnded, AttemptFacts, ClaimSpec, SandboxUnreachable, State
from daemon.services.errors import translate, translate_agents
from daemon.supervisor.errors import SupervisorGone

SPEC = ClaimSpec("att_1", 1, "sha256:c", "c", "a", "python311", 60.0)


def attempt(*, alive: bool) -> tuple[LiveAttempt, Any]:
    entry: Any = SimpleNamespace(alive=alive)
    return LiveAttempt(AttemptFacts(spec=SPEC, state=State.RUNNING), entry=entry), entry


async def test_a_sandbox_with_its_pipe_is_reached_at_once() -> None:
    await attempt(alive=True)[0].reachable(0.0)


async def test_a_pipe_that_stays_away_is_said_and_may_be_asked_again() -> None:
    with pytest.raises(SandboxUnreachable) as caught:
        await attempt(alive=False)[0].reachable(0.0)
    told = translate(caught.value)
    assert told is not None
    assert (told.code.name, told.reason) == ("UNAVAILABLE", "SANDBOX_UNREACHABLE")


async def test_a_new_pipe_ends_the_wait() -> None:
    live, entry = attempt(alive=False)
    waiting = asyncio.create_task(live.reachable(30.0))
    await asyncio.sleep(0)
    entry.alive = True
    await asyncio.wait_for(waiting, 10)


async def test_a_death_ends_the_wait() -> None:
    live, _ = attempt(alive=False)
    waiting = asyncio.create_task(live.reachable(30.0))
    await asyncio.sleep(0)
    live.died.set()
    live.facts.state = State.ENDING
    await asyncio.wait_for(waiting, 10)


def test_a_pipe_that_goes_away_under_an_agents_call_is_no_end_yet() -> None:
    """Seen: an engine that restarted made a running attempt's command answer that the sandbox has ended."""
    found = translate_agents(SupervisorGone("the stream ended"))
    assert found is not None
    assert (found.code.name, found.reason) == ("UNAVAILABLE", "SANDBOX_UNREACHABLE")
    # A judge's sandbox that is gone was ended by what it ran; nobody brings it back.
    judged = translate(SupervisorGone("the stream ended"))
    assert judged is not None
    assert judged.reason == "SANDBOX_ENDED"
    ended = translate_agents(AttemptEnded("att_1"))
    assert ended is not None
    assert ended.reason == "ATTEMPT_ENDED"
