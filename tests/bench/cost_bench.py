"""What full telemetry costs an agent's own work: a build of a small C project, and a run of nothing but processes.

Two sandboxes of one specification, in turns: the agent of a running attempt of a whole environment (trace session,
filesystem watch, resource sampling, recorded output, events on their way to the store), and a sandbox of the bench's
own (see `rig`) whose runtime entry names no trace session and which nobody watches or samples. The duration is what
PID 1 measured of the command in both, so the way of the call is in neither. A sample begins when the environment's
services rest: events of the sample before would else be carried to the store at the expense of this one. The services'
own CPU time stands beside, as on a busy machine somebody waits for it.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from gauntlet.scheduler.v1 import scheduler_service_pb2 as pb
from gauntlet.telemetry.v1 import event_service_pb2 as events_pb

from cli import sandbox
from tests.bench.figures import Figure, Target, figure
from tests.bench.node_calls import start
from tests.bench.options import Options
from tests.bench.rig import execute, rig
from tests.bench.telemetry.cpu_per_event import used
from tests.support.attempts import ended, running
from tests.support.challenge_files import make_challenge
from tests.support.environment import Environment
from wire import client, request_ids

PAIRS = 24
# The fewest pairs whose smallest and largest ratio hold the median in 95 of 100 runs.
QUICK_PAIRS = 6
CONFIDENCE = 0.95
FILES = 10
FORKS = 150
TARGETS = {"make": (Target("ratio", "≤", 1.05),), "forks": ()}
PROJECT = "/workspace/challenge/project"
# As much C as a small tool has: some hundred lines and the usual headers in each file.
GENERATE = f"""
import pathlib
root = pathlib.Path("{PROJECT}")
root.mkdir()
heads = "".join(f"#include <{{name}}.h>\\n" for name in ("stdio", "stdlib", "string", "errno", "unistd", "time"))
body = '''
int part%(n)d_%(k)d(const char *text, int depth) {{
    char buffer[64];
    int total = depth;
    for (size_t i = 0; i < strlen(text) && i < sizeof buffer - 1; i++) {{
        buffer[i] = text[i] ^ (char)(depth + %(k)d);
        total = total * 31 + buffer[i];
    }}
    return total %% 7 ? total : (int)time(NULL) + errno;
}}
'''
for n in range({FILES}):
    (root / f"part{{n}}.c").write_text(heads + "".join(body % {{"n": n, "k": k}} for k in range(12)))
calls = "".join(f"    printf(\\"%d\\\\n\\", part{{n}}_0(\\"text\\", {{n}}));\\n" for n in range({FILES}))
protos = "".join(f"int part{{n}}_0(const char *, int);\\n" for n in range({FILES}))
(root / "main.c").write_text(heads + protos + "int main(void) {{\\n" + calls + "    return 0;\\n}}\\n")
(root / "Makefile").write_text(
    "CFLAGS = -O1 -Wall\\nOBJECTS = $(patsubst %.c,%.o,$(wildcard *.c))\\n"
    "all: tool\\ntool: $(OBJECTS)\\n\\t$(CC) -o $@ $^\\nclean:\\n\\trm -f tool *.o\\n.PHONY: all clean\\n"
)
"""
WORK = {
    "make": ("make", "-C", PROJECT, "clean", "all"),
    "forks": ("sh", "-c", f"i=0; while [ $i -lt {FORKS} ]; do /bin/true; i=$((i + 1)); done"),
}
REST_TIMEOUT = 60.0
REST_WINDOW = 0.25
# Of one CPU: what sampling, heartbeats and pings take of it all the time is a few hundredths.
REST_SHARE = 0.1
Run = Callable[[Sequence[str]], Awaitable[float]]


async def run(options: Options) -> list[Figure]:
    """One environment with one attempt, one sandbox without anything, both kinds of work in turns."""
    directory = Path(tempfile.mkdtemp(prefix="gben-", dir="/tmp"))
    environment = Environment()
    try:
        await asyncio.to_thread(start, environment)
        challenge = make_challenge(directory / "answer", time_limit_seconds=3_600)
        async with AsyncExitStack() as stack:
            plain = await (await stack.enter_async_context(rig())).sandbox()
            to, attempt_id, agent = await stack.enter_async_context(running(environment, challenge))

            async def on(argv: Sequence[str]) -> float:
                end = await sandbox.run_command(agent, list(argv))
                if end.exit_code != 0:
                    raise RuntimeError(f"{argv[0]} with telemetry ended with {end}")
                return end.seconds

            async def off(argv: Sequence[str]) -> float:
                result = await execute(plain, *argv)
                if result.exit_code != 0:
                    raise RuntimeError(f"{argv[0]} without telemetry ended with {result}")
                return result.duration_ns / 1e9

            figures = await _measure(environment, on, off, QUICK_PAIRS if options.quick else PAIRS)
            cancel = pb.CancelAttemptRequest(request_id=request_ids.new(), attempt_id=attempt_id)
            await client.call(to.scheduler.CancelAttempt, cancel)
            await ended(to, attempt_id)
            counted = await client.call(to.events.CountEvents, events_pb.CountEventsRequest(attempt_id=attempt_id))
            require_telemetry(counted.events, counted.gaps)
        return figures
    finally:
        await asyncio.to_thread(environment.stop)
        shutil.rmtree(directory)


def require_telemetry(events: Mapping[str, int], gaps: Mapping[str, int]) -> None:
    """Tell what was recorded. Raises RuntimeError if a kind was not: that would be the cost of less than everything."""
    print(f"bench: cost: events {dict(events)}, gaps {dict(gaps)}", file=sys.stderr, flush=True)
    kinds = ("tool_invocation", "process", "filesystem", "resource")
    if missing := [kind for kind in kinds if not events.get(kind)]:
        raise RuntimeError(f"telemetry was not full, no event of: {', '.join(missing)}")


async def _measure(environment: Environment, on: Run, off: Run, pairs: int) -> list[Figure]:
    for side in (on, off):
        await side(("python3", "-c", GENERATE))
    figures: list[Figure] = []
    for name, argv in WORK.items():
        seconds: list[tuple[float, float]] = []
        spent: list[float] = []
        for number in range(pairs + 1):
            taken = {}
            # Who begins takes turns as well: neither is always the one after the other.
            for side in (on, off) if number % 2 else (off, on):
                before = await _rested(environment)
                taken[side] = await side(argv)
                if side is on:
                    spent.append(await _rested(environment) - before)
            seconds.append((taken[on], taken[off]))
        figures += _figures(name, seconds[1:], spent[1:])  # the first ones warm up
    return figures


async def _rested(environment: Environment) -> float:
    """Wait until the services do next to nothing; the CPU seconds they have used. Nothing tells it, so it is asked for.

    Raises TimeoutError.
    """

    def cpu() -> float:
        return sum(used(process.pid) for process in environment.processes.values()) / 1e6

    async with asyncio.timeout(REST_TIMEOUT):
        while True:
            began, before = time.monotonic(), cpu()
            await asyncio.sleep(REST_WINDOW)
            if (now := cpu()) - before <= REST_SHARE * (time.monotonic() - began):
                return now


def _figures(name: str, pairs: Sequence[tuple[float, float]], spent: Sequence[float]) -> list[Figure]:
    off = figure(f"{name}, telemetry off", [that for _, that in pairs], "s")
    on = figure(
        f"{name}, telemetry on", [this for this, _ in pairs], "s", beside=off, pairs=pairs, targets=TARGETS[name]
    )
    low, high = interval([this / that for this, that in pairs])
    return [
        off,
        on,
        figure(f"{name}, on / off: 95 % from", [low], "×"),
        figure(f"{name}, on / off: 95 % to", [high], "×"),
        figure(f"{name}, CPU of the services", spent, "s"),
    ]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The narrowest pair of values, equally far from both ends, that holds the true median with CONFIDENCE.

    By the sign test: no shape of the distribution is assumed. Raises ValueError for fewer than QUICK_PAIRS values.
    """
    count, ordered = len(values), sorted(values)
    if count < QUICK_PAIRS:
        raise ValueError(f"{count} values: no interval holds the median with {CONFIDENCE:.0%}, {QUICK_PAIRS} can")
    cut, outside = 0, 2 / 2**count
    while outside + (more := 2 * math.comb(count, cut + 1) / 2**count) <= 1 - CONFIDENCE:
        cut, outside = cut + 1, outside + more
    low, high = ordered[cut], ordered[count - 1 - cut]
    assert low <= statistics.median(ordered) <= high
    return low, high
