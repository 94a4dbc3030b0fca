"""The scheduler put together: every part is made here, once, and nowhere else.

`Core` is the domain without sockets; `Scheduler` adds the databases of the settings and the two servers.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from dataclasses import dataclass
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
from records.ledger.port import Ledger
from records.ledger.schema import create_schema
from records.ledger.sql import SqlLedger
from scheduler.attempts import Attempts, Bells
from scheduler.blobs import Blobs
from scheduler.cancelling import Cancelling
from scheduler.challenges import Challenges
from scheduler.claim import Claimer
from scheduler.clock import Clock, SystemClock
from scheduler.config import SchedulerConfig, check_private
from scheduler.daemon_grpc import GrpcDaemon
from scheduler.daemon_port import Connect
from scheduler.dispatcher import Dispatcher
from scheduler.errors import translate
from scheduler.finisher import Finisher
from scheduler.gateway import Gateway
from scheduler.judging import Judging
from scheduler.nodes import Nodes
from scheduler.observer import Observer
from scheduler.orders import Orders
from scheduler.queue import Queue
from scheduler.recorder import Recorder
from scheduler.reports import Reports
from scheduler.services.agent_gateway_service import AgentGatewayServicer
from scheduler.services.judging_service import JudgingServicer
from scheduler.services.node_registry_service import NodeRegistryServicer
from scheduler.services.scheduler_service import Domain, SchedulerServicer
from scheduler.store.engine import database_url, open_engine
from scheduler.store.port import ControlStore
from scheduler.store.sql import SqlStore
from scheduler.store.threaded import StoreThread
from scheduler.tasks import Tasks
from scheduler.watch import Hub
from wire import token as tokens
from wire.server import Server

log = structlog.get_logger(__name__)


KEY_REMEDY = "write 32 random bytes there, mode 0600"


class AlreadyRunning(Exception):
    """Another scheduler works on the same state directory."""


@dataclass(frozen=True)
class Ports:
    """What the domain is plugged into."""

    store: ControlStore
    ledger: Ledger
    connect: Connect
    clock: Clock


class Core:
    """The domain: durable state in, orders to nodes out."""

    def __init__(self, config: SchedulerConfig, ports: Ports, token_key: bytes) -> None:
        self.ports = ports
        self.thread = StoreThread("control")
        self._ledger_thread = StoreThread("ledger")
        self._tasks = Tasks()
        self.hub = Hub()
        bells = Bells()
        store, clock = ports.store, ports.clock
        self.attempts = Attempts(store, self.thread, self.hub, bells, clock)
        self.challenges = Challenges(config.challenges, store, self.thread, clock)
        self.nodes = Nodes(
            store,
            self.thread,
            clock,
            ports.connect,
            bells,
            lease_seconds=config.node_lease_seconds,
            tick_seconds=config.tick_seconds,
            stale_seconds=config.node_stale_seconds,
        )
        self.queue = Queue(self.attempts, self.challenges, config.limits, lambda: self.nodes.stacks())
        self.cancelling = Cancelling(self.attempts)
        self.gateway = Gateway(self.attempts, self.nodes, token_key)
        finisher = Finisher(self.attempts)
        reports = Reports(self.attempts, self.nodes, finisher)
        self.observer = Observer(
            self.attempts,
            self.challenges,
            self.nodes,
            reports,
            finisher,
            self._tasks,
            tick_seconds=config.tick_seconds,
            ending_seconds=config.ending_seconds,
        )
        claimer = Claimer(self.attempts, self.challenges, self.nodes, reports)
        self.dispatcher = Dispatcher(self.attempts, self.queue, self.nodes, claimer, self._tasks)
        self.orders = Orders(self.attempts, self.nodes, self._tasks)
        self.recorder = Recorder(self.attempts, ports.ledger, self._ledger_thread)
        self.judging = Judging(
            self.attempts,
            store,
            self.thread,
            lease_seconds=config.judging_lease_seconds,
            retry_seconds=config.judging_retry_seconds,
        )

    async def start(self) -> None:
        """Take up what an earlier life left, then begin. The order matters: nodes first, then their attempts."""
        clock = self.ports.clock
        await self.thread.run(self.ports.store.adopt_clock, clock.boot_id, clock.steady())
        await asyncio.to_thread(self.challenges.sweep)
        await self.nodes.load()
        self.observer.start()
        self.dispatcher.start()
        self._tasks.loop(self.recorder.step, "recorder")
        self._tasks.loop(self.orders.step, "orders")
        self._tasks.loop(self.judging.step, "judging")

    async def stop(self) -> None:
        """End the background work; what was begun is taken up by the next life."""
        await self._tasks.stop()
        await self.nodes.close()
        await asyncio.to_thread(self.thread.close)
        await asyncio.to_thread(self._ledger_thread.close)


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
