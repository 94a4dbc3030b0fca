"""The end of an attempt: processes dead first, then evidence, then a read-only workspace and its diff.

The first cause wins. Whatever goes wrong here is the platform's: the attempt is LOST with the reason, never an
outcome of the agent's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptFacts, Cause, Evidence, State, WorkspaceSummary
from daemon.runtime.errors import NoSuchSandbox, RuntimeFault
from daemon.runtime.port import Runtime
from daemon.runtime.types import Observation
from daemon.supervisor.errors import SupervisorError
from daemon.telemetry.types import TelemetryError
from daemon.workspace.model import DiffResult, Slot, WorkspaceBusyError, WorkspaceError

log = structlog.get_logger(__name__)

SUBMIT_GRACE_SECONDS = 1.0
STOP_TIMEOUT_SECONDS = 5.0
EXIT_TIMEOUT_SECONDS = 10.0
# Nobody ordered the end: the sandbox is dead or dying, or it must be killed.
UNORDERED_EXIT_SECONDS = 0.5
# Calls in flight end with the link; what is left is writing their events.
CALLS_TIMEOUT_SECONDS = 10.0
FREEZE_TRIES = 50
FREEZE_PAUSE_SECONDS = 0.1
PANIC_EXCERPT_BYTES = 4_096
# Signal name and reason that an end of ours goes by; a sandbox that died by itself gets none.
ORDERS = {
    Cause.SUBMIT: ("SIGTERM", "submit"),
    Cause.TIME_LIMIT: ("SIGKILL", "hard_timeout"),
    Cause.CANCEL: ("SIGKILL", "cancel"),
    Cause.PLATFORM: ("SIGKILL", "platform"),
}


class Ender:
    """Ends attempts."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node

    def begin(self, attempt: LiveAttempt, cause: Cause) -> asyncio.Task[None]:
        """Begin the end, or join the one that has begun. Legal in every state."""
        if attempt.ending is None:
            if attempt.facts.evidence.cause is None:
                attempt.facts.evidence.cause = cause
            attempt.facts.state = State.ENDING
            attempt.ending = self._node.spawn(self._end(attempt), f"{attempt.facts.attempt_id}:end")
        return attempt.ending

    async def _end(self, attempt: LiveAttempt) -> None:
        facts, evidence = attempt.facts, attempt.facts.evidence
        try:
            await self._node.keep(attempt)
            await attempt.stop_tasks()
            await self._last_sample(attempt)
            await self._stop(attempt)
            await self._observe(attempt)
            await self._node.runtime.destroy(facts.container_id)
            if attempt.entry is not None:
                await attempt.entry.link.close()
                attempt.entry = None
            self._node.pools.gone(facts.entry_id)
            await attempt.finish_calls(CALLS_TIMEOUT_SECONDS)
            facts.end_time_ns = facts.end_time_ns or self._node.clock.wall_ns()
            await self._extract(attempt)
            await self._finish_telemetry(attempt)
            facts.state = State.FROZEN
        except Exception as error:
            # The boundary: an attempt must always reach a final state.
            log.error("ending_failed", attempt_id=facts.attempt_id, exc_info=error)
            evidence.platform_fault = evidence.platform_fault or f"the end failed: {error}"
            facts.end_time_ns = facts.end_time_ns or self._node.clock.wall_ns()
            facts.state = State.LOST
        await self._node.keep(attempt)
        log.info("attempt_ended", attempt_id=facts.attempt_id, state=facts.state.value, cause=str(evidence.cause))

    async def _last_sample(self, attempt: LiveAttempt) -> None:
        """The counters vanish with the container."""
        try:
            await self._node.telemetry.sample_now(attempt.facts.attempt_id)
        except TelemetryError as error:
            log.info("no_last_sample", attempt_id=attempt.facts.attempt_id, error=str(error))

    async def _stop(self, attempt: LiveAttempt) -> None:
        """Order the end, wait for the container's exit, and use force where the order is not followed."""
        facts = attempt.facts
        cause = facts.evidence.cause
        if cause is not None and cause in ORDERS and not attempt.died.is_set():
            attempt.sent(*ORDERS[cause], self._node.clock.wall_ns())
            await self._node.keep(attempt)
            grace = SUBMIT_GRACE_SECONDS if cause is Cause.SUBMIT else 0.0
            if attempt.entry is not None:
                try:
                    async with asyncio.timeout(STOP_TIMEOUT_SECONDS + grace):
                        await attempt.entry.link.stop(grace)
                except (SupervisorError, TimeoutError) as error:
                    log.warning("stop_not_followed", attempt_id=facts.attempt_id, error=str(error))
        unordered = cause in (Cause.PLATFORM, Cause.SANDBOX_DIED)
        if not await self._exited(attempt, UNORDERED_EXIT_SECONDS if unordered else EXIT_TIMEOUT_SECONDS):
            of_memory = cause is Cause.SANDBOX_DIED and facts.evidence.oom_event
            attempt.sent("SIGKILL", "oom" if of_memory else "forced", self._node.clock.wall_ns())
            await self._node.keep(attempt)
            try:
                await self._node.runtime.kill(facts.container_id)
            except NoSuchSandbox:
                log.info("already_gone", attempt_id=facts.attempt_id)
            await self._exited(attempt, EXIT_TIMEOUT_SECONDS)

    async def _exited(self, attempt: LiveAttempt, seconds: float) -> bool:
        """Whether the container has ended: its event within `seconds`, or what the engine says then."""
        try:
            async with asyncio.timeout(seconds):
                await attempt.died.wait()
        except TimeoutError:
            seen = await self._node.runtime.inspect(attempt.facts.container_id)
            return seen is None or not seen.state.live
        return True

    async def _observe(self, attempt: LiveAttempt) -> None:
        evidence = attempt.facts.evidence
        seen = await self._node.runtime.inspect(attempt.facts.container_id)
        if seen is None:
            evidence.platform_fault = evidence.platform_fault or "the container vanished before its end was read"
            return
        _note(evidence, seen, attempt.facts.entry_id)
        if seen.finished_at_ns:
            attempt.facts.end_time_ns = seen.finished_at_ns
        await keep_panic(self._node.runtime, attempt.facts)

    async def _extract(self, attempt: LiveAttempt) -> None:
        facts, evidence = attempt.facts, attempt.facts.evidence
        if attempt.slot is None:
            evidence.workspace_error = "the workspace was lost"
            return
        try:
            # A watch keeps the workspace mounted.
            await self._node.fswatch.stop(facts.attempt_id)
            await self._freeze(attempt)
            diff = await self._node.workspace.extract(attempt.slot, facts.attempt_id)
        except (WorkspaceError, OSError) as error:
            log.error("workspace_lost", attempt_id=facts.attempt_id, exc_info=error)
            evidence.workspace_error = str(error)
            return
        evidence.workspace_extracted = True
        facts.workspace = WorkspaceSummary(
            baseline_digest=diff.baseline_digest,
            diff_digest=diff.diff_digest,
            added=diff.added,
            modified=diff.modified,
            deleted=diff.deleted,
            manifest_digest=diff.manifest_digest or "",
            artifact_path=str(diff.entries_path.parent),
        )
        await self._reconcile(attempt, attempt.slot, diff)

    async def _reconcile(self, attempt: LiveAttempt, slot: Slot, diff: DiffResult) -> None:
        """Make the events agree with the diff; after a crash, find the files that may be half written."""
        facts, evidence = attempt.facts, attempt.facts.evidence
        crashed = evidence.oom_event or evidence.runtime_panic or evidence.cause is Cause.SANDBOX_DIED
        final = await self._node.fswatch.finish(facts.attempt_id, slot, diff, crashed=crashed)
        evidence.suspect_files = len(final.suspects)
        if final.suspects:
            log.warning("files_withheld_from_judges", attempt_id=facts.attempt_id, files=len(final.suspects))

    async def _freeze(self, attempt: LiveAttempt) -> None:
        """The kernel lets go of a dead sandbox's files a moment after the container's end is reported."""
        for last in (False,) * (FREEZE_TRIES - 1) + (True,):
            assert attempt.slot is not None
            try:
                attempt.slot = await self._node.workspace.freeze(attempt.slot)
            except WorkspaceBusyError:
                if last:
                    raise
                await asyncio.sleep(FREEZE_PAUSE_SECONDS)
            else:
                return

    async def _finish_telemetry(self, attempt: LiveAttempt) -> None:
        facts = attempt.facts
        done = await self._node.telemetry.finish(facts.attempt_id)
        facts.usage.peak_memory_bytes = done.peaks.peak_memory_bytes
        facts.usage.peak_cpu_percent = done.peaks.peak_cpu_percent
        facts.usage.disk_written_bytes = done.peaks.disk_written_bytes
        facts.usage.pids_peak = done.peaks.pids_peak
        facts.usage.telemetry_events = done.telemetry_events
        facts.evidence.telemetry_gaps = done.telemetry_gaps
        facts.evidence.trace_incomplete = not done.trace_complete
        facts.evidence.trace_dropped = done.trace_dropped
        facts.evidence.blocked_syscalls = max(facts.evidence.blocked_syscalls, done.blocked_syscalls)
        facts.evidence.memory_near_limit = facts.evidence.memory_near_limit or done.memory_near_limit
        facts.evidence.oom_kill_count = max(facts.evidence.oom_kill_count, done.oom_kill_count)
        # A refusal says it exactly; samples stand in where nothing is traced.
        sampled = facts.limits is not None and done.peaks.pids_peak >= facts.limits.pids
        facts.evidence.pids_exhausted = facts.evidence.pids_exhausted or done.pids_refused or sampled


class Releaser:
    """Lets go of what an ended attempt still holds."""

    def __init__(self, node: NodeContext, ender: Ender, before: Callable[[LiveAttempt], Awaitable[None]]) -> None:
        """`before` ends what else uses the workspace (judge sandboxes) and forgets what else is kept of the attempt."""
        self._node = node
        self._ender = ender
        self._before = before

    async def release(self, attempt: LiveAttempt) -> None:
        """End it if it runs, then destroy its workspace in the background. Legal in every state, idempotent."""
        async with attempt.lock:
            if attempt.facts.state is State.RELEASED:
                return
            await self._ender.begin(attempt, Cause.CANCEL) if not attempt.facts.ended else await _joined(attempt)
            attempt.facts.state = State.RELEASED
            self._node.registry.remove(attempt)
        self._node.spawn(self._destroy(attempt), f"{attempt.facts.attempt_id}:destroy")

    async def _destroy(self, attempt: LiveAttempt) -> None:
        try:
            await self._before(attempt)
            await self._node.fswatch.forget(attempt.facts.attempt_id)
            await self._node.runtime.destroy(attempt.facts.container_id)
            if attempt.slot is not None:
                await self._node.workspace.destroy(attempt.slot)
            await self._node.telemetry.discard(attempt.facts.attempt_id)
        except (RuntimeFault, WorkspaceError, TelemetryError, OSError) as error:
            # What is left is found by the next start's reclaim; the attempt itself is over.
            log.error("destroy_failed", attempt_id=attempt.facts.attempt_id, exc_info=error)
        await self._node.blocking(self._node.journal.drop, attempt.facts.attempt_id)


async def _joined(attempt: LiveAttempt) -> None:
    if attempt.ending is not None:
        await asyncio.shield(attempt.ending)


async def keep_panic(runtime: Runtime, facts: AttemptFacts) -> None:
    """Keep the beginning of what the sandbox's kernel wrote when it panicked: its file goes with the container.

    In the evidence, which puts it into the record, and in this process's log; both are operators', no agent's.
    """
    panic = await runtime.panic_log(facts.container_id)
    if not panic:
        return
    excerpt = panic[:PANIC_EXCERPT_BYTES].decode(errors="replace")
    facts.evidence.runtime_panic, facts.evidence.runtime_panic_excerpt = True, excerpt
    log.error("sandbox_panicked", attempt_id=facts.attempt_id, container_id=facts.container_id, excerpt=excerpt)


def _note(evidence: Evidence, seen: Observation, entry_id: str) -> None:
    """Put one look at the ended container into the evidence."""
    evidence.identity_confirmed = seen.entry_id == entry_id
    evidence.container_exit_code = seen.exit_code
    evidence.oom_event = evidence.oom_event or seen.oom_killed
