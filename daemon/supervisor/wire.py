"""Frames in both directions over one transport: the handshake, whole-frame writes, routing, and the end of it all.

Owns the reader and writer tasks and every pending future; knows nothing of execs or files. A frame once posted is
written whole, whatever is cancelled, and no handler may wait: the supervisor's pipe is always drained.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from daemon.supervisor.errors import CallFailed, ProtocolError, SupervisorError, SupervisorGone
from daemon.supervisor.frames import NONCE_SIZE, PREAMBLE, Decoder, Frame, FrameType, encode
from daemon.supervisor.transport import ByteTransport

READ_SIZE = 256 * 1024
# A daemon that died may have had bytes under way in the container engine; they can reach PID 1 in the middle of our
# preamble, so it is repeated until the answer comes.
RESYNC_SECONDS = 2.0

Handler: TypeAlias = Callable[[Frame], None]
Json: TypeAlias = dict[str, Any]


class Wire:
    """One connection. `on_gone` callbacks run once, when the stream has ended for whatever reason."""

    def __init__(self, transport: ByteTransport) -> None:
        """Nothing is sent before `open`."""
        self._transport = transport
        self._decoder = Decoder()
        self._routes: dict[int, Handler] = {}
        self._pending: set[asyncio.Future[Any]] = set()
        self._outbound: deque[tuple[bytes, asyncio.Future[None]]] = deque()
        self._work = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._next_stream = 1
        self._gone: SupervisorError | None = None
        self._synchronised = asyncio.Event()
        self.on_gone: list[Callable[[SupervisorError], None]] = []

    async def open(self, fresh: bool) -> None:
        """SYNC: after this, whatever is read was said to us."""
        nonce = os.urandom(NONCE_SIZE)
        hail = encode(Frame(FrameType.SYNC, payload=nonce))
        self._decoder.after(encode(Frame(FrameType.SYNC_ACK, payload=nonce)))
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
        self._put(hail if fresh else PREAMBLE + hail)
        while not self._synchronised.is_set():
            self.check()
            try:
                await asyncio.wait_for(self._synchronised.wait(), RESYNC_SECONDS)
            except TimeoutError:
                if not fresh:
                    self._put(PREAMBLE + hail)
        self.check()

    def check(self) -> None:
        """Raise what ended the connection, if it has ended."""
        if self._gone is not None:
            raise self._gone_again()

    def _gone_again(self) -> SupervisorGone:
        # A new exception each time: one that is raised over and over collects tracebacks for ever.
        error = SupervisorGone(str(self._gone))
        error.__cause__ = self._gone
        return error

    def new_stream(self) -> int:
        """An id no frame of this supervisor's life has used."""
        stream = self._next_stream
        self._next_stream += 1
        return stream

    def streams_from(self, stream: int) -> None:
        """Never hand out an id below `stream`."""
        self._next_stream = max(self._next_stream, stream)

    def route(self, stream: int, handler: Handler) -> None:
        """Frames of `stream` go to `handler`, synchronously and in order."""
        self._routes[stream] = handler

    def unroute(self, stream: int) -> None:
        """Frames of `stream` are dropped from now on."""
        self._routes.pop(stream, None)

    def future(self) -> asyncio.Future[Any]:
        """A future that fails when the connection ends; await it through `settle`."""
        self.check()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending.add(future)
        return future

    async def settle(self, future: asyncio.Future[Any]) -> Any:
        """Await a future of ours and forget it."""
        try:
            return await future
        finally:
            self._pending.discard(future)

    def post(self, frame: Frame) -> asyncio.Future[None]:
        """Queue a frame; it will be written whole. Awaiting the future (shielded by `send`) is back-pressure."""
        self.check()
        return self._put(encode(frame))

    async def send(self, frame: Frame) -> None:
        """`post`, then wait until the frame is written."""
        await asyncio.shield(self.post(frame))
        self.check()

    async def request(self, kind: FrameType, body: Json, *, at_once: Callable[[Json], None] | None = None) -> Json:
        """One control call: its REPLY's object, or CallFailed from its ERROR.

        `at_once` sees the object before any later frame is routed; what it raises ends the connection.
        """
        stream = self.new_stream()
        answer = self.future()

        def take(frame: Frame) -> None:
            if at_once is not None and frame.type != FrameType.ERROR:
                at_once(parse_json(frame))
            if not answer.done():
                answer.set_result(frame)

        self.route(stream, take)
        try:
            self.post(Frame(kind, stream=stream, payload=json.dumps(body).encode()))
            frame: Frame = await self.settle(answer)
        finally:
            self._pending.discard(answer)  # a frame too big to send was never awaited
            self.unroute(stream)
        reply = parse_json(frame)
        if frame.type == FrameType.ERROR:
            raise CallFailed(str(reply.get("code")), str(reply.get("message")))
        return reply

    async def close(self) -> None:
        """End the connection from our side."""
        self._end(SupervisorGone("the link was closed"))
        await self._transport.close()
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _put(self, data: bytes) -> asyncio.Future[None]:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._outbound.append((data, written))
        self._work.set()
        return written

    async def _write(self) -> None:
        try:
            while self._gone is None:
                while self._outbound:
                    data, written = self._outbound.popleft()
                    await self._transport.write(data)
                    if not written.done():
                        written.set_result(None)
                self._work.clear()
                await self._work.wait()
        except OSError as error:
            self._end(self._lost(f"writing failed: {error}"))

    async def _read(self) -> None:
        try:
            while data := await self._transport.read(READ_SIZE):
                for frame in self._decoder.feed(data):
                    handler = self._routes.get(frame.stream)
                    if handler is not None:
                        handler(frame)
                if self._decoder.synchronised:
                    self._synchronised.set()
            self._end(self._lost("the stream has ended"))
        except SupervisorError as error:
            self._end(error)
        except (KeyError, TypeError, ValueError) as error:
            self._end(ProtocolError(f"a frame that makes no sense: {error!r}"))
        except OSError as error:
            self._end(self._lost(f"reading failed: {error}"))

    def _lost(self, what: str) -> SupervisorGone:
        told = self._transport.diagnosis()
        return SupervisorGone(what + (f"; PID 1 said: {told}" if told else ""))

    def _end(self, reason: SupervisorError) -> None:
        if self._gone is not None:
            return
        self._gone = reason  # callers see SupervisorGone with its text, whatever it was
        for future in self._pending:
            if not future.done():
                future.set_exception(self._gone_again())
        for _, written in self._outbound:
            if not written.done():
                written.set_result(None)
        self._outbound.clear()
        self._work.set()
        self._synchronised.set()
        for callback in self.on_gone:
            callback(self._gone_again())


def parse_json(frame: Frame) -> Json:
    """The object in a control frame's payload; ProtocolError when there is none."""
    try:
        value = json.loads(frame.payload)
    except ValueError as error:
        raise ProtocolError(f"frame type {frame.type:#x}: payload is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ProtocolError(f"frame type {frame.type:#x}: payload is not an object")
    return value
