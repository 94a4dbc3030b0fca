"""Joins this node's attempts to the trace sink: bound at the claim, told our signals, ended with it.

The sink writes the process and escape events itself; here its news are passed on: what may be shipped, which tools
ran. A sink that was restarted knows nobody, so every running attempt is bound again, and says what it missed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import structlog
from gauntlet.telemetry.v1 import trace_service_pb2 as pb

from daemon.attempts.live import LiveAttempt
from daemon.attempts.model import State
from daemon.attempts.registry import Registry
from daemon.telemetry.facade import Telemetry
from daemon.telemetry.spool import scan_file
from daemon.telemetry.types import ElsewhereEnd, TelemetryError
from daemon.trace.attempt import REFUSED_FILE
from daemon.trace.client import TraceClient, Untraced
from formats import event
from wire.errors import WireFailure

KINDS: tuple[event.Kind, ...] = ("process", "escape_attempt")
RECONNECT_SECONDS = 0.2
# A sandbox's end is reported a moment after its sentry has closed the connection.
END_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Tracing(Protocol):
    """What claims and pools need of the trace."""

    async def confirm(self, container_id: str) -> None:
        """Return once a new sandbox is heard. Raises Untraced."""
        ...

    async def bind(self, container_id: str, attempt_id: str) -> None:
        """A sandbox is an attempt's from now on. Raises Untraced."""
        ...


class NoTracing:
    """No sink is configured: nothing is heard, and `doctor` says so."""

    async def confirm(self, container_id: str) -> None:
        """Nothing to wait for."""

    async def bind(self, container_id: str, attempt_id: str) -> None:
        """Nothing to tell."""


class SinkTracing:
    """The trace of this node's attempts. Also telemetry's source of the kinds that the sink writes."""

    kinds = KINDS

    def __init__(self, client: TraceClient, registry: Registry, spool: Path) -> None:
        """`attend` must be given telemetry before anything is asked."""
        self._client = client
        self._registry = registry
        self._spool = spool
        self._telemetry: Telemetry | None = None
        self._sink_id = ""
        self._tools: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._checks: set[asyncio.Task[None]] = set()

    def attend(self, telemetry: Telemetry) -> None:
        """Use this telemetry, and begin."""
        self._telemetry = telemetry
        self._client.start()

    async def close(self) -> None:
        """Let go of the sink."""
        for task in self._checks:
            task.cancel()
        await asyncio.gather(*self._checks, return_exceptions=True)
        await self._client.close()

    async def confirm(self, container_id: str) -> None:
        """See Tracing."""
        await self._client.expect(container_id)

    async def bind(self, container_id: str, attempt_id: str) -> None:
        """See Tracing."""
        await self._client.bind(container_id, attempt_id)

    async def run(self) -> None:
        """Follow the sink's news and our own signals, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._tell_signals())

    async def _follow(self) -> None:
        while True:
            try:
                async for news in self._client.watch():
                    await self._news(news)
            except WireFailure as failure:
                log.warning("trace_sink_away", code=failure.code, error=failure.message)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _news(self, news: pb.WatchResponse) -> None:
        assert self._telemetry is not None
        match news.WhichOneof("news"):
            case "sink":
                if news.sink.sink_id != self._sink_id:
                    self._sink_id = news.sink.sink_id
                    for attempt in self._registry:
                        self._spawn(self._bind_again(attempt))
            case "size":
                size = news.size
                self._telemetry.spooled_elsewhere(size.attempt_id, size.kind, size.durable_bytes)
            case "tool":
                if await self._record_tool(news.tool):
                    await self._acknowledge(news.tool)
            case "ended":
                self._spawn(self._check(news.ended.attempt_id))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._checks.add(task)
        task.add_done_callback(self._checks.discard)

    async def _check(self, attempt_id: str) -> None:
        """A sentry hung up: its sandbox ended, or it must be made to speak again."""
        attempt = self._registry.find(attempt_id)
        if attempt is None:
            return
        try:
            async with asyncio.timeout(END_SECONDS):
                await attempt.died.wait()
        except TimeoutError:
            await self._bind_again(attempt)

    async def _bind_again(self, attempt: LiveAttempt) -> None:
        facts = attempt.facts
        if facts.state is not State.RUNNING:
            return
        try:
            if await self._client.bind(facts.container_id, facts.attempt_id, running=True):
                log.warning("trace_attached_again", attempt_id=facts.attempt_id)
        except Untraced as error:
            if facts.state is State.RUNNING:
                # The sandbox goes on, unheard: the end's counts say so.
                log.error("attempt_untraced", attempt_id=facts.attempt_id, error=str(error))

    async def _tell_signals(self) -> None:
        with self._registry.watching() as watch:
            async for attempt in watch.changes():
                facts = attempt.facts
                ledger = _ledger(attempt)
                if facts.state is State.RUNNING and len(ledger) > self._told.get(facts.attempt_id, 0):
                    self._told[facts.attempt_id] = len(ledger)
                    try:
                        await self._client.signals(facts.attempt_id, ledger)
                    except WireFailure as failure:
                        # The whole ledger goes with the end once more.
                        log.warning("signals_not_told", attempt_id=facts.attempt_id, error=failure.message)

    async def finish(self, attempt_id: str) -> ElsewhereEnd:
        """See daemon.telemetry.types.Elsewhere."""
        attempt = self._registry.find(attempt_id)
        ledger = [] if attempt is None else _ledger(attempt)
        container_id = "0" * 64 if attempt is None else attempt.facts.container_id
        try:
            answer = await self._client.finish(container_id, attempt_id, ledger)
        except WireFailure as failure:
            log.error("trace_not_finished", attempt_id=attempt_id, error=failure.message)
            return await asyncio.to_thread(_from_spool, self._spool / attempt_id)
        for run in answer.tools:
            await self._record_tool(run)
        self._tools.pop(attempt_id, None)
        self._told.pop(attempt_id, None)
        if answer.session_lost:
            log.warning("trace_incomplete", attempt_id=attempt_id, dropped=answer.dropped)
        return ElsewhereEnd(
            counts={count.kind: count.events for count in answer.counts if count.events},
            gaps={count.kind: count.gaps for count in answer.counts if count.gaps},
            blocked_syscalls=answer.blocked_syscalls,
            complete=not answer.session_lost,
            dropped=answer.dropped,
            pids_refused=answer.pids_refused,
        )

    async def _record_tool(self, run: pb.ToolRun) -> bool:
        """Record a run once; False when it was recorded before or comes too late."""
        assert self._telemetry is not None
        if run.number <= self._tools.get(run.attempt_id, 0):
            return False
        self._tools[run.attempt_id] = run.number
        number = run.exit_status & 0x7F
        fields: event.ToolInvocation = {
            "timestamp_ns": run.start_time_ns,
            "tool_name": run.name,
            "arguments": {"command_line": run.command_line, "pid": run.pid, "ppid": run.ppid},
            "result_summary": "",
            "duration_ms": round(run.duration_ns / 1e6, 3),
            "exit_code": None if number else run.exit_status >> 8,
            "signal": number or None,
            "timed_out": False,
            "truncated": False,
            "output_bytes": 0,
        }
        try:
            await self._telemetry.record(run.attempt_id, "tool_invocation", fields)
        except TelemetryError as error:
            log.warning("tool_not_recorded", attempt_id=run.attempt_id, tool=run.name, error=str(error))
            return False
        return True

    async def _acknowledge(self, run: pb.ToolRun) -> None:
        try:
            await self._client.acknowledge(run.attempt_id, run.number)
        except WireFailure as failure:
            log.info("tool_not_acknowledged", attempt_id=run.attempt_id, error=failure.message)


def _ledger(attempt: LiveAttempt) -> list[tuple[str, str]]:
    return [(signal.name, signal.reason) for signal in attempt.facts.evidence.signals]


def _from_spool(directory: Path) -> ElsewhereEnd:
    """What the files hold, when nobody can be asked."""
    counts: dict[str, int] = {}
    gaps: dict[str, int] = {}
    for kind in KINDS:
        tally = scan_file(directory, kind)
        if tally.events:
            counts[kind] = tally.events
        if tally.gaps:
            gaps[kind] = tally.gaps
    refused = (directory / REFUSED_FILE).exists()
    return ElsewhereEnd(counts, gaps, counts.get("escape_attempt", 0), complete=False, pids_refused=refused)
