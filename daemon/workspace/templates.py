"""The challenge packages of this node, unpacked once by digest and shared read-only by every attempt.

A template directory holds ``workspace/`` (Snapshot A, the lower layer: challenge/, tools/, empty submissions/),
``hidden/tree/`` (for judges only; ``hidden/`` itself is 0700), ``reference/`` (the layer that lays hidden/reference
over challenge/), ``challenge.yaml``, ``baseline.jsonl`` and ``meta.json``. It appears by one rename, after everything
in it is on disk: there is no half template. A package's ``network/`` is not kept: what it grants was decided by the
scheduler, and no sandbox has a use for it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from daemon.workspace.baseline import Baseline
from daemon.workspace.layout import FRESH_PREFIX, make_directory, remove_tree, walk_tree
from daemon.workspace.model import AGENT_GID, AGENT_UID, UnknownTemplateError
from formats.challenge import DESCRIPTION, NETWORK
from formats.package import UNPACKED_TIME, PackageError, digest_of, unpack_safely

_PREFIX = "sha256:"
_HEX = frozenset("0123456789abcdef")


@dataclass(frozen=True)
class Template:
    """One unpacked challenge package."""

    digest: str
    baseline_digest: str
    root: Path

    @property
    def snapshot(self) -> Path:
        """Snapshot A: the overlay's lower layer."""
        return self.root / "workspace"

    @property
    def tools(self) -> Path:
        """/workspace/tools."""
        return self.snapshot / "tools"

    @property
    def hidden(self) -> Path:
        """/scoring of judges."""
        return self.root / "hidden" / "tree"

    @property
    def reference_layer(self) -> Path:
        """The layer with hidden/reference as challenge/."""
        return self.root / "reference"

    @property
    def description(self) -> Path:
        """challenge.yaml."""
        return self.root / DESCRIPTION

    def baseline(self) -> Baseline:
        """Snapshot A as a list."""
        return Baseline.load((self.root / "baseline.jsonl").read_bytes())


class TemplateStore:
    """Templates below one directory. Blocking; safe to call from several threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._known: dict[str, Template] = {}

    def get(self, digest: str) -> Template:
        """The template of a package's digest. Raises UnknownTemplateError."""
        known = self._known.get(digest)
        if known is not None:
            return known
        root = self._root(digest)
        try:
            meta = json.loads((root / "meta.json").read_bytes())
        except FileNotFoundError:
            raise UnknownTemplateError(digest) from None
        template = Template(digest=digest, baseline_digest=meta["baseline_digest"], root=root)
        self._known[digest] = template
        return template

    def has(self, digest: str) -> bool:
        """Whether the package of that digest is stored whole."""
        try:
            self.get(digest)
        except UnknownTemplateError:
            return False
        return True

    def add(self, package: Path, digest: str) -> Template:
        """Unpack a package. Idempotent. Raises PackageError when it is refused or is not of that digest."""
        with self._lock:
            try:
                return self.get(digest)
            except UnknownTemplateError:
                self._unpack(package, digest)
        return self.get(digest)

    def clean(self) -> list[str]:
        """Remove what an earlier life was still unpacking; returns the paths."""
        with self._lock:
            return [str(path) for path in self._directory.glob(f"{FRESH_PREFIX}*") if remove_tree(path)]

    def _root(self, digest: str) -> Path:
        name = digest.removeprefix(_PREFIX)
        if not digest.startswith(_PREFIX) or len(name) != 64 or not _HEX.issuperset(name):
            raise UnknownTemplateError(digest)
        return self._directory / name

    def _unpack(self, package: Path, digest: str) -> None:
        root = self._root(digest)
        fresh = root.with_name(f"{FRESH_PREFIX}{root.name}")
        remove_tree(fresh)
        make_directory(fresh, 0o700)
        try:
            with package.open("rb") as file:
                actual = digest_of(file)
                if actual != digest:
                    raise PackageError("package", f"has the digest {actual}, not {digest}", "send it again")
                unpack_safely(file, fresh)
            baseline = _complete(fresh)
            (fresh / "baseline.jsonl").write_bytes(baseline.dump())
            (fresh / "meta.json").write_text(json.dumps({"digest": digest, "baseline_digest": baseline.digest}))
            _sync(fresh)
            fresh.rename(root)
            _sync_one(self._directory)
        except BaseException:
            remove_tree(fresh)
            raise


def _complete(root: Path) -> Baseline:
    """Add what a package leaves out, and make root's parts readable for uid 1000 in a container."""
    snapshot, hidden = root / "workspace", root / "hidden"
    remove_tree(root / NETWORK)
    os.chown(snapshot, 0, 0)
    snapshot.chmod(0o755)
    if not (snapshot / "tools").exists():
        make_directory(snapshot / "tools", 0o755)
    for name in ("submissions", "submissions/code", "submissions/docs"):
        make_directory(snapshot / name, 0o755, AGENT_UID, AGENT_GID)
    packed = root / "hidden.packed"
    if hidden.exists():
        hidden.rename(packed)
    make_directory(hidden, 0o700)
    if packed.exists():
        packed.rename(hidden / "tree")
    else:
        make_directory(hidden / "tree", 0o755)
    if not (hidden / "tree" / "reference").exists():
        make_directory(hidden / "tree" / "reference", 0o755)  # the mount source of /reference
    for tree in (snapshot / "tools", hidden / "tree"):
        _open_for_reading(tree)
    make_directory(root / "reference", 0o755)
    _lay_over(hidden / "tree" / "reference", snapshot / "challenge", root / "reference" / "challenge")
    for path in walk_tree(snapshot):
        os.utime(path, (UNPACKED_TIME, UNPACKED_TIME), follow_symlinks=False)
    return Baseline.scan(snapshot)


def _open_for_reading(tree: Path) -> None:
    for path in walk_tree(tree):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode):
            execute = 0o111 if stat.S_ISDIR(mode) or mode & 0o100 else 0
            path.chmod(stat.S_IMODE(mode) | 0o444 | execute)


def _lay_over(source: Path, beneath: Path, target: Path) -> None:
    """Copy a tree as an overlay layer whose directories keep the attributes of those they are laid over."""
    shutil.copytree(source, target, symlinks=True)
    for path in walk_tree(target):
        below = beneath / path.relative_to(target)
        if _is_real_directory(path) and _is_real_directory(below):
            status = below.lstat()
            os.chown(path, status.st_uid, status.st_gid)
            path.chmod(stat.S_IMODE(status.st_mode))


def _is_real_directory(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _sync(tree: Path) -> None:
    for path in walk_tree(tree):
        if not path.is_symlink():
            _sync_one(path)


def _sync_one(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
