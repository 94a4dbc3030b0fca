"""The sink and the daemon die: no sandbox starts unheard, running ones go on, what was missed is said."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as pb_grpc

from cli import sandbox
from tests.support.attempts import ended as ended_attempt
from tests.support.attempts import run_script, running
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet, until
from tests.support.told import gap_free, told
from wire import client

pytestmark = pytest.mark.docker


async def pool(environment):
    """The only pool of the node."""
    channel = client.connect(environment.endpoint("node"))
    try:
        stub = pb_grpc.DaemonServiceStub(channel)
        (found,) = (await client.call(stub.GetNodeStatus, pb.GetNodeStatusRequest())).pools
    finally:
        await channel.close(None)
    return found


async def pool_is(environment, condition, seconds=60.0):
    """Wait until the pool is as wanted; nothing tells of it but itself."""
    async with asyncio.timeout(seconds):
        while True:
            found = await pool(environment)
            if condition(found):
                return found
            await asyncio.sleep(0.1)


async def run(agent, *argv):
    """One command; its exit code."""
    end = await sandbox.run_command(agent, list(argv), stdout=bytes, stderr=bytes, timeout_seconds=60)
    return end.exit_code


def commands(environment, attempt_id):
    return [e["command_line"] for e in told(environment, attempt_id, "process") if e.get("event") == "process_spawn"]


async def test_without_a_sink_no_sandbox_starts_and_with_it_the_pool_recovers(environment, tmp_path):
    await pool_is(environment, lambda found: found.ready == 1)
    environment.kill("trace")
    for container in environment.containers():
        container.remove(force=True)
    found = await pool_is(environment, lambda found: found.breaker_open)
    assert found.ready == 0
    assert "sentries.sock" in found.last_error or "trace" in found.last_error
    assert [c for c in environment.containers() if c.status == "running"] == []
    environment.start("trace")
    await pool_is(environment, lambda found: found.ready == 1 and not found.breaker_open)
    script = write_script(tmp_path / "s.jsonl", exec_step("echo", "recovered"))
    record = await asyncio.to_thread(run_script, environment, make_challenge(tmp_path / "c"), script)
    assert commands(environment, record["attempt_id"]) == ["echo recovered"]


async def test_a_killed_sink_is_replaced_under_a_running_attempt_and_the_loss_said(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        assert await run(agent, "echo", "before") == 0
        assert await run(agent, "mount", "-t", "tmpfs", "a", "/mnt") != 0
        spool = environment.state / "node" / "spool" / attempt_id
        await until(lambda: b"echo before" in (spool / "process.jsonl").read_bytes())
        await until(lambda: (spool / "escape_attempt.jsonl").stat().st_size > 0)
        environment.kill("trace")
        assert await run(agent, "echo", "unheard") == 0
        environment.start("trace")
        await until(lambda: b"trace_session_lost" in (spool / "process.jsonl").read_bytes())
        assert await run(agent, "echo", "after") == 0
        assert await run(agent, "mount", "-t", "tmpfs", "a", "/mnt") != 0
        await sandbox.submit(agent)
        record = await ended_attempt(to, attempt_id)
    lines = told(environment, attempt_id, "process")
    heard = [e["command_line"] for e in lines if e.get("event") == "process_spawn"]
    assert "echo before" in heard
    assert "echo after" in heard
    assert "echo unheard" not in heard
    assert [line["gap"]["reason"] for line in lines if "gap" in line] == ["trace_session_lost"]
    assert record["outcome"] == "SUBMITTED"
    assert record["sandbox"]["blocked_syscalls"] == 2
    assert record["flags"] == ["ESCAPE_ATTEMPT", "TELEMETRY_INCOMPLETE"]
    lost = {name: record["sandbox"][name] for name in ("telemetry_gaps", "trace_incomplete", "trace_dropped")}
    assert lost == {"telemetry_gaps": 1, "trace_incomplete": True, "trace_dropped": 0}


async def test_what_a_stopped_sink_did_not_take_is_counted_said_and_flagged(environment, tmp_path):
    """A sentry whose buffer is full tries for seconds and then drops; it counts, and the count reaches the record."""
    words = ["x" * 100_000] * 10
    program = f"import subprocess\nfor _ in range(2): subprocess.run(['true', *{words!r}], check=True)"
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        assert await run(agent, "echo", "before") == 0
        spool = environment.state / "node" / "spool" / attempt_id
        await until(lambda: b"echo before" in (spool / "process.jsonl").read_bytes())
        await sandbox.write_file(agent, "challenge/flood.py", program.encode())
        environment.processes["trace"].send_signal(signal.SIGSTOP)
        try:
            assert await run(agent, "python3", "challenge/flood.py") == 0
        finally:
            environment.processes["trace"].send_signal(signal.SIGCONT)
        assert await run(agent, "echo", "after") == 0
        await sandbox.submit(agent)
        record = await ended_attempt(to, attempt_id)
    lines = told(environment, attempt_id, "process")
    gaps = [line["gap"] for line in lines if "gap" in line]
    assert {gap["reason"] for gap in gaps} == {"trace_dropped"}
    lost = record["sandbox"]
    assert lost["trace_dropped"] == sum(gap["last"] - gap["first"] + 1 for gap in gaps) > 0
    assert (lost["telemetry_gaps"], lost["trace_incomplete"]) == (len(gaps), True)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", ["TELEMETRY_INCOMPLETE"])
    # One whose end was dropped too is told as a fork when the sandbox ends.
    heard = [e["command_line"] for e in lines if e.get("event") == "process_spawn" and "forked" not in e]
    assert (heard[0], heard[-1]) == ("echo before", "echo after")
    shown = gauntlet(environment, "attempt", "get", attempt_id).stdout.decode()
    assert f"{lost['trace_dropped']} dropped by the sandbox's kernel" in shown


async def test_an_idle_sandbox_that_lost_its_sink_is_heard_again_when_it_is_claimed(environment, tmp_path):
    await pool_is(environment, lambda found: found.ready == 1)
    environment.kill("trace")
    environment.start("trace")
    script = write_script(tmp_path / "s.jsonl", exec_step("echo", "claimed"))
    record = await asyncio.to_thread(run_script, environment, make_challenge(tmp_path / "c"), script)
    assert record["sandbox"]["launch_type"] == "WARM"
    lines = told(environment, record["attempt_id"])
    assert gap_free(lines, "process")
    assert [e["command_line"] for e in lines if e.get("event") == "process_spawn"] == ["echo claimed"]


async def test_a_dead_daemon_loses_no_process_event(environment, tmp_path):
    loop = "for i in 1 2 3 4 5 6 7 8; do /bin/echo turn-$i; sleep 1; done"
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        working = asyncio.create_task(run(agent, "sh", "-c", loop))
        spool = environment.state / "node" / "spool" / attempt_id / "process.jsonl"
        await until(lambda: b"turn-2" in spool.read_bytes())
        environment.kill("node")
        await until(lambda: b"turn-5" in spool.read_bytes())
        environment.start("node")
        await until(lambda: b"turn-8" in spool.read_bytes())
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await sandbox.submit(agent)
        record = await ended_attempt(to, attempt_id)
    lines = told(environment, attempt_id)
    assert gap_free(lines, "process")
    turns = [e["command_line"] for e in lines if e.get("event") == "process_spawn" and "/bin/echo" in e["command_line"]]
    assert turns[1:] == [f"/bin/echo turn-{number}" for number in range(1, 9)]
    assert len([line for line in lines if "gap" not in line]) == record["sandbox"]["telemetry_events"]


async def test_neighbours_of_a_flood_are_heard_and_its_spool_is_bounded(environment, tmp_path):
    flood = "import ctypes\nc = ctypes.CDLL(None)\nwhile True: c.mount(b'a', b'/mnt', b'tmpfs', 0, None)"
    challenge = make_challenge(tmp_path / "c")
    async with running(environment, challenge, agent_id="loud") as (to, loud, agent):
        flooding = asyncio.create_task(run(agent, "python3", "-c", flood))
        try:
            script = write_script(tmp_path / "s.jsonl", exec_step("echo", "calm"))
            record = await asyncio.to_thread(run_script, environment, challenge, script)
            assert commands(environment, record["attempt_id"]) == ["echo calm"]
            assert record["flags"] == []
        finally:
            flooding.cancel()
            await asyncio.gather(flooding, return_exceptions=True)
            await sandbox.submit(agent)
        ended = await ended_attempt(to, loud)
    escapes = told(environment, loud, "escape_attempt")
    counted = sum(e.get("count", 1) for e in escapes if "gap" not in e)
    assert ended["sandbox"]["blocked_syscalls"] == counted > 1_000
    assert len(json.dumps(escapes)) < 200_000
