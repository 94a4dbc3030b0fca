"""One attempt's watch while it runs: from its source to the recorder, with looks at content in between.

Owns the pump, an asyncio task that shapes changes and records events, and one job at a time in the executor (looks, or
the listing of a directory that was moved here whole). When the recorder has no room the pump waits, the inbox fills
and then counts what it drops. What an attempt's end means is `facade`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from concurrent.futures import Executor

import structlog

from daemon.fswatch.changes import MOVED_TO, RESCAN, Batch, Change, Content, Source
from daemon.fswatch.content import LiveBudget, Workspace
from daemon.fswatch.disk import Disk
from daemon.fswatch.inbox import Inbox
from daemon.fswatch.shaper import Item, Shaper
from daemon.fswatch.teller import Teller
from daemon.workspace.model import WorkspaceError

log = structlog.get_logger(__name__)

OVERFLOW = "watch_overflow"
PLACE_UNKNOWN = "directory_gone"
SOURCE_FAILED = "watch_failed"
# Entries that listings of moved directories may tell of one attempt; the rest is found at its end.
RESCAN_ENTRIES = 200_000
_SLICE = 500


class AttemptWatch:
    """Made on the event loop, with a source that is marked already."""

    def __init__(
        self,
        teller: Teller,
        source: Source,
        workspace: Workspace,
        budget: LiveBudget,
        executor: Executor,
        disk: Disk,
    ) -> None:
        self.attempt_id = teller.attempt_id
        self.teller = teller
        self.source = source
        self.tick, self.full, self.owns = disk.look, disk.full, disk.owns
        self._workspace = workspace
        self._budget = budget
        self._executor = executor
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._inbox = Inbox(self._wake_from_thread)
        self._shaper = Shaper()
        self._moved: dict[bytes, None] = {}
        self._rescans_left = RESCAN_ENTRIES
        self._job: asyncio.Future[None] | None = None
        self._ended = False
        self._task = asyncio.create_task(self._run(), name=f"{self.attempt_id}:fswatch")

    def take(self, batch: Batch) -> None:
        """From the reader's thread, or from a listing's."""
        self._inbox.put(batch)

    def failed(self, error: OSError) -> None:
        """The source is dead: the end will tell what it no longer does."""
        log.error("fswatch_source_failed", attempt_id=self.attempt_id, error=str(error))
        self._inbox.put(Batch(overflow=True))

    async def settle(self) -> list[Item]:
        """Once the source is drained: record what is ready and return the rest, in order. Closes the workspace."""
        self._inbox.end()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._job is not None:
            await asyncio.gather(self._job, return_exceptions=True)
        self._workspace.close()
        return self._shaper.end()

    def _wake_from_thread(self) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everybody who would want to know
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        try:
            while not self._ended:
                await self._turn()
                if not self._ended:
                    await self._wait()
        except Exception as error:
            # The boundary: the events end here, the reconcile at the end does not.
            log.error("fswatch_died", attempt_id=self.attempt_id, exc_info=error)
            with contextlib.suppress(Exception):
                self.teller.lose(None, SOURCE_FAILED)

    async def _turn(self) -> None:
        post = self._inbox.get()
        if post.lost:
            self.teller.lose(post.lost, PLACE_UNKNOWN)
        for at in range(0, len(post.changes), _SLICE):
            now = time.monotonic()
            for change in post.changes[at : at + _SLICE]:
                self._shaper.feed(change, now)
                if change.is_directory and change.operation == MOVED_TO and change.source is None:
                    self._moved[change.path] = None
            await self._emit()
            await asyncio.sleep(0)  # others have their turn: an agent may make changes as fast as we tell them
        if post.dropped:
            self.teller.lose(post.dropped, OVERFLOW)
        if post.overflow:
            self.teller.lose(None, OVERFLOW)
        await self._emit()
        self._ended = post.ended
        if not self._ended:
            self._start_job()

    async def _wait(self) -> None:
        due = self._shaper.next_due() if self._job is None else None
        timer = self._loop.call_later(max(0.0, due - time.monotonic()), self._wake.set) if due is not None else None
        await self._wake.wait()
        self._wake.clear()
        if timer is not None:
            timer.cancel()

    async def _emit(self) -> None:
        for item in self._shaper.ready():
            change = item.change
            content, source = item.content, change.source
            await self.teller.tell(change.operation, change.path, content, source, change.time_ns, merged=change.merged)

    def _start_job(self) -> None:
        if self._job is not None:
            return
        now = time.monotonic()
        paths = self._shaper.due(now)
        if paths:
            self._job = asyncio.ensure_future(self._look(paths, now))
        elif self._moved and self._rescans_left > 0:
            top = next(iter(self._moved))
            del self._moved[top]
            self._job = asyncio.ensure_future(self._rescan(top))
        if self._job is not None:
            self._job.add_done_callback(self._job_done)

    def _job_done(self, job: asyncio.Future[None]) -> None:
        self._job = None
        if not job.cancelled() and (error := job.exception()) is not None:
            log.error("fswatch_look_failed", attempt_id=self.attempt_id, exc_info=error)
        self._wake.set()

    async def _look(self, paths: list[bytes], asked: float) -> None:
        found = await self._loop.run_in_executor(self._executor, self._look_at, paths)
        now = time.monotonic()
        for path, content in zip(paths, found, strict=True):
            self._shaper.looked(path, content, asked, now)

    def _look_at(self, paths: list[bytes]) -> list[Content | None]:
        found: list[Content | None] = []
        for path in paths:
            try:
                found.append(self._workspace.look(path, self._budget))
            except (OSError, WorkspaceError) as error:
                log.warning("fswatch_unreadable", attempt_id=self.attempt_id, error=str(error))
                found.append(None)
        return found

    async def _rescan(self, top: bytes) -> None:
        """A directory came with all that is in it: tell what that is, where it now is."""
        listed = await self._loop.run_in_executor(self._executor, self._list, top)
        self._rescans_left -= len(listed)
        self._inbox.put(Batch(listed))

    def _list(self, top: bytes) -> list[Change]:
        now = time.time_ns()
        walk = self._workspace.walk(top, self._rescans_left)
        return [Change(now, MOVED_TO, path, is_directory, RESCAN) for path, is_directory in walk]
