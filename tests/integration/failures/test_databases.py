"""A challenge's database in real sandboxes: there for agent and judge, or missed without ending the attempt."""

from __future__ import annotations

import pytest

from cli import sandbox
from tests.support.attempts import ended
from tests.support.challenge_files import make_challenge
from tests.support.insides import attempt, shell

pytestmark = [pytest.mark.docker, pytest.mark.slow]
# Both suites ask the database whether it serves: what the agent left in it is not there for its judge.
ASKS = (
    "import os, subprocess\n\n"
    "def test_database():\n"
    "    asked = ['psql', '-Atqc', 'select current_database(), 6 * 7']\n"
    "    assert subprocess.run(asked, capture_output=True, text=True).stdout == 'shop|42\\n'\n"
)


def challenge(path, kind: str, seconds: int):
    made = make_challenge(
        path,
        resources={"tmp": "160m", "memory": "512m"},
        database={"kind": kind, "name": "shop", "start_timeout_seconds": seconds},
    )
    (made / "hidden/hidden_tests/edge_cases/test_edge.py").write_text(ASKS)
    (made / "workspace/challenge/tests/test_answer.py").write_text("def test_nothing():\n    pass\n")
    return made


async def test_it_serves_before_the_agent_begins_and_again_for_the_judge(environment, tmp_path):
    async with attempt(environment, challenge(tmp_path / "c", "postgres", 60)) as (to, attempt_id, agent):
        asked = await shell(
            agent, "id -u; psql -Atqc 'select current_user, current_database()'; env | grep -c DATABASE"
        )
        assert asked.output == "1000\nagent|shop\n2\n"
        for way in ("psql -Atqc", 'psql "$DATABASE_URL" -Atqc'):
            kept = await shell(agent, f"{way} 'create table if not exists t (n int); insert into t values (1)'")
            assert (kept.exit_code, kept.output.strip()) in {
                (0, ""),
                (0, 'NOTICE:  relation "t" already exists, skipping'),
            }
        assert (await shell(agent, "psql -Atqc 'select sum(n) from t'")).output == "2\n"
        # The server is a process of the agent's user: PID 1 is still out of its reach.
        assert (await shell(agent, "ps -o user= -C postgres | sort -u")).output == "agent\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id, seconds=240)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", [])
    assert record["scores"]["objective"] == 100


async def test_without_it_the_attempt_goes_on_flagged_and_only_its_tests_fail(environment, tmp_path):
    """The image has no Redis: both starts fail, at once."""
    async with attempt(environment, challenge(tmp_path / "c", "redis", 10)) as (to, attempt_id, agent):
        assert (await shell(agent, "echo $REDIS_URL")).output == "redis://127.0.0.1:6379/0\n"
        await sandbox.submit(agent)
        record = await ended(to, attempt_id, seconds=240)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", ["DATABASE_UNAVAILABLE"])
    assert record["scoring_impact"]["objective"] == "database-dependent tests fail"
    assert record["scores"]["objective"] == 30  # the visible suite's share; the hidden one asks the database
    assert "redis-server: not found" in environment.log("node").read_text()
