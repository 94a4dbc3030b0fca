"""Attempts in a test environment: submitted, waited for, acted in, over the real API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb

from cli import challenges
from cli.clients import Agent, Services, agent, services
from tests.support.environment import LIVENESS_SECONDS, Environment, gauntlet
from wire import client, request_ids

FINAL = (pb.ATTEMPT_STATE_SCORED, pb.ATTEMPT_STATE_VOIDED, pb.ATTEMPT_STATE_FAILED)


def run_script(environment: Environment, challenge: Path, script: Path, *, exit_code: int = 0) -> dict[str, Any]:
    """Play a script through the command line; returns the record."""
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--json")
    told = done.stderr.decode() + "".join(environment.tail(name) for name in ("scheduler", "node", "judge"))
    assert done.returncode == exit_code, told
    record: dict[str, Any] = json.loads(done.stdout)
    return record


async def submit(to: Services, challenge: Path, *, agent_id: str = "a", request_id: str = "") -> pb.Attempt:
    """Upload and queue."""
    digest = await challenges.upload(to, challenge)
    request = pb.SubmitAttemptRequest(
        request_id=request_id or request_ids.new(), challenge_digest=digest, agent_id=agent_id
    )
    return (await client.call(to.scheduler.SubmitAttempt, request)).attempt


async def wait_for(to: Services, attempt_id: str, *states: int, seconds: float = LIVENESS_SECONDS) -> pb.Attempt:
    """Follow an attempt until it is in one of `states`, or in a final one."""
    async with asyncio.timeout(seconds):
        async for update in to.scheduler.WatchAttempt(pb.WatchAttemptRequest(attempt_id=attempt_id)):
            if update.attempt.state in (*states, *FINAL):
                return update.attempt
    raise AssertionError("the watch ended before a final state")


@asynccontextmanager
async def running(
    environment: Environment, challenge: Path, *, agent_id: str = "a"
) -> AsyncIterator[tuple[Services, str, Agent]]:
    """A running attempt and its agent's connection; the caller ends it."""
    async with services(environment.endpoint("scheduler")) as to:
        attempt = await submit(to, challenge, agent_id=agent_id)
        found = await wait_for(to, attempt.attempt_id, pb.ATTEMPT_STATE_RUNNING)
        assert found.state == pb.ATTEMPT_STATE_RUNNING, found.reason
        request = pb.IssueAttemptTokenRequest(attempt_id=attempt.attempt_id)
        issued = await client.call(to.scheduler.IssueAttemptToken, request)
        async with agent(issued.node_endpoint, issued.token) as connection:
            yield to, attempt.attempt_id, connection


async def ended(to: Services, attempt_id: str, seconds: float = LIVENESS_SECONDS * 2) -> dict[str, Any]:
    """The record of an attempt, once it is final."""
    await wait_for(to, attempt_id, seconds=seconds)
    answer = await client.call(to.scheduler.GetAttempt, pb.GetAttemptRequest(attempt_id=attempt_id))
    record: dict[str, Any] = json.loads(answer.attempt.record_json)
    return record
