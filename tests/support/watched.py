"""Filesystem telemetry under test: a real workspace, a real overlay, a real spool, and the agent's hands."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from daemon.fswatch.events import GONE, Told, fold, path_of
from daemon.fswatch.facade import FilesystemWatch
from daemon.fswatch.final import Finish
from daemon.telemetry.facade import Telemetry
from daemon.workspace.model import DiffResult, Slot
from formats import event
from formats.diff import DiffEntry, read_lines
from tests.support.workspaces import Host, agent, agent_python

ATTEMPT = "att_1"


class Watched:
    """One attempt on a host: `run` acts as the agent, `end` freezes, extracts and reconciles."""

    def __init__(self, host: Host, telemetry: Telemetry, watch: FilesystemWatch, slot: Slot) -> None:
        self.host, self.telemetry, self.watch, self.slot = host, telemetry, watch, slot
        self.diff: DiffResult | None = None

    def run(self, script: str) -> None:
        """A shell script as uid 1000 in the workspace."""
        agent(self.slot, script)

    def python(self, script: str) -> None:
        """Python as uid 1000 in the workspace."""
        agent_python(self.slot, script)

    async def lines(self) -> list[dict[str, Any]]:
        """What the spool holds now, gap records included."""
        await self.telemetry.flush(ATTEMPT, "filesystem")
        return [json.loads(line) for line in self._spool()]

    async def events(self) -> list[dict[str, Any]]:
        """The events in the spool."""
        return [line for line in await self.lines() if "gap" not in line]

    async def seen(self, condition: Callable[[list[dict[str, Any]]], object]) -> list[dict[str, Any]]:
        """The events, once they meet a condition. Fails after 10 s."""
        async with asyncio.timeout(10):
            while not condition(events := await self.events()):  # noqa: ASYNC110 (a spool tells nobody)
                await asyncio.sleep(0.02)
        return events

    async def end(self, *, crashed: bool = False) -> Finish:
        """The end of an attempt, as the daemon orders it."""
        await self.watch.stop(ATTEMPT)
        self.slot = await self.host.manager.freeze(self.slot)
        self.diff = await self.host.manager.extract(self.slot, ATTEMPT)
        return await self.watch.finish(ATTEMPT, self.slot, self.diff, crashed=crashed)

    async def disagreements(self) -> list[str]:
        """Paths whose last event differs from the diff, and what breaks the sequence; after `end`."""
        lines = await self.lines()
        problems = event.sequence_problems(lines)
        times = [line["timestamp_ns"] for line in lines if "gap" not in line]
        problems += [] if times == sorted(times) else ["times run against the sequence"]
        told = fold(self._spool())
        entries = {entry.path: entry for entry in self.entries()}
        before = (await self.host.manager.template(self.host.digest)).baseline()
        for path in told.keys() | entries.keys():
            entry: Any = entries.get(path) or before.get(path)
            gone = entry is None or getattr(entry, "change", "") == "deleted"
            size = entry.size if entry is not None and entry.type in ("file", "symlink") else None
            wanted = GONE if gone else Told(entry.type, size, entry.sha256)
            if told.get(path) != wanted:
                problems.append(f"{path!r}: told {told.get(path)}, is {wanted}")
        return problems

    def entries(self) -> list[DiffEntry]:
        """The diff."""
        assert self.diff is not None, "end first"
        return list(read_lines(self.diff.entries_path.read_bytes().splitlines()))

    def _spool(self) -> list[bytes]:
        path = self.telemetry.spool_root / ATTEMPT / "filesystem.jsonl"
        return path.read_bytes().splitlines()


@asynccontextmanager
async def watched(host: Host, mechanism: str = "fanotify", slot: Slot | None = None) -> AsyncIterator[Watched]:
    """A watched attempt; with `slot`, one that an earlier life of the daemon had watched."""
    telemetry = Telemetry(host.state, "node", f"unix://{host.directory}/no-collector.sock")
    watch = FilesystemWatch(telemetry, host.manager, host.state, f"t{secrets.token_hex(4)}", mechanism=mechanism)
    await telemetry.start()
    await watch.start()
    resumed = slot is not None
    slot = slot or await host.assigned()
    try:
        if resumed:
            await telemetry.resume(ATTEMPT)
            watch.resume(ATTEMPT, slot)
        else:
            await telemetry.open(ATTEMPT)
            watch.begin(ATTEMPT, slot)
        yield Watched(host, telemetry, watch, slot)
    finally:
        await watch.close()
        await telemetry.close()


def brief(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Type and path of each."""
    return [(line["event_type"], line["file_path"]) for line in events]


def of(events: list[dict[str, Any]], path: bytes) -> list[dict[str, Any]]:
    """Events of one path."""
    return [line for line in events if path_of(line) == path]
