"""From a call's token to the attempt it may reach, and nothing else."""

from __future__ import annotations

from typing import Any

import grpc

from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptEnded, State
from daemon.attempts.registry import Registry
from wire import token


class Sessions:
    """Checks tokens against this node's attempts."""

    def __init__(self, registry: Registry, key: bytes) -> None:
        self._registry = registry
        self._key = key

    def any_state(self, context: grpc.aio.ServicerContext[Any, Any]) -> LiveAttempt:
        """The caller's attempt, ended or not. Raises WireError UNAUTHENTICATED, AttemptEnded when it is released."""
        attempt_id, epoch = token.verify(self._key, token.of_call(context))
        attempt = self._registry.find(attempt_id)
        if attempt is None:
            raise AttemptEnded(attempt_id)
        if epoch != attempt.facts.spec.fence:
            raise token.unauthenticated()
        return attempt

    async def running(self, context: grpc.aio.ServicerContext[Any, Any]) -> LiveAttempt:
        """The caller's running attempt, whose PID 1 can be asked.

        Raises WireError UNAUTHENTICATED, AttemptEnded, SandboxUnreachable.
        """
        attempt = self.any_state(context)
        if attempt.facts.state is State.RUNNING:
            await attempt.reachable()
        if attempt.facts.state is not State.RUNNING:
            raise AttemptEnded(attempt.facts.attempt_id)
        return attempt
