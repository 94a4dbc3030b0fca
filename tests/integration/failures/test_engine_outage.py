"""dockerd killed and restarted with live-restore while attempts run: they go on, and end as their agents ended them."""

from __future__ import annotations

import asyncio
import json
import os
import signal

import grpc
import pytest

from cli import sandbox
from tests.support.attempts import ended
from tests.support.challenge_files import make_challenge
from tests.support.engines import running_engine
from tests.support.environment import Environment, until
from tests.support.insides import attempt, python, shell
from tests.support.restartable import Restartable
from wire import errors

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def engine():
    with running_engine("current") as running:
        config = json.loads(running.config.read_text()) | {"live-restore": True}
        running.config.write_text(json.dumps(config))
        os.kill(running.pid, signal.SIGHUP)  # a running dockerd takes this setting over
        restartable = Restartable(running)
        yield restartable
        restartable.end()


@pytest.fixture
def environment(engine):
    made = Environment(engine=engine.engine, node={"grace_seconds": 1.0, "capacity": 8})
    try:
        made.start()
        yield made
    finally:
        made.stop()


async def test_attempts_outlive_an_outage_of_the_engine(engine, environment, tmp_path):
    info = environment.docker.info
    await until(lambda: info()["LiveRestoreEnabled"])
    async with (
        attempt(environment, make_challenge(tmp_path / "c"), agent_id="worker") as (to, first, worker),
        attempt(environment, make_challenge(tmp_path / "d"), agent_id="hog") as (_, second, hog),
    ):
        await sandbox.write_file(worker, "challenge/src/answer.py", b'def answer():\n    """It."""\n    return 42\n')
        script = "touch submissions/begun; while ! test -e submissions/stop; do sleep 0.2; done; touch submissions/done"
        working = asyncio.create_task(shell(worker, script))
        await until_served(worker, "test -e submissions/begun")
        engine.kill()
        # The sandboxes run on without the engine; whoever asked for the pipe again is served again once it is back.
        engine.start(live_restore=True)
        await until_served(worker, "touch submissions/stop")
        # The call that was under way was cut, and says so; what it had started goes on to its end.
        assert (await working).error == "the sandbox cannot be reached"
        await until_served(worker, "test -e submissions/done")
        await until_served(hog, "true")
        await python(hog, "b = bytearray()\nwhile True: b += b'x' * 8_000_000")
        died = await ended(to, second, seconds=120)
        assert (died["outcome"], died["fault"]) == ("OOM_KILLED", "AGENT")
        await sandbox.submit(worker)
        record = await ended(to, first, seconds=120)
    assert (record["outcome"], record["fault"], record["flags"]) == ("SUBMITTED", "NONE", [])
    assert record["scores"]["objective"] == 100


async def until_served(agent, script: str) -> None:
    """Run a command, again while the daemon has no pipe: it says so, and never that the sandbox ended."""
    async with asyncio.timeout(60):
        while True:
            try:
                if (await shell(agent, script, seconds=10)).exit_code == 0:
                    return
            except grpc.RpcError as error:
                assert errors.decode(error).code == "UNAVAILABLE", errors.decode(error)
            await asyncio.sleep(0.2)
