"""`gauntlet.scheduler.v1.NodeRegistryService`, for daemons."""

from __future__ import annotations

import re
from typing import Any

import grpc
from gauntlet.scheduler.v1 import node_registry_service_pb2 as pb
from gauntlet.scheduler.v1 import node_registry_service_pb2_grpc as pb_grpc

from scheduler.errors import BadInput
from scheduler.model import NodeRow
from scheduler.nodes import Nodes
from wire.server import EndpointError, socket_path

Context = grpc.aio.ServicerContext[Any, Any]

NODE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
MAX_CAPACITY = 1_000


class NodeRegistryServicer(pb_grpc.NodeRegistryServiceServicer):
    """The servicer."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes

    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatResponse:
        """Register or renew a node."""
        problems = list(_problems(request))
        if problems:
            raise BadInput(*problems)
        row = NodeRow(
            node_id=request.node_id,
            endpoint=request.endpoint,
            agent_endpoint=request.agent_endpoint,
            capacity=request.capacity,
            boot_id=request.boot_id,
        )
        kept = await self._nodes.heartbeat(row, request.running, list(request.pools), request.stacks)
        return pb.HeartbeatResponse(draining=kept.draining)


def _problems(request: pb.HeartbeatRequest) -> list[tuple[str, str]]:
    problems = []
    if not NODE_ID.fullmatch(request.node_id):
        problems.append(("node_id", f"does not match {NODE_ID.pattern}"))
    if not 0 <= request.capacity <= MAX_CAPACITY:
        problems.append(("capacity", f"must be 0 to {MAX_CAPACITY}"))
    for name in ("endpoint", "agent_endpoint"):
        try:
            socket_path(getattr(request, name))
        except EndpointError as error:
            problems.append((name, str(error)))
    return problems
