"""The adapter of the port ``workspace`` on this host's kernel: overlay on loop-mounted ext4.

Owns the order of a slot's life and who may touch it when: one call at a time per slot, each in the injected executor,
each finished even when its caller is cancelled (a thread cannot be stopped half-way, so the slot stays locked until the
thread is done). The steps themselves are in the other modules of this room. Must run as root.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Collection, Set
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import ParamSpec, TypeVar

from daemon.workspace import judge_view, mountinfo, quota, reclaim, syscalls
from daemon.workspace.artifacts import ArtifactLimits, Artifacts
from daemon.workspace.layout import Layout
from daemon.workspace.model import (
    DiffResult,
    DiskUsage,
    JudgeKind,
    JudgeMounts,
    Reclaimed,
    Slot,
    SlotPhase,
    WorkspaceError,
    WorkspaceLostError,
    WorkspaceStateError,
)
from daemon.workspace.port import Workspace
from daemon.workspace.slots import SlotRecord, Slots
from daemon.workspace.templates import Template, TemplateStore

P = ParamSpec("P")
R = TypeVar("R")
DEFAULT_RESERVE_BYTES = 2 << 30


@dataclass(frozen=True)
class WorkspaceConfig:
    """Where the state lies, and what it may cost."""

    state_directory: Path
    reserve_bytes: int = DEFAULT_RESERVE_BYTES  # of the host's free disk, never promised to a slot
    limits: ArtifactLimits = field(default_factory=ArtifactLimits)


class WorkspaceManager(Workspace):
    """See the port for each call's contract."""

    def __init__(self, config: WorkspaceConfig, executor: Executor) -> None:
        self._layout = Layout.of(config.state_directory)
        self._executor = executor
        self._images = quota.QuotaImages(self._layout.images, self._layout.slots, config.reserve_bytes)
        self._slots = Slots(self._layout, self._images)
        self._templates = TemplateStore(self._layout.templates)
        self._artifacts = Artifacts(self._layout.artifacts, config.limits)
        self._guard = threading.Lock()  # of the two below
        # Weak: a lock lives as long as somebody holds or awaits it.
        self._locks: weakref.WeakValueDictionary[str, threading.Lock] = weakref.WeakValueDictionary()
        self._ours: set[str] = set()  # made or re-opened by this process, not yet destroyed

    async def start(self) -> None:
        """Make the directories and the shared pool mount."""
        await self._run(self._start)

    async def add_template(self, package: Path, digest: str) -> str:
        """Unpack a package; Snapshot A's digest."""
        return (await self._run(self._templates.add, package, digest)).baseline_digest

    async def has_template(self, digest: str) -> bool:
        """Whether it is stored."""
        return await self._run(self._templates.has, digest)

    async def template(self, digest: str) -> Template:
        """The stored template."""
        return await self._run(self._templates.get, digest)

    async def fits(self, disk_bytes: int) -> bool:
        """Admission, without promising."""
        return await self._run(self._images.available) >= disk_bytes

    async def prepare_slot(self, entry_id: str, disk_bytes: int) -> Slot:
        """Make an empty slot; when the caller is cancelled, it is removed once made."""
        work = asyncio.ensure_future(self._locked(entry_id, self._prepare, entry_id, disk_bytes))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(functools.partial(self._abandon, entry_id))  # nobody will ever ask for it
            raise

    async def assign(self, slot: Slot, digest: str) -> Slot:
        """Mount the challenge: one hop to a thread, no subprocess."""
        return await self._locked(slot.entry_id, self._assign, slot.entry_id, digest)

    async def freeze(self, slot: Slot) -> Slot:
        """Read-only, and gone from the container."""
        return await self._locked(slot.entry_id, self._freeze, slot.entry_id)

    async def extract(self, slot: Slot, attempt_id: str) -> DiffResult:
        """The diff, kept under the attempt."""
        return await self._locked(slot.entry_id, self._extract, slot.entry_id, attempt_id)

    async def judge_mounts(
        self, slot: Slot, kind: JudgeKind, judge_id: str, withhold: Collection[bytes] = ()
    ) -> JudgeMounts:
        """One judge's views."""
        return await self._locked(slot.entry_id, self._judge_mounts, slot.entry_id, kind, judge_id, withhold)

    async def release_judge(self, slot: Slot, judge_id: str) -> None:
        """Remove them."""
        paths = self._layout.slot(slot.entry_id)
        await self._locked(slot.entry_id, judge_view.release, paths, judge_id)

    async def disk_usage(self, slot: Slot) -> DiskUsage:
        """statvfs of the quota."""
        return await self._run(quota.usage, self._layout.slot(slot.entry_id).quota)

    async def destroy(self, slot: Slot) -> None:
        """Remove the slot, whatever there is of it."""
        await self._locked(slot.entry_id, self._destroy, slot.entry_id)

    async def restore(self, entry_id: str) -> Slot:
        """Re-open a slot after a restart."""
        return await self._locked(entry_id, self._restore, entry_id)

    async def reclaim(self, keep: Set[str]) -> Reclaimed:
        """Remove what neither ``keep`` nor this process knows."""
        return await self._run(self._reclaim, keep)

    async def close(self) -> None:
        """Unmount the pool if it is empty."""
        await self._run(self._close)

    async def _run(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run in the executor. What the kernel or the disk refuses becomes a WorkspaceError that says the call."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: call(*args, **kwargs))
        except OSError as error:
            raise WorkspaceError(f"workspace: {error}") from error

    async def _locked(self, entry_id: str, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run in the executor with the slot's lock, taken in the thread so that cancelling cannot release it."""

        return await self._run(lambda: self._with_lock(entry_id, lambda: call(*args, **kwargs)))

    def _with_lock(self, entry_id: str, call: Callable[[], R]) -> R:
        with self._lock_of(entry_id):
            return call()

    def _lock_of(self, entry_id: str) -> threading.Lock:
        with self._guard:
            lock = self._locks.get(entry_id)
            if lock is None:
                lock = self._locks[entry_id] = threading.Lock()
            return lock

    def _start(self) -> None:
        self._layout.make()
        pool = [mount for mount in mountinfo.below(self._layout.pool) if mount.target == self._layout.pool]
        if not pool:
            # Kept when it is there already: containers that live on are slaves of that very mount.
            syscalls.bind(self._layout.pool, self._layout.pool)
        if not (pool and pool[-1].shared):
            syscalls.mount("none", self._layout.pool, "none", syscalls.MS_SHARED)

    def _prepare(self, entry_id: str, disk_bytes: int) -> Slot:
        with self._guard:
            known = entry_id in self._ours
            self._ours.add(entry_id)  # before anything of it is on disk: a reclaim at this moment keeps it
        try:
            return self._slot(self._slots.prepare(entry_id, disk_bytes))
        except BaseException:
            if not known:
                self._forget(entry_id)
            raise

    def _abandon(self, entry_id: str, work: asyncio.Future[Slot]) -> None:
        if not work.cancelled() and work.exception() is None:
            self._executor.submit(self._with_lock, entry_id, functools.partial(self._destroy, entry_id))

    def _assign(self, entry_id: str, digest: str) -> Slot:
        return self._slot(self._slots.assign(self._record(entry_id), self._templates.get(digest)))

    def _freeze(self, entry_id: str) -> Slot:
        return self._slot(self._slots.freeze(self._record(entry_id)))

    def _extract(self, entry_id: str, attempt_id: str) -> DiffResult:
        record = self._record(entry_id)
        if record.phase not in (SlotPhase.FROZEN, SlotPhase.EXTRACTED):
            raise WorkspaceStateError(f"slot {entry_id} is {record.phase.value}; freeze it before reading the diff")
        if record.attempt_id not in (None, attempt_id):
            raise WorkspaceStateError(f"slot {entry_id} belongs to attempt {record.attempt_id}, not {attempt_id}")
        template = self._template_of(record)
        extraction = self._artifacts.load(attempt_id)
        if extraction is None:
            upper = self._layout.slot(entry_id).upper
            extraction = self._artifacts.extract(attempt_id, upper, template.baseline(), record.disk_bytes)
        if record.phase is SlotPhase.FROZEN:
            self._slots.finish(record, template, attempt_id)
        return extraction.result

    def _judge_mounts(self, entry_id: str, kind: JudgeKind, judge_id: str, withhold: Collection[bytes]) -> JudgeMounts:
        record = self._record(entry_id)
        if record.phase is not SlotPhase.EXTRACTED or record.attempt_id is None:
            raise WorkspaceStateError(f"slot {entry_id} is {record.phase.value}; extract before judging")
        extraction = self._artifacts.load(record.attempt_id)
        if extraction is None:
            raise WorkspaceLostError(f"the artifacts of attempt {record.attempt_id} are gone")
        replaced = (*extraction.steering, *withhold)
        paths = self._layout.slot(entry_id)
        return judge_view.make_views(paths, self._template_of(record), kind, judge_id, replaced)

    def _destroy(self, entry_id: str) -> None:
        reclaim.reclaim_slot(self._layout, self._slots, entry_id)
        self._forget(entry_id)

    def _restore(self, entry_id: str) -> Slot:
        record = self._slots.restore(entry_id)
        with self._guard:
            self._ours.add(entry_id)
        return self._slot(record)

    def _reclaim(self, keep: Set[str]) -> Reclaimed:
        mounts: list[str] = []
        devices: list[str] = []
        directories = [*self._templates.clean(), *self._artifacts.clean()]
        for entry_id in sorted(reclaim.unknown_slots(self._layout, keep)):
            with self._lock_of(entry_id):
                with self._guard:
                    if entry_id in self._ours:
                        continue
                found = reclaim.reclaim_slot(self._layout, self._slots, entry_id)
            mounts += found.mounts
            devices += found.loop_devices
            directories += found.directories
        return Reclaimed(tuple(mounts), tuple(devices), tuple(directories))

    def _close(self) -> None:
        if not any(self._layout.slots.iterdir()) and not any(self._layout.pool.iterdir()):
            mountinfo.unmount(self._layout.pool)

    def _forget(self, entry_id: str) -> None:
        with self._guard:
            self._ours.discard(entry_id)

    def _record(self, entry_id: str) -> SlotRecord:
        return SlotRecord.load(self._layout.slot(entry_id))

    def _template_of(self, record: SlotRecord) -> Template:
        if record.template_digest is None:
            raise WorkspaceStateError(f"slot {record.entry_id}: nothing was assigned to it")
        return self._templates.get(record.template_digest)

    def _slot(self, record: SlotRecord) -> Slot:
        return record.slot(self._layout.slot(record.entry_id))
