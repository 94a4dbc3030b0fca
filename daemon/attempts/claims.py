"""Claims: one attempt gets one never-used sandbox, warm in one atomic step, else cold.

A claim is a straight line: admit, take or make, mount, assign, journal, run. Whatever fails on the way is undone
before the answer; a warm sandbox that turns out dead is replaced by the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from daemon.attempts import databases
from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptFacts, ChallengeMissing, ClaimRefused, ClaimSpec, State
from daemon.attempts.stacks import environment
from daemon.pool.claim import PoolExhausted, acquire
from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFailed
from daemon.pool.template import Template
from daemon.runtime.errors import RuntimeFault, RuntimeTimeout, RuntimeUnavailable
from daemon.supervisor.errors import SupervisorError
from daemon.workspace.model import Slot, WorkspaceError

log = structlog.get_logger(__name__)

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
        attempt = LiveAttempt(AttemptFacts(spec=spec, limits=template.resources))
        await attempt.lock.acquire()
        self._node.registry.add(attempt)
        return await asyncio.shield(
            asyncio.create_task(self._start(attempt, template), name=f"{spec.attempt_id}:claim")
        )

    async def _admit(self, spec: ClaimSpec) -> None:
        if self.draining:
            raise ClaimRefused("NODE_DRAINING", "this node takes no new attempts")
        held = self._node.held()
        if held >= self._node.capacity:
            raise ClaimRefused("NODE_FULL", f"this node holds {held} of {self._node.capacity} sandboxes")
        wanted = self._node.stacks.template(spec).resources.memory_bytes
        limits = [a.facts.limits for a in self._node.registry if not a.facts.ended]
        promised = sum(limit.memory_bytes for limit in limits if limit is not None)
        if promised + wanted > self._node.memory_budget_bytes:
            raise ClaimRefused(
                "NODE_FULL",
                f"memory limits of {promised + wanted} bytes exceed this node's {self._node.memory_budget_bytes}",
            )
        if not await self._node.workspace.has_template(spec.challenge_digest):
            raise ChallengeMissing(spec.challenge_digest)

    async def _start(self, attempt: LiveAttempt, template: Template) -> LiveAttempt:
        self._node.calm.hold()
        try:
            await self._acquire(attempt, template)
            await self._start_database(attempt)
            facts, clock = attempt.facts, self._node.clock
            facts.boot_id = clock.boot_id
            facts.started_boottime_ns, facts.start_time_ns = clock.boottime_ns(), clock.wall_ns()
            facts.deadline_time_ns = facts.start_time_ns + int(facts.spec.time_limit_seconds * 1e9)
            facts.state = State.RUNNING
            assert attempt.slot is not None
            self._node.fswatch.begin(facts.attempt_id, attempt.slot, facts.container_id)
            await self._node.keep(attempt)
        except BaseException:
            if attempt.entry is not None:
                self._node.pools.retire(attempt.entry)
            await self._node.fswatch.forget(attempt.facts.attempt_id)
            await self._node.telemetry.abandon(attempt.facts.attempt_id)
            self._node.registry.remove(attempt)
            await self._node.blocking(self._node.journal.drop, attempt.facts.attempt_id)
            raise
        finally:
            attempt.lock.release()
        self._node.calm.hold()  # for the agent's first command
        self._on_running(attempt)
        attempt.spawn(self._rename(attempt), "rename")
        return attempt

    async def _acquire(self, attempt: LiveAttempt, template: Template) -> None:
        """A never-used sandbox with the challenge in it. Raises ClaimRefused."""

        async def use(entry: PoolEntry) -> Slot:
            return await self._assign(attempt, entry)

        try:
            got = await acquire(self._node.pools, template, use, warm_only=attempt.facts.spec.warm_only)
        except PoolExhausted as error:
            raise ClaimRefused("POOL_EXHAUSTED", str(error)) from error
        except EntryFailed as error:
            # An engine that is away says nothing about this attempt; one that refused would refuse it again.
            away = isinstance(error.__cause__, RuntimeUnavailable | RuntimeTimeout)
            raise ClaimRefused("RUNTIME_UNAVAILABLE" if away else "COLD_START_FAILED", str(error)) from error
        except (SupervisorError, WorkspaceError, TimeoutError) as error:
            raise ClaimRefused("COLD_START_FAILED", f"no sandbox accepted the attempt: {error or 'timeout'}") from error
        attempt.entry, attempt.slot, attempt.facts.launch_type = got.entry, got.result, got.launch_type

    async def _assign(self, attempt: LiveAttempt, entry: PoolEntry) -> Slot:
        facts = attempt.facts
        facts.entry_id = facts.sandbox_id = entry.entry_id
        facts.container_id, facts.image_digest = entry.container_id, entry.image_digest
        # Not journalled yet: a sandbox that no row owns is removed at the next start, and the scheduler asks again.
        variables = environment(facts.spec)
        # While the workspace is mounted: they cost the claim no time, and nothing can run before all of it is done.
        beside = [
            asyncio.ensure_future(self._node.tracing.bind(entry.container_id, facts.attempt_id)),
            asyncio.ensure_future(entry.link.assign(variables)),
        ]
        opening = asyncio.ensure_future(self._node.telemetry.open(facts.attempt_id))
        try:
            async with asyncio.timeout(ASSIGN_TIMEOUT_SECONDS):
                slot = await self._node.workspace.assign(entry.slot, facts.spec.challenge_digest)
                for one in (*beside, opening):
                    await one
        finally:
            for one in beside:
                one.cancel()
            await asyncio.gather(*beside, opening, return_exceptions=True)  # files that are being opened are awaited
        return slot

    async def _start_database(self, attempt: LiveAttempt) -> None:
        """Before the agent's time begins. Without its database an attempt goes on, and says so."""
        database = attempt.facts.spec.database
        if database is None or attempt.entry is None:
            return
        try:
            reason = await databases.start(attempt.entry.link, database)
        except SupervisorError as error:
            raise ClaimRefused("COLD_START_FAILED", f"the sandbox died while its database started: {error}") from error
        if reason:
            attempt.facts.evidence.database_unavailable = True
            log.warning("database_unavailable", attempt_id=attempt.facts.attempt_id, reason=reason)

    async def _rename(self, attempt: LiveAttempt) -> None:
        """Labels cannot change, so the container's name says whose it is. Nothing depends on it."""
        await self._node.calm.over()
        name = f"gauntlet-{attempt.facts.spec.challenge_id}-{attempt.facts.attempt_id}"
        rename: Awaitable[None] = self._node.runtime.rename(attempt.facts.container_id, name)
        try:
            await rename
        except RuntimeFault as error:
            log.warning("rename_failed", attempt_id=attempt.facts.attempt_id, error=str(error))
