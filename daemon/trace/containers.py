"""Every traced container of this machine: who connected, which container that is, sessions made anew.

Owns the reader and the connections from their greeting to their end. Leaves attempts to `sink`, and what a connection
says to `traced`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import structlog

from daemon.trace.errors import Untraced
from daemon.trace.reader import Connection, Reader
from daemon.trace.runsc import Runsc, RunscError
from daemon.trace.traced import Traced

ATTACHED_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Containers:
    """The containers that are heard now. Use on one event loop."""

    def __init__(self, trace_socket: Path, session_file: Path, runsc: Runsc, gone: Callable[[Traced], None]) -> None:
        """`gone` is told of each connection that has ended, once everything of it is read."""
        self._session_file = session_file
        self._runsc = runsc
        self._gone = gone
        self._reader = Reader(trace_socket, self._accepted)
        self._containers: dict[str, Traced] = {}
        self._connected: dict[Traced, asyncio.Task[None]] = {}
        self._expected: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._attaching: dict[int, str] = {}

    def start(self) -> None:
        """Listen. Raises OSError."""
        self._reader.start()

    async def stop(self) -> None:
        """Stop hearing, work off what was heard."""
        self._reader.stop()
        await asyncio.gather(*self._connected.values())

    def find(self, container_id: str) -> Traced | None:
        """A container's connection; None when nobody hears it."""
        return self._containers.get(container_id)

    def bound(self) -> list[Traced]:
        """Those that are an attempt's."""
        return [traced for traced in self._containers.values() if traced.attempt is not None]

    async def expect(self, container_id: str) -> None:
        """Wait until a container's trace has begun. Wait with a deadline."""
        event = self._expected[container_id]
        try:
            await event.wait()
        finally:
            if not event.is_set():
                self._expected.pop(container_id, None)

    def _accepted(self, connection: Connection) -> None:
        traced = Traced(connection, self._identified)
        self._connected[traced] = asyncio.create_task(self._follow(traced))
        if (container_id := self._attaching.pop(connection.peer_pid, "")) != "":
            traced.identify(container_id)

    async def _follow(self, traced: Traced) -> None:
        try:
            await traced.run()
        except Exception as error:
            # The boundary: one sandbox's trouble is no other's.
            log.error("trace_failed", container_id=traced.container_id, exc_info=error)
            if traced.attempt is not None:
                traced.attempt.lost = True
        del self._connected[traced]
        if self._containers.get(traced.container_id) is traced:
            del self._containers[traced.container_id]
            self._expected.pop(traced.container_id, None)
        self._gone(traced)

    def _identified(self, traced: Traced) -> None:
        if traced.container_id in self._containers:
            # A container connects once: whoever else bears its name is somebody else.
            log.error("trace_identity_taken", container_id=traced.container_id)
            return
        self._containers[traced.container_id] = traced
        self._expected[traced.container_id].set()

    async def attach(self, container_id: str) -> Traced:
        """Make a session for a container that has none here, and learn what runs in it. Raises Untraced."""
        pids: list[int] = []

        def began(pid: int) -> None:
            pids.append(pid)
            # It may have connected already, or will now.
            for traced in self._connected:
                if traced.connection.peer_pid == pid:
                    traced.identify(container_id)
                    return
            self._attaching[pid] = container_id

        try:
            await self._runsc.attach(container_id, self._session_file, began)
            async with asyncio.timeout(ATTACHED_SECONDS):
                await self._expected[container_id].wait()
            traced = self._containers[container_id]
            for seen in await self._runsc.processes(container_id):
                traced.tree.seed(seen.pid, seen.ppid, seen.argv)
        except (RunscError, TimeoutError, KeyError, OSError) as error:
            raise Untraced(f"container {container_id[:12]} cannot be traced: {error or 'no connection'}") from error
        finally:
            for pid in pids:
                self._attaching.pop(pid, None)
        log.info("trace_attached", container_id=container_id)
        return traced
