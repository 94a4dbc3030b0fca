"""An agent's way in: tokens for live attempts, and the little that a token opens at the scheduler.

A token is bound to the attempt's present fence and never stored: a new lease ends the old one's tokens. It never
opens events, diff, record or scores.
"""

from __future__ import annotations

from formats.record import State
from scheduler.attempts import Attempts
from scheduler.errors import NotLive
from scheduler.model import Attempt
from scheduler.nodes import Nodes
from wire import token as tokens


class Gateway:
    """Mints and checks. `key` is the server key that the daemons hold too."""

    def __init__(self, attempts: Attempts, nodes: Nodes, key: bytes) -> None:
        self._attempts = attempts
        self._nodes = nodes
        self._key = key

    async def issue(self, attempt_id: str) -> tuple[str, str]:
        """(token, agent endpoint) of a RUNNING attempt. Raises AttemptUnknown, NotLive."""
        attempt = await self._attempts.get(attempt_id)
        if attempt.state is not State.RUNNING:
            raise NotLive(attempt_id, attempt.public_state.value)
        return tokens.mint(self._key, attempt.attempt_id, attempt.fence), self.endpoint(attempt)

    async def session(self, token: str, attempt_id: str) -> Attempt:
        """The attempt that a token opens. Raises WireError UNAUTHENTICATED for every other one, known or not."""
        named, epoch = tokens.verify(self._key, token)
        attempt = await self._attempts.known(attempt_id)
        if attempt is None or named != attempt_id or epoch != attempt.fence:
            raise tokens.unauthenticated()
        return attempt

    def endpoint(self, attempt: Attempt) -> str:
        """Where the agent's calls go; empty when the attempt is not RUNNING."""
        node = self._nodes.known(attempt.node_id)
        return node.row.agent_endpoint if node is not None and attempt.state is State.RUNNING else ""
