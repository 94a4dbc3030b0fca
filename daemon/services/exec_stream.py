"""One command's events as a gRPC stream: keepalives while nothing happens, an end event whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from gauntlet.daemon.v1 import agent_service_pb2 as pb
from google.protobuf.duration_pb2 import Duration

from daemon.agent.execs import AgentExec
from daemon.attempts.live import LiveAttempt
from daemon.supervisor.errors import SupervisorGone
from daemon.supervisor.types import ExecEvent, ExecResult, Exited, Output, Started

KEEPALIVE_SECONDS = 15.0
# How long a stream waits to learn why its sandbox ended before it ends itself.
REASON_SECONDS = 3.0
Event = TypeVar("Event", pb.ExecResponse, pb.AttachExecResponse)


async def exec_events(
    kind: type[Event], attempt: LiveAttempt, command: AgentExec, stdout_offset: int, stderr_offset: int
) -> AsyncIterator[Event]:
    """Events from the given offsets to the end event."""
    # What an earlier life of the daemon had kept is gone: a stream goes on from what there is, with true offsets.
    stdout_offset = max(stdout_offset, command.handle.stdout.base)
    stderr_offset = max(stderr_offset, command.handle.stderr.base)
    events = aiter(command.handle.events(stdout_offset, stderr_offset))
    pending: asyncio.Task[ExecEvent] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(_next(events))
            done, _ = await asyncio.wait({pending}, timeout=KEEPALIVE_SECONDS)
            if not done:
                yield kind(keepalive=pb.ExecKeepalive())
                continue
            try:
                event = pending.result()
            except StopAsyncIteration:
                return
            except SupervisorGone:
                yield kind(exited=await _sandbox_ended(attempt, command))
                return
            finally:
                pending = None
            if isinstance(event, Exited):
                await command.recorded.wait()
                yield _message(kind, command, event)
                return
            yield _message(kind, command, event)
    finally:
        if pending is not None:
            pending.cancel()


async def _next(events: AsyncIterator[ExecEvent]) -> ExecEvent:
    return await anext(events)


def _message(kind: type[Event], command: AgentExec, event: ExecEvent) -> Event:
    match event:
        case Started():
            return kind(started=pb.ExecStarted(exec_id=command.handle.exec_id))
        case Output(stream="stdout"):
            return kind(stdout=pb.ExecOutput(offset=event.offset, data=event.data))
        case Output():
            return kind(stderr=pb.ExecOutput(offset=event.offset, data=event.data))
        case Exited():
            return kind(exited=_exited(event.result))


def _exited(result: ExecResult) -> pb.ExecExited:
    duration = Duration()
    duration.FromNanoseconds(result.duration_ns)
    return pb.ExecExited(
        exit_code=result.exit_code,
        signal=result.signal,
        timed_out=result.timed_out,
        truncated=result.truncated,
        run_duration=duration,
        stdout_bytes=result.stdout_total,
        stderr_bytes=result.stderr_total,
        error=result.error or "",
    )


async def _sandbox_ended(attempt: LiveAttempt, command: AgentExec) -> pb.ExecExited:
    """The end event of a command whose sandbox ended under it."""
    try:
        async with asyncio.timeout(REASON_SECONDS):
            await attempt.died.wait()
    except TimeoutError:
        reason = "the sandbox cannot be reached"
    else:
        reason = "the sandbox ended"
    handle = command.handle
    return pb.ExecExited(
        oom_killed=attempt.facts.evidence.oom_event,
        truncated=handle.stdout.truncated or handle.stderr.truncated,
        stdout_bytes=handle.stdout.total,
        stderr_bytes=handle.stderr.total,
        error="the sandbox ran out of memory" if attempt.facts.evidence.oom_event else reason,
    )
