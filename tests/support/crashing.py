"""A process that dies at its k-th write: stores, ledger and node behind one shared counter.

`Fuse.burn` is called around every write. The k-th one blows: before its effect or after it, as asked; from then on
every write of this life fails, so that nothing "goes on" in a dead process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from formats.canonical import Json
from records.ledger.port import Entry, Ledger
from scheduler.daemon_port import DaemonClient
from scheduler.store.port import ControlStore

STORE_WRITES = frozenset(
    {"insert_attempt", "change", "assign", "put_node", "set_draining", "put_challenge", "put_documents", "adopt_clock"}
)


class Crash(BaseException):
    """The process is dead. No `except Exception` of the code under test can survive it."""


class Fuse:
    """Counts writes and blows at the k-th (from 1); 0 never blows."""

    def __init__(self, blow_at: int, *, after_effect: bool) -> None:
        self.blow_at = blow_at
        self.after_effect = after_effect
        self.writes = 0
        self.blown = False

    def before(self) -> bool:
        """Whether this write blows after its effect. Raises Crash when it blows before, or the process is dead."""
        if self.blown:
            raise Crash
        self.writes += 1
        if self.writes != self.blow_at:
            return False
        self.blown = True
        if not self.after_effect:
            raise Crash
        return True


class FusedStore:
    """A ControlStore whose writes burn the fuse."""

    def __init__(self, inner: ControlStore, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in STORE_WRITES:
            return method

        def fused(*args: Any, **kwargs: Any) -> Any:
            blows = self._fuse.before()
            answer = method(*args, **kwargs)
            if blows:
                raise Crash
            return answer

        return fused


class FusedLedger(Ledger):
    """A ledger whose appends burn the fuse."""

    def __init__(self, inner: Ledger, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    def append(self, attempt_id: str, record: Mapping[str, Json], *, revise: bool = False) -> Entry:
        blows = self._fuse.before()
        entry = self._inner.append(attempt_id, record, revise=revise)
        if blows:
            raise Crash
        return entry

    def get(self, attempt_id: str, revision: int | None = None) -> Entry | None:
        return self._inner.get(attempt_id, revision)

    def entries(self, after_sequence: int = 0) -> Any:
        return self._inner.entries(after_sequence)

    def verify(self) -> Any:
        return self._inner.verify()

    def close(self) -> None:
        """The inner one lives on."""


class FusedDaemon(DaemonClient):
    """A node's client whose orders burn the fuse."""

    def __init__(self, inner: DaemonClient, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def claim(self, request: Any) -> Any:
        return await self._burn(self._inner.claim, request)

    async def put_challenge(self, digest: str, path: Path) -> None:
        await self._burn(self._inner.put_challenge, digest, path)

    async def end_attempt(self, request: Any) -> None:
        await self._burn(self._inner.end_attempt, request)

    async def release_attempt(self, request: Any) -> None:
        await self._burn(self._inner.release_attempt, request)

    def watch(self) -> AsyncIterator[Any]:
        return self._inner.watch()

    def diff(self, attempt_id: str) -> AsyncIterator[Any]:
        return self._inner.diff(attempt_id)

    def blob(self, attempt_id: str, digest: str) -> AsyncIterator[Any]:
        return self._inner.blob(attempt_id, digest)

    async def close(self) -> None:
        """Nothing to close."""

    async def _burn(self, call: Any, *args: Any) -> Any:
        blows = self._fuse.before()
        answer = await call(*args)
        if blows:
            raise Crash
        return answer
