"""Connections of one command to the services."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import grpc
from gauntlet.audit.v1 import audit_service_pb2_grpc as audit_grpc
from gauntlet.daemon.v1 import agent_service_pb2_grpc as agent_grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as scheduler_grpc
from gauntlet.telemetry.v1 import event_service_pb2_grpc as event_grpc

from wire import client


@dataclass
class Services:
    """The scheduler's operator socket, as stubs."""

    scheduler: scheduler_grpc.SchedulerServiceStub
    events: event_grpc.EventServiceStub
    audit: audit_grpc.AuditServiceStub


@asynccontextmanager
async def services(endpoint: str) -> AsyncIterator[Services]:
    """Stubs of one operator socket."""
    async with client.connect(endpoint) as channel:
        yield Services(
            scheduler_grpc.SchedulerServiceStub(channel),
            event_grpc.EventServiceStub(channel),
            audit_grpc.AuditServiceStub(channel),
        )


@dataclass
class Agent:
    """One attempt's sandbox, as its agent reaches it."""

    stub: agent_grpc.AgentServiceStub
    token: str
    channel: grpc.aio.Channel

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        return client.bearer(self.token)


@asynccontextmanager
async def agent(node_endpoint: str, token: str) -> AsyncIterator[Agent]:
    """A connection to a node's agent socket."""
    async with client.connect(node_endpoint) as channel:
        yield Agent(agent_grpc.AgentServiceStub(channel), token, channel)
