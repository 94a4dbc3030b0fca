"""gauntlet.telemetry.v1.TraceService over the sink: gRPC to domain, nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
from gauntlet.telemetry.v1 import trace_service_pb2 as pb
from gauntlet.telemetry.v1 import trace_service_pb2_grpc as pb_grpc

from daemon.trace.errors import BadName, Untraced
from daemon.trace.sink import Sink
from wire import errors
from wire.errors import WireError

SERVICE = "gauntlet.telemetry.v1.TraceService"


def translate(error: Exception) -> WireError | None:
    """The wire's error for one of the sink's; None for what nobody expected."""
    match error:
        case BadName():
            return errors.invalid("BAD_NAME", str(error))
        case Untraced():
            return WireError(grpc.StatusCode.NOT_FOUND, "UNTRACED", str(error))
    return None


class TraceService(pb_grpc.TraceServiceServicer):
    """See the proto."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    async def Expect(self, request: pb.ExpectRequest, context: Any) -> pb.ExpectResponse:
        """See the proto."""
        await self._sink.expect(request.container_id)
        return pb.ExpectResponse()

    async def Bind(self, request: pb.BindRequest, context: Any) -> pb.BindResponse:
        """See the proto."""
        anew = await self._sink.bind(request.node_id, request.container_id, request.attempt_id, request.running)
        return pb.BindResponse(attached=anew)

    async def RecordSignals(self, request: pb.RecordSignalsRequest, context: Any) -> pb.RecordSignalsResponse:
        """See the proto."""
        await self._sink.signals(request.attempt_id, request.signals)
        return pb.RecordSignalsResponse()

    async def AcknowledgeTools(self, request: pb.AcknowledgeToolsRequest, context: Any) -> pb.AcknowledgeToolsResponse:
        """See the proto."""
        self._sink.acknowledge(request.attempt_id, request.number)
        return pb.AcknowledgeToolsResponse()

    async def Finish(self, request: pb.FinishRequest, context: Any) -> pb.FinishResponse:
        """See the proto."""
        return await self._sink.finish(request.node_id, request.container_id, request.attempt_id, request.signals)

    async def Watch(self, request: pb.WatchRequest, context: Any) -> AsyncIterator[pb.WatchResponse]:
        """See the proto."""
        node = self._sink.node(request.node_id)
        yield pb.WatchResponse(sink=pb.SinkIdentity(sink_id=self._sink.sink_id))
        with node.news.watching() as news:
            async for one in news:
                yield one
