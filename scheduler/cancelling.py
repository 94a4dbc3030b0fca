"""Cancelling: an operator's order to end an attempt, legal in every state.

A queued attempt ends at once, FAILED and CANCELLED. A starting or running one is marked; the order to its node is sent
until the node answers (`scheduler.orders`), and the outcome is decided by what the node then reports. After the end
it changes nothing.
"""

from __future__ import annotations

from formats.record import Outcome, State
from scheduler.attempts import Attempts
from scheduler.model import ACTIVE, Attempt, RequestKey
from scheduler.queue import CANCELLED_BEFORE_START, never_started
from scheduler.store.port import Changes, When

REASON = "cancelled by an operator"


class Cancelling:
    """Cancels."""

    def __init__(self, attempts: Attempts) -> None:
        self._attempts = attempts

    async def cancel(self, request: RequestKey, attempt_id: str) -> Attempt:
        """Cancel; the attempt as it now is. Raises AttemptUnknown, RequestIdReused."""
        when: When
        changes: Changes
        while True:
            attempt = await self._attempts.get(attempt_id)
            if attempt.state is State.QUEUED:
                when = {"state": State.QUEUED, "fence": attempt.fence}
                wall = self._attempts.clock.wall_ns()
                changes = never_started(attempt, wall, Outcome.CANCELLED, CANCELLED_BEFORE_START)
            elif attempt.state in ACTIVE:
                when = {"state": attempt.state, "fence": attempt.fence}
                changes = {"cancel_reason": REASON}
            else:
                when, changes = {"state": attempt.state}, {}
            # A state that moved meanwhile is looked at again: every turn of this loop is another step of the attempt.
            change = await self._attempts.change(attempt_id, when, changes, request)
            if change.applied or change.repeated:
                return change.attempt
