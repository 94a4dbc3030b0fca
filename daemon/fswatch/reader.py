"""One thread for the whole node that empties the kernel's queues, so that they stay short.

It reads, and hands on; all else is somebody else's. It also listens to the calls that fail with ENOSPC; on a host where
those cannot be heard, it looks at a disk that is nearly full every few milliseconds.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Protocol

import structlog

from daemon.fswatch.changes import Batch, Source
from daemon.fswatch.enospc import EnospcTrace, cgroup_of

log = structlog.get_logger(__name__)

URGENT_SECONDS = 0.004
# Waking for every single change would cost the host more than all the rest of a watch.
GATHER_SECONDS = 0.01
# A read of this many is a flood: there is nothing to wait for.
FLOOD_CHANGES = 200
_STOP_SECONDS = 10.0


class Sink(Protocol):
    """Where the reports of one source go. Every call comes from the reader's thread and returns at once."""

    source: Source

    def take(self, batch: Batch) -> None:
        """Reports were read."""
        ...

    def owns(self, cgroup: str) -> bool:
        """Whether a thread of these control groups is the sandbox's."""
        ...

    def full(self) -> None:
        """A call of the sandbox met ENOSPC."""
        ...

    def tick(self) -> bool:
        """Look at the disk; whether to look again soon."""
        ...

    def failed(self, error: OSError) -> None:
        """The source can be read no more."""
        ...


class Reader:
    """Start it before use, close it at the end. Calls may come from any thread."""

    def __init__(self) -> None:
        self._enospc: EnospcTrace | None = None
        self._epoll = select.epoll()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake, select.EPOLLIN)
        self._orders: deque[Callable[[], None]] = deque()
        self._sinks: dict[int, Sink] = {}
        self._urgent: set[int] = set()
        self._running = True
        self._flood = False
        self._thread = threading.Thread(target=self._run, name="fswatch-read", daemon=True)

    def start(self, enospc: EnospcTrace | None = None) -> None:
        """Begin to read. `enospc` is this reader's to switch and to close."""
        self._enospc = enospc
        if enospc is not None:
            enospc.switch(True)
            self._epoll.register(enospc.fileno(), select.EPOLLIN)
        self._thread.start()

    def add(self, sink: Sink) -> None:
        """Read a source from now on."""
        self._order(lambda: self._add(sink))

    def drain(self, sink: Sink) -> Future[None]:
        """Hand on what is left in a source and close it; done when nothing more will come."""
        done: Future[None] = Future()
        self._order(lambda: self._drain(sink, done))
        return done

    def close(self) -> None:
        """Stop reading. Sources that were not drained are closed by their owners."""
        if self._thread.is_alive():
            self._order(self._stop)
            self._thread.join(_STOP_SECONDS)
        os.close(self._wake)
        self._epoll.close()
        if self._enospc is not None:
            self._enospc.close()

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while self._running:
            ready = self._epoll.poll(URGENT_SECONDS if self._urgent else None)
            if self._may_wait(fd for fd, _ in ready):
                time.sleep(GATHER_SECONDS)
            for fd, _ in ready:
                if fd == self._wake:
                    os.eventfd_read(self._wake)
                    while self._orders:
                        self._orders.popleft()()
                elif fd in self._sinks:
                    self._read(fd, self._sinks[fd])
                elif self._enospc is not None and fd == self._enospc.fileno():
                    self._hear(self._enospc)
            for fd in tuple(self._urgent):
                self._tick(fd, self._sinks[fd])

    def _may_wait(self, ready: Iterable[int]) -> bool:
        sinks = [self._sinks.get(fd) for fd in ready]
        patient = bool(sinks) and all(sink is not None and sink.source.patient for sink in sinks)
        flood, self._flood = self._flood, False
        return patient and not flood and not self._urgent

    def _add(self, sink: Sink) -> None:
        fd = sink.source.fileno()
        self._sinks[fd] = sink
        self._epoll.register(fd, select.EPOLLIN)
        self._tick(fd, sink)

    def _drain(self, sink: Sink, done: Future[None]) -> None:
        fd = sink.source.fileno()
        if self._sinks.get(fd) is sink:
            while self._read(fd, sink):
                pass
            if self._enospc is not None:
                self._hear(self._enospc)
            sink.tick()
            self._remove(fd)
        sink.source.close()
        done.set_result(None)

    def _read(self, fd: int, sink: Sink) -> bool:
        """Hand on one buffer; False when there was none."""
        try:
            batch = sink.source.read()
            if batch is not None:
                self._flood = self._flood or len(batch.changes) >= FLOOD_CHANGES
                sink.take(batch)
        except OSError as error:
            self._remove(fd)
            sink.failed(error)
            return False
        except Exception as error:
            # The boundary: one attempt's trouble must not end the reading of all the others.
            log.error("fswatch_read_failed", exc_info=error)
            self._remove(fd)
            sink.failed(OSError(0, f"reading failed: {error}"))
            return False
        self._tick(fd, sink)
        return batch is not None

    def _tick(self, fd: int, sink: Sink) -> None:
        if sink.tick() and self._enospc is None:
            self._urgent.add(fd)
        else:
            self._urgent.discard(fd)

    def _hear(self, enospc: EnospcTrace) -> None:
        for thread in set(enospc.read()):
            cgroup = cgroup_of(thread)
            for sink in self._sinks.values():
                if sink.owns(cgroup):
                    sink.full()

    def _remove(self, fd: int) -> None:
        if self._sinks.pop(fd, None) is not None:
            self._epoll.unregister(fd)
        self._urgent.discard(fd)

    def _stop(self) -> None:
        self._running = False
