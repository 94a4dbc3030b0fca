"""Claims: one attempt gets one never-used sandbox, warm in one atomic step, else cold.

A claim is a straight line: admit, take or make, journal, mount, assign, run. Whatever fails on the way is undone
before the answer; a warm sandbox that turns out dead is replaced by the next one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptFacts, ChallengeMissing, ClaimRefused, ClaimSpec, State
from daemon.attempts.stacks import environment
from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFailed
from daemon.pool.template import Template
from daemon.runtime.errors import RuntimeFault
from daemon.supervisor.errors import SupervisorError
from daemon.workspace.model import WorkspaceError

log = structlog.get_logger(__name__)

# A warm entry may die between its last sign of life and its assignment; more than this is a broken node.
TRIES = 3
# Mount and one round trip to PID 1: milliseconds; a sandbox that takes longer will not do.
ASSIGN_TIMEOUT_SECONDS = 5.0


class Claimer:
    """Serves claims. `on_running` starts what belongs to a running attempt (its timer, its sampling)."""

    def __init__(self, node: NodeContext, on_running: Callable[[LiveAttempt], None]) -> None:
        self._node = node
        self._on_running = on_running
        self.draining = False

    async def claim(self, spec: ClaimSpec) -> LiveAttempt:
        """The attempt, running. Idempotent by attempt id; a client that vanishes does not stop a claim half-way.

        Raises ChallengeMissing, ClaimRefused, StaleFence, UnknownStack, ResourcesRefused.
        """
        while (known := self._node.registry.find(spec.attempt_id)) is not None:
            known.fence(spec.fence)
            async with known.lock:
                if self._node.registry.find(spec.attempt_id) is known:
                    return known
        await self._admit(spec)
        template = self._node.stacks.template(spec)
        attempt = LiveAttempt(
            AttemptFacts(spec=spec, sandbox_id=f"sbx_{uuid.uuid4().hex[:20]}", limits=template.resources)
        )
        await attempt.lock.acquire()
        self._node.registry.add(attempt)
        return await asyncio.shield(
            asyncio.create_task(self._start(attempt, template), name=f"{spec.attempt_id}:claim")
        )

    async def _admit(self, spec: ClaimSpec) -> None:
        if self.draining:
            raise ClaimRefused("NODE_DRAINING", "this node takes no new attempts")
        held = [a.facts for a in self._node.registry if a.entry is not None or a.facts.state is State.STARTING]
        if len(held) >= self._node.capacity:
            raise ClaimRefused("NODE_FULL", f"this node holds {len(held)} of {self._node.capacity} sandboxes")
        wanted = self._node.stacks.template(spec).resources.memory_bytes
        promised = sum(facts.limits.memory_bytes for facts in held if facts.limits is not None)
        if promised + wanted > self._node.memory_budget_bytes:
            raise ClaimRefused(
                "NODE_FULL",
                f"memory limits of {promised + wanted} bytes exceed this node's {self._node.memory_budget_bytes}",
            )
        if not await self._node.workspace.has_template(spec.challenge_digest):
            raise ChallengeMissing(spec.challenge_digest)

    async def _start(self, attempt: LiveAttempt, template: Template) -> LiveAttempt:
        try:
            await self._assign_some(attempt, template)
            facts, clock = attempt.facts, self._node.clock
            facts.boot_id = clock.boot_id
            facts.started_boottime_ns, facts.start_time_ns = clock.boottime_ns(), clock.wall_ns()
            facts.deadline_time_ns = facts.start_time_ns + int(facts.spec.time_limit_seconds * 1e9)
            facts.state = State.RUNNING
            await self._node.telemetry.open(facts.attempt_id)
            await self._node.keep(attempt)
        except BaseException:
            self._node.registry.remove(attempt)
            await self._node.blocking(self._node.journal.drop, attempt.facts.attempt_id)
            raise
        finally:
            attempt.lock.release()
        self._on_running(attempt)
        attempt.spawn(self._rename(attempt), "rename")
        return attempt

    async def _assign_some(self, attempt: LiveAttempt, template: Template) -> None:
        """Take entries until one accepts the assignment."""
        for last in (False,) * (TRIES - 1) + (True,):
            entry, launch_type = await self._entry(attempt, template)
            facts = attempt.facts
            facts.entry_id, facts.container_id = entry.entry_id, entry.container_id
            facts.image_digest, facts.launch_type = entry.image_digest, launch_type
            try:
                # Journalled before the first use: a restart in between finds the sandbox and takes it back.
                await self._node.keep(attempt)
                async with asyncio.timeout(ASSIGN_TIMEOUT_SECONDS):
                    attempt.slot = await self._node.workspace.assign(entry.slot, facts.spec.challenge_digest)
                    await entry.link.assign(environment(facts.spec.challenge_id, facts.spec.environment))
            except (SupervisorError, WorkspaceError, TimeoutError) as error:
                log.warning("assignment_failed", attempt_id=facts.attempt_id, entry_id=entry.entry_id, error=str(error))
                self._node.discard(entry)
                if last:
                    raise ClaimRefused("COLD_START_FAILED", f"no sandbox accepted the attempt: {error}") from error
            except BaseException:
                self._node.discard(entry)
                raise
            else:
                attempt.entry = entry
                return

    async def _entry(self, attempt: LiveAttempt, template: Template) -> tuple[PoolEntry, str]:
        entry = self._node.pools.take(template)
        if entry is not None:
            return entry, "WARM"
        if attempt.facts.spec.warm_only:
            raise ClaimRefused("POOL_EXHAUSTED", f"no warm sandbox of {template.stack} is ready")
        try:
            return await self._node.factory.create(template), "COLD"
        except EntryFailed as error:
            raise ClaimRefused("COLD_START_FAILED", str(error)) from error

    async def _rename(self, attempt: LiveAttempt) -> None:
        """Labels cannot change, so the container's name says whose it is. Nothing depends on it."""
        name = f"gauntlet-{attempt.facts.spec.challenge_id}-{attempt.facts.attempt_id}"
        rename: Awaitable[None] = self._node.runtime.rename(attempt.facts.container_id, name)
        try:
            await rename
        except RuntimeFault as error:
            log.warning("rename_failed", attempt_id=attempt.facts.attempt_id, error=str(error))
