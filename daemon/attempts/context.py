"""What every part of an attempt's life shares on one node: ports, registry, journal, clock.

Made once by the wiring (`daemon.node`). Holds no logic but the step that everybody needs: keep.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from daemon.attempts.calm import Calm
from daemon.attempts.clock import AttemptClock
from daemon.attempts.journal import Journal
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import State
from daemon.attempts.registry import Registry
from daemon.attempts.stacks import Stacks
from daemon.attempts.tracing import NoTracing, Tracing
from daemon.fswatch.facade import FilesystemWatch
from daemon.pool.manager import PoolManager
from daemon.runtime.port import Runtime
from daemon.telemetry.facade import Telemetry
from daemon.workspace.port import Workspace

Answer = TypeVar("Answer")
ATTEMPT_ID = re.compile(r"att_[a-z0-9]{1,64}")


@dataclass
class NodeContext:
    """One node's parts. `memory_budget_bytes` bounds the sum of memory limits, `capacity` the number of sandboxes."""

    instance: str
    runtime: Runtime
    workspace: Workspace
    pools: PoolManager
    telemetry: Telemetry
    stacks: Stacks
    journal: Journal
    clock: AttemptClock
    executor: Executor
    capacity: int
    memory_budget_bytes: int
    artifacts: Path
    fswatch: FilesystemWatch
    tracing: Tracing = field(default_factory=NoTracing)
    registry: Registry = field(default_factory=Registry)
    background: set[asyncio.Task[Any]] = field(default_factory=set)
    calm: Calm = field(default_factory=Calm)

    def held(self) -> int:
        """Attempts that have a sandbox or are getting one."""
        return sum(1 for a in self.registry if a.entry is not None or a.facts.state is State.STARTING)

    def diff_path(self, attempt_id: str) -> Path | None:
        """Where an attempt's diff is, or would be; None for what is no attempt's id."""
        return self.artifacts / attempt_id / "diff.jsonl" if ATTEMPT_ID.fullmatch(attempt_id) else None

    async def blocking(self, work: Callable[..., Answer], *arguments: Any) -> Answer:
        """Run blocking work in the bounded executor."""
        return await asyncio.get_running_loop().run_in_executor(self.executor, work, *arguments)

    async def keep(self, attempt: LiveAttempt) -> None:
        """Journal an attempt's facts as they are now, then tell watchers."""
        await self.blocking(self.journal.put, deepcopy(attempt.facts))
        self.registry.changed(attempt)

    def spawn(self, work: Any, name: str) -> asyncio.Task[Any]:
        """Run a task that outlives the call that asked for it; `drain` waits for it."""
        task = asyncio.create_task(work, name=name)
        self.background.add(task)
        task.add_done_callback(self.background.discard)
        return task

    async def drain(self) -> None:
        """Wait for every background task."""
        while self.background:
            await asyncio.gather(*self.background, return_exceptions=True)
