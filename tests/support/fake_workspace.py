"""A workspace room that only keeps books: which slots exist. For unit tests of whoever prepares and destroys them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from daemon.workspace.model import Slot, SlotPhase, WorkspaceError
from daemon.workspace.port import Workspace


class BookKeeping(Workspace):
    """Slots by entry id; everything past preparing and destroying is not its business."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot] = {}
        self.prepared = 0
        self.refuse = False
        self.hold: asyncio.Event | None = None
        self.busy = 0
        """Destroys that fail first."""

    async def prepare_slot(self, entry_id: str, disk_bytes: int) -> Slot:
        if self.refuse:
            raise WorkspaceError("no room")
        if self.hold is not None:
            await self.hold.wait()
        place = Path("/nowhere") / entry_id
        paths = dict.fromkeys(("workspace", "merged", "upper", "quota", "final"), place)
        slot = Slot(entry_id=entry_id, disk_bytes=disk_bytes, phase=SlotPhase.PREPARED, **paths)
        self.slots[entry_id] = slot
        self.prepared += 1
        return slot

    async def destroy(self, slot: Slot) -> None:
        if self.busy:
            self.busy -= 1
            raise WorkspaceError("busy")
        self.slots.pop(slot.entry_id, None)

    async def close(self) -> None:
        return

    async def _not_here(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("this fake only prepares and destroys slots")

    start = add_template = has_template = template = fits = assign = freeze = extract = _not_here
    judge_mounts = release_judge = disk_usage = restore = reclaim = _not_here
