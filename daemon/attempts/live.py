"""One attempt while this process lives: its facts, its sandbox, its tasks.

Owns no decision: `claims` makes it, `ending` ends it, `limits` watches its time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from daemon.attempts.model import AttemptEnded, AttemptFacts, SandboxUnreachable, SentSignal, StaleFence, State
from daemon.pool.entry import PoolEntry
from daemon.workspace.model import Slot

# A death is told within milliseconds, an engine's restart takes seconds: the caller is then asked to come again.
REACHED_SECONDS = 3.0
REACHED_PAUSE_SECONDS = 0.1


@dataclass(eq=False)
class LiveAttempt:
    """An attempt of this node.

    `entry` is None once its sandbox is gone, `slot` once nothing of its workspace is left; `died` is set when the
    runtime reported the end. `tasks` are cancelled at the end, `calls` (the agent's, being recorded) are waited for.
    """

    facts: AttemptFacts
    entry: PoolEntry | None = None
    slot: Slot | None = None
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    calls: set[asyncio.Task[Any]] = field(default_factory=set)
    ending: asyncio.Task[None] | None = None
    died: asyncio.Event = field(default_factory=asyncio.Event)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def fence(self, given: int) -> None:
        """Accept the same or a newer lease. Raises StaleFence."""
        if given < self.facts.spec.fence:
            raise StaleFence(self.facts.attempt_id, given, self.facts.spec.fence)
        if given > self.facts.spec.fence:
            self.facts.refenced(given)

    def sandbox(self) -> PoolEntry:
        """The running sandbox. Raises AttemptEnded."""
        if self.facts.state is not State.RUNNING or self.entry is None:
            raise AttemptEnded(self.facts.attempt_id)
        return self.entry

    async def reachable(self, seconds: float = REACHED_SECONDS) -> None:
        """Return once PID 1 can be asked, or the attempt no longer runs. Raises SandboxUnreachable.

        A pipe that is gone means that the sandbox has died, whose event is on its way, or that the engine is away and
        a new pipe is.
        """
        deadline = time.monotonic() + seconds
        while self.facts.state is State.RUNNING and self.entry is not None and not self.entry.alive:
            if time.monotonic() > deadline:
                raise SandboxUnreachable(self.facts.attempt_id)
            try:
                async with asyncio.timeout(REACHED_PAUSE_SECONDS):
                    await self.died.wait()
            except TimeoutError:
                continue
            return

    def sent(self, name: str, reason: str, wall_ns: int) -> None:
        """Put a signal of ours into the ledger, before it is sent."""
        self.facts.evidence.signals.append(SentSignal(name, reason, wall_ns))

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a task that lives no longer than the attempt."""
        task = asyncio.create_task(work, name=f"{self.facts.attempt_id}:{name}")
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def spawn_call(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run the recording of one of the agent's calls: it outlives the client and ends with the sandbox."""
        task = asyncio.create_task(work, name=f"{self.facts.attempt_id}:{name}")
        self.calls.add(task)
        task.add_done_callback(self.calls.discard)
        return task

    async def finish_calls(self, timeout: float) -> None:
        """Wait for the recordings; what does not end in time is cancelled."""
        if self.calls:
            _, late = await asyncio.wait(self.calls, timeout=timeout)
            for task in late:
                task.cancel()

    async def stop_tasks(self) -> None:
        """Cancel every task but the caller's and wait for them."""
        mine = [task for task in self.tasks if task is not asyncio.current_task()]
        for task in mine:
            task.cancel()
        await asyncio.gather(*mine, return_exceptions=True)
