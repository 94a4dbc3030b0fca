"""The agent's commands: started once per request, recorded when they end, re-readable for a while after.

A command outlives the client that asked for it; its event is written when it ends, when its sandbox ends, or by the
daemon's next life. Ended commands keep their output until newer ones need the room.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import structlog

from daemon.agent.told import told_execs
from daemon.attempts.context import NodeContext
from daemon.attempts.live import LiveAttempt
from daemon.supervisor.errors import CallFailed, SupervisorError, SupervisorGone
from daemon.supervisor.execs import ExecHandle
from daemon.supervisor.types import ExecSpec
from daemon.telemetry.tool_calls import ToolCall
from daemon.telemetry.types import TelemetryError

log = structlog.get_logger(__name__)

# The supervisor ends a command at its limit; if it does not, the daemon does, this much later.
OUTSIDE_MARGIN_SECONDS = 5.0
# Output of ended commands that an attempt may keep in the daemon's memory.
KEPT_BYTES = 8 * 1024 * 1024
KEPT_EXECS = 256
# Requests of commands let go of whose repetition is still known, an attempt: as many as bodies are checked of.
KEPT_REQUESTS = 10_000


class ExecUnknown(Exception):
    """No command of that id is known (any more) in this attempt."""

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"no command {exec_id!r}; it never ran, or its output was let go")
        self.exec_id = exec_id


class ExecIdTaken(Exception):
    """The client chose an id that another command of the attempt has."""

    def __init__(self, exec_id: str) -> None:
        super().__init__(f"exec_id {exec_id!r} is taken; choose another or leave it empty")
        self.exec_id = exec_id


@dataclass(eq=False)
class AgentExec:
    """One command of the agent. `stdin_next` is the offset up to which input was taken.

    `recorded` is set once its event is in the spool: only then does a client hear of the end, so that events have the
    order in which an agent acted.
    """

    handle: ExecHandle
    call: ToolCall
    timeout_seconds: float | None
    request_id: str = ""
    stdin_next: int = 0
    recorded: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def kept_bytes(self) -> int:
        """Output held in memory."""
        return self.handle.stdout.end - self.handle.stdout.base + self.handle.stderr.end - self.handle.stderr.base


class AgentExecs:
    """Commands of every attempt on this node."""

    def __init__(self, node: NodeContext) -> None:
        self._node = node
        self._by_attempt: dict[str, OrderedDict[str, AgentExec]] = {}
        self._starting: dict[tuple[str, str], asyncio.Future[AgentExec]] = {}
        self._let_go: dict[str, OrderedDict[str, str]] = {}
        """By attempt: the exec id of each request whose command was let go of."""

    async def start(
        self, attempt: LiveAttempt, spec: ExecSpec, *, request_id: str, exec_id: str, stdin: bytes | None
    ) -> AgentExec:
        """Start a command, or find the one that this request started. `stdin` is written whole and closed.

        Raises AttemptEnded, ExecIdTaken, SupervisorError, and ExecUnknown when that one was let go of.
        """
        key = (attempt.facts.attempt_id, request_id)
        gone = self._let_go.get(attempt.facts.attempt_id, OrderedDict()).get(request_id)
        if gone is not None:
            raise ExecUnknown(gone)
        if key in self._starting:
            return await asyncio.shield(self._starting[key])
        future: asyncio.Future[AgentExec] = asyncio.get_running_loop().create_future()
        self._starting[key] = future
        try:
            started = await self._start(attempt, spec, request_id, exec_id or f"exe_{uuid.uuid4().hex[:20]}", stdin)
        except BaseException as error:
            # A refused start may be asked again; those who waited for it get the same answer.
            del self._starting[key]
            future.set_exception(error if isinstance(error, Exception) else SupervisorGone("the start was cancelled"))
            future.exception()
            raise
        future.set_result(started)
        return started

    def find(self, attempt: LiveAttempt, exec_id: str) -> AgentExec:
        """A command of this attempt. Raises ExecUnknown."""
        found = self._by_attempt.get(attempt.facts.attempt_id, OrderedDict()).get(exec_id)
        if found is None:
            raise ExecUnknown(exec_id)
        return found

    async def write_stdin(self, attempt: LiveAttempt, exec_id: str, offset: int, data: bytes, eof: bool) -> int:
        """Write input; bytes below the offset already taken are skipped. Returns the next offset."""
        command = self.find(attempt, exec_id)
        fresh = data[max(command.stdin_next - offset, 0) :]
        taken = await attempt.sandbox().link.write_stdin(exec_id, offset, data, eof)
        if fresh and taken > command.stdin_next:
            await command.call.content("stdin", fresh)
        command.stdin_next = max(command.stdin_next, taken)
        return taken

    async def signal(self, attempt: LiveAttempt, exec_id: str, signo: int) -> None:
        """Signal a command and everything it started."""
        self.find(attempt, exec_id)
        await attempt.sandbox().link.signal(exec_id, signo)

    async def adopt(self, attempt: LiveAttempt) -> None:
        """Take over the commands that an earlier life of the daemon started, so that their events are written."""
        facts = attempt.facts
        calls = await self._node.blocking(self._node.journal.open_calls, facts.attempt_id)
        live = dict(attempt.sandbox().link.execs)
        spool = self._node.telemetry.spool_root / facts.attempt_id / "tool_invocation.jsonl"
        told = await self._node.blocking(told_execs, spool, calls.keys() - live.keys())
        for exec_id, arguments in calls.items():
            if exec_id in told:
                await self._close(attempt, exec_id)
                continue
            call = self._node.telemetry.begin_tool(facts.attempt_id, "exec", {**arguments, "adopted": True})
            if exec_id in live:
                self._keep(attempt, exec_id, AgentExec(live[exec_id], call, None))
            else:
                call.end(result="the command ended while the daemon was away")
                if await self._write(attempt, exec_id, call):
                    await self._close(attempt, exec_id)

    def forget(self, attempt: LiveAttempt) -> None:
        """Let go of an attempt's commands."""
        self._by_attempt.pop(attempt.facts.attempt_id, None)
        self._let_go.pop(attempt.facts.attempt_id, None)
        for key in [key for key in self._starting if key[0] == attempt.facts.attempt_id]:
            del self._starting[key]

    async def _start(
        self, attempt: LiveAttempt, spec: ExecSpec, request_id: str, exec_id: str, stdin: bytes | None
    ) -> AgentExec:
        let_go = self._let_go.get(attempt.facts.attempt_id, OrderedDict())
        if exec_id in self._by_attempt.get(attempt.facts.attempt_id, {}) or exec_id in let_go.values():
            raise ExecIdTaken(exec_id)
        # The id first: what is kept of arguments that are too long for an event is their beginning.
        arguments: dict[str, Any] = {"exec_id": exec_id, "argv": [_text(word) for word in spec.argv]}
        if spec.cwd:
            arguments["cwd"] = _text(spec.cwd)
        if spec.env:
            arguments["environment"] = dict(spec.env)
        if spec.timeout_seconds is not None:
            arguments["timeout_seconds"] = spec.timeout_seconds
        call = self._node.telemetry.begin_tool(attempt.facts.attempt_id, "exec", arguments)
        if stdin is not None:
            await call.content("stdin", stdin)
        try:
            handle = await attempt.sandbox().link.exec(spec, exec_id=exec_id)
        except SupervisorError as error:
            call.end(result=str(error))
            await self._node.telemetry.record_tool(attempt.facts.attempt_id, call)
            raise
        command = AgentExec(handle, call, spec.timeout_seconds, request_id)
        self._keep(attempt, exec_id, command, arguments)
        if stdin is not None:
            attempt.spawn_call(self._feed(attempt, exec_id, stdin), f"stdin:{exec_id}")
        return command

    def _keep(
        self, attempt: LiveAttempt, exec_id: str, command: AgentExec, arguments: dict[str, Any] | None = None
    ) -> None:
        commands = self._by_attempt.setdefault(attempt.facts.attempt_id, OrderedDict())
        commands[exec_id] = command
        attempt.spawn_call(self._record(attempt, exec_id, command, arguments), f"record:{exec_id}")

    async def _feed(self, attempt: LiveAttempt, exec_id: str, stdin: bytes) -> None:
        try:
            await attempt.sandbox().link.write_stdin(exec_id, 0, stdin, True)
        except (SupervisorError, KeyError) as error:
            # A command need not read its input; what it took is in its own result.
            log.info("stdin_not_taken", attempt_id=attempt.facts.attempt_id, exec_id=exec_id, error=str(error))

    async def _record(
        self, attempt: LiveAttempt, exec_id: str, command: AgentExec, arguments: dict[str, Any] | None
    ) -> None:
        """Wait for the end, whoever still listens, and write the event."""
        attempt_id = attempt.facts.attempt_id
        if arguments is not None:
            await self._node.blocking(self._node.journal.begin_call, attempt_id, exec_id, arguments)
        handle, call = command.handle, command.call
        try:
            result = await self._wait(attempt, exec_id, command)
        except SupervisorGone:
            call.output(handle.head)
            call.end(output_bytes=handle.stdout.total + handle.stderr.total, result="the sandbox ended")
        else:
            call.output(handle.head)
            call.end(
                exit_code=result.exit_code,
                signal=result.signal,
                timed_out=result.timed_out,
                truncated=result.truncated,
                output_bytes=result.stdout_total + result.stderr_total,
                result=result.error,
            )
        try:
            written = await self._write(attempt, exec_id, call)
        finally:
            command.recorded.set()
        if written:  # the agent waits for its event, not for this: a life that is killed before it looks into the spool
            await self._close(attempt, exec_id)
        self._trim(attempt_id)

    async def _wait(self, attempt: LiveAttempt, exec_id: str, command: AgentExec) -> Any:
        if command.timeout_seconds is not None:
            try:
                async with asyncio.timeout(command.timeout_seconds + OUTSIDE_MARGIN_SECONDS):
                    return await command.handle.wait()
            except TimeoutError:
                log.warning("timeout_enforced_from_outside", attempt_id=attempt.facts.attempt_id, exec_id=exec_id)
                if attempt.entry is not None:
                    try:
                        await attempt.entry.link.signal(exec_id, signal.SIGKILL)
                    except CallFailed as error:
                        log.warning("timeout_kill_failed", exec_id=exec_id, error=str(error))
        return await command.handle.wait()

    async def _write(self, attempt: LiveAttempt, exec_id: str, call: ToolCall) -> bool:
        """Whether the call's event is in the spool now."""
        attempt_id = attempt.facts.attempt_id
        try:
            await self._node.telemetry.record_tool(attempt_id, call)
        except TelemetryError as error:
            log.error("tool_call_not_recorded", attempt_id=attempt_id, exec_id=exec_id, exc_info=error)
            return False
        return True

    async def _close(self, attempt: LiveAttempt, exec_id: str) -> None:
        """Nothing is left to be written of a call."""
        await self._node.blocking(self._node.journal.end_call, attempt.facts.attempt_id, exec_id)

    def _trim(self, attempt_id: str) -> None:
        """Let go of the oldest ended commands once they hold too much."""
        commands = self._by_attempt.get(attempt_id, OrderedDict())
        ended = [exec_id for exec_id, command in commands.items() if command.handle.result is not None]
        held = sum(commands[exec_id].kept_bytes for exec_id in ended)
        while ended and (held > KEPT_BYTES or len(ended) > KEPT_EXECS):
            oldest = commands.pop(ended.pop(0))
            held -= oldest.kept_bytes
            if oldest.request_id:
                # The command itself is gone with its output; that its request was served stays known.
                self._starting.pop((attempt_id, oldest.request_id), None)
                requests = self._let_go.setdefault(attempt_id, OrderedDict())
                requests[oldest.request_id] = oldest.handle.exec_id
                while len(requests) > KEPT_REQUESTS:
                    requests.popitem(last=False)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", errors="replace")
