"""kill -9 of each process at bad moments: attempts go on or are void, none is run twice, nothing is orphaned."""

from __future__ import annotations

import asyncio

import docker.errors
import pytest
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.telemetry.v1 import event_service_pb2 as event_pb

from cli import sandbox
from cli.clients import agent as connect_agent
from cli.clients import services
from tests.support.attempts import ended, run_script, running, submit, wait_for
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import Environment, until
from wire import client, request_ids

pytestmark = pytest.mark.docker


@pytest.fixture
def fresh():
    """An environment of its own: its processes are killed."""
    made = Environment(node={"grace_seconds": 1.0, "capacity": 8}, scheduler={"limits": {"per_agent_max": 1}})
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def shell(agent, script: str) -> tuple[int | None, bytes]:
    out = bytearray()
    end = await sandbox.run_command(agent, ["sh", "-c", script], stdout=out.extend, stderr=out.extend)
    return end.exit_code, bytes(out)


async def test_a_killed_daemon_finds_its_running_attempts_again(fresh, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    async with (
        running(fresh, challenge, agent_id="a") as (to, first, one),
        running(fresh, challenge, agent_id="b") as (
            _,
            second,
            two,
        ),
    ):
        await shell(one, "echo before > submissions/mark")
        wait = "until test -e submissions/go; do sleep 0.1; done; echo survived > submissions/mark"
        background = asyncio.create_task(shell(two, wait))
        await until(lambda: _processes(fresh, "until test -e"))
        held = {c.id for c in fresh.containers()}
        fresh.kill("node")
        fresh.start("node")
        await shell(two, "touch submissions/go")
        assert await background == (0, b"")
        assert await shell(one, "cat submissions/mark") == (0, b"before\n")
        await shell(two, "while ! grep -q survived submissions/mark; do sleep 0.1; done")
        for to_end in (one, two):
            await sandbox.submit(to_end)
        records = [await ended(to, attempt_id) for attempt_id in (first, second)]
    assert [(r["outcome"], r["fault"]) for r in records] == [("SUBMITTED", "NONE")] * 2
    # The warm sandbox of the first life was nobody's: it is gone, like those of the attempts.
    await until(lambda: not held & {c.id for c in fresh.containers()})


async def test_a_script_goes_on_across_a_killed_daemon(fresh, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    steps = [
        exec_step("sh", "-c", "sleep 6; echo once >> submissions/mark; exit 3"),
        exec_step("sh", "-c", "test $(grep -c once submissions/mark) = 1"),
        {
            "tool": "write_file",
            "path": "challenge/src/answer.py",
            "content": 'def answer():\n    """A."""\n    return 42\n',
        },
    ]
    script = write_script(tmp_path / "s.jsonl", *steps)
    playing = asyncio.create_task(asyncio.to_thread(run_script, fresh, challenge, script))
    await until(lambda: _processes(fresh, "sleep 6"))
    fresh.kill("node")
    fresh.start("node")
    record = await playing
    assert (record["outcome"], record["scores"]["objective"]) == ("SUBMITTED", 100)


async def test_a_sandbox_that_vanished_with_the_daemon_is_void(fresh, tmp_path):
    async with running(fresh, make_challenge(tmp_path / "c")) as (to, attempt_id, _):
        fresh.kill("node")
        for container in fresh.containers():
            container.remove(force=True)
        fresh.start("node")
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"]) == ("VOIDED", "PLATFORM")
    assert record["scores"] == {}


async def test_a_sandbox_killed_from_outside_is_the_platforms_fault(fresh, tmp_path):
    async with running(fresh, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        answer = await client.call(to.scheduler.GetAttempt, pb.GetAttemptRequest(attempt_id=attempt_id))
        assert answer.attempt.state == pb.ATTEMPT_STATE_RUNNING
        waiting = asyncio.create_task(sandbox.run_command(agent, ["sleep", "100"]))
        await until(lambda: _processes(fresh, "sleep 100"))
        for container in fresh.containers():
            container.kill()
        end = await asyncio.wait_for(waiting, 30)
        assert end.error
        record = await ended(to, attempt_id)
    assert (record["outcome"], record["fault"]) == ("VOIDED", "PLATFORM")


async def test_a_judge_sandbox_killed_from_outside_is_no_zero(fresh, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    slow = "import time\nfrom answer import answer\n\ndef test_slow():\n    time.sleep(8)\n    assert answer() == 0\n"
    (challenge / "hidden/hidden_tests/edge_cases/test_edge.py").write_text(slow)
    (challenge / "hidden/reference/src/answer.py").unlink()
    (challenge / "workspace/challenge/tests/test_answer.py").unlink()
    async with running(fresh, challenge) as (to, attempt_id, agent):
        await sandbox.submit(agent)
        await wait_for(to, attempt_id, pb.ATTEMPT_STATE_JUDGING)
        await until(lambda: "final" in fresh.tail("node") and [c for c in fresh.containers() if "-jsb_" in c.name])
        await asyncio.to_thread(_kill_judges, fresh)
        record = await ended(to, attempt_id, seconds=180)
    assert (record["outcome"], record["scores"]["objective"]) == ("SUBMITTED", 100)


def _kill_judges(environment: Environment) -> None:
    for container in environment.containers():
        if "-jsb_" in container.name:
            container.kill()


async def test_a_killed_scheduler_ends_every_attempt_once(fresh, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=60)
    async with services(fresh.endpoint("scheduler")) as to:
        ids = [(await submit(to, challenge, agent_id="same")).attempt_id for _ in range(4)]
        await wait_for(to, ids[0], pb.ATTEMPT_STATE_RUNNING)
    fresh.kill("scheduler")
    fresh.start("scheduler")
    async with services(fresh.endpoint("scheduler")) as to:
        for attempt_id in ids:
            found = await wait_for(to, attempt_id, pb.ATTEMPT_STATE_RUNNING, seconds=60)
            assert found.state == pb.ATTEMPT_STATE_RUNNING, found.reason
            request = pb.IssueAttemptTokenRequest(attempt_id=attempt_id)
            issued = await client.call(to.scheduler.IssueAttemptToken, request)
            async with connect_agent(issued.node_endpoint, issued.token) as agent:
                code, out = await shell(agent, "ls submissions; touch submissions/run")
                assert (code, out) == (0, b"code\ndocs\n")
                await sandbox.submit(agent)
            record = await ended(to, attempt_id)
            assert (record["outcome"], record["fault"]) == ("SUBMITTED", "NONE")


async def test_the_same_request_is_one_attempt(fresh, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    request_id = request_ids.new()
    async with services(fresh.endpoint("scheduler")) as to:
        ids = {(await submit(to, challenge, request_id=request_id)).attempt_id for _ in range(3)}
        assert len(ids) == 1
        with pytest.raises(Exception) as caught:
            await submit(to, challenge, agent_id="other", request_id=request_id)
        assert getattr(caught.value, "reason", "") == "REQUEST_ID_REUSED"
        cancel = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=ids.pop())
        await client.call(to.scheduler.CancelAttempt, cancel)
        record = await ended(to, cancel.attempt_id)
    assert record["outcome"] == "CANCELLED"


async def test_a_killed_judge_and_a_killed_collector_lose_nothing(fresh, tmp_path):
    async with running(fresh, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        await shell(agent, "echo one")
        fresh.kill("collector")
        await shell(agent, "echo two")
        fresh.start("collector")
        await shell(agent, "echo three")
        fresh.kill("judge")
        await sandbox.submit(agent)
        await wait_for(to, attempt_id, pb.ATTEMPT_STATE_JUDGING)
        fresh.start("judge")
        record = await ended(to, attempt_id, seconds=120)
        assert record["outcome"] == "SUBMITTED"
        assert "objective" in record["scores"]
        counted = await client.call(to.events.CountEvents, event_pb.CountEventsRequest(attempt_id=attempt_id))
    assert counted.events["tool_invocation"] == 3
    assert sum(counted.events.values()) == record["sandbox"]["telemetry_events"]
    assert not counted.gaps


def _processes(environment: Environment, command: str) -> bool:
    """Whether a sandbox runs a command (asked of the runtime; a container may vanish meanwhile)."""
    for container in environment.containers():
        try:
            rows = container.client.api.exec_create(container.id, ["ps", "-eo", "args"], user="1000")
            if command.encode() in container.client.api.exec_start(rows["Id"]):
                return True
        except docker.errors.APIError:
            continue
    return False
