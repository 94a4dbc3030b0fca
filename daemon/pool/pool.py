"""One template's warm pool: hands out never-used entries, keeps as many ready as wanted.

Everything happens on the event loop and `take` does not await, so that one claim takes one entry in one step. Creates
in flight count towards the target, entries that are ending count until they are gone. Leaves out making and
unmaking (factory, undertaker) and everything across templates (manager).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from daemon.pool.breaker import Breaker, BreakerSettings
from daemon.pool.clock import Clock
from daemon.pool.entry import PoolEntry
from daemon.pool.factory import EntryFactory
from daemon.pool.template import Template
from daemon.pool.undertaker import Undertaker

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """Ages and pauses in seconds. `creates` bounds the creates under way in one pool."""

    max_age: float = 300.0
    tick: float = 60.0
    creates: int = 2
    paused_retry: float = 1.0
    breaker: BreakerSettings = field(default_factory=BreakerSettings)


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """One pool as it is now. `allocated` were handed out and are not gone; `terminating` are being destroyed."""

    template: Template
    target: int
    ready: int
    creating: int
    allocated: int
    terminating: int
    breaker_open: bool
    last_error: str


class WarmPool:
    """Ready entries of one template."""

    def __init__(
        self,
        template: Template,
        factory: EntryFactory,
        clock: Clock,
        settings: PoolSettings,
        *,
        may_create: Callable[[], bool],
        alert: Callable[[Template, str], None],
    ) -> None:
        """Empty, target 0. `may_create` False pauses creates; `alert` is called once when the breaker opens."""
        self.template = template
        self.target = 0
        self.allocated: set[str] = set()
        self._factory = factory
        self._clock = clock
        self._settings = settings
        self._may_create = may_create
        self._alert = alert
        self._breaker = Breaker(settings.breaker)
        self._ready: deque[PoolEntry] = deque()
        self._creating: set[asyncio.Task[PoolEntry]] = set()
        self._undertaker = Undertaker(clock)
        self._waker: asyncio.Task[None] | None = None
        self._wake_at = 0.0
        self._closed = False

    def take(self) -> PoolEntry | None:
        """The oldest entry fit to be used, now the caller's; None when there is none. Never waits, asks nobody."""
        taken = None
        while taken is None and self._ready:
            entry = self._ready.popleft()
            refusal = self._refusal(entry)
            if refusal:
                self._end(entry, refusal)
            else:
                taken = entry
                entry.transport.when_ended = None
                self.allocated.add(entry.entry_id)
        self.reconcile()
        return taken

    def _refusal(self, entry: PoolEntry) -> str:
        """Why an entry must not be handed out; "" when it may. The last word, however late the refresher is."""
        if not entry.alive:
            return "dead"
        if entry.template.key != self.template.key or entry.image_digest != self.template.image_digest:
            return "another template"
        if self._clock.monotonic() - entry.created > self._settings.max_age:
            return "too old"
        return ""

    def set_target(self, target: int) -> None:
        """Keep `target` entries ready from now on. Raises ValueError below 0."""
        if target < 0:
            raise ValueError(f"pool target of {self.template.stack} must be 0 or more, not {target}")
        self.target = target
        self.reconcile()

    def reconcile(self) -> None:
        """Bring the pool towards its target. Idempotent and cheap: call it whenever something may have changed."""
        if self._closed:
            return
        self._drop_unfit()
        while len(self._ready) > self.target:
            self._end(self._ready.popleft(), "surplus")
        now = self._clock.monotonic()
        while (missing := self._missing(now)) > 0:
            if not self._may_create():
                self._wake_after(self._settings.paused_retry)
                return
            if not self._may_start_another(now):
                if self._breaker.retry_at is not None and not self._creating:
                    self._wake_after(self._breaker.retry_at - now)
                return
            _log.debug("pool_create", stack=self.template.stack, missing=missing)
            self._start_create()

    def _drop_unfit(self) -> None:
        kept: deque[PoolEntry] = deque()
        for entry in self._ready:
            refusal = self._refusal(entry)
            if refusal:
                self._end(entry, refusal)
            else:
                kept.append(entry)
        self._ready = kept

    def _missing(self, now: float) -> int:
        # An entry that will be too old before the next tick is replaced now and serves until its replacement is there.
        old = self._settings.max_age - self._settings.tick
        fresh = sum(1 for entry in self._ready if now - entry.created <= old)
        return self.target - fresh - len(self._creating)

    def _may_start_another(self, now: float) -> bool:
        creating = len(self._creating)
        allowance = self._breaker.allowance(now, creating)
        bound = self._settings.creates if allowance is None else min(allowance, self._settings.creates)
        held = len(self._ready) + creating + self._undertaker.pending
        return creating < bound and held < 2 * self.target

    def _start_create(self) -> None:
        task = asyncio.create_task(self._factory.create(self.template), name=f"create {self.template.stack}")
        self._creating.add(task)
        task.add_done_callback(self._created)

    def _created(self, task: asyncio.Task[PoolEntry]) -> None:
        self._creating.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self._create_failed(error)
        else:
            if self._breaker.succeeded():
                _log.info("pool_recovered", stack=self.template.stack, template=self.template.key)
            self._admit(task.result())
        self.reconcile()

    def _admit(self, entry: PoolEntry) -> None:
        if self._closed:
            self._end(entry, "closed")
            return
        entry.transport.when_ended = self.reconcile
        self._ready.append(entry)

    def _create_failed(self, error: BaseException) -> None:
        _log.warning("pool_create_failed", stack=self.template.stack, template=self.template.key, error=repr(error))
        if self._breaker.failed(self._clock.monotonic(), str(error) or repr(error)):
            self._alert(self.template, self._breaker.last_error)

    def _end(self, entry: PoolEntry, why: str) -> None:
        entry.transport.when_ended = None
        _log.info("pool_entry_ended", entry_id=entry.entry_id, stack=self.template.stack, why=why)
        gone = self._undertaker.bury(entry.entry_id, lambda: self._factory.destroy(entry))
        gone.add_done_callback(lambda _: self.reconcile())

    def retire(self, entry: PoolEntry) -> None:
        """Destroy an entry that was handed out, in the background."""
        self.allocated.discard(entry.entry_id)
        self._end(entry, "retired")

    def entry_died(self, container_id: str) -> bool:
        """A container ended. True when it was an idle entry: it is replaced."""
        for entry in self._ready:
            if entry.container_id == container_id:
                entry.died = True
                self.reconcile()
                return True
        return False

    @property
    def idle(self) -> tuple[PoolEntry, ...]:
        """Entries ready now, oldest first."""
        return tuple(self._ready)

    @property
    def unused(self) -> bool:
        """Nothing is wanted of it and it holds nothing: it may be dropped."""
        return not (self.target or self._ready or self._creating or self.allocated or self._undertaker.pending)

    def status(self) -> PoolStatus:
        """The pool as it is now."""
        return PoolStatus(
            template=self.template,
            target=self.target,
            ready=sum(1 for entry in self._ready if not self._refusal(entry)),
            creating=len(self._creating),
            allocated=len(self.allocated),
            terminating=self._undertaker.pending,
            breaker_open=self._breaker.open,
            last_error=self._breaker.last_error,
        )

    def _wake_after(self, seconds: float) -> None:
        due = self._clock.monotonic() + max(seconds, 0.0)
        if self._waker is not None:
            if self._wake_at <= due:
                return
            self._waker.cancel()
        self._wake_at = due
        self._waker = asyncio.create_task(self._wake(max(seconds, 0.0)))

    async def _wake(self, seconds: float) -> None:
        await self._clock.sleep(seconds)
        self._waker = None
        self.reconcile()

    async def close(self, seconds: float) -> int:
        """End creates and idle entries; what was handed out stays. Returns how many could not be confirmed gone."""
        self._closed = True
        if self._waker is not None:
            self._waker.cancel()
        creating = list(self._creating)
        for task in creating:
            task.cancel()
        await asyncio.gather(*creating, return_exceptions=True)
        while self._ready:
            self._end(self._ready.popleft(), "closed")
        return await self._undertaker.close(seconds)
