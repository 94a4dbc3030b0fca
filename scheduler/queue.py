"""The queue's rules: who may enter, and who has waited too long. Order is the store's (`queue`: priority, then age).

An attempt waits by the steady clock, so that a jump of the wall clock neither expires nor keeps anybody. What expires
never started: it ends FAILED, counted as a void, since the platform had no place for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from formats.record import Fault, Outcome, State
from scheduler import ids
from scheduler.attempts import Attempts
from scheduler.challenges import Challenges
from scheduler.errors import BadInput
from scheduler.limits import Limits
from scheduler.model import Attempt, Priority, RequestKey
from scheduler.store.port import Changes

AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")
CANCELLED_BEFORE_START = "cancelled before it started"


class Queue:
    """Entering and expiring. `offered` says which stacks the nodes offer, None while that is not known."""

    def __init__(
        self,
        attempts: Attempts,
        challenges: Challenges,
        limits: Limits,
        offered: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        self._offered = offered
        self._attempts = attempts
        self._challenges = challenges
        self.limits = limits

    async def submit(
        self,
        request: RequestKey,
        *,
        challenge_digest: str,
        agent_id: str,
        priority: Priority,
        supersedes: str | None,
    ) -> Attempt:
        """Queue an attempt, once per request.

        Raises BadInput, ChallengeUnknown, AttemptUnknown (a superseded one), QueueFull, RequestIdReused.
        """
        if not AGENT_ID.fullmatch(agent_id):
            raise BadInput(("agent_id", f"{agent_id[:80]!r} does not match {AGENT_ID.pattern}"))
        challenge = await self._challenges.row(challenge_digest)
        await self._check_stack(challenge_digest)
        if supersedes is not None:
            await self._check_superseded(supersedes, challenge.challenge_id, agent_id)
        clock = self._attempts.clock
        attempt = Attempt(
            attempt_id=ids.attempt_id(),
            challenge_id=challenge.challenge_id,
            challenge_digest=challenge.digest,
            agent_id=agent_id,
            priority=priority,
            supersedes=supersedes,
            created_ns=clock.wall_ns(),
            queued_mark=clock.steady(),
            network_json=challenge.network_json,
            network_digest=challenge.network_digest,
        )
        return await self._attempts.insert(request, attempt, self.limits.max_queue_depth)

    async def _check_stack(self, challenge_digest: str) -> None:
        """Refuse what no node could ever run: it would only fail later, and look like the platform's fault."""
        offered = self._offered()
        stack = (await self._challenges.spec(challenge_digest)).stack
        if offered is not None and stack not in offered:
            raise BadInput(("stack", f"no node offers the stack {stack!r}; known: {', '.join(sorted(offered))}"))

    async def expire(self) -> list[Attempt]:
        """End what waited longer than it may; the attempts that this call ended."""
        oldest = self._attempts.clock.steady() - self.limits.queue_timeout_seconds
        expired = []
        for attempt in await self._attempts.find({"state": State.QUEUED}):
            if attempt.queued_mark > oldest:
                continue
            reason = f"not started within {self.limits.queue_timeout_seconds:g} seconds"
            changes = never_started(attempt, self._attempts.clock.wall_ns(), Outcome.VOIDED, reason)
            # The fence is part of the guard: an attempt that was placed and came back is looked at anew.
            when = {"state": State.QUEUED, "fence": attempt.fence}
            change = await self._attempts.change(attempt.attempt_id, when, changes)
            if change.applied:
                expired.append(change.attempt)
        return expired

    async def _check_superseded(self, attempt_id: str, challenge_id: str, agent_id: str) -> None:
        before = await self._attempts.get(attempt_id)
        if (before.challenge_id, before.agent_id) != (challenge_id, agent_id):
            raise BadInput(("supersedes", f"{attempt_id} is another agent's or of another challenge"))


def never_started(attempt: Attempt, wall_ns: int, outcome: Outcome, reason: str) -> Changes:
    """What becomes of an attempt that ends without ever having run: FAILED."""
    return {
        "state": State.FAILED,
        "outcome": outcome,
        "fault": Fault.NONE if outcome is Outcome.CANCELLED else Fault.PLATFORM,
        "reason": reason,
        "exit_reason": "cancelled" if outcome is Outcome.CANCELLED else "voided",
        "ended_ns": wall_ns,
        "node_id": None if attempt.state is State.QUEUED else attempt.node_id,
        "released": attempt.state is State.QUEUED or attempt.node_id is None,
    }
