"""A daemon killed between a command's event and the note that it was written tells the event once."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator

import pytest
from gauntlet.daemon.v1 import agent_service_pb2 as pb

from cli import sandbox
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import Environment, gauntlet
from wire import request_ids

pytestmark = pytest.mark.docker


@pytest.fixture
def mine() -> Iterator[Environment]:
    made = Environment(node={"grace_seconds": 1.0})
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_an_event_that_was_written_is_not_written_again(mine, tmp_path):
    async with running(mine, make_challenge(tmp_path / "c")) as (to, attempt_id, agent):
        request = pb.ExecRequest(request_id=request_ids.new(), exec_id="exe_once", argv=["true"])
        async for _event in agent.stub.Exec(request, metadata=agent.metadata):
            pass
        mine.kill("node")
        # As a kill leaves it that comes after the event and before the call was crossed out, and after begin_call.
        with contextlib.closing(sqlite3.connect(mine.state / "node" / "journal.db")) as journal, journal:
            for exec_id in ("exe_once", "exe_cut"):
                call = json.dumps({"argv": ["true"], "exec_id": exec_id})
                journal.execute("INSERT INTO calls VALUES (?, ?, ?)", (attempt_id, exec_id, call))
        mine.start("node")
        await sandbox.submit(agent)
        await ended(to, attempt_id)
    told = gauntlet(mine, "events", attempt_id, "--kind", "tool_invocation", "--json")
    assert told.returncode == 0, told.stderr
    calls = [json.loads(line)["arguments"] for line in told.stdout.splitlines()]
    assert [call["exec_id"] for call in calls if "exec_id" in call] == ["exe_once", "exe_cut"]
    assert calls[-1].get("adopted") is True
