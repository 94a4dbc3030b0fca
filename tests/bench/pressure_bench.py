"""What a hostile agent can do to others' latency: a ping of PID 1 while all its CPUs burn, a neighbour of a fork bomb.

Sandboxes of the bench's own (see `rig`): no service offers a ping. Quiet and loud samples are taken in blocks that
alternate, so that the machine's other load meets both.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Awaitable, Callable

from daemon.pool.entry import PoolEntry
from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.types import ExecSpec
from tests.bench.figures import Figure, figure
from tests.bench.options import Options
from tests.bench.rig import execute, rig

BLOCKS = 10
PINGS_A_BLOCK = 40
EXECS_A_BLOCK = 8
BURNERS = 2 * (os.cpu_count() or 1)
BURN = ("sh", "-c", "while :; do :; done")
# A shell's own: small processes, so that the limit of processes is what holds it, not that of memory.
BOMB = ("sh", "-c", "bomb() { bomb | bomb & }; while :; do bomb; done")


async def run(options: Options) -> list[Figure]:
    """Two sandboxes: the first one is hostile, the second its neighbour."""
    async with rig() as made:
        loud, neighbour = await made.sandbox(), await made.sandbox()
        blocks = options.count(BLOCKS)

        async def ping() -> float:
            return await loud.link.ping()

        async def neighbours_exec() -> float:
            began = time.perf_counter()
            await execute(neighbour, "true")
            return time.perf_counter() - began

        async def burning() -> list[ExecHandle]:
            return [await _start(loud, BURN, f"burn{number}") for number in range(BURNERS)]

        async def bombing() -> list[ExecHandle]:
            return [await _start(loud, BOMB, "bomb")]

        quiet_ping, loud_ping = await _alternate(ping, burning, loud, blocks, PINGS_A_BLOCK)
        quiet_exec, loud_exec = await _alternate(neighbours_exec, bombing, loud, blocks, EXECS_A_BLOCK)
    idle = figure("ping of PID 1, agent idle", quiet_ping, "ms")
    alone = figure("exec over the link: true", quiet_exec, "ms")
    return [
        idle,
        figure(f"ping of PID 1, {BURNERS} burning processes", loud_ping, "ms", beside=idle),
        alone,
        figure("exec over the link: true, neighbour of a fork bomb", loud_exec, "ms", beside=alone),
    ]


async def _start(entry: PoolEntry, argv: tuple[str, ...], name: str) -> ExecHandle:
    return await entry.link.exec(ExecSpec(argv=argv), exec_id=f"{name}-{time.monotonic_ns()}")


async def _alternate(
    sample: Callable[[], Awaitable[float]],
    noise: Callable[[], Awaitable[list[ExecHandle]]],
    noisy: PoolEntry,
    blocks: int,
    size: int,
) -> tuple[list[float], list[float]]:
    """(quiet, loud) milliseconds."""
    quiet: list[float] = []
    loud: list[float] = []
    for _ in range(blocks):
        quiet += [1_000 * await sample() for _ in range(size)]
        handles = await noise()
        try:
            loud += [1_000 * await sample() for _ in range(size)]
        finally:
            if await noisy.link.kill_all(signal.SIGKILL):
                raise RuntimeError("agent processes survived SIGKILL")
            for handle in handles:
                await handle.wait()
    return quiet, loud
