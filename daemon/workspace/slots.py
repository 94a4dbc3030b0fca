"""One slot's mounts, from the empty slot to its removal. Blocking; one call at a time per slot (the manager's lock).

::

    quota.img ─loop─▶ quota/{upper,work}         nosuid,nodev
    template/workspace + upper ─overlay─▶ merged/ nosuid,nodev,nfs_export=on,index=on
    merged/challenge, merged/submissions ─bind─▶ pool/<entry>/challenge, /submissions
    template/workspace/tools ─read-only from the start─▶ pool/<entry>/tools

A warm and a cold container see the same layout: what differs is only whether it started before the mounts.

``nfs_export=on,index=on`` is what fanotify's file-system mark needs. The lower layer may be shared by any number of
such overlays, and read-only: the index lies in each one's own work directory, and only an upper layer is claimed
exclusively. ``redirect_dir=nofollow,metacopy=off``: a renamed directory is a copy, a changed file is whole, so the
upper layer alone tells what changed.
"""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass, replace
from pathlib import Path

from daemon.workspace import mountinfo, quota, syscalls
from daemon.workspace.layout import SLOT_PARTS, Layout, SlotPaths, make_directory, remove_tree, write_whole
from daemon.workspace.model import (
    Slot,
    SlotPhase,
    WorkspaceBusyError,
    WorkspaceError,
    WorkspaceLostError,
    WorkspaceStateError,
)
from daemon.workspace.templates import Template

_FLAGS = syscalls.MS_NOSUID | syscalls.MS_NODEV
_OVERLAY = "nfs_export=on,index=on,redirect_dir=nofollow,metacopy=off"
_OVERLAY_READ_ONLY = "redirect_dir=nofollow,metacopy=off"


@dataclass(frozen=True)
class SlotRecord:
    """What slot.json holds: all that a later life of the daemon cannot see in the mount table."""

    entry_id: str
    disk_bytes: int
    phase: SlotPhase
    template_digest: str | None = None
    baseline_digest: str | None = None
    attempt_id: str | None = None

    def save(self, paths: SlotPaths) -> None:
        """Write it, whole or not at all."""
        write_whole(paths.record, json.dumps({**self.__dict__, "phase": self.phase.value}).encode())

    @classmethod
    def load(cls, paths: SlotPaths) -> SlotRecord:
        """Read it. Raises WorkspaceLostError when there is none, or none that can be read."""
        try:
            data = json.loads(paths.record.read_bytes())
            return cls(**{**data, "phase": SlotPhase(data["phase"])})
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise WorkspaceLostError(f"slot {paths.entry_id}: no record of it is left ({error})") from error

    def slot(self, paths: SlotPaths) -> Slot:
        """The value handed to callers."""
        return Slot(
            entry_id=self.entry_id,
            disk_bytes=self.disk_bytes,
            phase=self.phase,
            workspace=paths.workspace,
            merged=paths.merged,
            upper=paths.upper,
            quota=paths.quota,
            final=paths.final,
            template_digest=self.template_digest,
            baseline_digest=self.baseline_digest,
        )


class Slots:
    """Makes, assigns, freezes and removes slots below a layout."""

    def __init__(self, layout: Layout, images: quota.QuotaImages) -> None:
        self._layout = layout
        self._images = images

    def prepare(self, entry_id: str, disk_bytes: int) -> SlotRecord:
        """An empty slot. Leaves nothing on failure. Raises WorkspaceStateError when the id is taken."""
        paths = self._layout.slot(entry_id)
        if paths.record.exists():
            raise WorkspaceStateError(f"slot {entry_id} exists already; a slot is never used twice")
        self.destroy(entry_id)  # what an interrupted attempt to make it left
        try:
            make_directory(paths.home, 0o700)
            for path in (paths.quota, paths.merged, paths.final, paths.judges):
                make_directory(path, 0o700)
            self._images.create(paths.image, disk_bytes)
            quota.mount_image(paths.image, paths.quota)
            make_directory(paths.upper, 0o755)
            make_directory(paths.work, 0o700)
            make_directory(paths.workspace, 0o755)
            for part in SLOT_PARTS:
                make_directory(paths.workspace / part, 0o755)
            record = SlotRecord(entry_id, disk_bytes, SlotPhase.PREPARED)
            record.save(paths)
        except BaseException:
            self.destroy(entry_id)
            raise
        return record

    def assign(self, record: SlotRecord, template: Template) -> SlotRecord:
        """Mount the template into the slot: six system calls and one small file."""
        paths = self._layout.slot(record.entry_id)
        if record.phase is SlotPhase.ASSIGNED and record.template_digest == template.digest:
            return record
        if record.phase is not SlotPhase.PREPARED:
            raise WorkspaceStateError(f"slot {record.entry_id} is {record.phase.value}; a slot is never used twice")
        options = f"lowerdir={template.snapshot},upperdir={paths.upper},workdir={paths.work},{_OVERLAY}"
        assigned = replace(
            record,
            phase=SlotPhase.ASSIGNED,
            template_digest=template.digest,
            baseline_digest=template.baseline_digest,
        )
        try:
            syscalls.mount("overlay", paths.merged, "overlay", _FLAGS, options)
            for part in ("challenge", "submissions"):
                syscalls.bind(paths.merged / part, paths.workspace / part)
            syscalls.bind_read_only(template.tools, paths.workspace / "tools")
            assigned.save(paths)
        except BaseException:
            self._hide(paths)
            mountinfo.unmount(paths.merged)
            raise
        return assigned

    def freeze(self, record: SlotRecord) -> SlotRecord:
        """Take the content from the container and make it read-only. Raises WorkspaceBusyError."""
        if record.phase in (SlotPhase.FROZEN, SlotPhase.EXTRACTED):
            return record
        if record.phase is not SlotPhase.ASSIGNED:
            raise WorkspaceStateError(f"slot {record.entry_id} is {record.phase.value}; nothing was assigned to it")
        paths = self._layout.slot(record.entry_id)
        self._hide(paths)
        flags = syscalls.MS_REMOUNT | syscalls.MS_RDONLY | _FLAGS
        for target in (paths.merged, paths.quota):
            try:
                syscalls.mount("none", target, "none", flags)
            except OSError as error:
                if error.errno == errno.EBUSY:
                    raise WorkspaceBusyError(
                        f"slot {record.entry_id}: a file is still open for writing; remedy: end the sandbox first"
                    ) from error
                if error.errno == errno.EINVAL:  # no mount point (any more)
                    raise WorkspaceLostError(f"slot {record.entry_id}: {target} is not mounted") from error
                raise
        frozen = replace(record, phase=SlotPhase.FROZEN)
        frozen.save(paths)
        return frozen

    def finish(self, record: SlotRecord, template: Template, attempt_id: str) -> SlotRecord:
        """After extraction: swap the agent's overlay for one without an upper layer, which judges can build on."""
        paths = self._layout.slot(record.entry_id)
        mountinfo.unmount(paths.merged)
        if not mountinfo.is_mounted(paths.final):
            mount_layers(paths.final, paths.upper, template.snapshot)
        extracted = replace(record, phase=SlotPhase.EXTRACTED, attempt_id=attempt_id)
        extracted.save(paths)
        return extracted

    def restore(self, entry_id: str) -> SlotRecord:
        """Re-open a slot of an earlier life. Raises WorkspaceLostError unless every mount of its phase is there."""
        paths = self._layout.slot(entry_id)
        record = SlotRecord.load(paths)
        wanted = {paths.quota}
        if record.phase is SlotPhase.ASSIGNED:
            wanted |= {paths.merged, *(paths.workspace / part for part in SLOT_PARTS)}
        elif record.phase is SlotPhase.FROZEN:
            wanted.add(paths.merged)
        elif record.phase is SlotPhase.EXTRACTED:
            wanted.add(paths.final)
        mounted = {mount.target for mount in self._mounts(paths)}
        missing = sorted(str(path) for path in wanted - mounted)
        if missing:
            raise WorkspaceLostError(f"slot {entry_id}: not mounted any more: {', '.join(missing)}")
        if record.phase is SlotPhase.PREPARED and paths.merged in mounted:
            raise WorkspaceLostError(f"slot {entry_id}: its assignment was interrupted")
        return record

    def destroy(self, entry_id: str) -> tuple[list[str], list[str]]:
        """Remove everything of a slot, whatever there is of it. Returns the mounts and directories that were there.

        The order matters: nothing is deleted as long as something is mounted below it.
        """
        paths = self._layout.slot(entry_id)
        mounts = mountinfo.unmount_all(self._mounts(paths))
        left = self._mounts(paths)
        if left:
            raise WorkspaceError(f"slot {entry_id}: cannot unmount {left[0].target}")
        directories = [str(path) for path in (paths.workspace, paths.home) if remove_tree(path)]
        return mounts, directories

    def _mounts(self, paths: SlotPaths) -> list[mountinfo.Mount]:
        homes = (paths.home, paths.workspace)
        return [
            mount
            for mount in mountinfo.below(self._layout.root)
            if mount.target in homes or any(home in mount.target.parents for home in homes)
        ]

    def _hide(self, paths: SlotPaths) -> None:
        """Take the late mounts from the slot, and with them from the container."""
        for part in reversed(SLOT_PARTS):
            mountinfo.unmount(paths.workspace / part)


def mount_layers(target: Path, *layers: Path) -> None:
    """An overlay of lower layers only, the first on top: nothing can be written through it."""
    options = f"lowerdir={':'.join(str(layer) for layer in layers)},{_OVERLAY_READ_ONLY}"
    syscalls.mount("overlay", target, "overlay", _FLAGS | syscalls.MS_RDONLY, options)
