"""A judge sandbox, as a judge uses it: made, run in, read from, and always destroyed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import grpc
import structlog
from gauntlet.daemon.v1 import judge_sandbox_service_pb2 as pb
from gauntlet.daemon.v1 import judge_sandbox_service_pb2_grpc as pb_grpc
from google.protobuf.duration_pb2 import Duration

from judges.errors import JudgingFault
from wire import client, errors, request_ids

log = structlog.get_logger(__name__)

# A challenge may give its database two starts of two minutes.
CREATE_TIMEOUT = 360.0
READ_TIMEOUT = 60.0
# The sandbox ends a command at its limit; this much later the stream itself is given up.
STREAM_MARGIN = 30.0
OUTPUT_BYTES = 1024 * 1024
# A daemon that restarts is waited for, a second a try: its absence is no failed judging.
CREATE_RETRIES = 60
# Reasons of a failed read that code in the sandbox can bring about, beside those of its files.
OF_THE_JUDGED = frozenset({"NOT_A_FILE", "SANDBOX_ENDED", "DISK_FULL"})


@dataclass
class CommandResult:
    """How a command in a judge sandbox ended."""

    exit_code: int | None = None
    timed_out: bool = False
    sandbox_died: bool = False
    oom_killed: bool = False
    error: str = ""
    stdout: bytearray = field(default_factory=bytearray)
    stderr: bytearray = field(default_factory=bytearray)

    @property
    def problem(self) -> str:
        """What cut the command short; empty when it ran to an exit of its own."""
        if self.oom_killed:
            return "the judge sandbox ran out of memory"
        if self.sandbox_died:
            return self.error
        if self.timed_out:
            return "the time limit of the suites was reached"
        return self.error


@dataclass
class JudgeSandboxClient:
    """One judge sandbox."""

    stub: pb_grpc.JudgeSandboxServiceStub
    judge_sandbox_id: str
    container_id: str

    async def run(
        self, argv: Sequence[str], *, cwd: str, timeout: float, environment: Mapping[str, str]
    ) -> CommandResult:
        """Run a command as uid 1000, to its end.

        Raises JudgingFault when the sandbox was lost for no reason of what ran in it, grpc.RpcError when the daemon
        cannot be reached.
        """
        limit = Duration()
        limit.FromNanoseconds(int(timeout * 1e9))
        request = pb.RunJudgeCommandRequest(
            judge_sandbox_id=self.judge_sandbox_id,
            argv=argv,
            cwd=cwd,
            environment=environment,
            timeout_duration=limit,
            max_output_bytes=OUTPUT_BYTES,
        )
        result = CommandResult()
        async for part in self.stub.RunJudgeCommand(request, timeout=timeout + STREAM_MARGIN):
            result.stdout += part.stdout
            result.stderr += part.stderr
            if part.HasField("end"):
                result.exit_code = part.end.exit_code if part.end.HasField("exit_code") else None
                result.timed_out = part.end.timed_out
                result.sandbox_died = part.end.sandbox_died
                result.oom_killed = part.end.oom_killed
                result.error = part.end.error
                if part.end.sandbox_lost:
                    raise JudgingFault(f"the judging was cut short: {part.end.error}")
        return result

    async def read(self, path: str, max_bytes: int) -> bytes | None:
        """A file, None when there is no readable regular file of at most that size (the judged code made it so).

        Raises grpc.RpcError for everything that the judged code cannot bring about.
        """
        request = pb.ReadJudgeFileRequest(judge_sandbox_id=self.judge_sandbox_id, path=path, max_bytes=max_bytes)
        data = bytearray()
        try:
            async for part in self.stub.ReadJudgeFile(request, timeout=READ_TIMEOUT):
                data += part.chunk
        except grpc.RpcError as error:
            failure = errors.decode(error)
            if failure.reason not in OF_THE_JUDGED and not failure.reason.startswith("FILE_"):
                raise
            log.info("report_not_readable", path=path, reason=failure.reason or failure.code)
            return None
        return bytes(data)


@asynccontextmanager
async def judge_sandbox(
    stub: pb_grpc.JudgeSandboxServiceStub, attempt_id: str, workspace: pb.JudgeWorkspace.ValueType
) -> AsyncIterator[JudgeSandboxClient]:
    """A fresh sandbox, destroyed afterwards. Raises JudgingFault when there can be none."""
    request = pb.CreateJudgeSandboxRequest(request_id=request_ids.new(), attempt_id=attempt_id, workspace=workspace)
    try:
        made = await client.call(stub.CreateJudgeSandbox, request, timeout=CREATE_TIMEOUT, retries=CREATE_RETRIES)
    except errors.WireFailure as failure:
        raise JudgingFault(f"no judge sandbox: {failure}") from failure
    try:
        yield JudgeSandboxClient(stub, made.judge_sandbox_id, made.container_id)
    finally:
        destroy = pb.DestroyJudgeSandboxRequest(judge_sandbox_id=made.judge_sandbox_id)
        try:
            await client.call(stub.DestroyJudgeSandbox, destroy)
        except errors.WireFailure as failure:
            # The attempt's release destroys it, or the daemon's next start does.
            log.warning("judge_sandbox_left", judge_sandbox_id=made.judge_sandbox_id, error=str(failure))
