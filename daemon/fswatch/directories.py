"""Where each directory is, by its file handle: paths as they were when the event happened, not when it was read.

A report names a directory by handle. Asking the kernel where that is now would answer for another moment: a directory
may have been renamed or removed meanwhile. So the tree is followed from the reports themselves, which name the child
of every CREATE and MOVED_TO; the kernel is asked once for a directory that was there before the first report, and
what was found before that report answers for those that are gone. No I/O of its own: the question is passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from daemon.fswatch.origins import Origins

# Both bound what an agent can make the daemon hold and copy.
MAX_DIRECTORIES = 200_000
MAX_PATH_BYTES = 65_536


class Directories:
    """Handles to paths, relative to the workspace. `resolve` asks the kernel; it answers None for what is gone."""

    def __init__(self, resolve: Callable[[bytes], bytes | None], origins: Origins | None = None) -> None:
        self._resolve = resolve
        self._origins = origins or Origins()
        self._places: dict[bytes, tuple[bytes, bytes]] = {}  # handle: parent's handle, name
        self._fixed: dict[bytes, bytes] = {}  # handle: path the kernel told
        self._paths: dict[bytes, bytes] = {}  # answers given; dropped when a directory moves

    def path(self, handle: bytes) -> bytes | None:
        """The directory's path, b"" for the workspace itself; None when nobody can say."""
        known = self._paths.get(handle)
        if known is not None:
            return known
        names: list[bytes] = []
        at, length = handle, 0
        while (place := self._places.get(at)) is not None:
            at = place[0]
            names.append(place[1])
            length += len(place[1]) + 1
            if length > MAX_PATH_BYTES:
                return None
        top = self._fixed.get(at)
        if top is None:
            top = self._resolve(at)
            if top is None:
                top = self._origins.paths.get(at)
            if top is None:
                return None
            self._make_room()
            self._fixed[at] = top
        if top:
            names.append(top)
        path = b"/".join(reversed(names))
        if len(path) > MAX_PATH_BYTES:
            return None
        self._paths[handle] = path
        return path

    def handle(self, path: bytes) -> bytes | None:
        """The handle of a directory that was there from the start: the kernel names none when such a one is removed."""
        return self._origins.handles.get(path)

    def above(self, handle: bytes) -> Iterator[bytes]:
        """A directory and those that it is known to be in, upwards."""
        yield handle
        length = 0
        while (place := self._places.get(handle)) is not None and length <= MAX_PATH_BYTES:
            handle = place[0]
            length += len(place[1]) + 1
            yield handle

    def entered(self, child: bytes | None, parent: bytes, name: bytes, *, moved: bool) -> None:
        """A directory came into being at, or moved to, `name` in `parent`."""
        if moved:
            self._paths.clear()
        if child is None or child == parent:
            if moved:  # nobody says which one: ask the kernel about all of them again
                self.forget_all()
            return
        if moved and child in self.above(parent):  # merged reports have misled us: the kernel knows better
            self.forget_all()
            return
        self._make_room()
        self._fixed.pop(child, None)
        self._paths.pop(child, None)
        self._places[child] = (parent, name)

    def removed(self, child: bytes | None) -> None:
        """A directory was removed: it was empty, so nothing below it is left to be reported."""
        if child is not None:
            self._places.pop(child, None)
            self._fixed.pop(child, None)
            self._paths.pop(child, None)

    def forget_all(self) -> None:
        """Ask the kernel again about every directory."""
        self._places.clear()
        self._fixed.clear()
        self._paths.clear()

    def _make_room(self) -> None:
        if len(self._places) + len(self._fixed) >= MAX_DIRECTORIES:
            self.forget_all()
