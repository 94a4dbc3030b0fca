"""Finds what earlier lives left below the state directory, and removes it.

Looks at what is really there (mount table, loop devices, directories), not at any record. Only below our own state
directory; slots to keep are not touched.
"""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path

from daemon.workspace import mountinfo, syscalls
from daemon.workspace.layout import Layout
from daemon.workspace.model import Reclaimed
from daemon.workspace.slots import Slots


def unknown_slots(layout: Layout, keep: Set[str]) -> set[str]:
    """The entry ids of which anything is left and that are not to be kept."""
    names = {path.name for base in (layout.slots, layout.pool) for path in base.iterdir()}
    for mount in mountinfo.below(layout.root):
        names |= _entry_of(layout, mount.target)
    for image in mountinfo.loop_devices(layout.root).values():
        names |= _entry_of(layout, image)
    return names - set(keep)


def reclaim_slot(layout: Layout, slots: Slots, entry_id: str) -> Reclaimed:
    """Remove one slot with its loop devices, also when its directory is gone already."""
    devices = loop_devices_of(layout, entry_id)
    mounts, directories = slots.destroy(entry_id)
    for device, image in loop_devices_of(layout, entry_id).items():  # not freed by an unmount: never mounted
        syscalls.detach_loop(device, image)
    return Reclaimed(tuple(mounts), tuple(str(device) for device in devices), tuple(directories))


def loop_devices_of(layout: Layout, entry_id: str) -> dict[Path, Path]:
    """The loop devices whose image belongs (or belonged) to a slot, with the image."""
    return mountinfo.loop_devices(layout.slots / entry_id)


def _entry_of(layout: Layout, path: Path) -> set[str]:
    for base in (layout.slots, layout.pool):
        if base in path.parents:
            return {path.relative_to(base).parts[0]}
    return set()
