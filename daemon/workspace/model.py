"""What the workspace room hands to its callers: values and errors, no behaviour.

Left out on purpose: how a slot is mounted (``slots.py``), how a diff is read (``diff_walk.py``).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

AGENT_UID = 1000
AGENT_GID = 1000


class SlotPhase(enum.Enum):
    """How far a slot has come. It only ever moves forward."""

    PREPARED = "prepared"  # quota file system mounted, /workspace empty: a container may start on it
    ASSIGNED = "assigned"  # a challenge is mounted into it
    FROZEN = "frozen"  # read-only, no longer visible in the container
    EXTRACTED = "extracted"  # the diff is on disk; judge views may be made


@dataclass(frozen=True, slots=True)
class Slot:
    """One attempt's workspace on this host. Single use; a value, the manager keeps the truth by ``entry_id``."""

    entry_id: str
    disk_bytes: int
    phase: SlotPhase
    workspace: Path  # give this to the container as /workspace, bind, propagation rslave
    merged: Path  # the overlay on the host: put the fanotify file-system mark here
    upper: Path  # what the agent wrote: overlay upper layer, on the quota file system
    quota: Path  # mount point of the quota file system: statvfs this
    final: Path  # once extracted: the agent's final tree, read-only
    template_digest: str | None = None  # sha256:… of the challenge package, once assigned
    baseline_digest: str | None = None  # sha256:… of Snapshot A, once assigned


@dataclass(frozen=True, slots=True)
class BindMount:
    """One bind mount for a container."""

    source: Path
    target: str
    read_only: bool
    propagation: str = "rprivate"


class JudgeKind(enum.Enum):
    """What a judge's /workspace shows."""

    FINAL = "final"  # the agent's final tree; tests and files that steer a runner are Snapshot A's
    REFERENCE = "reference"  # Snapshot A with hidden/reference laid over challenge/: no agent code


@dataclass(frozen=True, slots=True)
class JudgeMounts:
    """The mounts of one judge container. Give ``entry_id`` and ``judge_id`` back to ``release_judge``."""

    entry_id: str
    judge_id: str
    kind: JudgeKind
    mounts: tuple[BindMount, ...]  # /workspace, /scoring, /reference read-only; /results writable by uid 1000
    results: Path  # the host's path of /results


@dataclass(frozen=True, slots=True)
class DiffResult:
    """What an attempt changed against Snapshot A. Counts are of listed entries."""

    entries_path: Path  # diff.jsonl: one formats.diff entry a line, sorted by path bytes
    changes_path: Path  # changes.tar: the added and modified files
    diff_digest: str  # sha256:…, over the lines of entries_path
    baseline_digest: str  # sha256:…, Snapshot A
    added: int
    modified: int
    deleted: int
    manifest_digest: str | None  # sha256:… of submissions/manifest.json, None when it is no regular file
    unhashed: int  # files listed without a hash: the budget was spent
    omitted: int  # changed files left out of changes.tar: its size limit was reached
    truncated: bool  # the walk met its limit of entries or path length: the list is not complete


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """The quota file system of a slot, in bytes."""

    used: int
    free: int
    total: int


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """What ``reclaim`` removed: paths of mounts and directories, names of loop devices."""

    mounts: tuple[str, ...] = ()
    loop_devices: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """True when nothing had been left behind."""
        return not (self.mounts or self.loop_devices or self.directories)


class WorkspaceError(Exception):
    """A workspace operation failed. The message says what and, where there is one, the remedy."""


class WorkspaceStateError(WorkspaceError):
    """The slot is not in a phase that allows the call."""


class WorkspaceLostError(WorkspaceError):
    """The slot's mounts or files are gone (host restart, removal by hand): its content cannot be had any more."""


class WorkspaceBusyError(WorkspaceError):
    """Something still writes in the workspace: the sandbox's processes are not all gone."""


class DiskAdmissionError(WorkspaceError):
    """The host cannot promise that much disk."""

    def __init__(self, wanted: int, available: int, reserve: int) -> None:
        self.wanted, self.available, self.reserve = wanted, available, reserve
        super().__init__(
            f"disk: {wanted} bytes wanted, {max(available, 0)} left after a reserve of {reserve}; "
            "remedy: free disk space, or lower the disk size of the template or the number of sandboxes"
        )


class UnknownTemplateError(WorkspaceError):
    """No challenge package of that digest has been stored on this node."""

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(f"challenge package {digest} is not on this node; remedy: upload it first")
