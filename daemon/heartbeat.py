"""Tells the scheduler that this node is here. A scheduler that is away is waited for; nothing else depends on it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable

import structlog
from gauntlet.daemon.v1 import daemon_service_pb2 as daemon_pb
from gauntlet.scheduler.v1 import node_registry_service_pb2 as pb
from gauntlet.scheduler.v1 import node_registry_service_pb2_grpc as pb_grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2 as scheduler_pb

from wire import client
from wire.errors import WireFailure

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 2.0


class Heartbeat:
    """Reports the node's status; `on_draining` hears what the operator wants."""

    def __init__(
        self,
        scheduler_endpoint: str,
        endpoint: str,
        agent_endpoint: str,
        status: Callable[[], daemon_pb.GetNodeStatusResponse],
        stacks: Iterable[str],
        on_draining: Callable[[bool], None],
    ) -> None:
        self._scheduler = scheduler_endpoint
        self._endpoint = endpoint
        self._agent_endpoint = agent_endpoint
        self._status = status
        self._stacks = sorted(stacks)
        self._on_draining = on_draining
        self._boot_id = str(uuid.uuid4())

    async def run(self) -> None:
        """Report, for ever."""
        reached = True
        async with client.connect(self._scheduler) as channel:
            stub = pb_grpc.NodeRegistryServiceStub(channel)
            while True:
                try:
                    answer = await client.call(stub.Heartbeat, self._request(), timeout=5.0, retries=0)
                except WireFailure as failure:
                    if reached:
                        log.warning("scheduler_unreachable", error=str(failure))
                    reached = False
                else:
                    reached = True
                    self._on_draining(answer.draining)
                await asyncio.sleep(INTERVAL_SECONDS)

    def _request(self) -> pb.HeartbeatRequest:
        status = self._status()
        return pb.HeartbeatRequest(
            node_id=status.node_id,
            boot_id=self._boot_id,
            endpoint=self._endpoint,
            agent_endpoint=self._agent_endpoint,
            capacity=status.capacity,
            running=status.running,
            stacks=self._stacks,
            pools=[
                scheduler_pb.PoolState(
                    stack=pool.stack,
                    template_digest=pool.template_digest,
                    target=pool.target,
                    ready=pool.ready,
                    creating=pool.creating,
                    allocated=pool.allocated,
                    breaker_open=pool.breaker_open,
                    last_error=pool.last_error,
                )
                for pool in status.pools
            ],
        )
