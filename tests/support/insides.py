"""Short programs run in an attempt through the public API, and what the host sees of its sandbox meanwhile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb

from cli import sandbox
from cli.clients import Agent, Services
from tests.support.attempts import running
from tests.support.environment import Environment
from wire import client, request_ids

CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Ran:
    """How a command ended and what it said, both streams together."""

    exit_code: int | None
    signal: int | None
    error: str
    oom_killed: bool
    output: str


async def run(agent: Agent, *argv: str, seconds: float = 60.0, cwd: str | None = None) -> Ran:
    """Run a command to its end."""
    out = bytearray()
    end = await sandbox.run_command(
        agent, list(argv), cwd=cwd, timeout_seconds=seconds, stdout=out.extend, stderr=out.extend
    )
    return Ran(end.exit_code, end.signal, end.error, end.oom_killed, out.decode(errors="replace"))


async def shell(agent: Agent, script: str, seconds: float = 60.0) -> Ran:
    """Run a shell script."""
    return await run(agent, "sh", "-c", script, seconds=seconds)


async def python(agent: Agent, program: str, seconds: float = 60.0) -> Ran:
    """Run a Python program."""
    return await run(agent, "python3", "-c", program, seconds=seconds)


@asynccontextmanager
async def attempt(
    environment: Environment, challenge: Path, *, agent_id: str = ""
) -> AsyncIterator[tuple[Services, str, Agent]]:
    """A running attempt of an agent of its own; a test that fails in it leaves none behind."""
    async with running(environment, challenge, agent_id=agent_id or challenge.parent.name) as (to, attempt_id, agent):
        try:
            yield to, attempt_id, agent
        except BaseException:
            cancel = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id)
            await client.call(to.scheduler.CancelAttempt, cancel)
            raise


async def container_of(environment: Environment, to: Services, attempt_id: str) -> Any:
    """The container of a running attempt: by its id, since it is named after its attempt only after a while."""
    answer = await client.call(to.scheduler.GetAttempt, pb.GetAttemptRequest(attempt_id=attempt_id))
    return environment.docker.containers.get(json.loads(answer.attempt.record_json)["sandbox"]["container_id"])


@dataclass(frozen=True)
class CpuBudget:
    """A container's CPU limit as the kernel has it: microseconds in a period, and how often it was held back."""

    quota_us: int
    period_us: int
    throttled: int


def cpu_budget(container: Any) -> CpuBudget:
    """Read it, from either version of cgroups."""
    membership = Path(f"/proc/{container.attrs['State']['Pid']}/cgroup").read_text().splitlines()
    for line in membership:
        _, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            directory = CGROUPS / controllers / path.lstrip("/")
            if not directory.exists():
                directory = CGROUPS / "cpu" / path.lstrip("/")
            quota = int((directory / "cpu.cfs_quota_us").read_text())
            period = int((directory / "cpu.cfs_period_us").read_text())
            return CpuBudget(quota, period, _throttled(directory))
    directory = CGROUPS / membership[0].split("::", 1)[1].lstrip("/")
    quota, period = (directory / "cpu.max").read_text().split()
    return CpuBudget(int(quota), int(period), _throttled(directory))


def _throttled(directory: Path) -> int:
    pairs = dict(line.split() for line in (directory / "cpu.stat").read_text().splitlines())
    return int(pairs["nr_throttled"])


def host_process(container: Any, role: str) -> int:
    """The pid on the host of a container's `sandbox` (the sentry) or `gofer`, as runsc names its processes."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0] == f"runsc-{role}" and any(container.id in word for word in words):
            return int(entry.name)
    raise AssertionError(f"container {container.id} has no process runsc-{role}")
