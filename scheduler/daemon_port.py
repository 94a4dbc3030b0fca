"""The port to a node's daemon: the few verbs the scheduler needs, in `gauntlet.daemon.v1` messages.

Failures are `wire.errors.WireFailure`; one with an empty `reason` came from the transport, not from the daemon.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb


class DaemonClient(ABC):
    """One node's control interface. Every verb is idempotent, see daemon_service.proto."""

    @abstractmethod
    async def claim(self, request: daemon_pb.ClaimRequest) -> daemon_pb.SandboxAttempt:
        """Claim a sandbox. Raises WireFailure."""

    @abstractmethod
    async def put_challenge(self, digest: str, path: Path) -> None:
        """Send a packed challenge. Raises WireFailure."""

    @abstractmethod
    async def end_attempt(self, request: daemon_pb.EndAttemptRequest) -> None:
        """Order the end of an attempt. Raises WireFailure."""

    @abstractmethod
    async def release_attempt(self, request: daemon_pb.ReleaseAttemptRequest) -> None:
        """Let go of an attempt. Raises WireFailure."""

    @abstractmethod
    def watch(self) -> AsyncIterator[daemon_pb.WatchAttemptsResponse]:
        """The node's attempts: a snapshot, then changes. Raises WireFailure when the stream ends."""

    @abstractmethod
    def diff(self, attempt_id: str) -> AsyncIterator[daemon_pb.GetDiffResponse]:
        """A frozen workspace's diff. Raises WireFailure."""

    @abstractmethod
    def blob(self, attempt_id: str, digest: str) -> AsyncIterator[daemon_pb.GetBlobResponse]:
        """Bytes that an agent wrote. Raises WireFailure."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection."""


Connect = Callable[[str], DaemonClient]
