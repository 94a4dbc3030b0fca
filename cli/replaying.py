"""Playing recorded calls again, through the public API: in order of their start, concurrent where they were.

A call waits for those that had ended before it began, as long as patience lasts (three times what it took, and half a
minute). While others still run it also keeps its recorded distance from the latest of them, ten seconds at most: a
server needs its time to listen. What the attempt's end had cut off gets the time it had, no more. A file write that
failed is left out: it left nothing. Owns no event and no digest; which calls there are is `formats.replay`'s word.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc

from cli import sandbox
from cli.clients import Agent
from cli.player import ENDED, Report
from formats.replay import ARGUMENTS, Call
from wire import errors

PATIENCE_FACTOR = 3.0
PATIENCE_SECONDS = 30.0
PACE_SECONDS = 10.0
# Signals by which the platform ends what still runs at an attempt's end.
END_SIGNALS = (9, 15)


@dataclass(frozen=True)
class Played:
    """How many calls were played, how many were left out, and how many ended otherwise than recorded."""

    calls: int
    skipped: int
    different: int


@dataclass(frozen=True)
class _Begun:
    """A call under way, and when it began here (monotonic seconds)."""

    call: Call
    at: float


class Replay:
    """One attempt's calls on the way to one sandbox; `blobs` maps digests to files that hold their bytes."""

    def __init__(self, agent: Agent, blobs: Mapping[str, Path], report: Report) -> None:
        self._agent = agent
        self._blobs = blobs
        self._report = report
        self._running: dict[asyncio.Task[bool], _Begun] = {}
        self._slow: set[int] = set()
        self._different = 0
        self._over = False

    async def play(self, calls: Sequence[Call]) -> Played:
        """Play all of them, then submit. An attempt that ends under them ends the replay."""
        played = skipped = 0
        try:
            for call in calls:
                await self._settle(call.began_ns)
                if self._over:
                    break
                if call.verb == "write_file" and call.exit_code != 0:
                    skipped += 1
                    continue
                await self._pace(call)
                self._begin(self._whole(call))
                played += 1
            await self._settle(None)
            if not self._over:
                await self._submit()
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)
        return Played(played, skipped, self._different)

    def _begin(self, call: Call) -> None:
        task = asyncio.create_task(self._play(call), name=f"call:{call.number}")
        self._running[task] = _Begun(call, time.monotonic())

    async def _pace(self, call: Call) -> None:
        """Keep the recorded distance from the latest call that still runs."""
        if self._running:
            latest = list(self._running.values())[-1]
            due = latest.at + (call.began_ns - latest.call.began_ns) / 1e9
            await asyncio.sleep(min(max(due - time.monotonic(), 0.0), PACE_SECONDS))

    async def _settle(self, before_ns: int | None) -> None:
        """Wait for the calls that had ended before `before_ns` (None: for all, as long as each is worth it)."""
        for task, begun in list(self._running.items()):
            call, last = begun.call, before_ns is None
            cut = not call.ended_by_itself or (last and call.signal in END_SIGNALS)
            if before_ns is not None and not task.done() and (cut or call.ended_ns > before_ns):
                continue
            took = (call.ended_ns - call.began_ns) / 1e9
            patience = took if cut else PATIENCE_FACTOR * took + PATIENCE_SECONDS
            await asyncio.wait({task}, timeout=max(begun.at + patience - time.monotonic(), 0.0))
            if task.done():
                del self._running[task]
                self._different += not task.result()
            elif not cut and call.number not in self._slow:
                self._slow.add(call.number)
                self._report(f"{_title(call)} takes longer than recorded", False, 0.0, b"")

    async def _submit(self) -> None:
        began = time.monotonic()
        try:
            await sandbox.submit(self._agent)
        except errors.WireFailure as failure:
            if failure.reason not in ENDED:
                raise
            self._report("the attempt ended before the replay did", False, 0.0, b"")
        else:
            self._report("submit", True, time.monotonic() - began, b"")

    async def _play(self, call: Call) -> bool:
        """Play one call; whether it ended as recorded."""
        began, what = time.monotonic(), _title(call)
        try:
            end = await self._act(call)
        except (grpc.RpcError, errors.WireFailure) as error:
            failure = error if isinstance(error, errors.WireFailure) else errors.decode(error)
            if failure.reason in ENDED:
                self._over = True
            elif failure.code in ("UNAVAILABLE", "INTERNAL"):
                raise failure from error
            end, what = (None if call.exit_code is None else 1, None), f"{what} → {failure}"
        same = end == (call.exit_code, call.signal)
        if not same:
            what = f"{what} (recorded: {_end(call.exit_code, call.signal)}, now: {_end(*end)})"
        self._report(what, same, time.monotonic() - began, b"")
        return same

    async def _act(self, call: Call) -> tuple[int | None, int | None]:
        """Make the call; its exit code (0 for a file call) and signal."""
        agent, arguments = self._agent, call.arguments
        match call.verb:
            case "exec":
                ended = await sandbox.run_command(
                    agent,
                    list(arguments["argv"]),
                    cwd=arguments.get("cwd"),
                    stdin=self._bytes(call, "stdin"),
                    timeout_seconds=arguments.get("timeout_seconds"),
                    environment=arguments.get("environment"),
                )
                return ended.exit_code, ended.signal
            case "write_file":
                data = self._bytes(call, "content") or b""
                await sandbox.write_file(agent, arguments["path"], data, arguments.get("mode", 0))
            case "read_file":
                places = {name: arguments.get(name, 0) for name in ("offset", "length")}
                await sandbox.read_file(agent, arguments["path"], len, **places)
            case "list":
                await sandbox.list_directory(agent, arguments["path"])
            case "stat":
                await sandbox.stat(agent, arguments["path"])
            case "mkdir":
                await sandbox.make_directory(agent, arguments["path"], parents=bool(arguments.get("parents")))
            case "remove":
                await sandbox.remove(agent, arguments["path"], recursive=bool(arguments.get("recursive")))
            case other:
                raise ValueError(f"{other!r} is no call of the agent's API")
        return 0, None

    def _bytes(self, call: Call, name: str) -> bytes | None:
        content = call.contents.get(name)
        return self._blobs[content.digest].read_bytes() if content is not None else None

    def _whole(self, call: Call) -> Call:
        """The call with the arguments that were too large for its event."""
        content = call.contents.get(ARGUMENTS)
        if content is None:
            return call
        arguments: dict[str, Any] = json.loads(self._blobs[content.digest].read_bytes())
        return replace(call, arguments=arguments)


def _title(call: Call) -> str:
    if call.verb == "exec":
        return shlex.join(str(word) for word in call.arguments["argv"])
    return f"{call.verb} {call.arguments['path']}"


def _end(exit_code: int | None, signal: int | None) -> str:
    if exit_code is not None:
        return f"exit {exit_code}"
    return f"signal {signal}" if signal is not None else "no end of its own"
