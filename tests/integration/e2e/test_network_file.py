"""A challenge that names a network file: what can be enforced runs and is explained, the rest is refused."""

from __future__ import annotations

import json

import pytest

from tests.support.attempts import run_script
from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet

pytestmark = pytest.mark.docker
CLOSED = "services:\n  agent:\n    image: ignored\n    network_mode: none\n"


def challenge_with(directory, compose, **keys):
    challenge = make_challenge(directory, network="compose.yaml", **keys)
    (challenge / "network").mkdir()
    (challenge / "network" / "compose.yaml").write_text(compose)
    return challenge


def test_a_closed_file_runs_warm_without_network_and_the_record_explains_it(environment, tmp_path):
    script = write_script(
        tmp_path / "s.jsonl",
        exec_step("sh", "-c", "ls /sys/class/net > submissions/code/net; ls -d /network /workspace/network"),
    )
    plain = run_script(environment, make_challenge(tmp_path / "plain"), script)
    assert "network" not in plain
    record = run_script(environment, challenge_with(tmp_path / "c", CLOSED, isolation="strict"), script)
    assert (record["outcome"], record["fault"]) == ("SUBMITTED", "NONE")
    agent = record["network"]["services"]["agent"]
    assert (agent["internet"], agent["dns"], agent["reachable_from"]) == ("none", "none", [])
    assert record["network"]["digest"].startswith("sha256:")
    # The same sandbox as without a file: same snapshot, same view of the world, taken from the same pool.
    assert record["workspace"]["baseline_digest"] == plain["workspace"]["baseline_digest"]
    assert record["workspace"]["diff_digest"] == plain["workspace"]["diff_digest"]
    pools = json.loads(gauntlet(environment, "pool", "status", "--json").stdout)
    assert [pool["stack"] for pool in pools] == ["python311"], "a closed policy has no template of its own"
    kept = json.loads(gauntlet(environment, "audit", "get", record["attempt_id"], "--json").stdout)
    assert kept["network"] == record["network"]
    lines = gauntlet(environment, "events", record["attempt_id"], "--kind", "tool_invocation", "--json").stdout
    (event,) = [json.loads(line) for line in lines.splitlines()]
    assert event["exit_code"] == 2, "the file itself is nowhere in the sandbox"


@pytest.mark.parametrize(
    ("compose", "keys"),
    [
        ("services: {agent: {network_mode: bridge}}", {}),
        ("services: {agent: {network_mode: none}, web: {network_mode: none}}", {}),
        (CLOSED, {"isolation": {"level": "strict", "allow_domains": ["a.example"], "human_eval": True}}),
    ],
)
def test_what_cannot_be_enforced_is_refused_and_leaves_nothing(environment, tmp_path, compose, keys):
    challenge = challenge_with(tmp_path / "c", compose, **keys)
    script = write_script(tmp_path / "s.jsonl")
    attempts = gauntlet(environment, "attempt", "list", "--json").stdout
    packages = sorted(path.name for path in (environment.state / "scheduler" / "challenges").iterdir())
    for command in (("attempt", "run", str(challenge), "--script", str(script)), ("attempt", "submit", str(challenge))):
        done = gauntlet(environment, *command, "--json")
        assert (done.returncode, done.stdout) == (1, b"")
        told = done.stderr.decode()
        assert ("R43" if keys else "R27 BACKEND_GAP") in told and "Traceback" not in told
    assert gauntlet(environment, "attempt", "list", "--json").stdout == attempts
    assert sorted(path.name for path in (environment.state / "scheduler" / "challenges").iterdir()) == packages
