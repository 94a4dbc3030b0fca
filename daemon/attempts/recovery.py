"""What a start does before anything else: take back what an earlier life of the daemon left, or say it is lost.

Order: read the journal, look at the runtime, decide per attempt (pure: `decide`), re-adopt, then remove whatever no
journal row owns — containers by this instance's label, slots with their mounts and loop devices. Unlabelled
neighbours are never touched. Pools fill only afterwards.
"""

from __future__ import annotations

import enum

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptFacts, Cause, State
from daemon.attempts.watcher import reach
from daemon.pool.entry import PoolEntry
from daemon.runtime.errors import RuntimeFault
from daemon.runtime.types import Observation
from daemon.supervisor.errors import SupervisorError
from daemon.workspace.model import WorkspaceLostError

log = structlog.get_logger(__name__)


class Decision(enum.Enum):
    """What becomes of a journalled attempt."""

    ADOPT = "adopt"  # its sandbox runs: go on
    END = "end"  # its sandbox is gone, or its end had begun: collect the evidence
    KEEP = "keep"  # it was frozen: only its workspace is needed
    FORGET = "forget"  # a claim that never finished, as earlier daemons kept them: the scheduler asks again
    LOST = "lost"  # another boot of the host: nothing of it can exist


def decide(facts: AttemptFacts, seen: Observation | None, boot_id: str) -> Decision:
    """The decision for one attempt, from the journal and one look at its container."""
    if facts.state is State.STARTING:
        return Decision.FORGET
    if facts.state in (State.FROZEN, State.LOST):
        return Decision.KEEP
    if facts.boot_id != boot_id:
        return Decision.LOST
    if facts.state is State.RUNNING and seen is not None and seen.state.live:
        return Decision.ADOPT
    return Decision.END


class Recovery:
    """Runs once, at start."""

    def __init__(self, node: NodeContext, ender: Ender) -> None:
        self._node = node
        self._ender = ender

    async def run(self) -> list[LiveAttempt]:
        """Take back or void every journalled attempt, remove the rest; returns those that run on."""
        seen = {o.container_id: o for o in await self._node.runtime.list(self._node.instance)}
        adopted: list[LiveAttempt] = []
        kept_entries: set[str] = set()
        for facts in await self._node.blocking(self._node.journal.load):
            decision = decide(facts, seen.get(facts.container_id), self._node.clock.boot_id)
            log.info("attempt_found", attempt_id=facts.attempt_id, state=facts.state.value, decision=decision.value)
            if decision is Decision.FORGET:
                await self._node.blocking(self._node.journal.drop, facts.attempt_id)
                continue
            attempt = LiveAttempt(facts)
            await self._take_slot(attempt)
            if attempt.slot is not None:
                kept_entries.add(facts.entry_id)
            self._node.registry.add(attempt)
            if await self._resume(attempt, decision, seen.get(facts.container_id)):
                adopted.append(attempt)
        await self._remove_the_rest(set(seen), kept_entries)
        return adopted

    async def _take_slot(self, attempt: LiveAttempt) -> None:
        try:
            attempt.slot = await self._node.workspace.restore(attempt.facts.entry_id)
        except WorkspaceLostError as error:
            log.warning("workspace_lost", attempt_id=attempt.facts.attempt_id, error=str(error))

    async def _resume(self, attempt: LiveAttempt, decision: Decision, seen: Observation | None) -> bool:
        facts = attempt.facts
        if decision is Decision.KEEP:
            return False
        if decision is Decision.LOST:
            facts.evidence.platform_fault = "the host restarted under the attempt"
            facts.evidence.cause = facts.evidence.cause or Cause.PLATFORM
            facts.state = State.LOST
            facts.end_time_ns = self._node.clock.wall_ns()
            await self._node.keep(attempt)
            return False
        await self._node.telemetry.resume(facts.attempt_id)
        if decision is Decision.ADOPT:
            fault = await self._adopt(attempt)
            if not fault and attempt.slot is not None:
                self._node.fswatch.resume(facts.attempt_id, attempt.slot, facts.container_id)
                return True
            facts.evidence.platform_fault = fault
            self._ender.begin(attempt, Cause.PLATFORM)
            return False
        if seen is None or not seen.state.live:
            attempt.died.set()
        self._ender.begin(attempt, Cause.SANDBOX_DIED)
        return False

    async def _adopt(self, attempt: LiveAttempt) -> str:
        """Reach a running sandbox again; returns why not, empty when it worked."""
        if attempt.slot is None:
            return "the workspace was lost while the daemon was away"
        facts = attempt.facts
        template = self._node.stacks.template(facts.spec)
        try:
            transport, link = await reach(self._node, facts.container_id)
        except (RuntimeFault, SupervisorError, TimeoutError) as error:
            return f"the sandbox could not be reached again: {error}"
        attempt.entry = PoolEntry(
            entry_id=facts.entry_id,
            template=template,
            container_id=facts.container_id,
            link=link,
            slot=attempt.slot,
            created=0.0,
            image_digest=facts.image_digest,
            transport=transport,
        )
        self._node.pools.adopt(template, facts.entry_id)
        return ""

    async def _remove_the_rest(self, containers: set[str], kept_entries: set[str]) -> None:
        owned = {a.facts.container_id for a in self._node.registry}
        for container_id in sorted(containers - owned):
            log.info("orphan_removed", container_id=container_id)
            await self._node.runtime.destroy(container_id)
        reclaimed = await self._node.workspace.reclaim(kept_entries)
        if not reclaimed.empty:
            log.info(
                "slots_reclaimed",
                mounts=len(reclaimed.mounts),
                loop_devices=len(reclaimed.loop_devices),
                directories=len(reclaimed.directories),
            )
