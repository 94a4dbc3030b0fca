"""The recorder: takes events from every source, numbers them, and writes them to the spool in batches.

The buffer of an attempt is bounded. `record` waits for room, so that the agent is slowed before an event is lost;
`record_nowait` is for sources that cannot wait: without room the event becomes part of a gap record. One thread
writes, another one syncs, so that a slow fsync delays no write. Owns no transport. Use on one event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from daemon.telemetry.saying import say
from daemon.telemetry.spool import SYNC_SECONDS, SpoolFile
from daemon.telemetry.stream import BUFFER_FULL, Stream
from daemon.telemetry.types import AttemptFinishedError, AttemptUnknownError
from formats import event

BUFFER_BYTES = 4 << 20
# Each kind has a fifth of it, so that a flood of process events cannot push the agent's own calls out.
CAP_BYTES = 512 << 20
WRITE_RETRY_SECONDS = 0.2
CLOSE_SECONDS = 5.0

# Told after every sync: attempt, kind, durable bytes.
Synced = Callable[[str, str, int], None]
Batch = list[tuple[Stream, list[bytes], int]]


class _Attempt:
    """The streams of one attempt and the room in its buffer."""

    def __init__(self, streams: Mapping[str, Stream]) -> None:
        self.streams = streams
        self.closing = False
        self.room = asyncio.Event()
        self.room.set()

    def buffered(self) -> int:
        return sum(stream.pending_bytes for stream in self.streams.values())


class Recorder:
    """Every attempt's streams on this node."""

    def __init__(
        self,
        root: Path,
        synced: Synced,
        *,
        kinds: Sequence[str] = event.KINDS,
        buffer_bytes: int = BUFFER_BYTES,
        cap_bytes: int = CAP_BYTES,
    ) -> None:
        self._root = root
        self._synced = synced
        self._kinds = tuple(kinds)
        self._buffer_bytes = buffer_bytes
        self._cap_bytes = cap_bytes // len(event.KINDS)
        self._attempts: dict[str, _Attempt] = {}
        self._dirty: dict[Stream, None] = {}
        self._unsynced: dict[Stream, None] = {}
        self._write_wake = asyncio.Event()
        self._sync_wake = asyncio.Event()
        self._cycle: asyncio.Future[None] | None = None
        self._writer_thread = ThreadPoolExecutor(1, "spool-write")
        self._sync_thread = ThreadPoolExecutor(1, "spool-sync")
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to write."""
        self._tasks = [asyncio.create_task(self._write_loop()), asyncio.create_task(self._sync_loop())]
        for task in self._tasks:
            task.add_done_callback(_say_death)

    async def open(self, attempt_id: str) -> None:
        """Open an attempt's streams, going on where an earlier life stopped. Idempotent while it is open."""
        if attempt_id in self._attempts:
            return
        directory = self._root / attempt_id
        cap = self._cap_bytes

        def open_all() -> dict[str, Stream]:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            return {kind: Stream(attempt_id, kind, SpoolFile(directory, kind), cap) for kind in self._kinds}

        streams = await asyncio.get_running_loop().run_in_executor(self._writer_thread, open_all)
        self._attempts[attempt_id] = _Attempt(streams)
        for stream in streams.values():
            if stream.pending:
                self._touch(stream)
            elif stream.file.synced_size:
                self._synced(attempt_id, stream.kind, stream.file.synced_size)

    async def record(self, attempt_id: str, kind: str, fields: Mapping[str, Any]) -> int:
        """Record one event and return its number; waits while the buffer is full.

        An event past the cap, or too large for a line, is lost and becomes a gap record; its number is returned all
        the same. Raises AttemptUnknownError, AttemptFinishedError.
        """
        attempt = self._attempt(attempt_id)
        while attempt.buffered() >= self._buffer_bytes:
            attempt.room.clear()
            await attempt.room.wait()
            attempt = self._attempt(attempt_id)
        return self._add(attempt.streams[kind], fields)[0]

    async def record_all(self, attempt_id: str, kind: str, events: Sequence[Mapping[str, Any]]) -> None:
        """Record events in order, each as `record` does; what is common to them is done once."""
        attempt = self._attempt(attempt_id)
        stream = attempt.streams[kind]
        others = attempt.buffered() - stream.pending_bytes
        for fields in events:
            if others + stream.pending_bytes >= self._buffer_bytes:
                await self.record(attempt_id, kind, fields)
                others = attempt.buffered() - stream.pending_bytes
            elif stream.add(fields)[1]:
                self._touch(stream)

    def record_nowait(self, attempt_id: str, kind: str, fields: Mapping[str, Any]) -> int | None:
        """Record one event without waiting; None when it was lost, which a gap record says."""
        attempt = self._attempt(attempt_id)
        stream = attempt.streams[kind]
        if attempt.buffered() >= self._buffer_bytes:
            stream.lose(1, BUFFER_FULL)
            return None
        number, kept = self._add(stream, fields)
        return number if kept else None

    def record_loss(self, attempt_id: str, kind: str, count: int | None, reason: str) -> None:
        """A source lost `count` events, or an unknown number of them (None)."""
        stream = self._attempt(attempt_id).streams[kind]
        if count is None:
            stream.lose_unknown(reason)
        else:
            stream.lose(count, reason)
            stream.flush_loss()
        self._touch(stream)

    def _attempt(self, attempt_id: str) -> _Attempt:
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            raise AttemptUnknownError(f"{attempt_id} is not open")
        if attempt.closing:
            raise AttemptFinishedError(f"{attempt_id} is finished; nothing may follow")
        return attempt

    def _add(self, stream: Stream, fields: Mapping[str, Any]) -> tuple[int, bool]:
        number, kept = stream.add(fields)
        if kept:
            self._touch(stream)
        return number, kept

    def _touch(self, stream: Stream) -> None:
        self._dirty[stream] = None
        self._write_wake.set()

    async def flush(self, attempt_id: str, kind: str | None = None) -> None:
        """Wait until everything recorded so far has left the buffer for the spool."""
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            raise AttemptUnknownError(f"{attempt_id} is not open")
        chosen = [stream for name, stream in attempt.streams.items() if kind in (None, name)]
        targets = [(stream, stream.accepted) for stream in chosen]
        while any(stream.settled < target for stream, target in targets):
            if self._cycle is None:
                self._cycle = asyncio.get_running_loop().create_future()
            self._write_wake.set()
            await asyncio.shield(self._cycle)

    async def close_attempt(self, attempt_id: str) -> dict[str, Stream]:
        """Take nothing more, write and sync everything, close the files. Returns the streams, for their counts.

        A disk that takes nothing is waited for CLOSE_SECONDS; what it did not take is said when the spool is next
        opened.
        """
        attempt = self._attempts.get(attempt_id)
        if attempt is None:
            raise AttemptUnknownError(f"{attempt_id} is not open")
        attempt.closing = True
        attempt.room.set()
        for stream in attempt.streams.values():
            stream.flush_loss()
            if stream.pending:
                self._touch(stream)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSE_SECONDS
        # A failed write buffers a gap record of its own: again, until nothing is left.
        while any(stream.settled < stream.accepted for stream in attempt.streams.values()):
            if loop.time() > deadline:
                say("error", "spool_not_written", attempt_id=attempt_id)
                break
            await self.flush(attempt_id)
        for stream in attempt.streams.values():
            self._unsynced.pop(stream, None)
            self._dirty.pop(stream, None)
            # Through both threads, behind what may be under way for this file.
            await loop.run_in_executor(self._writer_thread, _nothing)
            try:
                await loop.run_in_executor(self._sync_thread, stream.file.close)
            except OSError as error:
                say("error", "spool_sync_failed", attempt_id=attempt_id, error=str(error))
            if stream.file.synced_size:
                self._synced(attempt_id, stream.kind, stream.file.synced_size)
        self._attempts.pop(attempt_id, None)
        return dict(attempt.streams)

    def open_attempts(self) -> list[str]:
        """Attempts that are open now."""
        return list(self._attempts)

    async def close(self) -> None:
        """Write and sync what is buffered, stop the threads."""
        for attempt_id in self.open_attempts():
            with contextlib.suppress(AttemptUnknownError):
                await self.close_attempt(attempt_id)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._writer_thread.shutdown()
        self._sync_thread.shutdown()

    async def _write_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._write_wake.wait()
            self._write_wake.clear()
            cycle, self._cycle = self._cycle, None
            batch: Batch = [(stream, *stream.take()) for stream in self._dirty]
            self._dirty.clear()
            failures = await loop.run_in_executor(self._writer_thread, _write, batch)
            for stream, lines, first in batch:
                error = failures.get(stream)
                if error is None:
                    stream.written(lines)
                    self._unsynced[stream] = None
                else:
                    stream.failed(lines, first, f"spool_write: {error.strerror}")
                    say("error", "spool_write_failed", attempt_id=stream.attempt_id, error=str(error))
                    self._dirty[stream] = None
                attempt = self._attempts.get(stream.attempt_id)
                if attempt is not None:
                    attempt.room.set()
            if cycle is not None:
                cycle.set_result(None)
            if self._unsynced:
                self._sync_wake.set()
            if failures:
                await asyncio.sleep(WRITE_RETRY_SECONDS)
                self._write_wake.set()

    async def _sync_loop(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._sync_wake.wait()
            self._sync_wake.clear()
            streams = list(self._unsynced)
            self._unsynced.clear()
            began = loop.time()
            for stream, size in await loop.run_in_executor(self._sync_thread, _sync, streams):
                self._synced(stream.attempt_id, stream.kind, size)
            await asyncio.sleep(max(0.0, SYNC_SECONDS - (loop.time() - began)))


def _say_death(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        say("critical", "telemetry_task_died", exc_info=error)


def _nothing() -> None:
    """A turn of a thread."""


def _sync(streams: list[Stream]) -> list[tuple[Stream, int]]:
    synced = []
    for stream in streams:
        try:
            synced.append((stream, stream.file.sync()))
        except OSError as error:
            say("error", "spool_sync_failed", attempt_id=stream.attempt_id, error=str(error))
    return synced


def _write(batch: Batch) -> dict[Stream, OSError]:
    failures: dict[Stream, OSError] = {}
    for stream, lines, _ in batch:
        try:
            stream.file.append(lines)
        except OSError as error:
            failures[stream] = error
    return failures
