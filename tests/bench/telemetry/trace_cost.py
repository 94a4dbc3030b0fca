"""What the trace costs a sandbox and what the sink bears. Run it, or call `rows`.

Cost: the same loop in two sandboxes, one traced and bound to an attempt, one whose runtime entry names no session,
in turns: fork + exec + wait of `true`, open + close of a file (no event), and 30,000 refused mounts, which are 30,000
events. The sink's rate: one sentry's packets (clone, execve, exit; three packets, two events) as fast as a socket
takes them, over the time until all are in the spool.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack

from gauntlet.telemetry.v1 import trace_service_pb2 as pb

from daemon.trace.client import TraceClient
from infra.local import runtime_registration as registration
from tests.bench.telemetry.spool_to_store import Row, row
from tests.support.environment import REPOSITORY, Environment
from tests.support.sentry import Sentry, clone, execve, exited
from tests.support.trace_sink import SinkProcess, container_id

PAIRS = 20
FORKS, OPENS, MOUNTS, FAMILIES = 20, 500, 30_000, 20_000
ROUNDS = 3
# The target of DESIGN's figures is for a compile workload; this loop is the worst case, nothing but processes.
WORKER = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
def forks(n):
    for _ in range(n):
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
def opens(n):
    for _ in range(n):
        os.close(os.open("/etc/passwd", os.O_RDONLY))
def mounts(n):  # in a child: what PID 1 does is the platform's
    if child := os.fork():
        os.waitpid(child, 0)
        return
    for _ in range(n):
        libc.mount(b"a", b"/mnt", b"tmpfs", 0, None)
    os._exit(0)
print("ready", flush=True)
for line in sys.stdin:
    name, count = line.split()
    began = time.perf_counter()
    globals()[name](int(count))
    print(time.perf_counter() - began, flush=True)
"""


class Sandbox:
    """A container with the worker in it."""

    def __init__(self, environment: Environment, runtime: str) -> None:
        name = f"{environment.instance}-{runtime}"
        image = environment.docker.images.list("gauntlet-sandbox")[0].tags[0]
        flags = [
            *("--name", name, "--label", f"gauntlet.instance={environment.instance}"),
            *("--runtime", runtime, "--network", "none", "--user", "1000", "--cap-drop", "ALL"),
            *("--security-opt", f"seccomp={REPOSITORY}/seccomp/profile.json", "--security-opt", "no-new-privileges"),
        ]
        self._process = subprocess.Popen(
            ["docker", "run", "--rm", "-i", *flags, "--entrypoint", "python3", image, "-c", WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._read() == "ready"
        self.container_id = str(environment.docker.containers.get(name).id)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def run(self, name: str, count: int) -> float:
        """Seconds of one loop."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{name} {count}\n")
        self._process.stdin.flush()
        return float(self._read())

    def close(self) -> None:
        """End it."""
        self._process.communicate()


def cost(environment: Environment) -> list[Row]:
    """The loops, in turns."""
    found: list[Row] = []
    with ExitStack() as stack:
        plain = Sandbox(environment, registration.RUNSC)
        stack.callback(plain.close)
        traced = Sandbox(environment, environment.runtime)
        stack.callback(traced.close)
        asyncio.run(_bind(environment, traced))
        for name, count, title in (("forks", FORKS, "fork + exec"), ("opens", OPENS, "open + close")):
            pairs = [(traced.run(name, count), plain.run(name, count)) for _ in range(PAIRS)]
            without = row(f"{title} untraced", [that / count * 1e3 for _, that in pairs], "ms")
            found += [without, row(f"{title} traced", [this / count * 1e3 for this, _ in pairs], "ms", without["p50"])]
            found[-1]["ratio"] = round(statistics.median(this / that for this, that in pairs), 3)
        seconds = (traced.run("mounts", MOUNTS), plain.run("mounts", MOUNTS))
        without = row("refused mount untraced", [seconds[1] / MOUNTS * 1e3], "ms")
        found += [without, row("refused mount traced", [seconds[0] / MOUNTS * 1e3], "ms", without["p50"])]
    done = asyncio.run(_finish(environment, traced))
    print(f"{MOUNTS} refused mounts: {done.blocked_syscalls} counted, {done.dropped} dropped", file=sys.stderr)
    found.append(row("refused mounts of 30000 not counted", [float(MOUNTS - done.blocked_syscalls)], "events"))
    return found


def _client(environment: Environment) -> TraceClient:
    client = TraceClient(environment.endpoint("trace"), "node-0")
    client.start()
    return client


async def _bind(environment: Environment, sandbox: Sandbox) -> None:
    client = _client(environment)
    await client.expect(sandbox.container_id)
    await client.bind(sandbox.container_id, "att_bench")
    await client.close()


async def _finish(environment: Environment, sandbox: Sandbox) -> pb.FinishResponse:
    client = _client(environment)
    try:
        return await client.finish(sandbox.container_id, "att_bench", [])
    finally:
        await client.close()


async def rate(process: SinkProcess, number: int) -> float:
    """Events a second of one sentry, from the first packet to the spool."""
    client, container, attempt = process.client(), container_id(), f"att_{number}"
    sentry = await asyncio.to_thread(Sentry, process.socket, container)
    await client.expect(container)
    await client.bind(container, attempt)
    environment = (b"HOME=/", *(b"NAME%d=a value of usual length" % each for each in range(15)))
    # Made beforehand: the sink is measured, not this sentry.
    packets: list[bytes] = []
    for pid in range(2, FAMILIES + 2):
        packets += [clone(1, pid), execve(pid, "cc", "-c", "file.c", env=environment), exited(pid)]

    def send() -> float:
        began = time.perf_counter()
        sentry.send(*packets)
        sentry.close()
        return began

    began = await asyncio.to_thread(send)
    done = await client.finish(container, attempt, [])
    seconds = time.perf_counter() - began
    await client.close()
    assert done.dropped == 0
    return sum(count.events for count in done.counts) / seconds


def rows() -> list[Row]:
    """About a minute."""
    environment = Environment()
    try:
        environment.start("trace")
        found = cost(environment)
    finally:
        environment.stop()
    process = SinkProcess()
    try:
        process.start()
        rates = [asyncio.run(rate(process, number)) for number in range(ROUNDS)]
    finally:
        process.close()
    return [*found, row("trace sink, socket to spool", rates, "events/s")]


if __name__ == "__main__":
    print(json.dumps(rows(), indent=1))
