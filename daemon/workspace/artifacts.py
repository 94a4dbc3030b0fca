"""What is kept of an attempt's workspace: ``diff.jsonl``, ``changes.tar`` and a summary, in one directory.

The directory appears by one rename, whole. ``changes.tar`` holds what was added or modified: links as links (hard
links too), directories, files; FIFOs, sockets and devices are left out; times are zero. Both files are bounded, and
the summary says what a bound cut off. Nothing here decides what a judge sees, apart from the list of paths to replace.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from daemon.workspace.baseline import Baseline
from daemon.workspace.diff_walk import Found, HashBudget, UpperWalk, chunks, open_file
from daemon.workspace.layout import FRESH_PREFIX, checked_id, make_directory, remove_tree
from daemon.workspace.model import DiffResult
from daemon.workspace.steering import SteeringPaths

MANIFEST = b"submissions/manifest.json"
_RESULT, _DIFF, _CHANGES = "workspace.json", "diff.jsonl", "changes.tar"
_NUMBERS = ("added", "modified", "deleted", "unhashed", "omitted", "truncated")


@dataclass(frozen=True)
class ArtifactLimits:
    """Bounds of what is read and kept. ``hash_bytes`` None: twice the slot's disk, which only sparse files reach."""

    hash_bytes: int | None = None
    changes_bytes: int = 1 << 30
    kept_changes_bytes: int = 10 << 30  # of all attempts together: the oldest changes.tar go first, diffs stay
    diff_bytes: int = 512 << 20


@dataclass(frozen=True)
class Extraction:
    """A diff, and the paths that no judge may see as the agent left them."""

    result: DiffResult
    steering: tuple[bytes, ...]


class Artifacts:
    """The artifacts directory. Blocking."""

    def __init__(self, directory: Path, limits: ArtifactLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._guard = threading.Lock()
        self._busy: set[Path] = set()

    def load(self, attempt_id: str) -> Extraction | None:
        """What was extracted before, or None."""
        home = self._directory / checked_id("attempt", attempt_id)
        try:
            data = json.loads((home / _RESULT).read_bytes())
        except FileNotFoundError:
            return None
        result = DiffResult(
            entries_path=home / _DIFF,
            changes_path=home / _CHANGES,
            diff_digest=data["diff_digest"],
            baseline_digest=data["baseline_digest"],
            manifest_digest=data["manifest_digest"],
            **{name: data[name] for name in _NUMBERS},
        )
        return Extraction(result, tuple(base64.b64decode(path) for path in data["steering"]))

    def extract(self, attempt_id: str, upper: Path, baseline: Baseline, disk_bytes: int) -> Extraction:
        """Walk a frozen upper layer and keep what it holds. Not twice at a time for one attempt."""
        home = self._directory / checked_id("attempt", attempt_id)
        fresh = self._directory / f"{FRESH_PREFIX}{attempt_id}"
        with self._guard:
            self._busy.add(fresh)
        try:
            self._fill(fresh, upper, baseline, disk_bytes)
            fresh.rename(home)
        finally:
            remove_tree(fresh)
            with self._guard:
                self._busy.discard(fresh)
        kept = self.load(attempt_id)
        assert kept is not None  # just renamed there
        self.prune(spare=home)
        return kept

    def prune(self, spare: Path | None = None) -> list[str]:
        """Remove the oldest changes.tar until all together fit their budget; returns their paths. Diffs stay."""
        found = sorted((path.stat().st_mtime_ns, path) for path in self._directory.glob(f"*/{_CHANGES}"))
        total = sum(path.stat().st_size for _, path in found)
        removed = []
        for _, path in found:
            if total <= self._limits.kept_changes_bytes:
                break
            if path.parent != spare:
                total -= path.stat().st_size
                path.unlink()
                removed.append(str(path))
        return removed

    def clean(self) -> list[str]:
        """Remove half-written directories of an earlier life; returns the paths."""
        with self._guard:
            left = [path for path in self._directory.glob(f"{FRESH_PREFIX}*") if path not in self._busy]
            return [str(path) for path in left if remove_tree(path)]

    def _fill(self, fresh: Path, upper: Path, baseline: Baseline, disk_bytes: int) -> None:
        remove_tree(fresh)
        make_directory(fresh, 0o700)
        budget = HashBudget(2 * disk_bytes if self._limits.hash_bytes is None else self._limits.hash_bytes)
        walk = UpperWalk(upper, baseline, budget)
        with _synced(fresh / _DIFF) as diff_file, _synced(fresh / _CHANGES) as changes_file:
            writer = _Writer(diff_file, changes_file, self._limits)
            for found in walk.entries():
                writer.take(found)
            for path in walk.unwalked:
                writer.steering.add(path)
            writer.close()
        summary = {
            **writer.counts,
            "diff_digest": f"sha256:{writer.digest.hexdigest()}",
            "baseline_digest": baseline.digest,
            "manifest_digest": writer.manifest_digest,
            "unhashed": budget.refused,
            "omitted": writer.omitted,
            "truncated": writer.truncated or bool(walk.unwalked),
            "steering": [base64.b64encode(path).decode() for path in writer.steering],
        }
        with _synced(fresh / _RESULT) as result_file:
            result_file.write(json.dumps(summary, indent=1).encode())


class _Writer:
    """Takes the entries in order and writes them where they belong."""

    def __init__(self, diff_file: IO[bytes], changes_file: IO[bytes], limits: ArtifactLimits) -> None:
        self._diff = diff_file
        self._diff_left = limits.diff_bytes
        self._changes_left = limits.changes_bytes
        self._changes = changes_file
        self._links: dict[int, str] = {}
        self.steering = SteeringPaths()
        self.digest = hashlib.sha256()
        self.counts = {"added": 0, "modified": 0, "deleted": 0}
        self.manifest_digest: str | None = None
        self.omitted = 0
        self.truncated = False

    def take(self, found: Found) -> None:
        entry = found.entry
        self.steering.consider(entry.path)
        if entry.path == MANIFEST and entry.change != "deleted" and entry.sha256 is not None:
            self.manifest_digest = f"sha256:{entry.sha256}"
        line = entry.to_line()
        if self.truncated or len(line) > self._diff_left:
            self.truncated = True  # and stays so: a list with holes would not be a list
            return
        self._diff_left -= len(line)
        self._diff.write(line)
        self.digest.update(line)
        self.counts[entry.change] += 1
        if found.status is not None:
            self._keep(found, found.status)

    def close(self) -> None:
        """End the tar."""
        self._changes.write(bytes(2 * tarfile.BLOCKSIZE))

    def _keep(self, found: Found, status: os.stat_result) -> None:
        """Write the header by tarfile and the content by ourselves: a TarFile remembers every member it wrote."""
        entry = found.entry
        if entry.type not in ("file", "dir", "symlink"):
            return
        member = tarfile.TarInfo(os.fsdecode(entry.path))
        member.mode, member.uid, member.gid = entry.mode, status.st_uid, status.st_gid
        if entry.type == "dir":
            member.type = tarfile.DIRTYPE
        elif entry.type == "symlink":
            member.type, member.linkname = tarfile.SYMTYPE, os.fsdecode(entry.target or b"")
        elif status.st_nlink > 1 and status.st_ino in self._links:
            member.type, member.linkname = tarfile.LNKTYPE, self._links[status.st_ino]
        elif entry.size > self._changes_left:
            self.omitted += 1
            return
        else:
            member.size = entry.size
            self._changes_left -= entry.size
            if status.st_nlink > 1:
                self._links[status.st_ino] = member.name
        self._changes.write(member.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape"))
        if member.size:
            self._copy(found, status)

    def _copy(self, found: Found, status: os.stat_result) -> None:
        fd = open_file(found.directory, found.name, status)
        try:
            for chunk in chunks(fd, status.st_size):
                if isinstance(chunk, memoryview):  # a hole stays one
                    self._changes.seek(len(chunk), os.SEEK_CUR)
                else:
                    self._changes.write(chunk)
        finally:
            os.close(fd)
        self._changes.write(bytes(-status.st_size % tarfile.BLOCKSIZE))


@contextmanager
def _synced(path: Path) -> Iterator[IO[bytes]]:
    """A new file that is on disk when the block ends."""
    with path.open("xb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
