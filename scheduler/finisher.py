"""The end of an attempt: from a daemon's last report, or from its silence, to a decided outcome.

One compare-and-set writes the verdict and the state that follows, guarded by the fence: places under the limits are
counted from the states, so the same transaction gives them back. The writes are shielded: a cancelled caller cannot
lose an outcome. Who decides is `scheduler.classification`; judging, record and release follow from the state.
"""

from __future__ import annotations

import asyncio

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb

from formats.record import State
from scheduler.attempts import Attempts
from scheduler.classification import Cause, Evidence, Verdict, classify
from scheduler.evidence import evidence_of
from scheduler.model import ACTIVE, Attempt
from scheduler.store.port import Changes

log = structlog.get_logger(__name__)


class Finisher:
    """Ends attempts."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts

    async def finish(self, attempt: Attempt, report: daemon_pb.SandboxAttempt) -> bool:
        """Take a FROZEN or LOST report of the attempt's present lease; whether this call ended it."""
        verdict = classify(evidence_of(report), memory_limit_bytes=report.limits.memory_bytes)
        ended_ns = report.end_time.ToNanoseconds() or self._attempts.clock.wall_ns()
        changes = {
            **_verdict_changes(verdict, ended_ns),
            "report": report.SerializeToString(),
            "started_ns": report.start_time.ToNanoseconds() or attempt.started_ns,
        }
        return await self._end(attempt, verdict, changes)

    async def void(self, attempt: Attempt, fault: str) -> bool:
        """End an attempt that the platform lost without a report; whether this call ended it.

        `fault` says what was observed.
        """
        evidence = Evidence(cause=Cause.PLATFORM, container_exit_code=None, platform_fault=fault)
        verdict = classify(evidence, memory_limit_bytes=0)
        return await self._end(attempt, verdict, _verdict_changes(verdict, self._attempts.clock.wall_ns()))

    async def _end(self, attempt: Attempt, verdict: Verdict, changes: Changes) -> bool:
        now = self._attempts.clock.steady()
        when = {"state": ACTIVE, "fence": attempt.fence}
        marks = {"ended_mark": now, "judging_ready_mark": now}
        change = await asyncio.shield(self._attempts.change(attempt.attempt_id, when, {**changes, **marks}))
        if change.applied:
            log.info(
                "attempt_ended",
                attempt_id=attempt.attempt_id,
                outcome=verdict.outcome.value,
                fault=verdict.fault.value,
                reason=verdict.reason,
            )
        return change.applied


def _verdict_changes(verdict: Verdict, ended_ns: int) -> dict[str, object]:
    if verdict.judged:
        state = State.JUDGING
    else:
        # A cancelled attempt that ran is final without scores; FAILED is for what never ran.
        state = State.VOIDED if verdict.outcome.value == State.VOIDED.value else State.SCORED
    return {
        "state": state,
        "outcome": verdict.outcome,
        "fault": verdict.fault,
        "flags": verdict.flags,
        "reason": verdict.reason,
        "exit_reason": verdict.exit_reason,
        "agent_feedback": verdict.agent_feedback,
        "ended_ns": ended_ns,
    }
