"""What the daemon calls: one object for all telemetry of this node.

Puts the recorder, the shipper, the sampler and the blob store together; owns what an attempt's end means: nothing
may follow `finish`, and its answer is kept beside the spool, so that a restarted daemon gives it again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from daemon.telemetry.recorder import Recorder
from daemon.telemetry.resources import ResourceSampler, Usage, recover
from daemon.telemetry.saying import say
from daemon.telemetry.shipper import Shipper
from daemon.telemetry.spool import sync_directory
from daemon.telemetry.tool_calls import Budget, ToolCall
from daemon.telemetry.types import (
    AttemptFinishedError,
    AttemptUnknownError,
    Clocks,
    Elsewhere,
    ElsewhereEnd,
    Finished,
    Limits,
    Peaks,
    PidsSource,
    ResourceSource,
)
from formats import event
from records.blobs import BlobStore

FINISH_TIMEOUT_SECONDS = 10.0
FINISHED_FILE = "finished.json"
SAMPLER_THREADS = 2
COUNTERS_UNREADABLE = "counters_unreadable"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


class Telemetry:
    """Telemetry of every attempt on this node. `start` before use, `close` at the end; use on one event loop.

    `state` is the daemon's own directory: the spool lies in `spool/`, what agents wrote in `blobs/`. `elsewhere` is
    another process that writes its kinds into the same spool: they are shipped and counted, not written, from here.
    """

    def __init__(
        self,
        state: Path,
        node_id: str,
        collector_endpoint: str,
        *,
        clocks: Clocks | None = None,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self.spool_root = state / "spool"
        self.blobs = BlobStore(state / "blobs")
        self._clocks = clocks or Clocks()
        self._shipper = Shipper(self.spool_root, node_id, collector_endpoint)
        self._elsewhere = elsewhere
        kinds = [kind for kind in event.KINDS if elsewhere is None or kind not in elsewhere.kinds]
        self._recorder = Recorder(self.spool_root, self._shipper.notify, kinds=kinds)
        self._samplers: dict[str, ResourceSampler] = {}
        self._earlier: dict[str, tuple[Peaks, int]] = {}
        self._budgets: dict[str, Budget] = {}
        self._finishing: dict[str, asyncio.Task[Finished]] = {}
        self._sampler_threads = ThreadPoolExecutor(SAMPLER_THREADS, "sampler")

    async def start(self) -> None:
        """Begin to write and to ship, including what an earlier life left in the spool. Raises EndpointError."""
        self.spool_root.mkdir(mode=0o700, parents=True, exist_ok=True)
        await asyncio.to_thread(self.blobs.remove_unfinished)
        self._recorder.start()
        self._shipper.start()
        for attempt_id, kind, size in await asyncio.to_thread(_left_over, self.spool_root):
            self._shipper.notify(attempt_id, kind, size)

    def spooled(self) -> list[str]:
        """Attempts that have a spool, live or left by an earlier life."""
        return sorted(path.name for path in self.spool_root.iterdir() if path.is_dir())

    async def open(self, attempt_id: str) -> None:
        """Begin an attempt's telemetry, before its first event. Idempotent. Raises AttemptFinishedError."""
        if not _NAME.fullmatch(attempt_id):
            raise ValueError(f"{attempt_id!r} cannot name a directory; letters, digits, _ and - are expected")
        if _read_finished(self.spool_root / attempt_id) is not None:
            raise AttemptFinishedError(f"{attempt_id} is finished; nothing may follow")
        self._budgets.setdefault(attempt_id, Budget())
        await self._recorder.open(attempt_id)

    async def abandon(self, attempt_id: str) -> None:
        """Let go of an attempt whose claim failed, as if it had never been opened. Idempotent."""
        if attempt_id in self._recorder.open_attempts():
            await self._recorder.close_attempt(attempt_id)
        self._budgets.pop(attempt_id, None)

    async def resume(self, attempt_id: str) -> None:
        """Go on with an attempt after a restart: sequences continue, what was lost becomes a gap record.

        Call `start_sampling` again after it. Raises AttemptFinishedError.
        """
        await self.open(attempt_id)
        path = self.spool_root / attempt_id / "resource.jsonl"
        self._earlier[attempt_id] = await asyncio.to_thread(recover, path)

    async def record(self, attempt_id: str, kind: str, fields: Mapping[str, Any]) -> int:
        """Record one event and return its sequence; waits while the buffer is full."""
        return await self._recorder.record(attempt_id, kind, fields)

    def record_nowait(self, attempt_id: str, kind: str, fields: Mapping[str, Any]) -> int | None:
        """Record one event of a source that cannot wait; None when it was lost, which a gap record says."""
        return self._recorder.record_nowait(attempt_id, kind, fields)

    def record_loss(self, attempt_id: str, kind: str, count: int | None, reason: str) -> None:
        """A source lost `count` events, or an unknown number of them (None)."""
        self._recorder.record_loss(attempt_id, kind, count, reason)

    def spooled_elsewhere(self, attempt_id: str, kind: str, durable_bytes: int) -> None:
        """Another process has made a spool file durable up to here: ship it."""
        if (self.spool_root / attempt_id).is_dir():
            self._shipper.notify(attempt_id, kind, durable_bytes)

    async def flush(self, attempt_id: str, kind: str) -> None:
        """Wait until what was recorded of a kind is in the spool. Raises AttemptUnknownError."""
        await self._recorder.flush(attempt_id, kind)

    def begin_tool(self, attempt_id: str, tool_name: str, arguments: Mapping[str, Any]) -> ToolCall:
        """Begin to observe one call of the agent: feed it `output`, `content`, then `end`, then `record_tool`.

        `arguments` holds what JSON can: `{"argv": […], "cwd": …}` for an exec, the call's fields otherwise.
        """
        budget = self._budgets.setdefault(attempt_id, Budget())
        clocks = self._clocks
        return ToolCall(tool_name, arguments, self.blobs, budget, clocks.wall_ns, clocks.monotonic_ns)

    async def record_tool(self, attempt_id: str, call: ToolCall) -> int:
        """Record an ended call; on return its event is in the spool and survives a kill -9 of the daemon.

        Answer the agent after it. Raises AttemptUnknownError, AttemptFinishedError.
        """
        number = await self._recorder.record(attempt_id, "tool_invocation", await call.fields())
        await self._recorder.flush(attempt_id, "tool_invocation")
        return number

    def start_sampling(
        self, attempt_id: str, source: ResourceSource, limits: Limits, pids: PidsSource | None = None
    ) -> None:
        """Sample resources every five seconds until `finish`. A second call is ignored."""
        if attempt_id in self._samplers:
            return

        async def emit(sample: event.Resource) -> None:
            await self._recorder.record(attempt_id, "resource", sample)

        usage = Usage(limits, *self._earlier.pop(attempt_id, (Peaks(), 0)))
        sampler = ResourceSampler(
            attempt_id,
            source,
            usage,
            emit,
            pids=pids,
            clocks=self._clocks,
            executor=self._sampler_threads,
        )
        self._samplers[attempt_id] = sampler
        sampler.start()

    async def sample_now(self, attempt_id: str) -> None:
        """Read the counters once more; call it just before the sandbox is killed, when they vanish."""
        sampler = self._samplers.get(attempt_id)
        if sampler is not None:
            await sampler.sample_now()

    async def finish(self, attempt_id: str, timeout: float = FINISH_TIMEOUT_SECONDS) -> Finished:
        """Take the last sample, close the attempt's streams, wait until the collector stored them.

        Idempotent, also after a restart. After `timeout` seconds the answer says `stored=False`; the rest is still
        shipped, and a later call waits again. Raises AttemptUnknownError.
        """
        directory = self.spool_root / attempt_id
        finished = await asyncio.to_thread(_read_finished, directory)
        if finished is None:
            task = self._finishing.get(attempt_id)
            if task is None:
                if attempt_id not in self._recorder.open_attempts():
                    raise AttemptUnknownError(f"{attempt_id} is not open; resume it first")
                task = asyncio.create_task(self._complete(attempt_id))
                self._finishing[attempt_id] = task
            # Shielded: a caller that goes away must not leave an attempt half finished.
            try:
                finished = await asyncio.shield(task)
            finally:
                if task.done():
                    self._finishing.pop(attempt_id, None)
        if not finished.stored and await self._wait_stored(attempt_id, finished, timeout):
            finished = dataclasses.replace(finished, stored=True)
            await asyncio.to_thread(_write_finished, directory, finished)
        return finished

    async def _complete(self, attempt_id: str) -> Finished:
        sampler = self._samplers.pop(attempt_id, None)
        peaks, _ = self._earlier.pop(attempt_id, (Peaks(), 0))
        near_limit, oom_kill_count = False, -1
        if sampler is not None:
            if not await sampler.stop():
                self._recorder.record_loss(attempt_id, "resource", None, COUNTERS_UNREADABLE)
            peaks, near_limit = sampler.usage.peaks, sampler.usage.near_limit
            oom_kill_count = sampler.usage.oom_kill_count
        # First: it may still tell of tools that ran.
        there = await self._finish_elsewhere(attempt_id)
        streams = await self._recorder.close_attempt(attempt_id)
        self._budgets.pop(attempt_id, None)
        finished = Finished(
            counts={kind: stream.events for kind, stream in streams.items() if stream.events} | there.counts,
            gaps={kind: stream.gaps for kind, stream in streams.items() if stream.gaps} | there.gaps,
            peaks=peaks,
            memory_near_limit=near_limit,
            oom_kill_count=oom_kill_count,
            stored=False,
            blocked_syscalls=there.blocked_syscalls,
            trace_complete=there.complete,
            trace_dropped=there.dropped,
            pids_refused=there.pids_refused,
        )
        await asyncio.to_thread(_write_finished, self.spool_root / attempt_id, finished)
        return finished

    async def _finish_elsewhere(self, attempt_id: str) -> ElsewhereEnd:
        if self._elsewhere is None:
            return ElsewhereEnd({}, {}, 0, complete=True)
        there = await self._elsewhere.finish(attempt_id)
        for kind in self._elsewhere.kinds:
            path = self.spool_root / attempt_id / f"{kind}.jsonl"
            if path.exists():
                self._shipper.notify(attempt_id, kind, path.stat().st_size)
        return there

    async def _wait_stored(self, attempt_id: str, finished: Finished, timeout: float) -> bool:
        kinds = finished.counts.keys() | finished.gaps.keys()
        waits = [
            self._shipper.wait_stored(attempt_id, kind, finished.counts.get(kind, 0) + finished.gaps.get(kind, 0))
            for kind in kinds
        ]
        try:
            async with asyncio.timeout(timeout):
                return all(await asyncio.gather(*waits))
        except TimeoutError:
            say("warning", "telemetry_not_stored_yet", attempt_id=attempt_id, timeout_seconds=timeout)
            return False

    async def wait_stored(self, attempt_id: str, kind: str, lines: int) -> bool:
        """Wait until the store has a stream's first `lines` lines, gaps included. Wait with a deadline."""
        return await self._shipper.wait_stored(attempt_id, kind, lines)

    async def discard(self, attempt_id: str) -> bool:
        """Remove a finished attempt's spool once stored; False while lines are still to be shipped. Idempotent."""
        directory = self.spool_root / attempt_id
        if attempt_id in self._recorder.open_attempts():
            return False
        if not directory.exists():
            return True
        finished = await asyncio.to_thread(_read_finished, directory)
        if finished is None or not (finished.stored or self._shipper.drained(attempt_id)):
            return False
        self._shipper.forget(attempt_id)
        await asyncio.to_thread(shutil.rmtree, directory)
        return True

    async def close(self) -> None:
        """Write what is buffered, stop shipping, let go of every file. Attempts stay open for a later `resume`."""
        for sampler in list(self._samplers.values()):
            await sampler.stop()
        self._samplers.clear()
        await self._recorder.close()
        await self._shipper.close()
        self._sampler_threads.shutdown()


def _left_over(root: Path) -> list[tuple[str, str, int]]:
    """Streams in the spool, with their size, synced."""
    found = []
    for path in sorted(root.glob("*/*.jsonl")):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            size = file.seek(0, os.SEEK_END)
        if size:
            found.append((path.parent.name, path.stem, size))
    return found


def _read_finished(directory: Path) -> Finished | None:
    try:
        value = json.loads((directory / FINISHED_FILE).read_bytes())
    except FileNotFoundError:
        return None
    return Finished(**{**value, "peaks": Peaks(**value["peaks"])})


def _write_finished(directory: Path, finished: Finished) -> None:
    # Two callers may wait for the same end: each has a file of its own to rename.
    temporary = directory / f".{FINISHED_FILE}.{secrets.token_hex(8)}"
    with temporary.open("w") as file:
        json.dump(dataclasses.asdict(finished), file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(directory / FINISHED_FILE)
    sync_directory(directory)
