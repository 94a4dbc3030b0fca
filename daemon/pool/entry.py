"""One never-used sandbox, ready to be assigned."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.pool.template import Template
from daemon.pool.watched import WatchedTransport
from daemon.supervisor.link import SupervisorLink
from daemon.workspace.model import Slot


@dataclass(eq=False)
class PoolEntry:
    """A sandbox whose supervisor said READY and that nobody has used.

    Belongs to one owner at a time: its pool, then the claim that took it, which replaces `slot` as that moves on.
    `created` is monotonic seconds; `died` is set when the runtime reported the container's end.
    """

    entry_id: str
    template: Template
    container_id: str
    link: SupervisorLink
    slot: Slot
    created: float
    image_digest: str
    transport: WatchedTransport
    died: bool = False

    @property
    def alive(self) -> bool:
        """False once its container was seen dead or PID 1's pipe ended. Free: asks nobody."""
        return not self.died and not self.transport.ended
