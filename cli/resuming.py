"""A command's events across a node that restarts: the command itself goes on, so its stream is taken up again.

The client chooses the command's id. A stream that is cut is re-attached at the offsets that were reached; a command
that the node does not know was not started, and is started (once: the id is taken as soon as it runs).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator

import grpc
from gauntlet.daemon.v1 import agent_service_pb2 as pb

from cli.clients import Agent
from wire import errors

# A daemon's restart takes seconds; after this the node counts as gone.
AWAY_SECONDS = 45.0
AGAIN_SECONDS = 0.3
Event = pb.ExecResponse | pb.AttachExecResponse


class EndLost(Exception):
    """The command ended while its node was away, and how is not known to it any more."""


async def events(agent: Agent, request: pb.ExecRequest) -> AsyncIterator[Event]:
    """The events of one command, each byte of output once. Raises grpc.RpcError, EndLost."""
    request.exec_id = request.exec_id or f"exe_{uuid.uuid4().hex[:20]}"
    reached = {"stdout": 0, "stderr": 0}
    started, attach = False, False
    away_since: float | None = None
    while True:
        try:
            async for event in _stream(agent, request, reached, attach):
                away_since = None
                name = event.WhichOneof("event")
                if name in reached:
                    output = getattr(event, name)
                    reached[name] = output.offset + len(output.data)
                elif name == "started":
                    if started:
                        continue
                    started = True
                yield event
                if name == "exited":
                    return
            return
        except grpc.RpcError as error:
            failure = errors.decode(error)
            if failure.reason == "EXEC_NOT_FOUND" and attach:
                if started:
                    raise EndLost(f"command {request.exec_id} ended while its node restarted") from error
                attach = False
                continue
            now = time.monotonic()
            away_since = now if away_since is None else away_since
            if failure.code != "UNAVAILABLE" or now - away_since > AWAY_SECONDS:
                raise
            attach = True
            await asyncio.sleep(AGAIN_SECONDS)


def _stream(agent: Agent, request: pb.ExecRequest, reached: dict[str, int], attach: bool) -> AsyncIterator[Event]:
    if not attach:
        stream: AsyncIterator[Event] = agent.stub.Exec(request, metadata=agent.metadata)
        return stream
    again = pb.AttachExecRequest(
        exec_id=request.exec_id, stdout_offset=reached["stdout"], stderr_offset=reached["stderr"]
    )
    attached: AsyncIterator[Event] = agent.stub.AttachExec(again, metadata=agent.metadata)
    return attached
