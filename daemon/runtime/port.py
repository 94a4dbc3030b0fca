"""The container runtime as a port.

Owns the contract every adapter passes (`tests/contract/runtime`). Adapters: `docker` (runsc or runc) and `fake`
(in memory). Leaves out who may have a sandbox (pool) and what happens in it (attempts).

Every call is safe to cancel. Every call may raise RuntimeUnavailable or RuntimeTimeout; the rest is said per call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable

from daemon.runtime.types import CgroupPaths, Created, Observation, RuntimeEvent, RuntimeVersion, SandboxSpec
from daemon.supervisor.transport import ByteTransport

TaskCounter = Callable[[], Awaitable[int | None]]
"""The number now; None, or SourceGoneError, when nobody can say."""


class Runtime(ABC):
    """Creates, observes and destroys sandboxes of this node."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> Created:
        """Create, attach PID 1's stdin, stdout and stderr, then start.

        Whatever goes wrong, cancellation included, nothing is left behind: a container that the engine makes after
        the deadline is destroyed on arrival. PID 1's stdin stays open when the transport is closed or we die.

        Raises ImageMissing, CreateFailed.
        """

    @abstractmethod
    async def attach(self, container_id: str) -> ByteTransport:
        """A new pipe to a running sandbox's PID 1 (after a restart of ours). Raises NoSuchSandbox."""

    @abstractmethod
    async def rename(self, container_id: str, name: str) -> None:
        """Give a container another name. Raises NoSuchSandbox, CreateFailed when the name is taken."""

    @abstractmethod
    async def kill(self, container_id: str, signal: str = "SIGKILL") -> None:
        """Signal PID 1, once. Raises NoSuchSandbox when it does not run."""

    @abstractmethod
    async def destroy(self, container_id: str) -> None:
        """Kill, confirm that its processes (sentry and gofer under runsc) are gone, remove.

        Idempotent: an unknown container is already destroyed. RuntimeTimeout means it is *not* confirmed: call
        again.
        """

    @abstractmethod
    async def inspect(self, container_id: str) -> Observation | None:
        """Look at one container, by id or name; None when there is none."""

    @abstractmethod
    async def list(self, instance: str) -> tuple[Observation, ...]:
        """Every container with our label of this instance, in whatever state; never anyone else's."""

    @abstractmethod
    def events(self, instance: str) -> AsyncIterator[RuntimeEvent]:
        """The ends and OOMs of this instance's containers, for ever.

        Begins with a RESYNC (subscribed first, then listed), and gives another after each reconnect; the engine's
        own restarts are waited out with back-off. Close the iterator (`aclosing`) to end it.
        """

    @abstractmethod
    async def panic_log(self, container_id: str) -> bytes:
        """What the sentry wrote when it panicked, at most 64 KiB; b"" when it did not (or the runtime has none)."""

    @abstractmethod
    async def cgroup(self, container_id: str) -> CgroupPaths:
        """Where a running container's counters are. Raises NoSuchSandbox."""

    @abstractmethod
    async def task_counter(self, container_id: str) -> TaskCounter:
        """How to count the guest's processes and threads, as its pids limit counts them. Raises NoSuchSandbox."""

    @abstractmethod
    async def image_digest(self, reference: str) -> str:
        """The id (`sha256:…`) of the image behind a tag. Raises ImageMissing."""

    @abstractmethod
    async def ping(self) -> None:
        """Return when the engine answers."""

    @abstractmethod
    async def version(self) -> RuntimeVersion:
        """Who answers."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of connections and threads; sandboxes go on. Late creates are waited for, briefly."""
