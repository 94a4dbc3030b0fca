"""A sandbox that dies: by its own crash, by memory, by the platform's loss of a part. Evidence to record."""

from __future__ import annotations

import os
import signal

import pytest

from cli import sandbox
from tests.support.attempts import ended
from tests.support.challenge_files import make_challenge
from tests.support.insides import attempt, container_of, host_process, python, shell

pytestmark = pytest.mark.docker
FIX = b'def answer():\n    """It."""\n    return 42\n'


def told(record) -> tuple[str, str, str, list[str]]:
    return record["outcome"], record["fault"], record["sandbox"]["exit_reason"], record["flags"]


async def test_a_sentry_that_panics_is_a_crash_of_unknown_fault_and_what_is_there_is_judged(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await sandbox.write_file(agent, "challenge/src/answer.py", FIX)
        container = await container_of(environment, to, attempt_id)
        # Go's runtime answers SIGABRT as it does a panic of its own, exit code 2, but with nothing in the panic log.
        os.kill(host_process(container, "sandbox"), signal.SIGABRT)
        record = await ended(to, attempt_id)
    assert told(record) == ("CRASHED", "UNKNOWN", "crashed", [])
    assert record["sandbox"]["exit_code"] == 2
    assert record["sandbox"]["killed_by"] is None
    assert record["agent_feedback"] is None
    assert record["scores"]["objective"] == 100
    assert record["workspace"]["modified"] == 1
    assert record["scoring_impact"]["stability"] == 0


@pytest.mark.parametrize("role", ["sandbox", "gofer"])
async def test_a_part_that_is_killed_from_outside_voids_the_attempt(environment, tmp_path, role):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await sandbox.write_file(agent, "challenge/src/answer.py", FIX)
        os.kill(host_process(await container_of(environment, to, attempt_id), role), signal.SIGKILL)
        record = await ended(to, attempt_id)
    assert told(record) == ("VOIDED", "PLATFORM", "voided", [])
    assert (record["scores"], record["judges"], record["agent_feedback"]) == ({}, {}, None)
    assert record["scoring_impact"] == {}


async def test_out_of_memory_keeps_what_was_written_and_names_the_limit(environment, tmp_path):
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await sandbox.write_file(agent, "challenge/src/answer.py", FIX)
        await python(agent, "b = bytearray()\nwhile True: b += b'x' * 8_000_000")
        record = await ended(to, attempt_id)
    assert told(record) == ("OOM_KILLED", "AGENT", "oom_killed", [])
    assert record["sandbox"]["oom_kills"] >= 1
    assert record["agent_feedback"] == "Your submission exceeded the 256MB memory limit."
    assert record["scores"]["objective"] == 100
    assert (record["scoring_impact"]["stability"], record["scoring_impact"]["resource_efficiency"]) == (0, 0)


async def test_an_agent_that_kills_all_it_can_reach_ends_nothing(environment, tmp_path):
    """The agent's own means against its sandbox: none of them is a death, so none of them can be a void."""
    async with attempt(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        for script in ("kill -9 -1", "kill -9 1", "kill -ABRT 1", "pkill -9 -u 0; pkill -9 .", "kill -31 $$"):
            await shell(agent, script)
        assert (await shell(agent, "echo alive")).output == "alive\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id)
    # A process that ends by a signal 31 of its own looks like one that the filter ended for ptrace: told as that.
    assert told(record) == ("SUBMITTED", "NONE", "agent_submitted", ["ESCAPE_ATTEMPT"])
