"""Makes and unmakes entries: the port of the pool's one collaborator.

The one way a sandbox comes to be, for warm pools and cold claims alike, so that both are laid out identically.
Leaves out when to make one (pool) and the assignment (attempts). The real one is `sandboxes.SandboxFactory`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from daemon.pool.entry import PoolEntry
from daemon.pool.template import Template


class EntryFailed(Exception):
    """No entry could be made; what was made of it is being removed. The cause is chained."""

    def __init__(self, stage: str, reason: str) -> None:
        """`stage` is template, slot, container or ready."""
        super().__init__(f"{stage}: {reason}")
        self.stage = stage
        self.reason = reason


class EntryFactory(ABC):
    """Makes and unmakes entries."""

    @abstractmethod
    async def create(self, template: Template) -> PoolEntry:
        """Make one entry, READY. Raises EntryFailed, within its own deadline; safe to cancel; cleans up by itself."""

    @abstractmethod
    async def destroy(self, entry: PoolEntry) -> None:
        """Close the link, destroy the container, then the slot. Idempotent; raises when not confirmed: repeat."""

    @abstractmethod
    async def close(self, seconds: float) -> int:
        """Wait for clean-ups under way; returns how many could not be confirmed."""
