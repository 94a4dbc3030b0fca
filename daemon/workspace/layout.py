"""Where everything of the workspace room lies below the state directory, and who may have it.

::

    templates/<hex>/           challenge packages, unpacked (templates.py)
    images/                    premade quota images (quota.py)
    slots/<entry>/             slot.json, quota.img, quota/ (upper, work), merged/, final/, judge/<id>/
    pool/<entry>/              what a container gets as /workspace: challenge/, submissions/, tools/
    artifacts/<attempt>/       what is kept of an attempt (artifacts.py)

``pool`` is a shared mount of its own: late mounts below it reach containers that were started on a directory of it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from daemon.workspace.model import WorkspaceError

SLOT_PARTS = ("challenge", "submissions", "tools")
FRESH_PREFIX = ".new-"  # a directory that is being filled; renamed when whole, removed when found at start
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,95}")


def checked_id(kind: str, value: str) -> str:
    """``value`` if it is safe as a directory's name. Raises WorkspaceError."""
    if not _ID.fullmatch(value):
        raise WorkspaceError(f"{kind} {value!r} is no id; remedy: letters, digits, _ and -, at most 96")
    return value


@dataclass(frozen=True)
class SlotPaths:
    """The paths of one slot."""

    entry_id: str
    home: Path
    workspace: Path

    @property
    def record(self) -> Path:
        """slot.json."""
        return self.home / "slot.json"

    @property
    def image(self) -> Path:
        """The quota image."""
        return self.home / "quota.img"

    @property
    def quota(self) -> Path:
        """Where the quota image is mounted."""
        return self.home / "quota"

    @property
    def upper(self) -> Path:
        """Overlay upper layer."""
        return self.quota / "upper"

    @property
    def work(self) -> Path:
        """Overlay work directory."""
        return self.quota / "work"

    @property
    def merged(self) -> Path:
        """The overlay while the agent works."""
        return self.home / "merged"

    @property
    def final(self) -> Path:
        """The overlay after extraction: the agent's final tree, by nature read-only."""
        return self.home / "final"

    @property
    def judges(self) -> Path:
        """One directory per judge."""
        return self.home / "judge"


@dataclass(frozen=True)
class Layout:
    """The directories below the state root. Build it with `Layout.of`."""

    root: Path

    @classmethod
    def of(cls, root: Path) -> Layout:
        """The layout below ``root``, links resolved: mount tables show real paths. Raises WorkspaceError."""
        real = Path(os.path.realpath(root))
        if re.search(r"[,:\\\s]", str(real)):
            raise WorkspaceError(f"state directory {real}: remedy: a path without , : \\ and white space")
        return cls(real)

    @property
    def templates(self) -> Path:
        """Unpacked challenge packages."""
        return self.root / "templates"

    @property
    def images(self) -> Path:
        """Premade quota images."""
        return self.root / "images"

    @property
    def slots(self) -> Path:
        """Slots' own files."""
        return self.root / "slots"

    @property
    def pool(self) -> Path:
        """Slots' faces towards containers."""
        return self.root / "pool"

    @property
    def artifacts(self) -> Path:
        """What is kept of attempts."""
        return self.root / "artifacts"

    def slot(self, entry_id: str) -> SlotPaths:
        """The paths of one slot."""
        checked_id("entry", entry_id)
        return SlotPaths(entry_id, self.slots / entry_id, self.pool / entry_id)

    def make(self) -> None:
        """Make the directories; root-owned 0700, refused when somebody else could have written there."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in (self.root, self.templates, self.images, self.slots, self.pool, self.artifacts):
            path.mkdir(mode=0o700, exist_ok=True)
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise WorkspaceError(
                    f"{path} must be a directory of root with mode 0700; remedy: chown root, chmod 700"
                )


def make_directory(path: Path, mode: int, uid: int = 0, gid: int = 0) -> None:
    """mkdir with exactly this mode, whatever the umask is."""
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)


def walk_tree(top: Path) -> Iterator[Path]:
    """``top`` and everything below it, in no order, links not followed. For trees of ours: the depth is bounded."""
    yield top
    for directory, names, files in os.walk(top):
        for name in (*names, *files):
            yield Path(directory) / name


def remove_tree(path: Path) -> bool:
    """Remove a directory of ours and say whether it was there. Never called while something is mounted below."""
    try:
        shutil.rmtree(path)
    except FileNotFoundError:
        return False
    return True


def write_whole(path: Path, content: bytes) -> None:
    """Replace a small file in one step: a reader, or a restart, sees the old content or the new."""
    fresh = path.with_name(f"{FRESH_PREFIX}{path.name}")
    fresh.write_bytes(content)
    fresh.replace(path)
