"""From fanotify's records to changes in an order that can have been. No I/O of its own: questions are passed in.

The kernel merges equal reports that it still holds: a record stands where its first change happened, and says
of later ones which kinds there were, not when or how often. What came and went is told to have gone as late as the rest
allows: a directory after all that was in it, an object before another takes its name. An object that turns up at a
name where it was not last told to be is moved there by renames that were seen. Both are `merged`: they happened at
least once. What is held back is told when the queue is empty, or at MAX_HELD.
"""

from __future__ import annotations

from collections.abc import Callable

from daemon.fswatch.changes import (
    DELETE,
    ENTERING,
    IS_DIRECTORY,
    LEAVING,
    MOVED_FROM,
    MOVED_TO,
    NAMES,
    WATCHED,
    Batch,
    Change,
    in_order,
)
from daemon.fswatch.directories import Directories
from daemon.fswatch.records import RENAME, Place, Record
from daemon.fswatch.removals import Gone, Removals
from daemon.fswatch.rounds import Movers, Rounds

MAX_HELD = 50_000


class Story:
    """`is_at` tells whether an object (None: any) is at a path now, `where` the path of a directory now, if any."""

    def __init__(
        self,
        directories: Directories,
        is_at: Callable[[bytes, bytes | None], bool],
        where: Callable[[bytes], bytes | None],
    ) -> None:
        self._directories = directories
        self._is_at = is_at
        self._where = where
        self._gone = Removals()
        self._came: dict[tuple[Place, bytes | None], None] = {}
        self._movers = Movers()
        self._now = 0
        self._batch = Batch()

    def tell(self, record: Record, now: int, batch: Batch) -> None:
        """Add the changes of the next record, those of `now` (wall clock, ns), to a batch."""
        self._now, self._batch = now, batch
        directory = bool(record.mask & IS_DIRECTORY)
        self._make_way(record.place, record.child)
        if record.mask & RENAME:
            self._make_way(record.target, record.child)
            self._rename(record, directory)
        else:
            self._change(record, directory)
        if len(self._gone) + len(self._came) + len(self._movers) >= MAX_HELD:
            self.settle(now, batch)

    def settle(self, now: int, batch: Batch) -> None:
        """The queue was empty: tell what is held back."""
        self._now, self._batch = now, batch
        for held in reversed(self._gone.places()):
            self._tell_gone(held)
        self._came.clear()
        for child, rounds in self._movers.all():
            place = self._found(child, rounds) if rounds.returned else None
            if place is not None:
                self._bring(child, place)
            if not rounds.rest() or len(self._movers) >= MAX_HELD // 2:
                self._movers.stay(child)

    def _found(self, child: bytes, rounds: Rounds) -> Place | None:
        """Which of the names it had an object has now: the last rename may have left no report."""
        here = self._where(child) if rounds.directory else None
        for place in rounds.places():
            path = self._path(place)
            if path is not None and (path == here if rounds.directory else self._is_at(path, child)):
                return place
        return None

    def forget(self) -> None:
        """The kernel lost records: nothing that is held back is sure."""
        self._gone.clear()
        self._came.clear()
        self._movers.clear()

    def _rename(self, record: Record, directory: bool) -> None:
        origin, target, child = record.place, record.target, record.child
        again = False
        if child is not None:
            self._bring(child, origin)
            if directory:
                self._untangle(child, target[0])
            again = self._movers.move(child, origin, target, directory)
        self._emit(MOVED_FROM, origin, child, directory, again)
        self._emit(MOVED_TO, target, child, directory, again)

    def _change(self, record: Record, directory: bool) -> None:
        place, child, mask = record.place, record.child, record.mask & WATCHED
        if child is not None and not mask & ENTERING:
            self._bring(child, place)
        if mask in NAMES:
            self._single(mask, place, child, directory)
            return
        both = bool(mask & ENTERING and mask & LEAVING)
        exists = not mask & LEAVING
        if both and not (directory and child is not None):  # no directory has a second name to come by
            path = self._path(place)
            exists = path is not None and self._is_at(path, child)
        *first, last = in_order(mask, exists)
        # A directory comes and goes once under its name, unless renames that nobody names were merged as well.
        if mask & ENTERING and not both:
            self._came[place, child] = None
        merged = both and (not directory or child is None)
        for operation in first:
            self._emit(operation, place, child, directory, merged and operation != first[0])
        if last == DELETE:  # its record stands where the first of its changes was
            self._gone.hold(place, Gone(child, directory, merged))
        else:
            self._emit(last, place, child, directory, merged)

    def _single(self, operation: int, place: Place, child: bytes | None, directory: bool) -> None:
        again = False
        if operation & ENTERING:
            rounds = self._movers.get(child)
            again = (rounds is not None and rounds.was_at(place)) or (place, child) in self._came
            self._came[place, child] = None
        elif operation == DELETE:
            again = not directory and (place, child) in self._came
            if directory:
                self._remove(place, child)
        self._emit(operation, place, child, directory, again)

    def _remove(self, place: Place, child: bytes | None) -> None:
        """A directory that was there before goes: what is still told to be in it went first."""
        path = self._path(place) if child is None else None
        handle = child if path is None else self._directories.handle(path)
        for below in reversed(self._gone.below(handle)) if handle is not None else ():
            self._tell_gone(below)
        self._empty(handle)

    def _empty(self, directory: bytes | None) -> None:
        for mover in self._movers.below(directory) if directory is not None else ():
            self._away(mover)

    def _make_way(self, place: Place, child: bytes | None) -> None:
        """Another object has something to say of this name: what had it before is gone."""
        for held in self._gone.at(place):
            rounds = self._movers.get(held.child)
            if (child is None or held.child != child) and (rounds is None or rounds.at == place):
                self._tell_gone(place, held)
        mover = self._movers.at(place)
        if mover is not None and mover != child:
            self._away(mover)

    def _untangle(self, child: bytes, parent: bytes) -> None:
        """A directory moves into another: that one is not told to be below it any more."""
        above = list(self._directories.above(parent))
        for mover in above[: above.index(child)] if child in above else ():
            rounds = self._movers.get(mover)
            for way in rounds.ways(rounds.at) if rounds is not None else ():
                if rounds is not None and self._movers.at(way) is None and child not in self._directories.above(way[0]):
                    self._move_again(mover, rounds, way)
                    return

    def _away(self, mover: bytes) -> None:
        """It cannot be any more where it was told to be."""
        rounds = self._movers.get(mover)
        out = self._movers.way_out(rounds) if rounds is not None else None
        if rounds is not None and out is not None:
            self._move_again(mover, rounds, out)

    def _tell_gone(self, place: Place, only: Gone | None = None) -> None:
        """Tell removals that were held back, behind those below. A stack: trees may be deeper than Python's."""
        todo: list[tuple[Place, Gone | None, bool]] = [(place, only, False)]
        while todo:
            place, gone, ready = todo.pop()
            if gone is None:
                todo += [(place, held, False) for held in self._gone.at(place)]
            elif ready:
                self._tell_removal(place, gone)
            elif self._gone.take(place, gone):
                todo.append((place, gone, True))
                if gone.directory and gone.child is not None:
                    todo += [(below, None, False) for below in self._gone.below(gone.child)]

    def _tell_removal(self, place: Place, gone: Gone) -> None:
        if gone.child is not None:
            self._bring(gone.child, place)
        if gone.directory:
            self._empty(gone.child)
        self._emit(DELETE, place, gone.child, gone.directory, gone.merged)

    def _bring(self, child: bytes, place: Place) -> None:
        """Something happened to an object at a place: have it there."""
        rounds = self._movers.get(child)
        if rounds is None or rounds.at == place:
            return
        for target in rounds.route(place):
            self._move_again(child, rounds, target)
        self._movers.put(child, rounds, place)

    def _move_again(self, child: bytes, rounds: Rounds, target: Place) -> None:
        """A rename that was told happened once more."""
        self._emit(MOVED_FROM, rounds.at, child, rounds.directory, True)
        self._emit(MOVED_TO, target, child, rounds.directory, True)
        self._movers.put(child, rounds, target)

    def _emit(self, operation: int, place: Place, child: bytes | None, directory: bool, merged: bool) -> None:
        path = self._path(place)
        if path is None:
            self._batch.lost += 1
        else:
            self._batch.changes.append(Change(self._now, operation, path, directory, merged=merged))
        if directory and operation & ENTERING:
            self._directories.entered(child, *place, moved=operation == MOVED_TO)
        elif operation == DELETE:
            if directory:
                self._directories.removed(child)
            if child is not None:
                self._movers.stay(child)

    def _path(self, place: Place) -> bytes | None:
        above = self._directories.path(place[0])
        if above is None or not place[1]:
            return None
        return above + b"/" + place[1] if above else place[1]
