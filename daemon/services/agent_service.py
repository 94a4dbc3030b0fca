"""gauntlet.daemon.v1.AgentService over the domain: the only door an agent's client has."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import structlog
from gauntlet.daemon.v1 import agent_service_pb2 as pb
from gauntlet.daemon.v1 import agent_service_pb2_grpc as pb_grpc

from daemon.agent.execs import AgentExecs
from daemon.agent.files import AgentFiles
from daemon.agent.sessions import Sessions
from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender
from daemon.attempts.model import AttemptEnded, Cause
from daemon.services.exec_stream import exec_events
from daemon.services.requests import RequestLog
from daemon.supervisor.errors import FileFailed
from daemon.supervisor.types import DEFAULT_OUTPUT_CAP, ExecSpec, FileDigest, FileStat
from wire import errors

log = structlog.get_logger(__name__)

Context = Any
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
MAX_STDIN_BYTES = 1024 * 1024
# Arguments, environment and directory as JSON: well within a frame to PID 1, an event's line, and what execve takes.
MAX_COMMAND_BYTES = 128 * 1024
# Linux's PATH_MAX.
MAX_PATH_BYTES = 4096
MAX_TIMEOUT_SECONDS = 7 * 24 * 3600.0
LIST_LIMIT = 5_000
DRAIN_SECONDS = 10.0
Event = TypeVar("Event", pb.ExecResponse, pb.AttachExecResponse)


class AgentService(pb_grpc.AgentServiceServicer):
    """Commands, files and submit, each for the attempt of the caller's token."""

    def __init__(
        self, node: NodeContext, sessions: Sessions, execs: AgentExecs, files: AgentFiles, ender: Ender
    ) -> None:
        self._node = node
        self._sessions = sessions
        self._execs = execs
        self._files = files
        self._ender = ender
        self._requests = RequestLog()

    async def Exec(self, request: pb.ExecRequest, context: Context) -> AsyncIterator[pb.ExecResponse]:
        """Start a command and stream it."""
        attempt = await self._sessions.running(context)
        request_id = self._requests.check(attempt.facts.attempt_id, request)
        spec = _spec(request)
        stdin = None if request.stdin_stream else (request.stdin or None)
        command = await self._execs.start(attempt, spec, request_id=request_id, exec_id=request.exec_id, stdin=stdin)
        async for event in exec_events(pb.ExecResponse, attempt, command, 0, 0):
            yield event

    async def AttachExec(self, request: pb.AttachExecRequest, context: Context) -> AsyncIterator[pb.AttachExecResponse]:
        """Re-read a command, also one of an ended attempt that is still here."""
        attempt = self._sessions.any_state(context)
        command = self._execs.find(attempt, request.exec_id)
        for name in ("stdout_offset", "stderr_offset"):
            if getattr(request, name) < 0:
                raise errors.invalid("OFFSET_INVALID", f"{name} must not be negative", [(name, "negative")])
        events = exec_events(pb.AttachExecResponse, attempt, command, request.stdout_offset, request.stderr_offset)
        async for event in events:
            yield event

    async def WriteStdin(self, request: pb.WriteStdinRequest, context: Context) -> pb.WriteStdinResponse:
        """Input for a command."""
        attempt = await self._sessions.running(context)
        if len(request.data) > MAX_STDIN_BYTES:
            raise errors.invalid("CHUNK_TOO_LARGE", "send at most 1 MiB at a time", [("data", "too large")])
        taken = await self._execs.write_stdin(attempt, request.exec_id, request.offset, request.data, request.eof)
        return pb.WriteStdinResponse(next_offset=taken)

    async def SignalExec(self, request: pb.SignalExecRequest, context: Context) -> pb.SignalExecResponse:
        """Signal a command."""
        if not 1 <= request.signal <= 64:
            raise errors.invalid("SIGNAL_INVALID", "signal numbers are 1 to 64", [("signal", "out of range")])
        await self._execs.signal(await self._sessions.running(context), request.exec_id, request.signal)
        return pb.SignalExecResponse()

    async def ReadFile(self, request: pb.ReadFileRequest, context: Context) -> AsyncIterator[pb.ReadFileResponse]:
        """A file's bytes, then its digest."""
        attempt = await self._sessions.running(context)
        _path(request.path)
        if request.offset < 0 or request.length < 0:
            raise errors.invalid("RANGE_INVALID", "offset and length must not be negative")
        async for part in self._files.read(attempt, request.path, request.offset, request.length or None):
            if isinstance(part, FileDigest):
                yield pb.ReadFileResponse(sha256=part.sha256, size_bytes=part.file_size)
            else:
                yield pb.ReadFileResponse(chunk=part)

    async def WriteFile(
        self, request_iterator: AsyncIterator[pb.WriteFileRequest], context: Context
    ) -> pb.WriteFileResponse:
        """A file, whole or not at all."""
        attempt = await self._sessions.running(context)
        head = await anext(request_iterator, None)
        if head is None:
            raise errors.invalid("REQUEST_MISSING", "the first message names the file")
        _path(head.path)
        if not 0 <= head.mode <= 0o777 or head.size_bytes < 0:
            raise errors.invalid("FILE_INVALID", "mode is 0 to 0777 and size_bytes is not negative")

        async def chunks() -> AsyncIterator[bytes]:
            if head.chunk:
                yield head.chunk
            async for part in request_iterator:
                if part.chunk:
                    yield part.chunk

        try:
            written = await self._files.write(
                attempt, head.path, chunks(), size=head.size_bytes, sha256=head.sha256 or None, mode=head.mode or None
            )
        except FileFailed:
            await _drain(request_iterator, head.size_bytes)
            raise
        return pb.WriteFileResponse(size_bytes=written.size, sha256=written.sha256)

    async def ListDirectory(self, request: pb.ListDirectoryRequest, context: Context) -> pb.ListDirectoryResponse:
        """A directory."""
        attempt = await self._sessions.running(context)
        entries, truncated = await self._files.list(attempt, _path(request.path), LIST_LIMIT)
        return pb.ListDirectoryResponse(
            entries=[_info(_bytes(entry.name), entry.stat) for entry in entries], truncated=truncated
        )

    async def StatFile(self, request: pb.StatFileRequest, context: Context) -> pb.StatFileResponse:
        """A path."""
        found = await self._files.stat(await self._sessions.running(context), _path(request.path))
        return pb.StatFileResponse(info=_info(request.path.encode(), found))

    async def MakeDirectory(self, request: pb.MakeDirectoryRequest, context: Context) -> pb.MakeDirectoryResponse:
        """A new directory."""
        attempt = await self._sessions.running(context)
        self._requests.check(attempt.facts.attempt_id, request)
        await self._files.make_directory(attempt, _path(request.path), request.parents)
        return pb.MakeDirectoryResponse()

    async def RemoveFile(self, request: pb.RemoveFileRequest, context: Context) -> pb.RemoveFileResponse:
        """One thing less."""
        attempt = await self._sessions.running(context)
        self._requests.check(attempt.facts.attempt_id, request)
        await self._files.remove(attempt, _path(request.path), request.recursive)
        return pb.RemoveFileResponse()

    async def Submit(self, request: pb.SubmitRequest, context: Context) -> pb.SubmitResponse:
        """The end, by the agent. The answer leaves once the end cannot be lost any more."""
        attempt = self._sessions.any_state(context)
        self._requests.check(attempt.facts.attempt_id, request)
        if not attempt.facts.evidence.submitted:
            if attempt.facts.ended:
                raise AttemptEnded(attempt.facts.attempt_id)
            attempt.facts.evidence.submitted = True
            self._ender.begin(attempt, Cause.SUBMIT)
            await self._node.keep(attempt)
        return pb.SubmitResponse()


async def _drain(request_iterator: AsyncIterator[pb.WriteFileRequest], most: int) -> None:
    """Take what the client still sends of a file that failed: gRPC tells a client whose send fails nothing else."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for part in request_iterator:
                most -= len(part.chunk)
                if most < 0:
                    return
    except TimeoutError:
        log.info("write_not_drained", seconds=DRAIN_SECONDS)


def _spec(request: pb.ExecRequest) -> ExecSpec:
    problems: list[tuple[str, str]] = []
    if not request.argv or not request.argv[0]:
        problems.append(("argv", "must name a command"))
    texts = [*request.argv, request.cwd, *request.environment.keys(), *request.environment.values()]
    if any("\0" in text for text in texts):
        problems.append(("argv", "NUL bytes cannot be passed to a process"))
    if any(not name or "=" in name for name in request.environment):
        problems.append(("environment", "a name must not be empty or hold '='"))
    if len(json.dumps(texts)) > MAX_COMMAND_BYTES:
        problems.append(("argv", f"arguments and environment exceed {MAX_COMMAND_BYTES} bytes; pass a file instead"))
    timeout: float | None = None
    if request.HasField("timeout_duration"):
        timeout = request.timeout_duration.seconds + request.timeout_duration.nanos / 1e9
        if not (math.isfinite(timeout) and 0 < timeout <= MAX_TIMEOUT_SECONDS):
            problems.append(("timeout_duration", f"must be above 0 and at most {MAX_TIMEOUT_SECONDS:.0f} seconds"))
    if not 0 <= request.max_output_bytes <= MAX_OUTPUT_BYTES:
        problems.append(("max_output_bytes", f"must be 0 to {MAX_OUTPUT_BYTES}"))
    if len(request.stdin) > MAX_STDIN_BYTES or (request.stdin and request.stdin_stream):
        problems.append(("stdin", "give at most 1 MiB, or set stdin_stream and use WriteStdin"))
    if problems:
        raise errors.invalid("EXEC_INVALID", "; ".join(f"{name}: {text}" for name, text in problems), problems)
    return ExecSpec(
        argv=list(request.argv),
        cwd=request.cwd,
        env=dict(request.environment),
        stdin=bool(request.stdin) or request.stdin_stream,
        timeout_seconds=timeout,
        max_output_bytes=request.max_output_bytes or DEFAULT_OUTPUT_CAP,
    )


def _path(path: str) -> str:
    if not path or "\0" in path or len(path.encode()) > MAX_PATH_BYTES:
        words = f"a path has 1 to {MAX_PATH_BYTES} bytes and no NUL"
        raise errors.invalid("PATH_INVALID", words, [("path", words)])
    return path


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


def _info(name: bytes, found: FileStat) -> pb.FileInfo:
    return pb.FileInfo(
        name=name,
        type=found.type,
        mode=found.mode,
        size_bytes=found.size,
        mtime_ns=found.mtime_ns,
        uid=found.uid,
        gid=found.gid,
        target=_bytes(found.target) if found.target is not None else b"",
    )
