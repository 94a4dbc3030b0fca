"""What the daemon calls: filesystem telemetry of every attempt on this node.

Life of an attempt here: `begin` (or `resume` after a restart) once its overlay is mounted; `stop` once its sandbox is
dead and before the workspace is frozen, since a watch keeps it mounted; `finish` with the diff. All are idempotent.
After `finish` the last event of every path agrees with the diff, whatever was overlooked, dropped or lost before.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from daemon.fswatch import probe
from daemon.fswatch.attempt import AttemptWatch
from daemon.fswatch.changes import Batch, Change, Source
from daemon.fswatch.content import LiveBudget, Workspace
from daemon.fswatch.disk import Disk
from daemon.fswatch.enospc import EnospcTrace
from daemon.fswatch.fanotify import FanotifySource
from daemon.fswatch.final import Final, Finish, read_told
from daemon.fswatch.fullness import Fullness
from daemon.fswatch.inotify import InotifySource
from daemon.fswatch.origins import Origins, Templates, origins_of
from daemon.fswatch.reader import Reader
from daemon.fswatch.rescan import found_again
from daemon.fswatch.shaper import Item
from daemon.fswatch.teller import KIND, Teller
from daemon.telemetry.facade import Telemetry
from daemon.telemetry.types import TelemetryError
from daemon.workspace.baseline import Baseline
from daemon.workspace.model import DiffResult, Slot, WorkspaceError
from daemon.workspace.port import Workspace as WorkspacePort

log = structlog.get_logger(__name__)

RESTARTED = "daemon_restart"
UNAVAILABLE = "watch_unavailable"
# Hashing lets go of the interpreter: two threads keep two CPUs busy, and no more than that is wanted beside agents.
THREADS = 2
# Everything an attempt may write, four times over.
HASH_DISKS = 4
T = TypeVar("T")

# Told from the reader's thread, moved to the event loop: an attempt's disk is high or full, each for the first time.
OnDisk = Callable[[str, Fullness], None]
FindOrigins = Callable[[Workspace], Origins]


class FilesystemWatch:
    """Use on one event loop; `start` before use, `close` at the end."""

    def __init__(
        self, telemetry: Telemetry, workspace: WorkspacePort, state: Path, instance: str, *, mechanism: str = "auto"
    ) -> None:
        """`mechanism` is auto, fanotify or inotify; auto takes fanotify where a trial works."""
        self._trace_name = trace_name(instance)
        self.mechanism = mechanism
        self._telemetry = telemetry
        self._workspace = workspace
        self._state = state
        self._executor = ThreadPoolExecutor(THREADS, "fswatch")
        self._reader = Reader()
        self._templates = Templates()
        self._watches: dict[str, AttemptWatch] = {}
        self._rescans: dict[str, tuple[asyncio.Task[None], threading.Event]] = {}
        self._left: dict[str, tuple[Teller, list[Item]]] = {}
        self.on_disk: OnDisk = lambda attempt_id, fullness: None

    async def start(self) -> None:
        """Choose the mechanism and begin to read."""
        if self.mechanism == "auto":
            refusal = await self._run(lambda: probe.fanotify_refusal(self._state / "fswatch-probe"))
            self.mechanism = probe.INOTIFY if refusal else probe.FANOTIFY
            log.info("fswatch_mechanism", mechanism=self.mechanism, fanotify_refusal=refusal)
        self._reader.start(_enospc_trace(self._trace_name))

    def begin(self, attempt_id: str, slot: Slot, container_id: str = "") -> None:
        """Watch an attempt's overlay from now on, before its agent can act. Never fails the attempt.

        Without `container_id` its ENOSPC is seen by looks at the disk only.
        """
        if attempt_id not in self._watches:
            self._begin(attempt_id, slot, container_id, lambda root: self._templates.of(slot.template_digest, root))

    def resume(self, attempt_id: str, slot: Slot, container_id: str = "") -> None:
        """Watch again after a restart of the daemon: say the gap; what changed meanwhile is told in the background."""
        self._telemetry.record_loss(attempt_id, KIND, None, RESTARTED)
        watch = self._begin(attempt_id, slot, container_id, origins_of)
        if watch is not None:
            stopped = threading.Event()
            task = asyncio.create_task(self._find_again(watch, slot, stopped), name=f"{attempt_id}:rescan")
            self._rescans[attempt_id] = (task, stopped)

    async def _find_again(self, watch: AttemptWatch, slot: Slot, stopped: threading.Event) -> None:
        budget = LiveBudget(HASH_DISKS * slot.disk_bytes)
        try:
            told = await read_told(watch.attempt_id, self._telemetry, self._run)
            baseline = await self._baseline(slot)

            def find() -> list[Change]:
                workspace = Workspace(slot.merged)
                try:
                    found = found_again(slot.upper, workspace, told, baseline, budget)
                    return list(itertools.takewhile(lambda _: not stopped.is_set(), found))
                finally:
                    workspace.close()

            watch.take(Batch(await self._run(find)))
        except (OSError, WorkspaceError, TelemetryError) as error:
            log.warning("fswatch_rescan_failed", attempt_id=watch.attempt_id, error=str(error))

    async def stop(self, attempt_id: str) -> None:
        """Take what the kernel still holds and let go of the workspace."""
        rescan = self._rescans.pop(attempt_id, None)
        if rescan is not None:  # it keeps the workspace mounted as well
            rescan[1].set()
            await asyncio.gather(rescan[0], return_exceptions=True)
        watch = self._watches.pop(attempt_id, None)
        if watch is not None:
            await asyncio.wrap_future(self._reader.drain(watch))
            self._left[attempt_id] = (watch.teller, await watch.settle())

    async def finish(self, attempt_id: str, slot: Slot, diff: DiffResult, *, crashed: bool) -> Finish:
        """Tell what is pending and what the diff knows better; with `crashed`, name the files not to be trusted.

        Raises OSError, WorkspaceError, TelemetryError.
        """
        await self.stop(attempt_id)
        held = self._left.get(attempt_id)
        if held is None:
            held = (Teller(attempt_id, self._telemetry), [])
            held[0].lose(None, RESTARTED)
        teller, left = held
        baseline = await self._baseline(slot)
        final = Final(teller, self._telemetry, self._run, diff, baseline)
        result = await final.tell(left, crashed=crashed)
        self._left[attempt_id] = (teller, [])
        log.info("fswatch_reconciled", attempt_id=attempt_id, events=result.reconciled, suspects=len(result.suspects))
        return result

    async def forget(self, attempt_id: str) -> None:
        """Let go of whatever is held of an attempt."""
        await self.stop(attempt_id)
        self._left.pop(attempt_id, None)

    async def close(self) -> None:
        """Stop watching; attempts that run on are resumed by the next life."""
        for attempt_id in list(self._watches):
            await self.forget(attempt_id)
        await asyncio.to_thread(self._reader.close)
        self._executor.shutdown()

    def _begin(self, attempt_id: str, slot: Slot, container_id: str, origins: FindOrigins) -> AttemptWatch | None:
        try:
            source = self._source(attempt_id, slot, origins)
            workspace = Workspace(slot.merged)
        except OSError as error:
            log.error("fswatch_unavailable", attempt_id=attempt_id, error=str(error))
            self._telemetry.record_loss(attempt_id, KIND, None, UNAVAILABLE)
            self._left[attempt_id] = (Teller(attempt_id, self._telemetry), [])
            return None
        watch = AttemptWatch(
            Teller(attempt_id, self._telemetry),
            source,
            workspace,
            LiveBudget(HASH_DISKS * slot.disk_bytes),
            self._executor,
            self._disk(attempt_id, slot.quota, container_id),
        )
        self._watches[attempt_id] = watch
        self._reader.add(watch)
        return watch

    def _source(self, attempt_id: str, slot: Slot, origins: FindOrigins) -> Source:
        """A few microseconds once the template is known: no hop to a thread on the claim path."""
        if self.mechanism != probe.INOTIFY:
            try:
                return FanotifySource(slot.merged, origins)
            except OSError as error:  # no group left (fs.fanotify.max_user_groups), or no such mark after all
                log.warning("fanotify_refused", attempt_id=attempt_id, error=str(error))
        return InotifySource(slot.merged)

    def _disk(self, attempt_id: str, quota: Path, container_id: str) -> Disk:
        loop = asyncio.get_running_loop()
        return Disk(quota, container_id, lambda full: _hand_over(loop, self.on_disk, attempt_id, full))

    async def _baseline(self, slot: Slot) -> Baseline:
        assert slot.template_digest is not None, "an attempt's slot has a challenge"
        template = await self._workspace.template(slot.template_digest)
        return await self._run(template.baseline)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _hand_over(loop: asyncio.AbstractEventLoop, on_disk: OnDisk, attempt_id: str, fullness: Fullness) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(on_disk, attempt_id, fullness)


def _enospc_trace(name: str) -> EnospcTrace | None:
    try:
        return EnospcTrace(name)
    except OSError as error:
        log.warning("enospc_not_traced", error=str(error))
        return None


def remove_traces(instance: str) -> None:
    """Remove what a killed daemon of this instance left in the kernel."""
    trace = _enospc_trace(trace_name(instance))
    if trace is not None:
        trace.close()


def trace_name(instance: str) -> str:
    """The tracing instance of a daemon's instance."""
    return f"gauntlet-{instance}"
