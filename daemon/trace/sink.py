"""The sink: every attempt on this machine and the container that it is bound to. What the control socket asks for.

Owns who belongs to whom. Leaves connections to `containers`, meaning to `tree`, and the spool to daemon.telemetry.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from gauntlet.telemetry.v1 import trace_service_pb2 as pb

from daemon.telemetry.recorder import Recorder
from daemon.trace import sampling
from daemon.trace.attempt import KINDS, LOST, TracedAttempt, finished, remove_spool
from daemon.trace.containers import Containers
from daemon.trace.errors import BadName
from daemon.trace.news import News
from daemon.trace.runsc import Runsc
from daemon.trace.session import write_files
from daemon.trace.traced import Traced

CONTAINER_ID = re.compile(r"[0-9a-f]{64}")
ATTEMPT_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
# The sentry is gone when its container is; its socket's end follows at once.
END_SECONDS = 5.0
ABANDONED_SECONDS = 900.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Node:
    """One daemon's place on this machine."""

    spool: Path
    recorder: Recorder
    news: News


@dataclass(slots=True)
class Held:
    """An attempt and the trace of its sandbox, None once a restart of ours has lost it."""

    node_id: str
    attempt: TracedAttempt
    traced: Traced | None


class Sink:
    """One machine's sink. Use on one event loop."""

    def __init__(self, trace_socket: Path, files: Path, nodes: dict[str, Path], runsc: Runsc) -> None:
        """`files` is where the session's two files go, `nodes` holds each node's state directory."""
        self.sink_id = secrets.token_hex(8)
        self.pod_init = files / "pod-init.json"
        self._session_file = files / "session.json"
        self._socket = trace_socket
        self._runsc = runsc
        self._containers = Containers(trace_socket, self._session_file, runsc, self._gone)
        self._nodes = {node_id: self._node(state) for node_id, state in nodes.items()}
        self._attempts: dict[str, Held] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()

    @staticmethod
    def _node(state: Path) -> Node:
        spool, news = state / "spool", News()
        return Node(spool, Recorder(spool, news.size, kinds=KINDS), news)

    async def start(self) -> None:
        """Write the session's files, listen, record. Raises OSError."""
        write_files(self._socket, self.pod_init, self._session_file)
        for node in self._nodes.values():
            node.recorder.start()
        self._containers.start()
        self._spawn(sampling.run(self._runsc, self._containers.bound))

    async def stop(self) -> None:
        """Stop hearing, spool what was heard."""
        await self._containers.stop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in self._nodes.values():
            await node.recorder.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _gone(self, traced: Traced) -> None:
        for held in self._attempts.values():
            if held.traced is traced:
                held.attempt.news.ended(held.attempt.attempt_id, traced.container_id)
                self._spawn(self._abandon(held, traced))

    async def _abandon(self, held: Held, traced: Traced) -> None:
        """An attempt whose daemon never came back to end it (a claim that failed half-way) is let go of."""
        await asyncio.sleep(ABANDONED_SECONDS)
        attempt_id = held.attempt.attempt_id
        if self._attempts.get(attempt_id) is held and held.traced is traced:
            log.warning("trace_abandoned", attempt_id=attempt_id)
            answer = await self.finish(held.node_id, traced.container_id, attempt_id, ())
            if not any(count.events or count.gaps for count in answer.counts):
                await asyncio.to_thread(remove_spool, self.node(held.node_id).spool, attempt_id)

    def node(self, node_id: str) -> Node:
        """A node of this machine. Raises BadName."""
        if node_id not in self._nodes:
            raise BadName(f"no node {node_id!r} here; the sink's configuration names {', '.join(self._nodes)}")
        return self._nodes[node_id]

    async def expect(self, container_id: str) -> None:
        """Wait until a container's trace has begun. Wait with a deadline. Raises BadName."""
        _check(container_id)
        await self._containers.expect(container_id)

    async def bind(self, node_id: str, container_id: str, attempt_id: str, running: bool) -> bool:
        """Make a container an attempt's; True when its session had to be made anew. Raises BadName, Untraced."""
        _check(container_id, attempt_id)
        self.node(node_id)
        async with self._locks[attempt_id]:
            traced = self._containers.find(container_id)
            anew = traced is None
            if traced is None:
                traced = await self._containers.attach(container_id)
            held = await self._held(node_id, attempt_id)
            if anew and running:
                held.attempt.lose(None, LOST)
            held.traced, traced.attempt = traced, held.attempt
        return anew

    async def _held(self, node_id: str, attempt_id: str) -> Held:
        node, held = self.node(node_id), self._attempts.get(attempt_id)
        if held is None:
            attempt = TracedAttempt(attempt_id, node.recorder, node.news, time.time_ns)
            await attempt.open(node.spool)
            held = self._attempts[attempt_id] = Held(node_id, attempt, None)
        return held

    async def signals(self, attempt_id: str, ledger: Sequence[pb.PlatformSignal]) -> None:
        """Record the platform's signals to a bound attempt; of another one they come with its end."""
        async with self._locks[attempt_id]:
            held = self._attempts.get(attempt_id)
            if held is not None:
                await held.attempt.signals(ledger)

    def acknowledge(self, attempt_id: str, number: int) -> None:
        """An attempt's tool runs up to a number are recorded."""
        for node in self._nodes.values():
            node.news.acknowledged(attempt_id, number)

    async def finish(
        self, node_id: str, container_id: str, attempt_id: str, ledger: Sequence[pb.PlatformSignal]
    ) -> pb.FinishResponse:
        """An attempt's end, once its sandbox is gone. Raises BadName."""
        _check(container_id, attempt_id)
        node = self.node(node_id)
        async with self._locks[attempt_id]:
            known = await asyncio.to_thread(finished, node.spool, attempt_id)
            if known is not None:
                known.tools.extend(node.news.unacknowledged(attempt_id))
                return known
            known_here = attempt_id in self._attempts
            held = await self._held(node_id, attempt_id)
            if not known_here:
                held.attempt.lose(None, LOST)
            await _last_words(held)
            await held.attempt.signals(ledger)
            answer = await held.attempt.finish(node.spool)
            del self._attempts[attempt_id]
            node.news.forget(attempt_id)
        self._locks.pop(attempt_id, None)
        return answer


async def _last_words(held: Held) -> None:
    """Wait for the sentry's end, and tell who died with it."""
    if held.traced is None:
        return
    try:
        async with asyncio.timeout(END_SECONDS):
            await held.traced.ended.wait()
    except TimeoutError:
        log.warning("trace_not_ended", container_id=held.traced.container_id)
        held.attempt.lose(None, LOST)
    held.traced.attempt = None
    await held.attempt.record(held.traced.tree.finish())


def _check(container_id: str, attempt_id: str | None = None) -> None:
    if not CONTAINER_ID.fullmatch(container_id):
        raise BadName("container_id: the full id is expected, 64 hex digits")
    if attempt_id is not None and not ATTEMPT_ID.fullmatch(attempt_id):
        raise BadName("attempt_id: letters, digits, _ and - are expected")
