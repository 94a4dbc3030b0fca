"""What the daemon keeps of one exec: its retained output, its end, its stdin window, and independent event readers.

Fed by the wire, never waiting; readers pull at their own speed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from daemon.supervisor.codec import result_from_wire
from daemon.supervisor.errors import (
    ExecRefused,
    ProtocolError,
    StdinClosed,
    StdinGap,
    SupervisorError,
    TooManyExecs,
)
from daemon.supervisor.frames import CHUNK, FLAG_CLOSED, FLAG_EOF, Frame, FrameType
from daemon.supervisor.output import RetainedOutput
from daemon.supervisor.types import ExecEvent, ExecResult, Exited, Output, Started
from daemon.supervisor.wire import Wire, parse_json

WINDOW = 512 * 1024
HEAD_BYTES = 1024


class ExecHandle:
    """One exec. Iterate it (any number of times, at any speed) for Started, Output…, Exited.

    `head` is the first 1,024 bytes of both streams in arrival order. Within one iteration the order of stdout against
    stderr is that of arrival only for a reader that keeps up; offsets are always exact.
    """

    def __init__(self, wire: Wire, exec_id: str, stream: int, cap: int, stdin: bool) -> None:
        """Made by the link."""
        self.exec_id = exec_id
        self.stream = stream
        self.pid: int | None = None
        self.stdout = RetainedOutput(cap)
        self.stderr = RetainedOutput(cap)
        self.head = b""
        self.result: ExecResult | None = None
        self.failure: SupervisorError | None = None
        self.stdin_sent = 0
        self._stdin_acked = 0
        self._stdin_open = stdin
        self._stdin_lock = asyncio.Lock()
        self._wire = wire
        self._waiters: set[asyncio.Future[None]] = set()

    @property
    def done(self) -> bool:
        """Ended, refused, or out of sight because the link is gone."""
        return self.result is not None or self.failure is not None

    async def started(self) -> None:
        """Wait until it runs or has ended; raises ExecRefused or SupervisorGone."""
        while self.pid is None and not self.done:
            await self._changed()
        if self.result is None and self.failure is not None:
            raise self.failure

    async def wait(self) -> ExecResult:
        """Wait for the end; raises SupervisorGone when the link ends first."""
        while self.result is None:
            if self.failure is not None:
                raise self.failure
            await self._changed()
        return self.result

    async def events(self, stdout_offset: int = 0, stderr_offset: int = 0) -> AsyncIterator[ExecEvent]:
        """A reader of its own, from these offsets (raised to the first kept byte of an adopted exec)."""
        await self.started()
        if self.pid is not None:
            yield Started(self.pid)
        at = {"stdout": stdout_offset, "stderr": stderr_offset}
        while True:
            moved = False
            for name, kept in (("stdout", self.stdout), ("stderr", self.stderr)):
                offset = max(at[name], kept.base)
                if data := kept.read(offset):
                    at[name] = offset + len(data)
                    moved = True
                    yield Output("stdout" if name == "stdout" else "stderr", offset, data)
            if moved:
                continue
            if self.result is not None:
                yield Exited(self.result)
                return
            if self.failure is not None:
                raise self.failure
            await self._changed()

    def __aiter__(self) -> AsyncIterator[ExecEvent]:
        """Events from the beginning."""
        return self.events()

    async def write_stdin(self, offset: int, data: bytes, eof: bool) -> int:
        """See `SupervisorLink.write_stdin`."""
        async with self._stdin_lock:
            if offset > self.stdin_sent:
                raise StdinGap(self.exec_id, offset, self.stdin_sent)
            rest = memoryview(data)[self.stdin_sent - offset :]
            while rest or eof:
                self._wire.check()
                if not self._stdin_open or self.done:
                    raise StdinClosed(self.exec_id, self._stdin_acked)
                room = WINDOW - (self.stdin_sent - self._stdin_acked)
                if rest and room < min(len(rest), CHUNK):
                    await self._changed()
                    continue
                piece = bytes(rest[:CHUNK])
                rest = rest[len(piece) :]
                last = eof and not rest
                frame = Frame(FrameType.STDIN, FLAG_EOF if last else 0, self.stream, self.stdin_sent, payload=piece)
                self.stdin_sent += len(piece)
                if last:
                    eof = self._stdin_open = False
                await self._wire.send(frame)
            return self.stdin_sent

    def take(self, frame: Frame) -> None:
        """One frame of this exec's stream."""
        match frame.type:
            case FrameType.STDOUT:
                self._output(self.stdout, frame)
            case FrameType.STDERR:
                self._output(self.stderr, frame)
            case FrameType.STARTED:
                self.pid = int(parse_json(frame)["pid"])
            case FrameType.EXITED:
                self.end(result_from_wire(parse_json(frame)))
            case FrameType.STDIN_ACK:
                self._stdin_acked = max(self._stdin_acked, frame.offset)
                if frame.flags & FLAG_CLOSED:
                    self._stdin_open = False
            case FrameType.REFUSED:
                body = parse_json(frame)
                code, message = str(body["code"]), str(body["message"])
                refused = TooManyExecs(message) if code == "TOO_MANY_EXECS" else ExecRefused(code, message)
                self.fail(refused)
            case FrameType.ERROR:  # only stdin can be wrong here: none was asked for, or it does not follow
                self._stdin_open = False
            case _:
                raise ProtocolError(f"frame type {frame.type:#x} on exec {self.exec_id}")
        self._wake()

    def adopt(self, pid: int, stdin_received: int) -> None:
        """Take over a live exec of an earlier daemon."""
        self.pid = pid or None
        self.stdin_sent = self._stdin_acked = stdin_received

    def end(self, result: ExecResult) -> None:
        """The one end."""
        self.result = result
        self.stdout.close(result.stdout_total)
        self.stderr.close(result.stderr_total)
        self._wake()

    def fail(self, error: SupervisorError) -> None:
        """Nothing more will be heard."""
        if not self.done:
            self.failure = error
            self.stdout.close()
            self.stderr.close()
            self._wake()

    def _output(self, kept: RetainedOutput, frame: Frame) -> None:
        kept.append(frame.offset, frame.payload)
        if len(self.head) < HEAD_BYTES:
            self.head += frame.payload[: HEAD_BYTES - len(self.head)]

    async def _changed(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
