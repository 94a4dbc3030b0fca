"""The shipper: brings spooled lines to the collector, in order, each once, however often either side is killed.

It reads the spool file itself from the collector's cursor on, so it holds nothing that a kill could lose, and a
collector that is down costs disk and no memory. A batch that was cut off is sent again: the store ignores what it
has. Only bytes that were synced are sent (`notify`). Owns no file: it opens them to read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from gauntlet.telemetry.v1 import collector_service_pb2 as pb
from gauntlet.telemetry.v1 import collector_service_pb2_grpc as pb_grpc

from daemon.telemetry.saying import say
from daemon.telemetry.spool import Place, read_lines, seek
from wire.client import call, connect
from wire.errors import WireFailure

MAX_LINES = 1_000
# Lines are counted with their newline, so a batch stays below 1 MiB whatever it holds.
MAX_BYTES = (1 << 20) - 1
# Streams shipped side by side; the store writes one batch at a time anyway.
PARALLEL = 4
BATCHES_A_TURN = 8
CALL_SECONDS = 15.0
FIRST_BACKOFF_SECONDS = 0.1
MAX_BACKOFF_SECONDS = 2.0


class SpoolBehindError(Exception):
    """The store has lines that the spool does not: the file was replaced or cut by somebody."""


@dataclass(slots=True)
class _Stream:
    """What is known of one stream's way to the store."""

    attempt_id: str
    kind: str
    path: Path
    end: int = 0
    place: Place | None = None
    stored_lines: int = 0
    broken: bool = False
    moved: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def behind(self) -> bool:
        offset = 0 if self.place is None else self.place.offset
        return not self.broken and offset < self.end


class Shipper:
    """Ships every stream it was told of, until closed."""

    def __init__(self, root: Path, node_id: str, endpoint: str) -> None:
        self._root = root
        self._node_id = node_id
        self._endpoint = endpoint
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._wake = asyncio.Event()
        self._channel: grpc.aio.Channel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to ship. Raises EndpointError for an endpoint that cannot be used."""
        self._channel = connect(self._endpoint)
        self._stub = pb_grpc.CollectorServiceStub(self._channel)
        self._task = asyncio.create_task(self._loop())

    async def close(self) -> None:
        """Stop; what was not shipped stays in the spool."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close(None)

    def notify(self, attempt_id: str, kind: str, end: int) -> None:
        """A stream's first `end` bytes are durable and may be shipped."""
        self._stream(attempt_id, kind).end = end
        self._wake.set()

    def _stream(self, attempt_id: str, kind: str) -> _Stream:
        key = (attempt_id, kind)
        if key not in self._streams:
            path = self._root / attempt_id / f"{kind}.jsonl"
            self._streams[key] = _Stream(attempt_id, kind, path)
        return self._streams[key]

    async def wait_stored(self, attempt_id: str, kind: str, lines: int) -> bool:
        """Wait until the store has a stream's first `lines` lines; False when it never can. Wait with a deadline."""
        stream = self._stream(attempt_id, kind)
        while stream.stored_lines < lines:
            if stream.broken:
                return False
            stream.moved.clear()
            await stream.moved.wait()
        return True

    def drained(self, attempt_id: str) -> bool:
        """Whether everything told of an attempt is stored."""
        return not any(s.behind or s.broken for s in self._streams.values() if s.attempt_id == attempt_id)

    def forget(self, attempt_id: str) -> None:
        """Ship an attempt's streams no more."""
        for key in [key for key in self._streams if key[0] == attempt_id]:
            self._streams[key].broken = True
            del self._streams[key]

    async def _loop(self) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        limit = asyncio.Semaphore(PARALLEL)
        while True:
            self._wake.clear()
            behind = [stream for stream in self._streams.values() if stream.behind]
            if not behind:
                await self._wake.wait()
                continue
            well = await asyncio.gather(*(self._turn(stream, limit) for stream in behind))
            if all(well):
                backoff = FIRST_BACKOFF_SECONDS
                continue
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)

    async def _turn(self, stream: _Stream, limit: asyncio.Semaphore) -> bool:
        """Ship some batches of one stream; False when the collector could not take them."""
        async with limit:
            try:
                for _ in range(BATCHES_A_TURN):
                    if not stream.behind:
                        break
                    await self._batch(stream)
            except WireFailure as failure:
                stream.place = None
                if failure.reason != "SEQUENCE_GAP":
                    say("warning", "ship_failed", code=failure.code, reason=failure.reason, error=failure.message)
                    return False
            except (SpoolBehindError, OSError) as error:
                # Nothing will mend this by itself: said once, and told to whoever waits.
                say("error", "ship_broken", attempt_id=stream.attempt_id, kind=stream.kind, error=str(error))
                stream.broken = True
                stream.moved.set()
            return True

    async def _batch(self, stream: _Stream) -> None:
        place = stream.place
        if place is None:
            cursor = pb.GetCursorRequest(attempt_id=stream.attempt_id, kind=stream.kind)
            answer = await call(self._stub.GetCursor, cursor, timeout=CALL_SECONDS, retries=0)
            place = await self._seek(stream, answer.next_line)
        lines = await asyncio.to_thread(read_lines, stream.path, place, stream.end, MAX_LINES, MAX_BYTES)
        if not lines:
            if stream.end - place.offset >= MAX_BYTES:
                raise SpoolBehindError(f"line {place.line} has no end")
            # A torn tail of an earlier life: whoever opens the file again cuts it off.
            stream.end = place.offset
            return
        request = pb.AppendEventsRequest(
            node_id=self._node_id,
            attempt_id=stream.attempt_id,
            kind=stream.kind,
            first_line=place.line,
            lines=lines,
        )
        answer = await call(self._stub.AppendEvents, request, timeout=CALL_SECONDS, retries=0)
        if answer.next_line == place.line + len(lines):
            place.line += len(lines)
            place.offset += sum(map(len, lines)) + len(lines)
            self._stored(stream, place)
        else:
            await self._seek(stream, answer.next_line)

    async def _seek(self, stream: _Stream, line: int) -> Place:
        place = await asyncio.to_thread(seek, stream.path, line, stream.end)
        if place.line < line:
            raise SpoolBehindError(f"the store expects line {line}, the spool ends at {place.line}")
        self._stored(stream, place)
        return place

    @staticmethod
    def _stored(stream: _Stream, place: Place) -> None:
        stream.place = place
        stream.stored_lines = place.line
        stream.moved.set()
