"""gauntlet.telemetry.v1.CollectorService over an event store: gRPC to domain, nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from gauntlet.telemetry.v1 import collector_service_pb2 as pb
from gauntlet.telemetry.v1 import collector_service_pb2_grpc as pb_grpc

from records.events.port import EventStore
from wire.errors import invalid

SERVICE = "gauntlet.telemetry.v1.CollectorService"
MAX_LINES = 1_000
MAX_BYTES = 1 << 20

T = TypeVar("T")


class CollectorService(pb_grpc.CollectorServiceServicer):
    """Appends batches in a bounded pool of threads. Domain errors are mapped by the server's `translate`."""

    def __init__(self, store: EventStore, executor: Executor) -> None:
        self._store = store
        self._executor = executor

    async def _run(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def AppendEvents(self, request: pb.AppendEventsRequest, context: Any) -> pb.AppendEventsResponse:
        """See the proto."""
        if len(request.lines) > MAX_LINES or sum(map(len, request.lines)) >= MAX_BYTES:
            raise invalid(
                "BATCH_TOO_LARGE",
                f"at most {MAX_LINES} lines and less than {MAX_BYTES} bytes fit a batch; send less at once",
                [("lines", "too many or too long")],
            )
        if request.first_line < 0:
            raise invalid("BAD_REQUEST", "lines count from 0", [("first_line", "negative")])
        next_line = await self._run(
            self._store.append,
            request.node_id,
            request.attempt_id,
            request.kind,
            request.first_line,
            list(request.lines),
        )
        return pb.AppendEventsResponse(next_line=next_line)

    async def GetCursor(self, request: pb.GetCursorRequest, context: Any) -> pb.GetCursorResponse:
        """See the proto."""
        next_line = await self._run(self._store.cursor, request.attempt_id, request.kind)
        return pb.GetCursorResponse(next_line=next_line)
