"""Attempts from submission to record: what each kind of end is called, whose fault it is, and that judges run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import REPOSITORY, gauntlet

pytestmark = pytest.mark.docker
EXAMPLE = REPOSITORY / "challenges" / "fix-intervals"
FIX = {
    "tool": "write_file",
    "path": "challenge/src/answer.py",
    "content": 'def answer():\n    """It."""\n    return 42\n',
}


def test_the_example_is_solved_and_the_lazy_fix_scores_lower(environment):
    solved = run_script(environment, EXAMPLE, EXAMPLE / "agents" / "solve.jsonl")
    lazy = run_script(environment, EXAMPLE, EXAMPLE / "agents" / "lazy.jsonl")
    assert (solved["outcome"], solved["fault"], solved["flags"]) == ("SUBMITTED", "NONE", [])
    assert solved["sandbox"]["exit_reason"] == "agent_submitted"
    assert solved["sandbox"]["exit_code"] == 0
    assert solved["scores"]["objective"] == 100
    assert 0 < lazy["scores"]["objective"] < 100
    assert set(solved["judges"]) == {"objective"}
    assert solved["judges"]["objective"]["container_id"]
    assert solved["workspace"]["modified"] == 1


def test_a_warm_sandbox_is_used_and_the_same_script_gives_the_same_diff(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c")
    script = write_script(tmp_path / "s.jsonl", FIX, exec_step("mkdir", "-p", "submissions/code/x"))
    first = run_script(environment, challenge, script)
    second = run_script(environment, challenge, script)
    assert "WARM" in {first["sandbox"]["launch_type"], second["sandbox"]["launch_type"]}
    assert first["workspace"]["diff_digest"] == second["workspace"]["diff_digest"]
    assert first["workspace"]["baseline_digest"] == second["workspace"]["baseline_digest"]
    assert first["scores"]["objective"] == 100


def test_an_ended_client_does_not_leave_its_attempt_running(environment, tmp_path):
    """SIGTERM, as `timeout` sends it: the attempt is cancelled, as by Ctrl-C."""
    script = write_script(tmp_path / "s.jsonl", exec_step("true"), {"tool": "wait", "seconds": 600})
    command = [sys.executable, "-m", "cli.main", "attempt", "run", str(make_challenge(tmp_path / "c"))]
    client = subprocess.Popen(
        [*command, "--script", str(script), "--json"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={
            **os.environ,
            "GAUNTLET_ENDPOINT": environment.endpoint("scheduler"),
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/proto",
        },
    )
    assert client.stderr is not None
    told = b""
    while b"exit 0" not in told:  # the first step was played, so the second one waits
        line = client.stderr.readline()
        assert line, told
        told += line
    client.terminate()
    rest = client.stderr.read()
    client.stderr.close()
    assert client.wait() == 1, rest
    found = re.search(rb"att_[a-z0-9]+", told)
    assert found is not None
    gauntlet(environment, "attempt", "watch", found[0].decode())
    record = json.loads(gauntlet(environment, "attempt", "get", found[0].decode(), "--json").stdout)
    assert record["outcome"] == "CANCELLED"


def test_a_command_that_crashes_is_no_end_of_the_attempt(environment, tmp_path):
    script = write_script(
        tmp_path / "s.jsonl",
        exec_step("sh", "-c", "kill -SEGV $$"),
        exec_step("sh", "-c", "kill -9 -1; kill -9 $$"),
        exec_step("no-such-program"),
        FIX,
    )
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    assert (record["outcome"], record["fault"]) == ("SUBMITTED", "NONE")
    assert record["scores"]["objective"] == 100
    events = [
        json.loads(line) for line in gauntlet(environment, "events", record["attempt_id"], "--json").stdout.splitlines()
    ]
    tools = [event for event in events if event["kind"] == "tool_invocation"]
    assert [(t["exit_code"], t["signal"]) for t in tools] == [(None, 11), (None, 9), (127, None), (0, None)]


def test_the_time_limit_ends_an_attempt_and_what_is_there_is_judged(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", time_limit_seconds=2)
    script = write_script(tmp_path / "s.jsonl", FIX, exec_step("sh", "-c", "trap '' TERM; while :; do sleep 1; done"))
    record = run_script(environment, challenge, script)
    assert (record["outcome"], record["fault"]) == ("TIMED_OUT", "AGENT")
    assert record["sandbox"]["exit_reason"] == "timed_out"
    assert record["agent_feedback"] == "Time limit reached. Submission scored on current state."
    assert record["scores"]["objective"] == 100


def test_running_out_of_memory_ends_the_sandbox_and_is_the_agents_fault(environment, tmp_path):
    hog = "b = bytearray()\nwhile True:\n    b += b'x' * 10_000_000\n"
    script = write_script(tmp_path / "s.jsonl", FIX, exec_step("python3", "-c", hog))
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    assert (record["outcome"], record["fault"]) == ("OOM_KILLED", "AGENT")
    assert record["sandbox"]["oom_kills"] >= 1
    assert record["agent_feedback"] == "Your submission exceeded the 256MB memory limit."
    assert "objective" in record["scores"]


def test_a_larger_limit_of_the_challenge_is_honoured_cold(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", resources={"memory": "512m"})
    script = write_script(tmp_path / "s.jsonl", exec_step("python3", "-c", "b = b'x' * 350_000_000"), FIX)
    record = run_script(environment, challenge, script)
    assert (record["outcome"], record["sandbox"]["launch_type"]) == ("SUBMITTED", "COLD")


def test_the_record_lies_in_the_ledger_and_the_ledger_holds(environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", FIX)
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    kept = gauntlet(environment, "audit", "get", record["attempt_id"], "--json")
    assert json.loads(kept.stdout) == record
    verified = json.loads(gauntlet(environment, "audit", "verify", "--json").stdout)
    assert verified["problems"] == []
    assert verified["entries"] >= 1


def test_events_are_complete_and_counted_in_the_record(environment, tmp_path):
    script = write_script(
        tmp_path / "s.jsonl",
        exec_step("cat", stdin="hello"),
        {"tool": "read_file", "path": "challenge/briefing.md"},
        {"tool": "read_file", "path": "challenge/none"},
        FIX,
    )
    record = run_script(environment, make_challenge(tmp_path / "c"), script)
    lines = gauntlet(environment, "events", record["attempt_id"], "--json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert len([e for e in events if "gap" not in e]) == record["sandbox"]["telemetry_events"]
    tools = [e for e in events if e["kind"] == "tool_invocation"]
    assert [t["sequence"] for t in tools] == [1, 2, 3, 4]
    assert [t["tool_name"] for t in tools] == ["exec", "read_file", "read_file", "write_file"]
    assert tools[0]["result_summary"] == "hello"
    assert tools[0]["arguments"]["argv"] == ["cat"]
    assert tools[1]["result_summary"].startswith("Make answer()")
    assert tools[2]["exit_code"] == 1
    samples = [e for e in events if e["kind"] == "resource"]
    metrics = {"cpu_usage_percent", "memory_rss_bytes", "memory_cache_bytes", "disk_read_bytes", "disk_write_bytes"}
    assert samples
    assert (metrics | {"pids_current", "oom_kill_count"}) <= set(samples[-1])


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (lambda c: (c / "challenge.yaml").write_text("id: x\nstakc: python311\n"), "did you mean 'stack'?"),
        (lambda c: (c / "challenge.yaml").unlink(), "challenge.yaml: is missing"),
        (lambda c: (c / "workspace/challenge/leak").symlink_to("/etc/shadow"), "leak"),
    ],
)
def test_a_broken_challenge_is_refused_with_one_message(environment, tmp_path, break_it, words):
    challenge = make_challenge(tmp_path / "c")
    break_it(challenge)
    script = write_script(tmp_path / "s.jsonl", FIX)
    before = len(environment.containers())
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--json")
    assert done.returncode == 1
    assert done.stdout == b""
    assert words in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
    assert len(environment.containers()) == before


def test_an_unknown_stack_is_refused(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", stack="cobol60")
    script = write_script(tmp_path / "s.jsonl", FIX)
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--json")
    assert done.returncode == 1
    assert "cobol60" in done.stderr.decode()


def test_a_missing_directory_is_wrong_usage_and_a_missing_service_cannot_be_reached(environment, tmp_path):
    script = write_script(tmp_path / "s.jsonl", FIX)
    done = gauntlet(environment, "attempt", "run", str(tmp_path / "none"), "--script", str(script))
    assert done.returncode == 2
    challenge = make_challenge(tmp_path / "c")
    nowhere = f"unix://{tmp_path}/nowhere.sock"
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--endpoint", nowhere)
    assert done.returncode == 4
    assert "cannot reach the service" in done.stderr.decode()


def test_an_agent_command_acts_with_its_own_token_and_no_privileges(environment, tmp_path):
    tmp_path.chmod(0o755)
    program = Path("/tmp") / f"{environment.instance}-agent.sh"
    program.write_text(
        "#!/bin/sh\nset -e\n"
        'test "$(id -u)" != 0\n'
        'grep -q "^gst1.$GAUNTLET_ATTEMPT_ID" "/proc/self/fd/$GAUNTLET_TOKEN_FD"\n'
        "if env | grep -q gst1; then exit 9; fi\n"
    )
    program.chmod(0o755)
    try:
        challenge = make_challenge(tmp_path / "c")
        done = gauntlet(environment, "attempt", "run", str(challenge), "--agent", str(program), "--json")
    finally:
        program.unlink()
    assert done.returncode == 0, done.stderr.decode()
    assert "agent command ended with exit code 0" in done.stderr.decode()
    assert json.loads(done.stdout)["outcome"] == "SUBMITTED"
