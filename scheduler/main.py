"""The scheduler's process put together: the databases of the settings, the domain (`scheduler.core`), two servers."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import structlog
from gauntlet.audit.v1 import audit_service_pb2_grpc as audit_grpc
from gauntlet.scheduler.v1 import agent_gateway_service_pb2_grpc as gateway_grpc
from gauntlet.scheduler.v1 import judging_service_pb2_grpc as judging_grpc
from gauntlet.scheduler.v1 import node_registry_service_pb2_grpc as registry_grpc
from gauntlet.scheduler.v1 import scheduler_service_pb2_grpc as scheduler_grpc
from gauntlet.telemetry.v1 import event_service_pb2_grpc as event_grpc

from formats.problems import FormatError, Problem
from records import audit_service, database, event_service
from records.events.sql import SqlEventStore
from records.ledger.schema import create_schema
from records.ledger.sql import SqlLedger
from scheduler.blobs import Blobs
from scheduler.clock import SystemClock
from scheduler.config import SchedulerConfig, check_private
from scheduler.core import Core, Ports
from scheduler.daemon_grpc import GrpcDaemon
from scheduler.errors import translate
from scheduler.services.agent_gateway_service import AgentGatewayServicer
from scheduler.services.judging_service import JudgingServicer
from scheduler.services.node_registry_service import NodeRegistryServicer
from scheduler.services.scheduler_service import Domain, SchedulerServicer
from scheduler.store.engine import database_url, open_engine
from scheduler.store.sql import SqlStore
from wire import token as tokens
from wire.server import Server

log = structlog.get_logger(__name__)


KEY_REMEDY = "write 32 random bytes there, mode 0600"


class AlreadyRunning(Exception):
    """Another scheduler works on the same state directory."""


class Scheduler:
    """The process: databases, core, servers."""

    def __init__(self, config: SchedulerConfig) -> None:
        check_private(config.state_dir)
        config.challenges.mkdir(mode=0o700, exist_ok=True)
        self._lock = _take_lock(config.state_dir / "scheduler.lock")
        key = _token_key(config.token_key_file)
        self._events = SqlEventStore(database.open_engine(database_url(config.events_db), read_only=True))
        audit_engine = database.open_engine(database_url(config.audit_db))
        create_schema(audit_engine)
        ports = Ports(
            store=SqlStore(open_engine(config.control_database)),
            ledger=SqlLedger(audit_engine),
            connect=GrpcDaemon,
            clock=SystemClock(),
        )
        self.core = Core(config, ports, key)
        self._servers = (self._operator_server(config), self._agent_server(config))

    async def start(self) -> None:
        """Begin, and serve once everything an earlier life left is taken up."""
        await self.core.start()
        for server in self._servers:
            await server.start()
            log.info("serving", endpoint=server.endpoint)

    async def stop(self) -> None:
        """Stop serving, then working, then let go of the databases."""
        for server in self._servers:
            await server.stop()
        await self.core.stop()
        self.core.ports.store.close()
        self.core.ports.ledger.close()
        self._events.close()
        os.close(self._lock)

    def _operator_server(self, config: SchedulerConfig) -> Server:
        core = self.core
        domain = Domain(
            attempts=core.attempts,
            challenges=core.challenges,
            queue=core.queue,
            cancelling=core.cancelling,
            nodes=core.nodes,
            gateway=core.gateway,
            hub=core.hub,
            store=core.ports.store,
            thread=core.thread,
            blobs=Blobs(core.attempts, core.nodes, self._events),
        )
        services = {
            "gauntlet.scheduler.v1.SchedulerService": (
                scheduler_grpc.add_SchedulerServiceServicer_to_server,
                SchedulerServicer(domain),
            ),
            "gauntlet.scheduler.v1.NodeRegistryService": (
                registry_grpc.add_NodeRegistryServiceServicer_to_server,
                NodeRegistryServicer(core.nodes),
            ),
            "gauntlet.scheduler.v1.JudgingService": (
                judging_grpc.add_JudgingServiceServicer_to_server,
                JudgingServicer(core.judging, core.challenges, core.nodes),
            ),
            event_service.SERVICE: (
                event_grpc.add_EventServiceServicer_to_server,
                event_service.EventService(self._events),
            ),
            audit_service.SERVICE: (
                audit_grpc.add_AuditServiceServicer_to_server,
                audit_service.AuditService(core.ports.ledger),
            ),
        }
        mode = 0o600 if config.operator_group is None else 0o660
        return Server(
            config.operator_endpoint,
            services,
            translate=translate,
            socket_mode=mode,
            socket_gid=config.operator_group,
        )

    def _agent_server(self, config: SchedulerConfig) -> Server:
        services = {
            "gauntlet.scheduler.v1.AgentGatewayService": (
                gateway_grpc.add_AgentGatewayServiceServicer_to_server,
                AgentGatewayServicer(self.core.gateway),
            )
        }
        # Anyone on the machine may open it; every call needs a token.
        return Server(config.agent_endpoint, services, translate=translate, socket_mode=0o666)


def _token_key(path: Path) -> bytes:
    try:
        return tokens.load_key(path)
    except OSError as error:
        problem = error.strerror or "cannot be read"
        raise FormatError([Problem(str(path), "", problem, KEY_REMEDY)]) from error
    except ValueError as error:
        raise FormatError([Problem(str(path), "", "holds no token key", KEY_REMEDY)]) from error


def _take_lock(path: Path) -> int:
    """A descriptor that holds the state directory for this process alone. Raises AlreadyRunning."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise AlreadyRunning(f"{path.parent}: another scheduler works there; stop it first") from error
    return descriptor
