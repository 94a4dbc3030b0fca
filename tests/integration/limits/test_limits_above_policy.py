"""A challenge that wants more than the node's policy allows ends at once, with the reason; nothing is retried."""

from __future__ import annotations

import json

import pytest

from tests.support.challenge_files import exec_step, make_challenge, write_script
from tests.support.environment import gauntlet

pytestmark = pytest.mark.docker


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"memory": "2g"}, "resources.memory: 2GB is above this node's limit of 1GB"),
        ({"cpus": 8}, "resources.cpus: 8 is above this node's limit of 2"),
        ({"disk": "100g"}, "resources.disk: 100GB is above this node's limit of 512MB"),
        ({"pids": 2000}, "resources.pids: 2000 is above this node's limit of 256"),
        ({"tmp": "4g"}, "resources.tmp: 4GB is above this node's limit of 256MB"),
    ],
)
def test_it_fails_at_once_and_says_what_is_allowed(environment, tmp_path, wanted, words):
    challenge = make_challenge(tmp_path / "c", resources=wanted)
    script = write_script(tmp_path / "s.jsonl", exec_step("true"))
    before = {c.id for c in environment.containers()}
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--json")
    assert done.returncode == 1, done.stderr
    record = json.loads(done.stdout)
    assert (record["state"], record["outcome"], record["fault"]) == ("FAILED", "VOIDED", "PLATFORM"), record
    assert f"{words}; ask for less" in done.stderr.decode()
    log = environment.log("scheduler").read_text()
    assert log.count(f'"{record["attempt_id"]}", "node_id": "node-0", "fence"') == 1, "placed more than once"
    assert {c.id for c in environment.containers()} >= before or not before


def test_the_policy_itself_is_allowed(environment, tmp_path):
    challenge = make_challenge(tmp_path / "c", resources={"pids": 256, "tmp": "256m"})
    script = write_script(tmp_path / "s.jsonl", exec_step("sh", "-c", "ulimit -u"))
    done = gauntlet(environment, "attempt", "run", str(challenge), "--script", str(script), "--json")
    record = json.loads(done.stdout)
    assert (record["outcome"], record["sandbox"]["launch_type"]) == ("SUBMITTED", "COLD")
