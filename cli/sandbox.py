"""An agent's calls as plain functions: run a command, read, write, submit; for the player and for `gauntlet exec`."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from gauntlet.daemon.v1 import agent_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from cli import resuming
from cli.clients import Agent
from wire import client, errors, request_ids

CHUNK_BYTES = 512 * 1024
CALL_TIMEOUT = 60.0
SUBMIT_RETRIES = 45
Sink = Callable[[bytes], object]


@dataclass(frozen=True)
class ExecEnd:
    """How a command ended; exactly one of exit_code and signal is set when it ran to an end."""

    exit_code: int | None
    signal: int | None
    timed_out: bool
    oom_killed: bool
    truncated: bool
    seconds: float
    error: str

    def __str__(self) -> str:
        if self.error:
            return self.error
        how = f"signal {self.signal}" if self.exit_code is None else f"exit {self.exit_code}"
        return f"timed out, {how}" if self.timed_out else how


async def run_command(
    agent: Agent,
    argv: list[str],
    *,
    cwd: str | None = None,
    stdin: bytes | None = None,
    stdin_stream: AsyncIterator[bytes] | None = None,
    timeout_seconds: float | None = None,
    environment: Mapping[str, str] | None = None,
    stdout: Sink = len,
    stderr: Sink = len,
) -> ExecEnd:
    """Run a command to its end and pass its output on as it comes. Raises grpc.RpcError, WireFailure."""
    request = pb.ExecRequest(request_id=request_ids.new(), argv=argv, cwd=cwd or "", environment=environment or {})
    large = stdin is not None and len(stdin) > CHUNK_BYTES
    request.stdin_stream = large or stdin_stream is not None
    if stdin is not None and not large:
        request.stdin = stdin
    if timeout_seconds is not None:
        limit = Duration()
        limit.FromNanoseconds(int(timeout_seconds * 1e9))
        request.timeout_duration.CopyFrom(limit)
    try:
        async for event in resuming.events(agent, request):
            match event.WhichOneof("event"):
                case "started" if request.stdin_stream:
                    source = stdin_stream if stdin_stream is not None else _chunks(stdin or b"")
                    await _feed(agent, event.started.exec_id, source)
                case "stdout":
                    stdout(event.stdout.data)
                case "stderr":
                    stderr(event.stderr.data)
                case "exited":
                    return _end(event.exited)
    except resuming.EndLost as lost:
        return ExecEnd(None, None, False, False, False, 0.0, str(lost))
    return ExecEnd(None, None, False, False, False, 0.0, "the stream ended without an end event")


async def write_file(agent: Agent, path: str, data: bytes, mode: int = 0) -> None:
    """Write a file whole. Raises grpc.RpcError."""

    async def parts() -> AsyncIterator[pb.WriteFileRequest]:
        yield pb.WriteFileRequest(
            request_id=request_ids.new(),
            path=path,
            mode=mode,
            size_bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
        )
        async for chunk in _chunks(data):
            yield pb.WriteFileRequest(chunk=chunk)

    await agent.stub.WriteFile(parts(), metadata=agent.metadata, timeout=CALL_TIMEOUT)


async def read_file(agent: Agent, path: str, sink: Sink, *, offset: int = 0, length: int = 0) -> int:
    """Read a file, to its end unless a length is given; returns how much was read. Raises grpc.RpcError."""
    size = 0
    request = pb.ReadFileRequest(path=path, offset=offset, length=length)
    async for part in agent.stub.ReadFile(request, metadata=agent.metadata):
        sink(part.chunk)
        size += len(part.chunk)
    return size


async def list_directory(agent: Agent, path: str) -> None:
    """List a directory. Raises WireFailure."""
    await client.call(agent.stub.ListDirectory, pb.ListDirectoryRequest(path=path), token=agent.token)


async def stat(agent: Agent, path: str) -> None:
    """Describe a path. Raises WireFailure."""
    await client.call(agent.stub.StatFile, pb.StatFileRequest(path=path), token=agent.token)


async def make_directory(agent: Agent, path: str, *, parents: bool = False) -> None:
    """Make a directory. Raises WireFailure."""
    request = pb.MakeDirectoryRequest(request_id=request_ids.new(), path=path, parents=parents)
    await client.call(agent.stub.MakeDirectory, request, token=agent.token)


async def remove(agent: Agent, path: str, *, recursive: bool = False) -> None:
    """Remove a file or a tree. Raises WireFailure."""
    request = pb.RemoveFileRequest(request_id=request_ids.new(), path=path, recursive=recursive)
    await client.call(agent.stub.RemoveFile, request, token=agent.token)


async def submit(agent: Agent) -> None:
    """End the attempt. Raises WireFailure."""
    request = pb.SubmitRequest(request_id=request_ids.new())
    # A node that restarts is waited for: work that is done must not be lost for a second of absence.
    await client.call(agent.stub.Submit, request, token=agent.token, retries=SUBMIT_RETRIES)


async def _feed(agent: Agent, exec_id: str, source: AsyncIterator[bytes]) -> None:
    offset = 0
    try:
        async for chunk in source:
            await _stdin(agent, exec_id, offset, chunk, eof=False)
            offset += len(chunk)
        await _stdin(agent, exec_id, offset, b"", eof=True)
    except errors.WireFailure as failure:
        # A command need not read all of its input; how it ended is in its end event.
        if failure.reason not in ("STDIN_CLOSED", "EXEC_NOT_FOUND"):
            raise


async def _stdin(agent: Agent, exec_id: str, offset: int, data: bytes, *, eof: bool) -> None:
    request = pb.WriteStdinRequest(exec_id=exec_id, offset=offset, data=data, eof=eof)
    await client.call(agent.stub.WriteStdin, request, token=agent.token, timeout=CALL_TIMEOUT)


async def _chunks(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), CHUNK_BYTES):
        yield data[start : start + CHUNK_BYTES]


def _end(exited: pb.ExecExited) -> ExecEnd:
    return ExecEnd(
        exit_code=exited.exit_code if exited.HasField("exit_code") else None,
        signal=exited.signal if exited.HasField("signal") else None,
        timed_out=exited.timed_out,
        oom_killed=exited.oom_killed,
        truncated=exited.truncated,
        seconds=exited.run_duration.ToNanoseconds() / 1e9,
        error=exited.error,
    )
