"""Where one object was renamed from and to while its reports lay in the kernel's queue. Pure.

The kernel keeps one report of equal ones: a second rename of the same object from and to the same names leaves no
report of its own. It shows only in what follows: the object turns up at a name that it had left.
"""

from __future__ import annotations

from daemon.fswatch.records import Place

# A way back that is longer is not told: an agent could make each report cost thousands of events.
MAX_HOPS = 8
_MAX_LOOKED_AT = 64


class Rounds:
    """Of one object. `at` is where it was told to be; `returned` says that it came back to a name it had left."""

    __slots__ = ("_left", "_ways", "at", "directory", "returned")

    def __init__(self, at: Place, directory: bool) -> None:
        self.at = at
        self.directory = directory
        self.returned = False
        self._ways: dict[Place, dict[Place, None]] = {}
        self._left: set[Place] = set()

    def move(self, origin: Place, target: Place) -> bool:
        """A rename was reported; True when it ends a round, which may have been made more than once."""
        self._ways.setdefault(origin, {})[target] = None
        self._left.add(origin)
        self.at = target
        again = self.was_at(target)
        self.returned = self.returned or again
        return again

    def was_at(self, place: Place) -> bool:
        """Whether it has left this name since the queue was last empty."""
        return place in self._left

    def route(self, target: Place) -> list[Place]:
        """The names by which it can have come from `at` to `target`, by renames seen; empty when there are none."""
        came: dict[Place, Place] = {self.at: self.at}
        edge = [self.at]
        for _ in range(MAX_HOPS):
            found: list[Place] = []
            for place in edge:
                for next_place in self._ways.get(place, ()):
                    if next_place not in came and len(came) < _MAX_LOOKED_AT:
                        came[next_place] = place
                        found.append(next_place)
            if target in came:
                break
            edge = found
        names: list[Place] = []
        while target in came and target != self.at:
            names.append(target)
            target = came[target]
        return names[::-1]

    def ways(self, origin: Place) -> list[Place]:
        """Where it went from a name, the last first."""
        return list(self._ways.get(origin, ()))[: -_MAX_LOOKED_AT - 1 : -1]

    def places(self) -> list[Place]:
        """Some names that it has had."""
        return list(self._ways)[:MAX_HOPS]

    def rest(self) -> bool:
        """The queue is empty; False when nothing is left to be remembered: it made no round, or moves no more."""
        moved = bool(self._left)
        self._left.clear()
        return moved and self.returned


class Movers:
    """All objects that move while the queue is not empty, and where each was told to be."""

    def __init__(self) -> None:
        self._rounds: dict[bytes, Rounds] = {}
        self._there: dict[bytes, dict[bytes, bytes]] = {}  # by directory and name

    def __len__(self) -> int:
        """How many there are."""
        return len(self._rounds)

    def get(self, child: bytes | None) -> Rounds | None:
        """An object's rounds, if it moves."""
        return self._rounds.get(child) if child is not None else None

    def all(self) -> list[tuple[bytes, Rounds]]:
        """Every one."""
        return list(self._rounds.items())

    def move(self, child: bytes, origin: Place, target: Place, directory: bool) -> bool:
        """A rename was reported; True when it ends a round."""
        rounds = self._rounds.setdefault(child, Rounds(origin, directory))
        self.put(child, rounds, target)
        return rounds.move(origin, target)

    def put(self, child: bytes, rounds: Rounds, place: Place) -> None:
        """It is told to be elsewhere."""
        self._leave(child, rounds.at)
        self._there.setdefault(place[0], {})[place[1]] = child
        rounds.at = place

    def stay(self, child: bytes | None) -> None:
        """It moves no more."""
        rounds = self._rounds.pop(child, None) if child is not None else None
        if child is not None and rounds is not None:
            self._leave(child, rounds.at)

    def at(self, place: Place) -> bytes | None:
        """Who is told to be at a place."""
        return self._there.get(place[0], {}).get(place[1])

    def below(self, directory: bytes) -> list[bytes]:
        """Who is told to be in a directory."""
        return list(self._there.get(directory, {}).values())

    def way_out(self, rounds: Rounds) -> Place | None:
        """Where an object can have gone by a rename seen, to a name that no other has."""
        return next((way for way in rounds.ways(rounds.at) if self.at(way) is None), None)

    def clear(self) -> None:
        """Forget all."""
        self._rounds.clear()
        self._there.clear()

    def _leave(self, child: bytes, place: Place) -> None:
        names = self._there.get(place[0], {})
        if names.get(place[1]) == child:
            del names[place[1]]
            if not names:
                del self._there[place[0]]
