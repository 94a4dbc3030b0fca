"""Work for judges: leased, renewed, delivered; given out again when a worker vanishes.

A judge's own failure is never a zero: it is tried again, and an attempt whose judging failed MAX_TRIES times ends
VOIDED with the platform at fault. The results and the state that follows are one transaction. Delivering twice under
the same lease is one delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog
from gauntlet.scheduler.v1 import judging_service_pb2 as judging_pb

from formats.record import EXIT_REASONS, Fault, Outcome, State
from scheduler import ids
from scheduler.attempts import Attempts
from scheduler.errors import LeaseLost
from scheduler.model import Attempt
from scheduler.results import check_results, pack_results
from scheduler.store.port import Changes, ControlStore
from scheduler.store.threaded import StoreThread

log = structlog.get_logger(__name__)

MAX_TRIES = 3
LEASE_SECONDS = 60.0
# Between a failed try and the next, so that a passing fault (a node that restarts) can pass.
RETRY_SECONDS = 2.0
POLL_SECONDS = 1.0


class Judging:
    """Gives out attempts to judge."""

    def __init__(
        self,
        attempts: Attempts,
        store: ControlStore,
        thread: StoreThread,
        *,
        lease_seconds: float = LEASE_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
    ) -> None:
        self._attempts = attempts
        self._store = store
        self._thread = thread
        self.lease_seconds = lease_seconds
        self._retry_seconds = retry_seconds

    async def lease(self, worker_id: str, wait_seconds: float) -> Attempt | None:
        """The next attempt to judge, leased; None when there was none for `wait_seconds`."""
        until = self._attempts.clock.steady() + wait_seconds
        while True:
            leased = await self._take(worker_id)
            left = until - self._attempts.clock.steady()
            if leased is not None or left <= 0:
                return leased
            await self._attempts.bells.judging.wait(min(left, POLL_SECONDS))

    async def renew(self, lease_id: str) -> None:
        """Extend a lease. Raises LeaseLost."""
        attempt = await self._leased(lease_id)
        when = {"state": State.JUDGING, "judging_lease_id": lease_id}
        changes = {"judging_until": self._attempts.clock.steady() + self.lease_seconds}
        if not (await self._attempts.change(attempt.attempt_id, when, changes)).applied:
            raise LeaseLost(lease_id)

    async def complete(self, lease_id: str, results: Sequence[judging_pb.JudgeResult], fault: str) -> None:
        """Take a delivery: results, or the fault that prevented them. Raises LeaseLost, BadInput."""
        attempt = await self._leased(lease_id)
        if attempt.state is not State.JUDGING:
            return  # the answer to the first delivery was lost
        when = {"state": State.JUDGING, "judging_lease_id": lease_id}
        if fault:
            log.warning("judging_failed", attempt_id=attempt.attempt_id, tries=attempt.judging_tries, fault=fault)
            changes = self._failed(attempt, fault)
        else:
            checked = check_results(results)
            contents = {(r.judge, name): content for r in results for name, content in r.documents.items()}
            await self._thread.run(self._store.put_documents, attempt.attempt_id, contents)
            changes = {"state": State.SCORED, "results": pack_results(checked)}
        change = await asyncio.shield(self._attempts.change(attempt.attempt_id, when, changes))
        if not change.applied:
            raise LeaseLost(lease_id)

    async def sweep(self) -> None:
        """End what was given out MAX_TRIES times to workers that all vanished."""
        now = self._attempts.clock.steady()
        for attempt in await self._attempts.find({"state": State.JUDGING}):
            expired = attempt.judging_until is not None and attempt.judging_until <= now
            if expired and attempt.judging_tries >= MAX_TRIES:
                when = {"state": State.JUDGING, "judging_lease_id": attempt.judging_lease_id}
                changes = self._failed(attempt, "no worker came back with results")
                await self._attempts.change(attempt.attempt_id, when, changes)

    async def step(self) -> None:
        """One turn of the loop."""
        await asyncio.sleep(POLL_SECONDS)
        await self.sweep()

    async def _take(self, worker_id: str) -> Attempt | None:
        now = self._attempts.clock.steady()
        for attempt in await self._attempts.find({"state": State.JUDGING}):
            held = attempt.judging_lease_id is not None and (attempt.judging_until or 0) > now
            if held or attempt.judging_tries >= MAX_TRIES or (attempt.judging_ready_mark or 0) > now:
                continue
            when = {
                "state": State.JUDGING,
                "judging_lease_id": attempt.judging_lease_id,
                "judging_tries": attempt.judging_tries,
            }
            changes = {
                "judging_lease_id": ids.lease_id(),
                "judging_worker": worker_id,
                "judging_until": now + self.lease_seconds,
                "judging_tries": attempt.judging_tries + 1,
            }
            change = await self._attempts.change(attempt.attempt_id, when, changes)
            if change.applied:
                log.info("judging_leased", attempt_id=attempt.attempt_id, worker_id=worker_id)
                return change.attempt
        return None

    async def _leased(self, lease_id: str) -> Attempt:
        found = await self._attempts.find({"judging_lease_id": lease_id}, limit=1) if lease_id else []
        if not found:
            raise LeaseLost(lease_id)
        return found[0]

    def _failed(self, attempt: Attempt, fault: str) -> Changes:
        if attempt.judging_tries < MAX_TRIES:
            ready = self._attempts.clock.steady() + self._retry_seconds
            return {"judging_lease_id": None, "judging_until": None, "judging_ready_mark": ready}
        ended = attempt.outcome.value if attempt.outcome is not None else "unknown"
        return {
            "state": State.VOIDED,
            "outcome": Outcome.VOIDED,
            "fault": Fault.PLATFORM,
            "exit_reason": EXIT_REASONS[Outcome.VOIDED],
            "agent_feedback": None,
            "reason": f"judging failed {attempt.judging_tries} times ({fault}); the attempt had ended {ended}",
        }
