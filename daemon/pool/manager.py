"""Every warm pool of a node, by template key.

Owns which pools exist, the refresher, draining, and cold launches (same factory, counted in the same place). Leaves
out admission (how many sandboxes fit the node) and what a claim does with its entry.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

from daemon.pool.clock import Clock
from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFactory
from daemon.pool.pool import PoolSettings, PoolStatus, WarmPool
from daemon.pool.template import Template
from daemon.runtime.types import EventKind, RuntimeEvent

CLOSE_SECONDS = 30.0

_log = structlog.get_logger()


def _always() -> bool:
    return True


def log_alert(template: Template, error: str) -> None:
    """Tell the operators' log that a template's creates keep failing."""
    _log.error("pool_breaker_opened", stack=template.stack, template=template.key, error=error)


class PoolManager:
    """The node's pools. All methods belong to the event loop's thread."""

    def __init__(
        self,
        factory: EntryFactory,
        clock: Clock,
        settings: PoolSettings | None = None,
        *,
        may_create: Callable[[], bool] = _always,
        alert: Callable[[Template, str], None] = log_alert,
    ) -> None:
        """No pool yet."""
        self._factory = factory
        self._clock = clock
        self._settings = settings or PoolSettings()
        self._may_create = may_create
        self._alert = alert
        self._pools: dict[str, WarmPool] = {}
        self._targets: dict[str, int] = {}
        self.draining = False

    def set_target(self, template: Template, target: int) -> None:
        """Keep `target` entries of `template` ready; 0 lets the pool run out. Remembered while draining."""
        self._targets[template.key] = target
        self._pool(template).set_target(0 if self.draining else target)
        self._forget_unused()

    def supersede(self, old: Template, new: Template) -> None:
        """`new` takes `old`'s place and target (a rebuilt image, another profile); the old entries go."""
        if old.key != new.key:
            target = self._targets.get(old.key, 0)
            self.set_target(old, 0)
            self.set_target(new, target)

    def take(self, template: Template) -> PoolEntry | None:
        """A never-used entry of exactly this template, now the caller's; None when none is ready. One atomic step."""
        pool = self._pools.get(template.key)
        return None if pool is None or self.draining else pool.take()

    async def cold(self, template: Template) -> PoolEntry:
        """Make an entry for one caller. Raises EntryFailed. The pool's breaker does not stand in the way."""
        entry = await self._factory.create(template)
        self._pool(template).allocated.add(entry.entry_id)
        return entry

    def adopt(self, template: Template, entry_id: str) -> None:
        """Count a sandbox of an earlier life of the daemon as handed out."""
        self._pool(template).allocated.add(entry_id)

    def gone(self, entry_id: str) -> None:
        """A sandbox that was handed out is destroyed. Idempotent."""
        for pool in self._pools.values():
            pool.allocated.discard(entry_id)
        self._forget_unused()

    def retire(self, entry: PoolEntry) -> None:
        """Destroy an entry that was handed out (its claim failed), in the background, counted until gone."""
        self._pool(entry.template).retire(entry)

    def entry_died(self, container_id: str) -> bool:
        """A container ended. True when it was an idle entry: it is replaced."""
        return any(pool.entry_died(container_id) for pool in self._pools.values())

    def observe(self, event: RuntimeEvent) -> None:
        """Learn from the runtime's events which idle entries are dead."""
        if event.kind is EventKind.DIE:
            self.entry_died(event.container_id)
        elif event.kind is EventKind.RESYNC:
            # Of an entry that the list does not have nothing is known: it may be newer than the list.
            for seen in event.observations:
                if not seen.state.live and seen.started_at_ns is not None:
                    self.entry_died(seen.container_id)

    def reconcile(self) -> None:
        """Bring every pool towards its target; call it when a pause of creates ends."""
        for pool in list(self._pools.values()):
            pool.reconcile()
        self._forget_unused()

    async def run(self) -> None:
        """The refresher: replaces what is too old, for ever. Hand-out does not depend on it."""
        while True:
            await self._clock.sleep(self._settings.tick)
            self.reconcile()

    def drain(self) -> None:
        """Hand out and make nothing more; idle entries go, running sandboxes stay."""
        self.draining = True
        for pool in list(self._pools.values()):
            pool.set_target(0)
        self._forget_unused()

    def resume(self) -> None:
        """End a drain: the targets are wanted again."""
        self.draining = False
        for key, target in self._targets.items():
            if key in self._pools:
                self._pools[key].set_target(target)

    def status(self) -> list[PoolStatus]:
        """Every pool, by stack."""
        found = (pool.status() for pool in self._pools.values())
        return sorted(found, key=lambda status: (status.template.stack, status.template.key))

    def held(self) -> int:
        """Sandboxes that exist or are being made or ended, in all pools: what admission must count."""
        return sum(one.ready + one.creating + one.allocated + one.terminating for one in self.status())

    async def close(self, seconds: float = CLOSE_SECONDS) -> int:
        """End all pools and the factory; what was handed out stays. Returns how many could not be confirmed gone."""
        self.draining = True
        left = 0
        for pool in list(self._pools.values()):
            left += await pool.close(seconds)
        return left + await self._factory.close(seconds)

    def _pool(self, template: Template) -> WarmPool:
        pool = self._pools.get(template.key)
        if pool is None:
            pool = WarmPool(
                template,
                self._factory,
                self._clock,
                self._settings,
                may_create=self._may_create,
                alert=self._alert,
            )
            self._pools[template.key] = pool
        return pool

    def _forget_unused(self) -> None:
        for key in [key for key, pool in self._pools.items() if pool.unused]:
            if not self._targets.get(key):
                del self._pools[key]
                self._targets.pop(key, None)
