"""The port ``workspace``: what the rest of the daemon may ask of it.

Every call is safe to repeat. Blocking work runs in an executor the adapter was given. The only real adapter is
``manager.WorkspaceManager`` (overlay on a quota file system).
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Set
from pathlib import Path

from daemon.workspace.model import DiffResult, DiskUsage, JudgeKind, JudgeMounts, Reclaimed, Slot
from daemon.workspace.templates import Template


class Workspace(abc.ABC):
    """Slots of one node. Order of a slot's life: prepare, assign, freeze, extract, judge views, destroy."""

    @abc.abstractmethod
    async def start(self) -> None:
        """Make the state directories and the shared pool mount. Idempotent; call it before anything else."""

    @abc.abstractmethod
    async def add_template(self, package: Path, digest: str) -> str:
        """Store the challenge package at ``package`` and return Snapshot A's digest (sha256:…). Idempotent.

        Raises ``formats.package.PackageError`` for a package that is refused or is not of that digest.
        """

    @abc.abstractmethod
    async def has_template(self, digest: str) -> bool:
        """Whether the package of that digest is stored whole."""

    @abc.abstractmethod
    async def template(self, digest: str) -> Template:
        """The stored template, for its description (challenge.yaml). Raises UnknownTemplateError."""

    @abc.abstractmethod
    async def fits(self, disk_bytes: int) -> bool:
        """Whether the host can promise that much disk now, beside everything promised already."""

    @abc.abstractmethod
    async def prepare_slot(self, entry_id: str, disk_bytes: int) -> Slot:
        """Make an empty slot with a quota of ``disk_bytes``. Raises DiskAdmissionError; leaves nothing on failure."""

    @abc.abstractmethod
    async def assign(self, slot: Slot, digest: str) -> Slot:
        """Mount the challenge into the slot, whether its container runs already or not. The hot path.

        Raises UnknownTemplateError; WorkspaceStateError when another challenge was assigned before.
        """

    @abc.abstractmethod
    async def freeze(self, slot: Slot) -> Slot:
        """Make the content read-only and take it away from the container. Call it when the sandbox is dead.

        Raises WorkspaceBusyError while a writer is left.
        """

    @abc.abstractmethod
    async def extract(self, slot: Slot, attempt_id: str) -> DiffResult:
        """Read the diff into the artifacts of ``attempt_id``. Needs a frozen slot. A second call answers the same."""

    @abc.abstractmethod
    async def judge_mounts(
        self, slot: Slot, kind: JudgeKind, judge_id: str, withhold: Collection[bytes] = ()
    ) -> JudgeMounts:
        """Make the views of one judge container. Needs an extracted slot. Idempotent by ``judge_id``.

        ``withhold``: paths relative to /workspace that the judge shall see as Snapshot A has them, beside those that
        steer a test runner. What lies in /results was written by agent code: read it without following links.
        """

    @abc.abstractmethod
    async def release_judge(self, slot: Slot, judge_id: str) -> None:
        """Remove one judge's views. Idempotent."""

    @abc.abstractmethod
    async def disk_usage(self, slot: Slot) -> DiskUsage:
        """The quota file system's numbers."""

    @abc.abstractmethod
    async def destroy(self, slot: Slot) -> None:
        """Remove everything of the slot (artifacts stay). Idempotent, from any phase, half-made ones included."""

    @abc.abstractmethod
    async def restore(self, entry_id: str) -> Slot:
        """Re-open the slot of an earlier life of the daemon. Raises WorkspaceLostError."""

    @abc.abstractmethod
    async def reclaim(self, keep: Set[str]) -> Reclaimed:
        """Remove every slot that is neither in ``keep`` nor made by this process, with mounts and loop devices."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Unmount the pool when no slot is left. Slots that live on are left alone."""
