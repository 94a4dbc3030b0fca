"""`gauntlet.scheduler.v1.AgentGatewayService`, for agents' clients, token required."""

from __future__ import annotations

from typing import Any

import grpc
from gauntlet.scheduler.v1 import agent_gateway_service_pb2 as pb
from gauntlet.scheduler.v1 import agent_gateway_service_pb2_grpc as pb_grpc

from scheduler.convert import state_value
from scheduler.gateway import Gateway
from wire import token as tokens

Context = grpc.aio.ServicerContext[Any, Any]


class AgentGatewayServicer(pb_grpc.AgentGatewayServiceServicer):
    """The servicer."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def GetSession(self, request: pb.GetSessionRequest, context: Context) -> pb.GetSessionResponse:
        """Say where the sandbox is."""
        attempt = await self._gateway.session(tokens.of_call(context), request.attempt_id)
        answer = pb.GetSessionResponse(
            state=state_value(attempt.public_state), node_endpoint=self._gateway.endpoint(attempt)
        )
        if attempt.deadline_ns:
            answer.deadline_time.FromNanoseconds(attempt.deadline_ns)
        return answer
