"""Judge sandboxes: a fresh container per judging, on read-only views of a frozen workspace.

Made cold, never pooled, never reused, destroyed by the judge, by the attempt's release, or by the next start's
reclaim. What runs in one, and what it scores, is the room `judges`.
"""

from __future__ import annotations

import asyncio
import enum
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import structlog

from daemon.attempts import databases
from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import AttemptError, State
from daemon.attempts.stacks import environment
from daemon.fswatch import withheld
from daemon.pool.launch import Launched, NotReady, launch
from daemon.pool.undertaker import Undertaker
from daemon.runtime.errors import CreateFailed
from daemon.runtime.types import Mount, Resources, SandboxSpec
from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.types import ExecSpec
from daemon.workspace.model import JudgeKind, Slot, WorkspaceError

log = structlog.get_logger(__name__)

WORKSPACE = "/workspace"


class JudgeSandboxUnknown(AttemptError):
    """No judge sandbox of that id exists (any more): the judging starts over."""

    def __init__(self, judge_sandbox_id: str) -> None:
        super().__init__(f"no judge sandbox {judge_sandbox_id}")
        self.judge_sandbox_id = judge_sandbox_id


class WorkspaceGone(AttemptError):
    """The attempt's frozen workspace is not here."""


class JudgeEnd(enum.Enum):
    """How a judge sandbox ended under a command."""

    OUT_OF_MEMORY = "the judge sandbox ran out of memory"
    CRASHED = "the judge sandbox's kernel gave up"
    LOST = "the judge sandbox was lost"


@dataclass(eq=False)
class JudgeSandbox:
    """One judge's container."""

    judge_sandbox_id: str
    attempt: LiveAttempt
    slot: Slot
    launched: Launched

    @property
    def container_id(self) -> str:
        """The container's id."""
        return self.launched.container_id


class JudgeSandboxes:
    """Every judge sandbox of this node. `profiles` are seccomp profiles by digest."""

    def __init__(self, node: NodeContext, profiles: Mapping[str, str], undertaker: Undertaker) -> None:
        self._node = node
        self._profiles = profiles
        self._undertaker = undertaker
        self._by_id: dict[str, JudgeSandbox] = {}
        self._by_request: dict[str, asyncio.Task[JudgeSandbox]] = {}

    async def create(
        self,
        attempt: LiveAttempt,
        kind: JudgeKind,
        *,
        request_id: str,
        resources: Resources | None,
        extra_environment: Mapping[str, str],
    ) -> JudgeSandbox:
        """A judge sandbox, READY. The same request gets the same one. Raises WorkspaceGone, RuntimeFault."""
        making = self._by_request.get(request_id)
        if making is None:
            making = asyncio.create_task(self._create(attempt, kind, resources, extra_environment))
            self._by_request[request_id] = making
            making.add_done_callback(lambda task: self._forget_failed(request_id, task))
        return await asyncio.shield(making)

    def get(self, judge_sandbox_id: str) -> JudgeSandbox:
        """The sandbox. Raises JudgeSandboxUnknown."""
        found = self._by_id.get(judge_sandbox_id)
        if found is None:
            raise JudgeSandboxUnknown(judge_sandbox_id)
        return found

    async def run(self, judge: JudgeSandbox, spec: ExecSpec, stdin: bytes) -> ExecHandle:
        """Start a command in it. Raises SupervisorError."""
        exec_id = f"exe_{uuid.uuid4().hex[:20]}"
        handle = await judge.launched.link.exec(spec, exec_id=exec_id)
        if spec.stdin:
            await judge.launched.link.write_stdin(exec_id, 0, stdin, True)
        return handle

    async def end_of(self, judge: JudgeSandbox) -> JudgeEnd:
        """Why a judge sandbox ended. What ran in it can exhaust its memory or crash its kernel, and nothing else."""
        seen = await self._node.runtime.inspect(judge.container_id)
        if seen is None or seen.state.live:
            return JudgeEnd.LOST
        if seen.oom_killed:
            return JudgeEnd.OUT_OF_MEMORY
        return JudgeEnd.CRASHED if await self._node.runtime.panic_log(judge.container_id) else JudgeEnd.LOST

    def destroy(self, judge_sandbox_id: str) -> None:
        """End it in the background, until gone. Idempotent."""
        judge = self._by_id.pop(judge_sandbox_id, None)
        if judge is not None:
            self._undertaker.bury(f"judge {judge_sandbox_id}", lambda: self._destroy(judge))

    async def destroy_of(self, attempt: LiveAttempt) -> None:
        """End every judge sandbox of an attempt and wait until each is gone."""
        mine = [judge for judge in self._by_id.values() if judge.attempt is attempt]
        for judge in mine:
            self._by_id.pop(judge.judge_sandbox_id, None)
        burials = [
            self._undertaker.bury(f"judge {judge.judge_sandbox_id}", lambda judge=judge: self._destroy(judge))  # type: ignore[misc]
            for judge in mine
        ]
        if burials:
            await asyncio.wait(burials)

    async def _create(
        self, attempt: LiveAttempt, kind: JudgeKind, resources: Resources | None, extra: Mapping[str, str]
    ) -> JudgeSandbox:
        facts = attempt.facts
        if facts.state is not State.FROZEN or attempt.slot is None or not facts.evidence.workspace_extracted:
            raise WorkspaceGone(f"attempt {facts.attempt_id} has no frozen workspace on this node")
        judge_id = f"jsb_{uuid.uuid4().hex[:20]}"
        template = self._node.stacks.template(facts.spec)
        try:
            suspect = await self._node.blocking(withheld.load, self._node.artifacts / facts.attempt_id)
            view = await self._node.workspace.judge_mounts(attempt.slot, kind, judge_id, withhold=suspect or ())
        except WorkspaceError as error:
            raise WorkspaceGone(str(error)) from error
        spec = SandboxSpec(
            name=f"{self._node.instance}-{judge_id}",
            instance=self._node.instance,
            entry_id=judge_id,
            template=template.key,
            image=facts.image_digest,
            runtime=template.runtime,
            resources=resources or template.resources,
            seccomp_profile=self._profiles[template.profile_digest],
            mounts=tuple(Mount(m.source, m.target, m.read_only) for m in view.mounts),
        )
        try:
            launched = await launch(self._node.runtime, spec, self._undertaker)
        except BaseException as error:
            slot = attempt.slot
            self._undertaker.bury(f"view {judge_id}", lambda: self._node.workspace.release_judge(slot, judge_id))
            if isinstance(error, NotReady):
                raise CreateFailed(str(error)) from error
            raise
        judge = JudgeSandbox(judge_id, attempt, attempt.slot, launched)
        try:
            await launched.link.assign(environment(facts.spec, extra))
            await _start_database(judge)
        except BaseException:
            self._undertaker.bury(f"judge {judge_id}", lambda: self._destroy(judge))
            raise
        self._by_id[judge_id] = judge
        log.info("judge_sandbox_ready", attempt_id=facts.attempt_id, judge_sandbox_id=judge_id, kind=kind.value)
        return judge

    async def _destroy(self, judge: JudgeSandbox) -> None:
        await judge.launched.link.close()
        await judge.launched.transport.close()
        await self._node.runtime.destroy(judge.container_id)
        await self._node.workspace.release_judge(judge.slot, judge.judge_sandbox_id)

    def _forget_failed(self, request_id: str, task: asyncio.Task[JudgeSandbox]) -> None:
        if task.cancelled() or task.exception() is not None:
            self._by_request.pop(request_id, None)


async def _start_database(judge: JudgeSandbox) -> None:
    """A judge goes without a database only where the agent had to. Raises CreateFailed: judging begins again."""
    facts = judge.attempt.facts
    if facts.spec.database is None:
        return
    reason = await databases.start(judge.launched.link, facts.spec.database)
    if reason and not facts.evidence.database_unavailable:
        raise CreateFailed(f"the database that the agent had does not start for its judge: {reason}")
