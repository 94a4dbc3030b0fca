"""Claims: warm through scheduler and daemon, warm at the daemon alone, the first exec after one, and cold ones.

Two environments of real processes stand side by side: a whole one, and one without a scheduler, whose daemon is
asked directly (a scheduler would at once release what it did not place). Samples of both are taken in turn, each from
a machine on which nothing of ours is being made or ended. A raw `docker create` + `start` of the cold claim's own
spec is taken in turn with the cold claims.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb

from cli import challenges, sandbox
from cli.clients import agent, services
from daemon.runtime.docker_config import container_body
from daemon.runtime.types import Mount, Resources, SandboxSpec
from daemon.workspace import mountinfo, syscalls
from tests.bench.figures import Figure, Target, figure
from tests.bench.node_calls import NodeCalls, engine, node_calls, start
from tests.bench.options import Options
from tests.support.attempts import wait_for
from tests.support.challenge_files import make_challenge
from tests.support.environment import DEFAULTS, MIB, REPOSITORY, Environment
from wire import client, request_ids

WARM_SAMPLES = 60
COLD_SAMPLES = 20
# A memory limit that no pool has: its claims are cold.
COLD = {**DEFAULTS, "memory_bytes": 257 * MIB}
WARM_TARGETS = (Target("p50", "<", 10), Target("p99", "<", 50))


@dataclass
class Samples:
    """Milliseconds, by what they are of."""

    by_name: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, seconds: float) -> None:
        """One more."""
        self.by_name.setdefault(name, []).append(seconds * 1_000)

    def pairs(self, this: str, that: str) -> list[tuple[float, float]]:
        """The n-th of both, for every n."""
        return list(zip(self.by_name[this], self.by_name[that], strict=True))


async def run(options: Options) -> list[Figure]:
    """Bring up both environments, measure, take them down."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    whole, alone = Environment(), Environment()
    shared = directory / "workspace"
    shared.mkdir()
    # The engine takes an `rslave` mount from a shared mount only; the daemon's slots lie on one too.
    syscalls.bind(shared, shared)
    syscalls.mount("none", shared, "none", syscalls.MS_SHARED)
    try:
        await asyncio.to_thread(start, whole)
        await asyncio.to_thread(start, alone, "scheduler")
        return await _measure(whole, alone, directory, options)
    finally:
        await asyncio.to_thread(_stop, whole, alone)
        mountinfo.unmount(shared)
        shutil.rmtree(directory)


def _stop(*environments: Environment) -> None:
    for environment in environments:
        environment.stop()


async def _measure(whole: Environment, alone: Environment, directory: Path, options: Options) -> list[Figure]:
    challenge = make_challenge(directory / "answer")
    samples = Samples()
    async with AsyncExitStack() as stack:
        to = await stack.enter_async_context(services(whole.endpoint("scheduler")))
        placed = await stack.enter_async_context(node_calls(whole.endpoint("node")))
        direct = await stack.enter_async_context(node_calls(alone.endpoint("node")))
        api = await stack.enter_async_context(engine())
        digest = await challenges.upload(to, challenge)
        await direct.put(challenge, directory / "package.tar")

        def containers() -> int:
            return len(whole.containers()) + len(alone.containers())

        async def quiet() -> None:
            await placed.quiet(lambda: len(whole.containers()))
            await direct.quiet(lambda: len(alone.containers()))

        for number in range(options.count(WARM_SAMPLES) + 1):  # the first one warms up
            taken = samples if number else Samples()
            await quiet()
            await _scheduled(to, placed, digest, taken)
            await quiet()
            await _direct(direct, digest, taken)
        for number in range(options.count(COLD_SAMPLES) + 1):
            taken = samples if number else Samples()
            for half in (0, 1) if number % 2 else (1, 0):
                await quiet()
                if half:
                    await _cold(direct, digest, taken)
                else:
                    await asyncio.to_thread(_raw, api, directory, alone, taken)
        await quiet()
    return _figures(samples)


async def _scheduled(to: Any, placed: NodeCalls, digest: str, samples: Samples) -> None:
    """Submit, RUNNING seen by a watcher, a token, a connection, the first `true`."""
    began = time.perf_counter()
    await client.call(to.scheduler.ListNodes, pb.ListNodesRequest())
    samples.add("floor", time.perf_counter() - began)
    began = time.perf_counter()
    request = pb.SubmitAttemptRequest(request_id=request_ids.new(), challenge_digest=digest, agent_id="bench")
    submitted = await client.call(to.scheduler.SubmitAttempt, request)
    seen = await wait_for(to, submitted.attempt.attempt_id, pb.ATTEMPT_STATE_RUNNING)
    samples.add("claim", time.perf_counter() - began)
    if seen.state != pb.ATTEMPT_STATE_RUNNING:
        raise RuntimeError(f"the attempt did not start: {seen.reason}")
    running = time.perf_counter()
    issue = pb.IssueAttemptTokenRequest(attempt_id=seen.attempt_id)
    issued = await client.call(to.scheduler.IssueAttemptToken, issue)
    async with agent(issued.node_endpoint, issued.token) as connection:
        end = await sandbox.run_command(connection, ["true"])
        samples.add("first exec", time.perf_counter() - running)
        samples.add("claim to exit", time.perf_counter() - began)
    if end.exit_code != 0:
        raise RuntimeError(f"true ended with {end}")
    cancel = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=seen.attempt_id)
    await client.call(to.scheduler.CancelAttempt, cancel)


async def _direct(direct: NodeCalls, digest: str, samples: Samples) -> None:
    samples.add("node floor", await direct.round_trip())
    seconds, attempt = await direct.claim(direct.claim_request(digest))
    samples.add("daemon claim", seconds)
    await direct.release(attempt.attempt_id)


async def _cold(direct: NodeCalls, digest: str, samples: Samples) -> None:
    seconds, attempt = await direct.claim(direct.claim_request(digest, **COLD))
    samples.add("cold", seconds)
    await direct.release(attempt.attempt_id)


def _raw(api: Any, directory: Path, environment: Environment, samples: Samples) -> None:
    """The engine's own create and start of the same sandbox; no slot, no attach, no supervisor's READY."""
    ready = environment.containers()[0].attrs
    spec = SandboxSpec(
        name=f"{environment.instance}-raw",
        instance="bench-raw",
        entry_id="sbx_raw",
        template="raw",
        image=ready["Image"],
        runtime=ready["HostConfig"]["Runtime"],
        resources=Resources(**COLD),
        seccomp_profile=(REPOSITORY / "seccomp" / "profile.json").read_text(),
        mounts=(Mount(directory / "workspace", "/workspace", propagation="rslave"),),
    )
    body = container_body(spec)
    began = time.perf_counter()
    container = api.create_container_from_config(body, name=spec.name)["Id"]
    try:
        api.start(container)
        samples.add("raw", time.perf_counter() - began)
    finally:
        api.remove_container(container, force=True, v=True)


def _figures(samples: Samples) -> list[Figure]:
    taken, pairs = samples.by_name, samples.pairs
    floor = figure("a call that does nothing, scheduler", taken["floor"], "ms")
    claim = figure(
        "warm claim: submit to RUNNING at a watcher",
        taken["claim"],
        "ms",
        beside=floor,
        pairs=pairs("claim", "floor"),
        targets=WARM_TARGETS,
    )
    node_floor = figure("a call that does nothing, daemon", taken["node floor"], "ms")
    daemon = figure(
        "warm claim: the daemon's part alone",
        taken["daemon claim"],
        "ms",
        beside=node_floor,
        pairs=pairs("daemon claim", "node floor"),
    )
    first = figure("RUNNING to the first exec's exit", taken["first exec"], "ms")
    exit_ = figure(
        "warm claim: submit to the first exec's exit",
        taken["claim to exit"],
        "ms",
        beside=claim,
        pairs=pairs("claim to exit", "claim"),
        targets=[Target("p95", "<", 50)],
    )
    raw = figure("docker create + start of the same spec", taken["raw"], "ms")
    cold = figure(
        "cold claim at the daemon",
        taken["cold"],
        "ms",
        beside=raw,
        pairs=pairs("cold", "raw"),
        targets=[Target("ratio", "≤", 1.15)],
    )
    return [floor, claim, node_floor, daemon, first, exit_, raw, cold]
