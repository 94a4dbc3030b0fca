"""Which of the agent's files could steer a test runner, and so must not reach a judge. Pure.

A judge runs tests on the agent's tree with its own settings. Files that a runner or an interpreter reads on its own
account, by name, are replaced by Snapshot A's (or hidden, if it has none) unless they are equal to them: configuration
files, conftest, site hooks, path files, plugin registrations, and byte code, which is loaded in place of its source
when time and size agree. Whatever is named so counts, a directory or a link as well as a file.

Not covered, on purpose: modules that tests import by name. They are the code under test; the integrity judge looks at
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_NAMES = frozenset(
    (
        b"pytest.ini",
        b".pytest.ini",
        b"pytest.toml",
        b".pytest.toml",
        b"tox.ini",
        b"setup.cfg",
        b"pyproject.toml",
        b"egg-info",
        b"__pycache__",
    )
)
_SUFFIXES = (b".pth", b".dist-info", b".egg-info", b".egg-link")
_MODULES = (b"conftest", b"sitecustomize", b"usercustomize")
TESTS = b"challenge/tests"
# Paths deeper or longer than this are replaced at the ancestor that is not: they cannot be named, nor need be.
_MAX_DEPTH = 64
_MAX_PATH_BYTES = 3000
_MAX_PATHS = 10_000


def steers(name: bytes) -> bool:
    """Whether a file or directory of this name is read by a test runner or interpreter on its own account."""
    low = name.lower()  # importlib.metadata compares so
    return low in _NAMES or low.endswith(_SUFFIXES) or low.split(b".", 1)[0] in _MODULES


class SteeringPaths:
    """Collects the paths to replace. Bounded: with too many of them, whole directories above are replaced."""

    def __init__(self, max_paths: int = _MAX_PATHS) -> None:
        self._paths: set[bytes] = set()
        self._max_paths = max_paths
        self._depth = _MAX_DEPTH

    def consider(self, path: bytes) -> None:
        """Take a changed path: it counts if it, or a directory above it, has a name that steers."""
        parts = path.split(b"/")
        for index, part in enumerate(parts):
            if steers(part):
                self.add(b"/".join(parts[: index + 1]))
                return
        if path == TESTS or path.startswith(TESTS + b"/"):
            self.add(TESTS)

    def add(self, path: bytes) -> None:
        """Take a path whatever its name is."""
        self._paths.add(self._bounded(path))
        while len(self._paths) > self._max_paths and self._depth > 1:
            self._depth //= 2
            self._paths = {self._bounded(path) for path in self._paths}

    def __iter__(self) -> Iterator[bytes]:
        return iter(outermost(self._paths))

    def _bounded(self, path: bytes) -> bytes:
        parts = path.split(b"/")[: self._depth]
        while len(parts) > 1 and sum(len(part) + 1 for part in parts) > _MAX_PATH_BYTES:
            parts.pop()
        return b"/".join(parts)


def outermost(paths: Iterable[bytes]) -> list[bytes]:
    """The paths that have no other of them above them, sorted."""
    kept: list[bytes] = []
    for path in sorted(set(paths), key=lambda path: path.split(b"/")):
        if not kept or not path.startswith(kept[-1] + b"/"):
            kept.append(path)
    return kept
