"""Runtime events to attempts and pools: deaths, OOMs, and what a reconnect to the engine makes doubtful."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import Cause, State
from daemon.pool.watched import WatchedTransport
from daemon.runtime.errors import RuntimeFault
from daemon.runtime.types import EventKind, RuntimeEvent
from daemon.supervisor.errors import SupervisorError
from daemon.supervisor.link import SupervisorLink

log = structlog.get_logger(__name__)

REACH_TIMEOUT_SECONDS = 15.0


class RuntimeWatcher:
    """Follows the runtime's events for this instance."""

    def __init__(self, node: NodeContext, ender: Ender) -> None:
        self._node = node
        self._ender = ender

    async def run(self) -> None:
        """Follow, for ever."""
        async with contextlib.aclosing(self._node.runtime.events(self._node.instance)) as events:  # type: ignore[type-var]
            async for event in events:
                await self._handle(event)

    async def _handle(self, event: RuntimeEvent) -> None:
        self._node.pools.observe(event)
        match event.kind:
            case EventKind.OOM:
                self._out_of_memory(event.container_id)
            case EventKind.DIE:
                self._died(event.container_id)
            case EventKind.RESYNC:
                live = {seen.container_id for seen in event.observations if seen.state.live}
                for seen in event.observations:
                    if seen.oom_killed:
                        self._out_of_memory(seen.container_id)
                for attempt in self._node.registry:
                    if attempt.facts.state is State.RUNNING:
                        await self._recheck(attempt, attempt.facts.container_id in live)

    def _out_of_memory(self, container_id: str) -> None:
        """Memory ends the whole sandbox: whether the kernel took its sentry or one large process is chance."""
        attempt = self._node.registry.by_container(container_id)
        if attempt is None:
            return
        attempt.facts.evidence.oom_event = True
        if attempt.facts.state is State.RUNNING:
            self._ender.begin(attempt, Cause.SANDBOX_DIED)

    def _died(self, container_id: str) -> None:
        attempt = self._node.registry.by_container(container_id)
        if attempt is None:
            return
        attempt.died.set()
        if attempt.facts.state is State.RUNNING:
            self._ender.begin(attempt, Cause.SANDBOX_DIED)

    async def _recheck(self, attempt: LiveAttempt, live: bool) -> None:
        """After a reconnect: a dead sandbox has ended, a living one needs a pipe that works."""
        if not live:
            self._died(attempt.facts.container_id)
        elif attempt.entry is not None and not attempt.entry.alive:
            try:
                await reattach(self._node, attempt)
            except (RuntimeFault, SupervisorError, TimeoutError) as error:
                attempt.facts.evidence.platform_fault = f"the sandbox could not be reached again: {error}"
                self._ender.begin(attempt, Cause.PLATFORM)


async def reattach(node: NodeContext, attempt: LiveAttempt) -> None:
    """Give a running attempt a new pipe to its PID 1. Raises RuntimeFault, SupervisorError, TimeoutError."""
    assert attempt.entry is not None
    await attempt.entry.link.close()
    attempt.entry.transport, attempt.entry.link = await reach(node, attempt.facts.container_id)


async def reach(node: NodeContext, container_id: str) -> tuple[WatchedTransport, SupervisorLink]:
    """A new pipe to the PID 1 of a sandbox that an earlier life used. Raises as `reattach`."""
    transport = WatchedTransport(await node.runtime.attach(container_id))
    link = SupervisorLink(transport, fresh=False)
    try:
        async with asyncio.timeout(REACH_TIMEOUT_SECONDS):
            await link.connect()
    except BaseException:
        await link.close()
        await transport.close()
        raise
    return transport, link
