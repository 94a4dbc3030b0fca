"""Removals that are still to be told, by the directory that each object was in. Pure."""

from __future__ import annotations

from typing import NamedTuple

from daemon.fswatch.records import Place


class Gone(NamedTuple):
    """An object whose removal is still to be told, and how."""

    child: bytes | None
    directory: bool
    merged: bool


class Removals:
    """Held back in the order of their records. A name may have been several objects', one after the other."""

    def __init__(self) -> None:
        self._gone: dict[bytes, dict[bytes, list[Gone]]] = {}
        self._count = 0

    def __len__(self) -> int:
        """How many are held."""
        return self._count

    def hold(self, place: Place, gone: Gone) -> None:
        """Tell it later."""
        self._gone.setdefault(place[0], {}).setdefault(place[1], []).append(gone)
        self._count += 1

    def at(self, place: Place) -> list[Gone]:
        """Whose removals from a place are held."""
        return list(self._gone.get(place[0], {}).get(place[1], ()))

    def below(self, directory: bytes) -> list[Place]:
        """The places in a directory, the oldest first."""
        return [(directory, name) for name in self._gone.get(directory, ())]

    def places(self) -> list[Place]:
        """All places, by directory, the oldest first."""
        return [place for directory in self._gone for place in self.below(directory)]

    def take(self, place: Place, gone: Gone) -> bool:
        """Hold it no more; False when it was not held."""
        names = self._gone.get(place[0], {})
        here = names.get(place[1], [])
        if gone not in here:
            return False
        here.remove(gone)
        self._count -= 1
        if not here:
            del names[place[1]]
        if not names:
            del self._gone[place[0]]
        return True

    def clear(self) -> None:
        """Forget all."""
        self._gone.clear()
        self._count = 0
