"""Replays and reports on a real environment: the same calls leave the same diff, or it is said that they do not."""

from __future__ import annotations

import asyncio
import json
import os

import grpc
import pytest
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.daemon.v1 import daemon_service_pb2_grpc as daemon_grpc

from cli import sandbox
from tests.support.attempts import ended, run_script, running
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet
from wire import errors

pytestmark = pytest.mark.docker


def replayed(environment, attempt_id, exit_code):
    done = gauntlet(environment, "attempt", "replay", attempt_id, "--json")
    told = done.stderr.decode() + environment.tail("node") + environment.tail("scheduler")
    assert done.returncode == exit_code, told
    return json.loads(done.stdout)


async def test_every_kind_of_call_played_again_leaves_the_same_diff(environment, tmp_path):
    blob = os.urandom(3 << 20)
    async with running(environment, make_challenge(tmp_path / "c"), agent_id="replayed") as (to, attempt_id, agent):
        await sandbox.make_directory(agent, "submissions/deep/er", parents=True)
        await sandbox.write_file(agent, "submissions/deep/blob", blob, 0o640)
        await sandbox.write_file(agent, "submissions/empty", b"")
        with pytest.raises(grpc.RpcError):
            await sandbox.write_file(agent, "no/such/directory/x", b"lost")
        await sandbox.read_file(agent, "submissions/deep/blob", len, offset=5, length=7)
        await sandbox.list_directory(agent, "submissions")
        await sandbox.stat(agent, "submissions/empty")
        stdin = os.urandom(700 * 1024)
        await sandbox.run_command(agent, ["sh", "-c", "sha256sum > submissions/sum"], stdin=stdin)
        words = [f"{number}" for number in range(12_000)]
        script = 'printf "%s\\n" "$@" > args; echo "$MODE" >> args; exit 3'
        argv = ["sh", "-c", script, "sh", *words]
        end = await sandbox.run_command(agent, argv, cwd="submissions", environment={"MODE": "again"})
        assert end.exit_code == 3
        server = "while [ ! -e stop ]; do sleep 0.05; done; mv stop stopped; echo served > answer"
        serving = asyncio.create_task(sandbox.run_command(agent, ["sh", "-c", server], cwd="submissions"))
        await sandbox.run_command(agent, ["touch", "submissions/stop"])
        assert (await serving).exit_code == 0
        await sandbox.make_directory(agent, "submissions/gone")
        await sandbox.remove(agent, "submissions/gone", recursive=True)
        cut = asyncio.create_task(sandbox.run_command(agent, ["sh", "-c", "echo x > submissions/cut; sleep 600"]))
        await sandbox.run_command(agent, ["sh", "-c", "while [ ! -s submissions/cut ]; do sleep 0.05; done"])
        await sandbox.submit(agent)
        await asyncio.gather(cut, return_exceptions=True)
        record = await ended(to, attempt_id)
    assert record["workspace"]["added"] >= 9
    found = await asyncio.to_thread(replayed, environment, attempt_id, 0)
    assert found["equal"] and (found["skipped"], found["different"]) == (1, 0)
    assert found["original"]["diff_digest"] == found["replay"]["diff_digest"] == record["workspace"]["diff_digest"]
    again = json.loads(gauntlet(environment, "attempt", "get", found["replay"]["attempt_id"], "--json").stdout)
    assert (again["supersedes"], again["priority"], again["agent_id"]) == (attempt_id, "rerun", "replayed")
    assert again["challenge_digest"] == record["challenge_digest"]


def test_what_is_not_deterministic_is_told_and_leaves_with_1(environment, tmp_path):
    step = exec_step("sh", "-c", "head -c 8 /dev/urandom > submissions/code/dice")
    record = run_script(environment, make_challenge(tmp_path / "c"), write_script(tmp_path / "s.jsonl", step))
    found = replayed(environment, record["attempt_id"], 1)
    assert not found["equal"] and found["calls"] == 1
    assert found["original"]["diff_digest"] != found["replay"]["diff_digest"]


async def test_a_running_attempt_cannot_be_replayed_and_a_blob_needs_the_operators_socket(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        done = await asyncio.to_thread(gauntlet, environment, "attempt", "replay", attempt_id)
        assert done.returncode == 1 and "no diff to compare with" in done.stderr.decode()
        await sandbox.write_file(agent, "submissions/a", b"mine")
        stub = daemon_grpc.DaemonServiceStub(agent.channel)
        stream = stub.GetBlob(daemon_pb.GetBlobRequest(attempt_id=attempt_id), metadata=agent.metadata, timeout=10)
        with pytest.raises(grpc.RpcError) as refused:
            [piece async for piece in stream]
        assert errors.decode(refused.value).code == "UNIMPLEMENTED"
        await sandbox.submit(agent)
        await ended(to, attempt_id)


def test_a_report_names_every_failed_test(environment, tmp_path):
    record = run_script(environment, make_challenge(tmp_path / "c"), write_script(tmp_path / "s.jsonl"))
    done = gauntlet(environment, "attempt", "report", record["attempt_id"], "--json")
    assert done.returncode == 0, done.stderr.decode()
    suites = json.loads(done.stdout)["objective"]["test_results.json"]["suites"]
    assert (suites["visible"]["passed"], suites["visible"]["total"]) == (0, 1)
    shown = gauntlet(environment, "attempt", "report", record["attempt_id"]).stdout.decode()
    assert "visible" in shown and "0/1" in shown and "edge_cases" in shown and "1/2" in shown
    assert "test_answer failed" in shown and "test_doc failed" in shown and "test_type" not in shown
    assert "assert 0 == 42" in shown
    missing = gauntlet(environment, "attempt", "report", "att_none")
    assert missing.returncode == 1 and "no attempt" in missing.stderr.decode()


async def test_a_report_before_the_judges_is_a_clear_refusal(environment, tmp_path):
    async with running(environment, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        done = await asyncio.to_thread(gauntlet, environment, "attempt", "report", attempt_id)
        assert done.returncode == 1 and "has no judge's report" in done.stderr.decode()
        await sandbox.submit(agent)
        await ended(to, attempt_id)
