"""One daemon, wired in one place: ports, adapters, domain, services, and the order of start and stop.

Start: state directory, workspace, telemetry, recovery of what an earlier life left, then pools, then the sockets.
Stop: sockets first, then pools; running attempts are left running for the next life.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import structlog
from gauntlet.daemon.v1 import agent_service_pb2_grpc, daemon_service_pb2_grpc, judge_sandbox_service_pb2_grpc

from daemon.agent.execs import AgentExecs
from daemon.agent.files import AgentFiles
from daemon.agent.sessions import Sessions
from daemon.attempts.calm import Calm
from daemon.attempts.claims import Claimer
from daemon.attempts.clock import HostClock
from daemon.attempts.context import NodeContext
from daemon.attempts.ending import Ender, Releaser
from daemon.attempts.journal import Journal
from daemon.attempts.limits import DiskWatch, TimeKeeper
from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import Cause
from daemon.attempts.recovery import Recovery
from daemon.attempts.registry import Registry
from daemon.attempts.sampling import start_sampling
from daemon.attempts.stacks import Stack, Stacks
from daemon.attempts.tracing import NoTracing, SinkTracing
from daemon.attempts.watcher import RuntimeWatcher
from daemon.config import DaemonConfig
from daemon.fswatch.facade import FilesystemWatch
from daemon.heartbeat import Heartbeat
from daemon.judging.sandboxes import JudgeSandboxes
from daemon.pool.clock import SystemClock
from daemon.pool.manager import PoolManager
from daemon.pool.sandboxes import SandboxFactory, SandboxSettings
from daemon.pool.template import Template, profile_digest
from daemon.pool.undertaker import Undertaker
from daemon.runtime.port import Runtime
from daemon.services.agent_service import AgentService
from daemon.services.daemon_service import DaemonService
from daemon.services.errors import translate, translate_agents
from daemon.services.judge_service import JudgeSandboxService
from daemon.state import prepare_state
from daemon.telemetry.facade import Telemetry
from daemon.trace.client import TraceClient
from daemon.workspace.manager import WorkspaceConfig, WorkspaceManager
from wire import token
from wire.server import Server

log = structlog.get_logger(__name__)

# Docker calls have threads of their own; these serve mounts, files and the journal.
WORKERS = 8
# Attempts may claim each CPU this many times over before the pools stop making sandboxes beside them.
CPU_OVERCOMMIT = 2
STOP_SECONDS = 20.0


class Node:
    """One daemon's life. `run` returns when `stop` is called or a task that must not end has ended."""

    def __init__(self, config: DaemonConfig, runtime: Runtime) -> None:
        self._config = config
        self._runtime = runtime
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Order the end."""
        self._stopping.set()

    async def run(self) -> None:
        """Live. Raises whatever ended a task that must not end, after an orderly stop."""
        config = self._config
        prepare_state(config.state_dir)
        with ThreadPoolExecutor(WORKERS, thread_name_prefix="daemon") as executor:
            workspace = WorkspaceManager(WorkspaceConfig(config.state_dir, config.disk_reserve_bytes), executor)
            profile = config.seccomp_profile.read_text()
            node = await self._context(executor, workspace, profile)
            undertaker = Undertaker(SystemClock())
            judges = JudgeSandboxes(node, {profile_digest(profile): profile}, undertaker)
            ender = Ender(node)
            keeper = TimeKeeper(node, ender, config.grace_seconds)
            execs = AgentExecs(node)

            async def before_destroy(attempt: LiveAttempt) -> None:
                execs.forget(attempt)
                await judges.destroy_of(attempt)

            def on_running(attempt: LiveAttempt) -> None:
                if attempt.died.is_set():  # while it was still being assigned
                    ender.begin(attempt, Cause.SANDBOX_DIED)
                    return
                keeper.start(attempt)
                attempt.spawn(start_sampling(node, attempt), "sampling")

            claimer = Claimer(node, on_running)
            service = DaemonService(node, config.node_id, claimer, ender, Releaser(node, ender, before_destroy))
            await workspace.start()
            await node.telemetry.start()
            disk = DiskWatch(node)
            node.fswatch.on_disk = disk.heard
            await node.fswatch.start()
            for attempt in await Recovery(node, ender).run():
                on_running(attempt)
                await execs.adopt(attempt)
            for stack in node.stacks.values():
                node.pools.set_target(stack.template, stack.pool_target)
            servers = self._servers(node, service, judges, execs, ender)
            heartbeat = Heartbeat(
                config.scheduler_endpoint,
                config.endpoint,
                config.agent_endpoint,
                service.status,
                config.stacks,
                lambda draining: _drain(claimer, node.pools, draining),
            )
            for server in servers:
                await server.start()
            log.info("node_ready", node_id=config.node_id, instance=config.instance)
            try:
                works = [RuntimeWatcher(node, ender).run(), disk.run(), node.pools.run(), heartbeat.run()]
                if isinstance(node.tracing, SinkTracing):
                    works.append(node.tracing.run())
                await self._serve(*works)
            finally:
                for server in servers:
                    await server.stop()
                await self._close(node, workspace, undertaker)

    async def _context(self, executor: ThreadPoolExecutor, workspace: WorkspaceManager, profile: str) -> NodeContext:
        config = self._config
        settings = SandboxSettings(config.instance, {profile_digest(profile): profile})
        registry = Registry()
        tracing = None
        if config.trace_endpoint is not None:
            client = TraceClient(config.trace_endpoint, config.node_id)
            tracing = SinkTracing(client, registry, config.state_dir / "spool")
        telemetry = Telemetry(config.state_dir, config.node_id, config.collector_endpoint, elsewhere=tracing)
        if tracing is not None:
            tracing.attend(telemetry)
        confirm = None if tracing is None else tracing.confirm
        factory = SandboxFactory(self._runtime, workspace, SystemClock(), settings, confirm=confirm)
        cpus = (os.cpu_count() or 1) * 1_000

        calm = Calm()

        def may_create() -> bool:
            if calm.now:
                return False
            limits = [a.facts.limits for a in node.registry if not a.facts.ended]
            return sum(limit.cpu_millis for limit in limits if limit is not None) < cpus * CPU_OVERCOMMIT

        node = NodeContext(
            instance=config.instance,
            runtime=self._runtime,
            workspace=workspace,
            pools=PoolManager(factory, SystemClock(), may_create=may_create),
            telemetry=telemetry,
            tracing=tracing or NoTracing(),
            registry=registry,
            stacks=Stacks({name: await self._stack(name, profile) for name in config.stacks}),
            journal=Journal(config.state_dir / "journal.db"),
            clock=HostClock(),
            executor=executor,
            capacity=config.capacity,
            memory_budget_bytes=_memory_total() - config.memory_reserve_bytes,
            artifacts=config.state_dir / "artifacts",
            fswatch=FilesystemWatch(
                telemetry, workspace, config.state_dir, config.instance, mechanism=config.filesystem_watch
            ),
            calm=calm,
        )
        calm.resume = node.pools.reconcile
        return node

    async def _stack(self, name: str, profile: str) -> Stack:
        settings = self._config.stacks[name]
        template = Template(
            stack=name,
            image_digest=await self._runtime.image_digest(settings.image),
            resources=settings.defaults.resources(),
            profile_digest=profile_digest(profile),
            runtime=self._config.runtime,
            runtime_digest=self._config.runtime_digest,
        )
        return Stack(template, settings.policy.resources(), settings.pool_target)

    def _servers(
        self, node: NodeContext, service: DaemonService, judges: JudgeSandboxes, execs: AgentExecs, ender: Ender
    ) -> list[Server]:
        config = self._config
        sessions = Sessions(node.registry, token.load_key(config.token_key_file))
        agent = AgentService(node, sessions, execs, AgentFiles(node), ender)
        control = {
            "gauntlet.daemon.v1.DaemonService": (daemon_service_pb2_grpc.add_DaemonServiceServicer_to_server, service),
            "gauntlet.daemon.v1.JudgeSandboxService": (
                judge_sandbox_service_pb2_grpc.add_JudgeSandboxServiceServicer_to_server,
                JudgeSandboxService(node, judges),
            ),
        }
        agents = {"gauntlet.daemon.v1.AgentService": (agent_service_pb2_grpc.add_AgentServiceServicer_to_server, agent)}
        return [
            Server(config.endpoint, control, translate=translate, socket_mode=0o660, socket_gid=config.socket_gid),
            # Anyone may open it: every call needs an attempt's token.
            Server(config.agent_endpoint, agents, translate=translate_agents, socket_mode=0o666),
        ]

    async def _serve(self, *works: Coroutine[Any, Any, None]) -> None:
        """Run the tasks that never end until the order to stop, or until one of them does end."""
        tasks = [asyncio.ensure_future(work) for work in works]
        order = asyncio.ensure_future(self._stopping.wait())
        done, _ = await asyncio.wait({order, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        for task in (order, *tasks):
            task.cancel()
        await asyncio.gather(order, *tasks, return_exceptions=True)
        for task in done - {order}:
            if (error := task.exception()) is not None:
                raise error

    async def _close(self, node: NodeContext, workspace: WorkspaceManager, undertaker: Undertaker) -> None:
        for attempt in node.registry:
            await attempt.stop_tasks()
        await node.drain()
        left = await node.pools.close(STOP_SECONDS) + await undertaker.close(STOP_SECONDS)
        if left:
            log.warning("left_for_the_next_start", sandboxes=left)
        for attempt in node.registry:
            if attempt.entry is not None:
                await attempt.entry.link.close()
        if isinstance(node.tracing, SinkTracing):
            await node.tracing.close()
        await node.fswatch.close()
        await node.telemetry.close()
        await workspace.close()
        await self._runtime.close()
        node.journal.close()


def _drain(claimer: Claimer, pools: PoolManager, draining: bool) -> None:
    if claimer.draining != draining:
        claimer.draining = draining
        pools.drain() if draining else pools.resume()


def _memory_total() -> int:
    """The host's memory in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/meminfo has no MemTotal")
