"""File calls of a link: windows, digests, and the cleanup of calls that were left early.

The work itself is done by the supervisor's workers as the agent's user; errors keep their errno's name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, TypeVar

from daemon.supervisor.codec import digest_from_wire, entry_from_wire, stat_from_wire, text_to_wire
from daemon.supervisor.errors import FileFailed, ProtocolError, SupervisorError
from daemon.supervisor.frames import CHUNK, Frame, FrameType
from daemon.supervisor.types import DirEntry, FileDigest, FileStat, Text
from daemon.supervisor.wire import Wire

WINDOW = 512 * 1024
ACK_EVERY = 128 * 1024
# The supervisor's limit; more calls wait here for their turn.
MAX_CALLS = 8


T = TypeVar("T")


def shown(path: Text) -> str:
    """A path for messages."""
    return path if isinstance(path, str) else path.decode("utf-8", "backslashreplace")


class _Call:
    """One file call on one stream; its place among MAX_CALLS is kept until the supervisor's last word."""

    def __init__(self, wire: Wire, turns: asyncio.Semaphore, path: Text) -> None:
        self.stream = wire.new_stream()
        self.over = False
        self._wire = wire
        self._turns = turns
        self._path = path
        self._frames: deque[Frame] = deque()
        self._arrived: asyncio.Future[Any] | None = None

    @classmethod
    async def open(cls, calls: FileCalls, path: Text, body: dict[str, Any]) -> _Call:
        await calls.turns.acquire()
        try:
            call = cls(calls.wire, calls.turns, path)
            calls.wire.post(call.frame(FrameType.FILE_OPEN, {"path": text_to_wire(path), **body}))
        except BaseException:
            calls.turns.release()
            raise
        calls.wire.route(call.stream, call._take)
        return call

    def frame(self, kind: FrameType, body: dict[str, Any]) -> Frame:
        return Frame(kind, stream=self.stream, payload=json.dumps(body).encode())

    def _take(self, frame: Frame) -> None:
        self._frames.append(frame)
        if frame.type in (FrameType.FILE_REPLY, FrameType.FILE_ERROR):
            self.over = True
            self._wire.unroute(self.stream)
            self._turns.release()
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)

    async def next(self) -> Frame:
        """The next frame; FILE_ERROR becomes FileFailed."""
        while not self._frames:
            self._arrived = self._wire.future()
            await self._wire.settle(self._arrived)
        frame = self._frames.popleft()
        if frame.type == FrameType.FILE_ERROR:
            body = self.understood(frame, dict)
            raise FileFailed(str(body.get("errno")), shown(self._path), str(body.get("message")))
        return frame

    def understood(self, frame: Frame, convert: Callable[[Any], T]) -> T:
        """The payload's value. A worker is the agent's own user: an answer that makes no sense fails this call only."""
        try:
            return convert(json.loads(frame.payload))
        except (AttributeError, KeyError, TypeError, ValueError, SupervisorError) as error:
            raise FileFailed("EIO", shown(self._path), f"the answer makes no sense: {error!r}") from error

    @property
    def waiting(self) -> bool:
        return bool(self._frames)

    def leave(self) -> None:
        """Abort unless it is over; never waits."""
        if not self.over:
            try:
                self._wire.post(Frame(FrameType.FILE_ABORT, stream=self.stream))
            except SupervisorError:
                self.over = True  # with the link went the call


class FileReader:
    """Async iterator of one file's chunks, for one pass; `digest` is set when it ends."""

    def __init__(self, calls: FileCalls, path: Text, offset: int, length: int | None) -> None:
        """Made by the link."""
        self.digest: FileDigest | None = None
        self._calls = calls
        self._path = path
        self._body = {"op": "read", "offset": offset, "length": length}
        self._chunks = self._run()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Chunks of at most 64 KiB. Raises FileFailed."""
        return self._chunks

    async def aclose(self) -> None:
        """Stop early."""
        await self._chunks.aclose()

    async def read_all(self, limit: int) -> bytes:
        """What there is to read; raises FileFailed EFBIG past `limit` bytes."""
        content = bytearray()
        try:
            async for chunk in self._chunks:
                content += chunk
                if len(content) > limit:
                    raise FileFailed("EFBIG", shown(self._path), f"more than {limit} bytes")
        finally:
            await self._chunks.aclose()
        return bytes(content)

    async def _run(self) -> AsyncGenerator[bytes, None]:
        call = await _Call.open(self._calls, self._path, self._body)
        got, acked, digest = 0, 0, hashlib.sha256()
        try:
            while True:
                frame = await call.next()
                if frame.type == FrameType.FILE_REPLY:
                    self.digest = call.understood(frame, digest_from_wire)
                    break
                if frame.type != FrameType.FILE_DATA or frame.offset != got:
                    raise ProtocolError(f"frame type {frame.type:#x} at {frame.offset} while reading a file")
                digest.update(frame.payload)
                got += len(frame.payload)
                yield frame.payload
                if got - acked >= ACK_EVERY and not call.over:
                    acked = got
                    self._calls.wire.post(Frame(FrameType.FILE_ACK, stream=call.stream, offset=got))
        finally:
            call.leave()
        if (self.digest.size, self.digest.sha256) != (got, digest.hexdigest()):
            raise FileFailed("DIGEST_MISMATCH", shown(self._path), f"received {got} bytes")


class FileCalls:
    """The calls themselves; see `SupervisorLink` for their contracts."""

    def __init__(self, wire: Wire) -> None:
        """One per link."""
        self.wire = wire
        self.turns = asyncio.Semaphore(MAX_CALLS)

    async def write(
        self,
        path: Text,
        chunks: AsyncIterator[bytes] | bytes,
        size: int | None,
        sha256: str | None,
        mode: int | None,
        parents: bool,
    ) -> FileDigest:
        """Stream the chunks in window-sized steps, then commit."""
        body = {"op": "write", "size": size, "sha256": sha256 or "", "mode": mode, "parents": parents}
        call = await _Call.open(self, path, body)
        try:
            await call.next()  # the temporary file exists
            sent, acked, digest = 0, 0, hashlib.sha256()
            async for piece in _pieces(chunks):
                digest.update(piece)
                frame = Frame(FrameType.FILE_DATA, stream=call.stream, offset=sent, payload=piece)
                sent += len(piece)
                await self.wire.send(frame)
                while call.waiting or sent - acked > WINDOW - CHUNK:
                    acked = (await call.next()).offset
            self.wire.post(call.frame(FrameType.FILE_END, {"size": sent, "sha256": digest.hexdigest()}))
            while (frame := await call.next()).type != FrameType.FILE_REPLY:
                pass
            return call.understood(frame, digest_from_wire)
        finally:
            call.leave()

    async def list(self, path: Text, limit: int) -> tuple[list[DirEntry], bool]:
        """Collect FILE_ENTRIES."""
        call = await _Call.open(self, path, {"op": "list", "limit": limit})
        entries: list[DirEntry] = []
        try:
            while (frame := await call.next()).type == FrameType.FILE_ENTRIES:
                entries += call.understood(frame, lambda rows: [entry_from_wire(row) for row in rows])
            return entries, call.understood(frame, lambda answer: bool(answer["truncated"]))
        finally:
            call.leave()

    async def simple(self, path: Text, body: dict[str, Any], convert: Callable[[Any], T]) -> T:
        """A call with one answer."""
        call = await _Call.open(self, path, body)
        try:
            return call.understood(await call.next(), convert)
        finally:
            call.leave()

    async def stat(self, path: Text) -> FileStat:
        """Lstat."""
        return await self.simple(path, {"op": "stat"}, stat_from_wire)


async def _pieces(chunks: AsyncIterator[bytes] | bytes) -> AsyncIterator[bytes]:
    """Re-cut into CHUNK-sized pieces: a caller's tiny chunks must not become tiny frames."""
    if isinstance(chunks, bytes):
        for at in range(0, len(chunks), CHUNK):
            yield chunks[at : at + CHUNK]
        return
    held = bytearray()
    async for chunk in chunks:
        held += chunk
        while len(held) >= CHUNK:
            yield bytes(held[:CHUNK])
            del held[:CHUNK]
    if held:
        yield bytes(held)
