"""One never-used sandbox, ready to be assigned."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from daemon.pool.template import Template
from daemon.pool.watched import WatchedTransport
from daemon.supervisor.link import SupervisorLink


class Slot(Protocol):
    """The workspace room's slot, as far as a pool knows it: a directory bound at /workspace, with its quota."""

    @property
    def directory(self) -> Path:
        """The bind source."""
        ...


@dataclass(eq=False)
class PoolEntry:
    """A sandbox whose supervisor said READY and that nobody has used.

    Belongs to one owner at a time: its pool, then the claim that took it. `created` is monotonic seconds.
    """

    entry_id: str
    template: Template
    container_id: str
    link: SupervisorLink
    slot: Slot
    created: float
    image_digest: str
    transport: WatchedTransport
    died: bool = field(default=False)
    """The runtime reported its end."""

    @property
    def alive(self) -> bool:
        """False once its container was seen dead or PID 1's pipe ended. Free: asks nobody."""
        return not self.died and not self.transport.ended
