"""The thread that reads every sentry's socket, and does nothing else: receive, stamp, queue.

A sentry that cannot send slows its sandbox down and in the end drops events, so nothing here parses or waits. What
is queued of one connection is bounded: past PAUSE_BYTES its socket is left alone until the consumer has caught up,
which slows that one sandbox. Source: gVisor's remote sink, SOCK_SEQPACKET, one packet a message.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import structlog

from daemon.trace.points import MAX_PACKET_BYTES, PointError, handshake

PAUSE_BYTES = 32 << 20
RESUME_BYTES = 8 << 20
# Packets taken from one socket before the next one has its turn.
TURN = 256
# After a round that brought packets the thread rests this long, so that a steady stream comes in handfuls and not one
# by one, each with a switch between threads. A sentry's buffer holds thousands of packets, hundreds come meanwhile.
GATHER_SECONDS = 0.003
BACKLOG = 256
# What a queued packet costs beside its bytes.
PACKET_OVERHEAD = 128
_CREDENTIALS = struct.Struct("3i")

log = structlog.get_logger(__name__)


class Connection:
    """One sentry's packets, from the reader to one consumer on the event loop.

    `peer_pid` is the host process that made the connection, by the kernel's word.
    """

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, resume: Callable[[Connection], None]):
        self.sock = sock
        self.peer_pid = int(_CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
        self.greeted = False
        self.ended = False
        self.paused = False
        self.oversized = 0
        self._queue: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self._loop = loop
        self._resume = resume
        self._ready = asyncio.Event()
        self._woken = False

    def put(self, packets: Sequence[tuple[int, bytes]]) -> bool:
        """By the reader: queue packets. False when the connection is to be left alone from now on."""
        self._queue.extend(packets)
        with self._lock:
            self._bytes += _cost(packets)
            self.paused = self._bytes > PAUSE_BYTES
        self.wake()
        return not self.paused

    def end(self) -> None:
        """By the reader: nothing more comes."""
        self.ended = True
        self.wake()

    def wake(self) -> None:
        """Tell the consumer, once until it has looked."""
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop has ended: nobody is left to tell
                self._loop.call_soon_threadsafe(self._ready.set)

    def take(self, most: int) -> list[tuple[int, bytes]]:
        """By the consumer: up to `most` packets, with the time at which each came."""
        taken = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        if taken:
            with self._lock:
                self._bytes -= _cost(taken)
                resume = self.paused and self._bytes < RESUME_BYTES
                self.paused = self.paused and not resume
            if resume:
                self._resume(self)
        return taken

    async def wait(self, seconds: float) -> None:
        """By the consumer: until there may be something to take, or the time is over."""
        self._woken = False
        if self._queue or self.ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._ready.wait()
        self._ready.clear()


def _cost(packets: Sequence[tuple[int, bytes]]) -> int:
    return sum([len(packet) for _, packet in packets]) + PACKET_OVERHEAD * len(packets)


class Reader:
    """Owns the listening socket, its thread, and every connection's receiving end."""

    def __init__(self, path: Path, accepted: Callable[[Connection], None]) -> None:
        """`accepted` is called on the event loop with each connection that greeted properly."""
        self._path = path
        self._accepted = accepted
        self._loop = asyncio.get_running_loop()
        self._connections: dict[int, Connection] = {}
        self._view = memoryview(bytearray(MAX_PACKET_BYTES))
        self._epoll = select.epoll()
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name="trace-reader", daemon=True)

    def start(self) -> None:
        """Listen and read. Raises OSError. The socket is root's alone: whoever connects can claim to be a sandbox."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        old = os.umask(0o177)
        try:
            self._listener.bind(str(self._path))
        finally:
            os.umask(old)
        self._listener.listen(BACKLOG)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self._epoll.register(self._stop_read, select.EPOLLIN)
        self._thread.start()

    def stop(self) -> None:
        """End the thread, close every socket. Sandboxes go on, untraced until a sink attaches to them."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        for connection in self._connections.values():
            connection.sock.close()
            connection.end()
        self._listener.close()
        self._path.unlink(missing_ok=True)
        self._epoll.close()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _run(self) -> None:
        listener = self._listener.fileno()
        while True:
            heard = False
            for handle, _ in self._epoll.poll():
                if handle == self._stop_read:
                    return
                if handle == listener:
                    self._accept()
                elif (connection := self._connections.get(handle)) is not None:
                    heard |= self._receive(connection)
            if heard:
                time.sleep(GATHER_SECONDS)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if not isinstance(error, BlockingIOError):
                    log.error("trace_accept_failed", error=str(error))
                return
            sock.setblocking(False)
            self._connections[sock.fileno()] = Connection(sock, self._loop, self._resume)
            self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _receive(self, connection: Connection) -> bool:
        """One turn of a socket; whether packets came."""
        packets: list[tuple[int, bytes]] = []
        over = not self._turn(connection, packets)
        if packets and not connection.put(packets) and not over:
            self._epoll.modify(connection.sock.fileno(), 0)
            if not connection.paused:  # the consumer was faster than this line
                self._resume(connection)
        if over:
            self._close(connection)
        return bool(packets)

    def _turn(self, connection: Connection, packets: list[tuple[int, bytes]]) -> bool:
        """Take what a socket has, at most TURN packets; False at its end."""
        buffer, sock = self._view, connection.sock
        for _ in range(TURN):
            try:
                # The true length, even of a packet that does not fit.
                size = sock.recv_into(buffer, 0, socket.MSG_TRUNC)
            except BlockingIOError:
                return True
            except OSError:
                return False  # reset: the end, as any other
            if not size:
                return False
            if not connection.greeted:
                if not self._greet(connection, bytes(buffer[:size])):
                    return False
            elif size > len(buffer):
                connection.oversized += 1
            else:
                packets.append((time.time_ns(), bytes(buffer[:size])))
        return True

    def _greet(self, connection: Connection, packet: bytes) -> bool:
        try:
            connection.sock.send(handshake(packet))
        except (PointError, OSError) as error:
            log.warning("trace_handshake_refused", peer_pid=connection.peer_pid, error=str(error))
            return False
        connection.greeted = True
        self._loop.call_soon_threadsafe(self._accepted, connection)
        return True

    def _close(self, connection: Connection) -> None:
        handle = connection.sock.fileno()
        self._epoll.unregister(handle)
        del self._connections[handle]
        connection.sock.close()
        connection.end()

    def _resume(self, connection: Connection) -> None:
        with suppress(OSError, ValueError):  # closed meanwhile
            self._epoll.modify(connection.sock.fileno(), select.EPOLLIN)
