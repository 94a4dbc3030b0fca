"""What watching daemons are told: durable sizes of spool files, runs of tools. Per node; nobody is waited for.

Sizes are coalesced to the latest; a run is kept until it is acknowledged, and told again to every new watcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from gauntlet.telemetry.v1 import trace_service_pb2 as pb


class _Watcher:
    def __init__(self) -> None:
        self.sizes: dict[tuple[str, str], int] = {}
        self.tools: dict[tuple[str, int], pb.ToolRun] = {}
        self.ended: dict[str, str] = {}
        self.wake = asyncio.Event()

    async def next(self) -> AsyncIterator[pb.WatchResponse]:
        while True:
            await self.wake.wait()
            self.wake.clear()
            while self.tools:
                yield pb.WatchResponse(tool=self.tools.pop(next(iter(self.tools))))
            while self.ended:
                attempt_id, container_id = self.ended.popitem()
                yield pb.WatchResponse(ended=pb.SessionEnded(container_id=container_id, attempt_id=attempt_id))
            while self.sizes:
                key = next(iter(self.sizes))
                size = pb.StreamSize(attempt_id=key[0], kind=key[1], durable_bytes=self.sizes.pop(key))
                yield pb.WatchResponse(size=size)


class News:
    """One node's news."""

    def __init__(self) -> None:
        self._watchers: set[_Watcher] = set()
        self._sizes: dict[tuple[str, str], int] = {}
        self._tools: dict[tuple[str, int], pb.ToolRun] = {}

    def size(self, attempt_id: str, kind: str, durable: int) -> None:
        """A spool file grew."""
        self._sizes[(attempt_id, kind)] = durable
        for watcher in self._watchers:
            watcher.sizes[(attempt_id, kind)] = durable
            watcher.wake.set()

    def tool(self, run: pb.ToolRun) -> None:
        """A tool ran."""
        key = (run.attempt_id, run.number)
        self._tools[key] = run
        for watcher in self._watchers:
            watcher.tools[key] = run
            watcher.wake.set()

    def ended(self, attempt_id: str, container_id: str) -> None:
        """An attempt's sentry closed its connection."""
        for watcher in self._watchers:
            watcher.ended[attempt_id] = container_id
            watcher.wake.set()

    def acknowledged(self, attempt_id: str, number: int) -> None:
        """An attempt's runs up to a number are recorded."""
        for key in [key for key in self._tools if key[0] == attempt_id and key[1] <= number]:
            del self._tools[key]

    def unacknowledged(self, attempt_id: str) -> list[pb.ToolRun]:
        """An attempt's runs that were not, in order."""
        return [run for key, run in sorted(self._tools.items()) if key[0] == attempt_id]

    def forget(self, attempt_id: str) -> None:
        """Tell of an attempt no more; what watchers have pending still goes out."""
        self._sizes = {key: size for key, size in self._sizes.items() if key[0] != attempt_id}
        self._tools = {key: run for key, run in self._tools.items() if key[0] != attempt_id}

    @contextmanager
    def watching(self) -> Iterator[AsyncIterator[pb.WatchResponse]]:
        """Everything there is, then changes, for ever."""
        watcher = _Watcher()
        watcher.sizes.update(self._sizes)
        watcher.tools.update(self._tools)
        watcher.wake.set()
        self._watchers.add(watcher)
        try:
            yield watcher.next()
        finally:
            self._watchers.discard(watcher)
