"""From changes to events: what is told, in which order, and when its content is looked at. Pure; the clock comes in.

Order is the order of the changes. A CREATE or MOVED_TO waits a quiet period for its content and holds back what came
after it; a MODIFY ends the wait, since it will be told with the content itself. MODIFYs of one path are one event a
quiet period, told when it ends with the size and hash found then; a path that is never quiet is told every
MAX_WAIT_SECONDS. What leaves is told at once, without content,
behind what was written to it.

What is held is bounded: past MAX_HELD events go out without content, which the final reconcile adds.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from daemon.fswatch.changes import ENTERING, MODIFY, MOVED_FROM, Change, Content

QUIET_SECONDS = 0.15
MAX_WAIT_SECONDS = 5.0
MAX_HELD = 50_000
# Of more written paths a directory that moves settles all: an agent may rename 20,000 times a second.
MAX_LOOKED_THROUGH = 1_000


@dataclass(slots=True, eq=False)
class Item:
    """One event on its way out. `ready` once its content is known, or known not to come."""

    change: Change
    content: Content | None
    ready: bool
    since: float = 0.0


@dataclass(slots=True, eq=False)
class _Dirty:
    """A path that was written to and not told yet. `time_ns` is the last write's."""

    time_ns: int
    first: float
    last: float


class Shaper:
    """The events of one attempt. Times are monotonic seconds."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS, max_held: int = MAX_HELD) -> None:
        self._quiet = quiet_seconds
        self._max_held = max_held
        self._queue: deque[Item] = deque()
        self._waiting: dict[bytes, Item] = {}
        self._dirty: dict[bytes, _Dirty] = {}
        self._timers: list[tuple[float, int, bytes]] = []
        self._looking: set[bytes] = set()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        """How much is held."""
        return len(self._queue) + len(self._dirty)

    def feed(self, change: Change, now: float) -> None:
        """Take the next change."""
        path = change.path
        if change.content is not None:
            if path not in self._waiting and path not in self._dirty:  # else something newer is on its way
                self._queue.append(Item(change, change.content, True))
        elif change.operation == MODIFY:
            self._modify(change, now)
        elif change.operation & ENTERING:
            self._enter(change, now)
        else:
            self._settle(path)
            if change.is_directory and change.operation == MOVED_FROM:
                self._settle_below(path)
            self._queue.append(Item(change, None, True))

    def due(self, now: float, limit: int = 64) -> list[bytes]:
        """Paths to look at now; answer each with `looked`."""
        paths: list[bytes] = []
        while self._timers and self._timers[0][0] <= now and len(paths) < limit:
            path = heapq.heappop(self._timers)[2]
            dirty = self._dirty.get(path)
            if path in self._looking or (dirty is None and path not in self._waiting):
                continue
            if dirty is not None and (later := self._due(dirty)) > now:
                heapq.heappush(self._timers, (later, next(self._numbers), path))
                continue
            self._looking.add(path)
            paths.append(path)
        return paths

    def looked(self, path: bytes, content: Content | None, asked: float, now: float) -> None:
        """What was found at a path that `due` named at the time `asked`; None when it was gone."""
        self._looking.discard(path)
        item = self._waiting.get(path)
        if item is not None and item.since > asked:  # what was found may be what was there before it
            heapq.heappush(self._timers, (item.since + self._quiet, next(self._numbers), path))
        elif item is not None:
            del self._waiting[path]
            item.content, item.ready = content, True
        dirty = self._dirty.get(path)
        if dirty is None:
            return
        tired = now - dirty.first >= MAX_WAIT_SECONDS
        if (dirty.last > asked or (content is not None and not content.stable)) and not tired:
            dirty.last = max(dirty.last, now) if content is not None and not content.stable else dirty.last
            heapq.heappush(self._timers, (self._due(dirty), next(self._numbers), path))
            return
        del self._dirty[path]
        self._queue.append(Item(Change(dirty.time_ns, MODIFY, path, False), content, True))

    def next_due(self) -> float | None:
        """When `due` may have something next."""
        return self._timers[0][0] if self._timers else None

    def ready(self) -> Iterator[Item]:
        """Events that may go out, in order; each is given once."""
        while self._queue and (self._queue[0].ready or len(self) > self._max_held):
            item = self._queue.popleft()
            if not item.ready:
                self._waiting.pop(item.change.path, None)
            yield item

    def end(self) -> list[Item]:
        """Everything that is left, in order, when nothing can change any more; what is not ready lacks its content."""
        left = list(self._queue)
        for path, dirty in self._dirty.items():
            left.append(Item(Change(dirty.time_ns, MODIFY, path, False), None, False))
        self._queue.clear()
        self._waiting.clear()
        self._dirty.clear()
        self._timers.clear()
        return left

    def _enter(self, change: Change, now: float) -> None:
        path = change.path
        if change.source is not None and (path in self._waiting or path in self._dirty):
            return  # a listing found what was reported already
        self._settle(path)
        item = Item(change, Content("dir", None, None) if change.is_directory else None, change.is_directory, now)
        self._queue.append(item)
        if not item.ready:
            self._waiting[path] = item
            heapq.heappush(self._timers, (now + self._quiet, next(self._numbers), path))

    def _modify(self, change: Change, now: float) -> None:
        path = change.path
        item = self._waiting.pop(path, None)
        if item is not None:
            item.ready = True
        dirty = self._dirty.get(path)
        if dirty is not None:
            dirty.time_ns, dirty.last = change.time_ns, now
        elif len(self._dirty) >= self._max_held:
            self._queue.append(Item(change, None, True))
        else:
            self._dirty[path] = dirty = _Dirty(change.time_ns, now, now)
            heapq.heappush(self._timers, (self._due(dirty), next(self._numbers), path))

    def _settle(self, path: bytes) -> None:
        """Tell what is pending of a path without its content: what was there is there no more."""
        item = self._waiting.pop(path, None)
        if item is not None:
            item.ready = True
        dirty = self._dirty.pop(path, None)
        if dirty is not None:
            self._queue.append(Item(Change(dirty.time_ns, MODIFY, path, False), None, True))

    def _settle_below(self, directory: bytes) -> None:
        """What was written in a directory was written before it moved."""
        everything = len(self._dirty) > MAX_LOOKED_THROUGH
        for path in [path for path in self._dirty if everything or path.startswith(directory + b"/")]:
            self._settle(path)

    def _due(self, dirty: _Dirty) -> float:
        return min(dirty.last + self._quiet, dirty.first + MAX_WAIT_SECONDS)
