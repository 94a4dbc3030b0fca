"""Time that runs out, softly and hard, with what is written in the grace period; a disk that stays full."""

from __future__ import annotations

import asyncio
import json

import pytest

from cli import sandbox
from tests.support.attempts import ended
from tests.support.challenge_files import make_challenge
from tests.support.environment import gauntlet
from tests.support.insides import attempt, shell

pytestmark = pytest.mark.docker
FEEDBACK = "Time limit reached. Submission scored on current state."
LIMIT_SECONDS = 3
# Writes only once it is told that the time is over.
AT_TERM = "trap 'echo late > submissions/late; exit 0' TERM; echo early > submissions/early; while :; do sleep 1; done"
IGNORES_TERM = "trap '' TERM; while :; do date +%s%N > submissions/last; sleep 0.1; done"


def changed(environment, attempt_id: str) -> set[str]:
    lines = gauntlet(environment, "attempt", "diff", attempt_id, "--json").stdout
    return {entry["path"] for entry in json.loads(lines)}


async def test_softly_what_is_written_and_called_in_the_grace_period_counts(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=LIMIT_SECONDS)
    async with attempt(environment, challenge) as (to, attempt_id, agent):
        ran = await shell(agent, AT_TERM)
        assert ran.exit_code == 0
        # Past the limit, within the grace: calls are served, and a submission ends it early.
        assert (await shell(agent, "echo after > submissions/after")).exit_code == 0
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"], record["flags"]) == ("TIMED_OUT", "AGENT", [])
    assert record["sandbox"]["exit_reason"] == "timed_out"
    assert record["sandbox"]["exit_code"] == 0
    assert record["agent_feedback"] == FEEDBACK
    assert "objective" in record["scores"]
    assert record["scoring_impact"]["time_management"] == "penalized"
    assert changed(environment, attempt_id) == {f"submissions/{name}" for name in ("early", "late", "after")}


async def test_hard_whoever_ignores_the_order_is_killed_after_the_grace_period(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=LIMIT_SECONDS)
    async with attempt(environment, challenge) as (to, attempt_id, agent):
        holding = asyncio.create_task(shell(agent, IGNORES_TERM))
        record = await ended(to, attempt_id)
        ran = await holding
    assert (ran.exit_code, ran.oom_killed) == (None, False)
    assert (record["outcome"], record["fault"], record["agent_feedback"]) == ("TIMED_OUT", "AGENT", FEEDBACK)
    assert record["sandbox"]["killed_by"] == {"signal": "SIGKILL", "reason": "hard_timeout"}
    assert "objective" in record["scores"]
    assert changed(environment, attempt_id) == {"submissions/last"}


async def test_a_stopped_process_and_a_stopped_shell_do_not_stop_the_clock(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=LIMIT_SECONDS)
    async with attempt(environment, challenge) as (to, attempt_id, agent):
        holding = asyncio.create_task(shell(agent, "sleep 100 & kill -STOP $!; kill -STOP $$; true"))
        record = await ended(to, attempt_id)
        await asyncio.gather(holding, return_exceptions=True)
    assert (record["outcome"], record["fault"]) == ("TIMED_OUT", "AGENT")


async def test_a_disk_that_stays_full_runs_into_the_time_limit_and_is_judged(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=12)
    async with attempt(environment, challenge) as (to, attempt_id, agent):
        filled = await shell(agent, "cat /dev/zero > submissions/full")
        assert "No space left on device" in filled.output
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"], record["flags"]) == ("TIMED_OUT", "AGENT", ["DISK_FULL"])
    assert record["sandbox"]["disk_high"] is True
    assert record["agent_feedback"] == FEEDBACK
    assert "objective" in record["scores"]
    assert record["scoring_impact"]["resource_efficiency"] == "penalized"
