"""gauntlet.telemetry.v1.EventService over an event store: gRPC to domain, nothing else.

Mounted on the operator socket by the scheduler's process, over a read-only engine.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gauntlet.telemetry.v1 import event_service_pb2 as pb
from gauntlet.telemetry.v1 import event_service_pb2_grpc as pb_grpc

from records.errors import BadRequestError, RecordsError
from records.events.port import EventQuery, EventStore
from records.translate import translate

SERVICE = "gauntlet.telemetry.v1.EventService"
# An answer stays under gRPC's 4 MiB, with room for framing.
MAX_ANSWER_BYTES = 3 << 20


class EventService(pb_grpc.EventServiceServicer):
    """Lists and counts events."""

    def __init__(self, store: EventStore) -> None:
        self._store = store

    async def ListEvents(self, request: pb.ListEventsRequest, context: Any) -> pb.ListEventsResponse:
        """See the proto."""
        if request.since_ns < 0 or request.until_ns < 0:
            raise _wire(BadRequestError("since_ns", "times are nanoseconds since the epoch; 0 means no bound"))
        query = EventQuery(request.attempt_id, request.kind or None, request.since_ns or None, request.until_ns or None)
        size = request.page_size
        while True:
            try:
                page = await asyncio.to_thread(
                    self._store.list_events, query, page_size=size, page_token=request.page_token
                )
            except RecordsError as error:
                raise _wire(error) from error
            if len(page.lines) <= 1 or sum(map(len, page.lines)) <= MAX_ANSWER_BYTES:
                return pb.ListEventsResponse(events=page.lines, next_page_token=page.next_page_token)
            # Long lines: a smaller page of the same place, whose token then is right.
            size = max(1, len(page.lines) // 4)

    async def CountEvents(self, request: pb.CountEventsRequest, context: Any) -> pb.CountEventsResponse:
        """See the proto."""
        try:
            counts = await asyncio.to_thread(self._store.counts, request.attempt_id)
        except RecordsError as error:
            raise _wire(error) from error
        return pb.CountEventsResponse(events=counts.events, gaps=counts.gaps)


def _wire(error: RecordsError) -> Exception:
    return translate(error) or error
