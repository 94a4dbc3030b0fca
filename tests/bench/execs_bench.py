"""An exec of `true` through the agent's API beside `docker exec` of it, in the same sandbox, in turn.

Both run as the agent's user in its directory. `docker exec` is measured as a person types it, and as the engine's own
API without the cost of starting the command line. The API's exec is recorded and survives a kill of the daemon; its
own part inside the sandbox is what the supervisor measured.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb

from cli import sandbox
from cli.clients import Agent
from tests.bench.figures import Figure, Target, figure
from tests.bench.node_calls import engine, node_calls, start
from tests.bench.options import Options
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import Environment
from wire import client, request_ids

SAMPLES = 100
USER, DIRECTORY = "1000:1000", "/workspace"


async def run(options: Options) -> list[Figure]:
    """One environment, one running attempt, three ways into it."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    environment = Environment()
    try:
        await asyncio.to_thread(start, environment)
        challenge = make_challenge(directory / "answer")
        async with running(environment, challenge) as (to, attempt_id, agent):
            async with node_calls(environment.endpoint("node")) as node, engine() as api:
                request = daemon_pb.GetAttemptRequest(attempt_id=attempt_id)
                container = (await client.call(node.stub.GetAttempt, request)).attempt.container_id
                figures = await _measure(agent, api, container, options.count(SAMPLES))
            cancel = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id)
            await client.call(to.scheduler.CancelAttempt, cancel)
            await ended(to, attempt_id)
        return figures
    finally:
        await asyncio.to_thread(environment.stop)
        shutil.rmtree(directory)


async def _measure(agent: Agent, api: Any, container: str, samples: int) -> list[Figure]:
    ours, inside, typed, raw = [], [], [], []
    for number in range(samples + 1):
        one = [await _ours(agent), await asyncio.to_thread(_typed, container)]
        one.append(await asyncio.to_thread(_raw, api, container))
        if number:  # the first one warms up
            ours.append(one[0][0])
            inside.append(one[0][1])
            typed.append(one[1])
            raw.append(one[2])
    engine_exec = figure("the engine's exec API: true", raw, "ms")
    command = figure("docker exec: true", typed, "ms")
    return [
        command,
        figure(
            "exec through the agent's API: true",
            ours,
            "ms",
            beside=command,
            pairs=list(zip(ours, typed, strict=True)),
            targets=[Target("ratio", "≤", 0.2)],
        ),
        engine_exec,
        figure(
            "exec through the agent's API, beside the engine's",
            ours,
            "ms",
            beside=engine_exec,
            pairs=list(zip(ours, raw, strict=True)),
        ),
        figure("of an exec: the command in the sandbox", inside, "ms"),
    ]


async def _ours(agent: Agent) -> tuple[float, float]:
    """(milliseconds at the client, milliseconds that the supervisor measured)."""
    began = time.perf_counter()
    end = await sandbox.run_command(agent, ["true"])
    spent = time.perf_counter() - began
    if end.exit_code != 0:
        raise RuntimeError(f"true ended with {end}")
    return spent * 1_000, end.seconds * 1_000


def _typed(container: str) -> float:
    command = ["docker", "exec", "-u", USER, "-w", DIRECTORY, container, "true"]
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60)
    return (time.perf_counter() - began) * 1_000


def _raw(api: Any, container: str) -> float:
    began = time.perf_counter()
    made = api.exec_create(container, ["true"], user=USER, workdir=DIRECTORY)["Id"]
    api.exec_start(made)
    spent = time.perf_counter() - began
    if api.exec_inspect(made)["ExitCode"] != 0:
        raise RuntimeError("true failed")
    return spent * 1_000
