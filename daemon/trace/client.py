"""The daemon's way to the trace sink: one method for each thing it asks, errors that its pool and claims understand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import grpc
from gauntlet.telemetry.v1 import trace_service_pb2 as pb
from gauntlet.telemetry.v1 import trace_service_pb2_grpc as pb_grpc

from daemon.supervisor.errors import SupervisorGone
from wire import errors
from wire.client import call, connect
from wire.errors import WireFailure

EXPECT_SECONDS = 10.0
BIND_SECONDS = 4.0
FINISH_SECONDS = 20.0
# A sink that was killed is back within a second or two; an attempt's end waits for it this long.
PATIENCE_SECONDS = 15.0
RETRY_SECONDS = 0.2


class Untraced(SupervisorGone):
    """Nobody hears this sandbox's sentry, so it must not be used. It counts as one that died."""


class TraceClient:
    """Calls of one node. `start` first, `close` at the end."""

    def __init__(self, endpoint: str, node_id: str) -> None:
        """Connect to nothing yet."""
        self._endpoint = endpoint
        self._node_id = node_id

    def start(self) -> None:
        """Open the channel; the sink need not be there yet. Raises EndpointError."""
        self._channel = connect(self._endpoint)
        self._stub = pb_grpc.TraceServiceStub(self._channel)

    async def close(self) -> None:
        """Let go of the channel."""
        await self._channel.close(None)

    async def expect(self, container_id: str) -> None:
        """Return once the container's sentry was heard. Raises Untraced."""
        try:
            await call(self._stub.Expect, pb.ExpectRequest(container_id=container_id), timeout=EXPECT_SECONDS)
        except WireFailure as failure:
            raise Untraced(f"its trace did not begin: {failure.code} {failure.message}") from failure

    async def bind(self, container_id: str, attempt_id: str, *, running: bool = False) -> bool:
        """Make a container an attempt's; True when its session was made anew. Raises Untraced."""
        request = pb.BindRequest(
            node_id=self._node_id, container_id=container_id, attempt_id=attempt_id, running=running
        )
        try:
            return bool((await call(self._stub.Bind, request, timeout=BIND_SECONDS)).attached)
        except WireFailure as failure:
            raise Untraced(f"it cannot be traced: {failure.code} {failure.message}") from failure

    async def signals(self, attempt_id: str, ledger: Sequence[tuple[str, str]]) -> None:
        """Tell every signal of ours so far, (name, reason). Raises WireFailure."""
        request = pb.RecordSignalsRequest(attempt_id=attempt_id, signals=_ledger(ledger))
        await call(self._stub.RecordSignals, request)

    async def acknowledge(self, attempt_id: str, number: int) -> None:
        """An attempt's tool runs up to `number` are recorded. Raises WireFailure."""
        await call(self._stub.AcknowledgeTools, pb.AcknowledgeToolsRequest(attempt_id=attempt_id, number=number))

    async def finish(self, container_id: str, attempt_id: str, ledger: Sequence[tuple[str, str]]) -> pb.FinishResponse:
        """An attempt's end. A sink that is away is waited for. Raises WireFailure."""
        request = pb.FinishRequest(
            node_id=self._node_id, container_id=container_id, attempt_id=attempt_id, signals=_ledger(ledger)
        )
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                return await call(self._stub.Finish, request, timeout=FINISH_SECONDS, retries=0)
            except WireFailure as failure:
                if failure.code != "UNAVAILABLE" or loop.time() > deadline:
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def watch(self) -> AsyncIterator[pb.WatchResponse]:
        """The sink's news, until its end or ours. Raises WireFailure."""
        try:
            async for one in self._stub.Watch(pb.WatchRequest(node_id=self._node_id)):
                yield one
        except grpc.RpcError as error:
            raise errors.decode(error) from error


def _ledger(ledger: Sequence[tuple[str, str]]) -> list[pb.PlatformSignal]:
    return [pb.PlatformSignal(name=name, reason=reason) for name, reason in ledger]
