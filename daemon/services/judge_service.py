"""gauntlet.daemon.v1.JudgeSandboxService over the domain."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from gauntlet.daemon.v1 import judge_sandbox_service_pb2 as pb
from gauntlet.daemon.v1 import judge_sandbox_service_pb2_grpc as pb_grpc
from google.protobuf.duration_pb2 import Duration

from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.judging.sandboxes import JudgeEnd, JudgeSandbox, JudgeSandboxes
from daemon.runtime.types import Resources
from daemon.services.mapping import RESOURCE_FIELDS
from daemon.services.requests import RequestLog
from daemon.supervisor.errors import SupervisorGone
from daemon.supervisor.types import AGENT_GID, AGENT_UID, DEFAULT_OUTPUT_CAP, ExecSpec, Exited, Output
from daemon.workspace.model import JudgeKind
from wire import errors

Context = Any
JUDGE = "judge"
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
KINDS = {
    pb.JUDGE_WORKSPACE_FINAL: JudgeKind.FINAL,
    pb.JUDGE_WORKSPACE_REFERENCE: JudgeKind.REFERENCE,
}


class JudgeSandboxService(pb_grpc.JudgeSandboxServiceServicer):
    """Judge sandboxes for judge workers."""

    def __init__(self, node: NodeContext, sandboxes: JudgeSandboxes) -> None:
        self._node = node
        self._sandboxes = sandboxes
        self._requests = RequestLog()

    async def CreateJudgeSandbox(
        self, request: pb.CreateJudgeSandboxRequest, context: Context
    ) -> pb.CreateJudgeSandboxResponse:
        """A fresh container on a view of the frozen workspace."""
        request_id = self._requests.check(JUDGE, request)
        if request.workspace not in KINDS:
            raise errors.invalid("WORKSPACE_UNSPECIFIED", "say which workspace to show", [("workspace", "unset")])
        attempt = self._node.registry.get(request.attempt_id)
        judge = await self._sandboxes.create(
            attempt,
            KINDS[request.workspace],
            request_id=request_id,
            resources=_resources(attempt, request),
            extra_environment=dict(request.environment),
        )
        return pb.CreateJudgeSandboxResponse(judge_sandbox_id=judge.judge_sandbox_id, container_id=judge.container_id)

    async def RunJudgeCommand(
        self, request: pb.RunJudgeCommandRequest, context: Context
    ) -> AsyncIterator[pb.RunJudgeCommandResponse]:
        """A command's output, then its end; an end comes also when the sandbox dies."""
        judge = self._sandboxes.get(request.judge_sandbox_id)
        spec = _spec(request)
        try:
            handle = await self._sandboxes.run(judge, spec, request.stdin)
            async for event in handle:
                if isinstance(event, Output):
                    out = event.stream == "stdout"
                    yield pb.RunJudgeCommandResponse(
                        stdout=event.data if out else b"", stderr=b"" if out else event.data
                    )
                elif isinstance(event, Exited):
                    yield pb.RunJudgeCommandResponse(end=_end(event))
        except SupervisorGone:
            yield pb.RunJudgeCommandResponse(end=await self._died(judge))

    async def ReadJudgeFile(
        self, request: pb.ReadJudgeFileRequest, context: Context
    ) -> AsyncIterator[pb.ReadJudgeFileResponse]:
        """A regular file, as uid 1000 sees it, refused when it is larger than asked for."""
        judge = self._sandboxes.get(request.judge_sandbox_id)
        try:
            async for chunk in self._read(judge, request):
                yield pb.ReadJudgeFileResponse(chunk=chunk)
        except SupervisorGone:
            end = await self._sandboxes.end_of(judge)
            if end is JudgeEnd.LOST:
                raise errors.unavailable("JUDGE_SANDBOX_LOST", end.value) from None
            raise errors.precondition("SANDBOX_ENDED", end.value) from None

    async def _read(self, judge: JudgeSandbox, request: pb.ReadJudgeFileRequest) -> AsyncIterator[bytes]:
        found = await judge.launched.link.stat(request.path)
        if found.type != "file":
            raise errors.precondition("NOT_A_FILE", f"{request.path} is a {found.type}")
        if found.size > request.max_bytes:
            raise errors.precondition("FILE_TOO_LARGE", f"{request.path} has {found.size} bytes")
        reader = judge.launched.link.read_file(request.path, 0, request.max_bytes)
        try:
            async for chunk in reader:
                yield chunk
        finally:
            await reader.aclose()

    async def DestroyJudgeSandbox(
        self, request: pb.DestroyJudgeSandboxRequest, context: Context
    ) -> pb.DestroyJudgeSandboxResponse:
        """The end of it."""
        self._sandboxes.destroy(request.judge_sandbox_id)
        return pb.DestroyJudgeSandboxResponse()

    async def _died(self, judge: JudgeSandbox) -> pb.JudgeCommandEnd:
        end = await self._sandboxes.end_of(judge)
        return pb.JudgeCommandEnd(
            sandbox_died=end is not JudgeEnd.LOST,
            sandbox_lost=end is JudgeEnd.LOST,
            oom_killed=end is JudgeEnd.OUT_OF_MEMORY,
            error=end.value,
        )


def _resources(attempt: LiveAttempt, request: pb.CreateJudgeSandboxRequest) -> Resources | None:
    wanted = {name: value for name in RESOURCE_FIELDS if (value := getattr(request.resources, name))}
    limits = attempt.facts.limits
    return replace(limits, **wanted) if limits is not None else None


def _spec(request: pb.RunJudgeCommandRequest) -> ExecSpec:
    seconds = request.timeout_duration.seconds + request.timeout_duration.nanos / 1e9
    if not request.argv or seconds <= 0:
        raise errors.invalid("COMMAND_INVALID", "argv and a timeout above zero are required")
    return ExecSpec(
        argv=list(request.argv),
        cwd=request.cwd,
        env=dict(request.environment),
        stdin=bool(request.stdin),
        uid=0 if request.as_root else AGENT_UID,
        gid=0 if request.as_root else AGENT_GID,
        timeout_seconds=seconds,
        max_output_bytes=min(request.max_output_bytes, MAX_OUTPUT_BYTES) or DEFAULT_OUTPUT_CAP,
        admin=request.as_root,
    )


def _end(event: Exited) -> pb.JudgeCommandEnd:
    duration = Duration()
    duration.FromNanoseconds(event.result.duration_ns)
    return pb.JudgeCommandEnd(
        exit_code=event.result.exit_code,
        signal=event.result.signal,
        timed_out=event.result.timed_out,
        error=event.result.error or "",
        truncated=event.result.truncated,
        run_duration=duration,
    )
