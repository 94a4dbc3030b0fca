"""What each process of a running attempt uses, looked at every few seconds: CPU time, resident memory, and whether it
runs a program that the trace did not tell.

gVisor's trace has neither. A look costs CPU of its own, so the pause grows with what the last round used: at most
SHARE of one CPU goes into it. A process that no look met has no figures.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

import structlog

from daemon.trace.runsc import Runsc, RunscError
from daemon.trace.traced import Traced

PAUSE_SECONDS = 3.0
SHARE = 0.03

log = structlog.get_logger(__name__)


async def run(runsc: Runsc, bound: Callable[[], list[Traced]]) -> None:
    """Look at every bound sandbox, for ever."""
    while True:
        began = _children_seconds()
        for traced in bound():
            if len(traced.tree):
                await look(runsc, traced)
        await asyncio.sleep(max(PAUSE_SECONDS, (_children_seconds() - began) / SHARE))


async def look(runsc: Runsc, traced: Traced) -> None:
    """Look at one. A sandbox that ends meanwhile is none the worse."""
    before = traced.unseen.before()
    try:
        loads, now_ns = await runsc.loads(traced.container_id), time.time_ns()
        processes = await runsc.processes(traced.container_id)
    except (RunscError, OSError) as error:
        if not traced.ended.is_set():
            log.info("trace_sample_failed", container_id=traced.container_id, error=str(error))
        return
    for seen in processes:
        load = loads.get(seen.pid)
        cpu_ms = None if load is None or not seen.start_ns else load.total_ms(now_ns - seen.start_ns)
        traced.tree.sampled(seen.pid, cpu_ms, seen.rss)
    await traced.record(traced.unseen.compare(before, processes))


def _children_seconds() -> float:
    """CPU time of the programs that this process has run: all of them are looks."""
    times = os.times()
    return times.children_user + times.children_system
