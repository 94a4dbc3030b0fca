"""The end of an attempt's filesystem events: what was pending, then what the diff knows better.

The state that had been told is read back from the spool, not remembered: what a full buffer, a full disk or a killed
daemon kept out of it was not told.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

from daemon.fswatch import withheld
from daemon.fswatch.changes import Content
from daemon.fswatch.events import Told, fold, told_by
from daemon.fswatch.reconcile import Before, content_of, corrections, suspects
from daemon.fswatch.shaper import Item
from daemon.fswatch.teller import KIND, Teller
from daemon.telemetry.facade import Telemetry
from daemon.workspace.model import DiffResult
from formats.diff import DiffEntry, read_lines

RECONCILE = "reconcile"
DIFF_CUT = "diff_truncated"
_CHUNK = 500
T = TypeVar("T")


class Run(Protocol):
    """Runs blocking work in a thread."""

    def __call__(self, work: Callable[[], T]) -> Awaitable[T]:
        """Its answer."""
        ...


@dataclass(frozen=True, slots=True)
class Finish:
    """`reconciled` events were synthesised; `suspects` are withheld from judges, and kept beside the artifacts."""

    reconciled: int
    suspects: tuple[bytes, ...] = ()


class Final:
    """One attempt's last comparison. `diff` and `before` (Snapshot A) are final."""

    def __init__(self, teller: Teller, telemetry: Telemetry, run: Run, diff: DiffResult, before: Before) -> None:
        self._teller = teller
        self._telemetry = telemetry
        self._run = run
        self._diff = diff
        self._before = before

    async def tell(self, left: list[Item], *, crashed: bool) -> Finish:
        """Record what is left to tell. A file whose last change came after its last hash is suspect."""
        told = await read_told(self._teller.attempt_id, self._telemetry, self._run)
        found = await self._run(lambda: self._suspects(told)) if crashed else ()
        await self._tell_left(left, told)
        count = 0
        missing = corrections(told, _entries(self._diff), self._before)
        while chunk := await self._run(lambda: list(itertools.islice(missing, _CHUNK))):
            for operation, path, content in chunk:
                await self._teller.tell(operation, path, content, RECONCILE)
            count += len(chunk)
        if self._diff.truncated:
            self._teller.lose(None, DIFF_CUT)
        return Finish(count, found)

    def _suspects(self, told: dict[bytes, Told]) -> tuple[bytes, ...]:
        """Kept before anything is told: were this end to be interrupted, the next one would find nothing amiss."""
        artifacts = self._diff.entries_path.parent
        found = withheld.load(artifacts)
        if found is None:
            found = tuple(suspects(told, _entries(self._diff)))
            withheld.keep(artifacts, found)
        return found

    async def _tell_left(self, left: list[Item], told: dict[bytes, Told]) -> None:
        """What was pending when the sandbox died: its content is final now, and the diff has it."""
        wanted = {item.change.path for item in left if not item.ready}
        final = await self._run(lambda: _contents(wanted, self._diff, self._before)) if wanted else {}
        for item in left:
            change = item.change
            content = item.content if item.ready else final.get(change.path)
            await self._teller.tell(
                change.operation, change.path, content, change.source, change.time_ns, merged=change.merged
            )
            told[change.path] = told_by(change.operation, content)


async def read_told(attempt_id: str, telemetry: Telemetry, run: Run) -> dict[bytes, Told]:
    """The state that an attempt's events have told so far. Raises OSError."""
    await telemetry.flush(attempt_id, KIND)
    path = telemetry.spool_root / attempt_id / f"{KIND}.jsonl"

    def read() -> dict[bytes, Told]:
        with path.open("rb") as lines:
            return fold(lines)

    return await run(read)


def _entries(diff: DiffResult) -> Iterator[DiffEntry]:
    with diff.entries_path.open("rb") as lines:
        yield from read_lines(lines)


def _contents(wanted: set[bytes], diff: DiffResult, before: Before) -> dict[bytes, Content]:
    """The final content of some paths; those that are gone are left out."""
    contents = {path: content_of(old) for path in wanted if (old := before.get(path)) is not None}
    for entry in _entries(diff):
        if entry.path in wanted:
            if entry.change == "deleted":
                contents.pop(entry.path, None)
            else:
                contents[entry.path] = content_of(entry)
    return contents
