"""PID 1 in Python, in process: the supervisor's protocol for the fake runtime.

Owns READY, PING, ASSIGN, LIST_EXECS, SIGNAL, KILL_ALL, STOP and EXEC of the commands in `fake_commands` (and whatever a
test adds to `commands`). Leaves out files: every FILE_OPEN is answered ENOSYS. It is
bound to the real one by the supervisor's own codec and by the runtime's contract tests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from typing import Any

from daemon.runtime.fake_commands import COMMANDS, Command, FakeProcess
from daemon.runtime.fake_transport import FakeTransport
from daemon.supervisor.frames import FLAG_EOF, Frame, FrameType, encode

PROTOCOL = 1


class FakeSupervisor:
    """One sandbox's PID 1. Outlives its transports; `stopped` is called with the exit code when it ends itself."""

    def __init__(self, stopped: Callable[[int], None]) -> None:
        """Running, unassigned."""
        self.boot_id = secrets.token_hex(16)
        self.env: dict[str, str] | None = None
        self.mute = False
        """Answers nothing, as a sandbox that hangs."""
        self.transports: set[FakeTransport] = set()
        self.commands: dict[str, Command] = dict(COMMANDS)
        self._stopped = stopped
        self._processes: dict[str, FakeProcess] = {}
        self._ended: list[dict[str, Any]] = []
        self._next = 1

    def attach(self) -> FakeTransport:
        """Another attachment; output goes to all of them."""
        transport = FakeTransport(self.handle, self.transports.discard)
        self.transports.add(transport)
        return transport

    def die(self) -> None:
        """The sandbox ends: every stream with it."""
        for process in self._processes.values():
            if process.task is not None:
                process.task.cancel()
        for transport in tuple(self.transports):
            transport.end()
        self.transports.clear()

    def handle(self, frame: Frame) -> None:
        """One frame from a client."""
        if self.mute:
            return
        self._next = max(self._next, frame.stream + 1)
        match frame.type:
            case FrameType.SYNC:
                self._send(FrameType.SYNC_ACK, 0, frame.payload)
            case FrameType.PING:
                self._send(FrameType.PONG, frame.stream, frame.payload[:64])
            case FrameType.STDIN:
                self._stdin(frame)
            case FrameType.FILE_OPEN:
                answer = {"errno": "ENOSYS", "message": "the fake supervisor has no files"}
                self._send_json(FrameType.FILE_ERROR, frame.stream, answer)
            case FrameType.FILE_DATA | FrameType.FILE_ACK | FrameType.FILE_END | FrameType.FILE_ABORT:
                return  # belongs to a FILE_OPEN that was refused
            case _:
                self._control(frame, json.loads(frame.payload or b"{}"))

    def _control(self, frame: Frame, asked: dict[str, Any]) -> None:
        match frame.type:
            case FrameType.HELLO:
                self._send_json(FrameType.READY, frame.stream, self._ready())
            case FrameType.ASSIGN:
                self._assign(frame.stream, asked["env"])
            case FrameType.LIST_EXECS:
                self._reply(frame.stream, {"execs": self._execs()})
            case FrameType.EXEC:
                self._exec(frame.stream, asked)
            case FrameType.SIGNAL:
                process = self._processes.get(asked["exec_id"])
                if process is None:
                    self._fail(frame.stream, "NOT_FOUND", f"no live exec {asked['exec_id']}")
                else:
                    self._kill(process, asked["signo"])
                    self._reply(frame.stream, {"signalled": 1})
            case FrameType.KILL_ALL:
                for process in tuple(self._processes.values()):
                    self._kill(process, asked["signo"])
                self._reply(frame.stream, {"left": 0})
            case FrameType.STOP:
                self._stopped(0)
            case _:
                self._fail(frame.stream, "UNKNOWN_TYPE", f"frame type {frame.type:#x}")

    def _ready(self) -> dict[str, Any]:
        return {
            "protocol": PROTOCOL,
            "pid": 1,
            "boot_id": self.boot_id,
            "assigned": self._digest(),
            "next_stream": self._next,
            "execs": self._execs(),
        }

    def _digest(self) -> str | None:
        if self.env is None:
            return None
        text = json.dumps(self.env, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def _assign(self, stream: int, env: dict[str, str]) -> None:
        if self.env is not None and self.env != env:
            self._fail(stream, "ALREADY_ASSIGNED", "this sandbox already has another attempt's environment")
            return
        self.env = env
        self._reply(stream, {"assigned": self._digest()})

    def _exec(self, stream: int, asked: dict[str, Any]) -> None:
        exec_id = asked["exec_id"]
        if self.env is None and not asked.get("admin"):
            self._refuse(stream, "NOT_ASSIGNED", "no attempt is assigned")
            return
        if exec_id in self._processes:
            self._refuse(stream, "DUPLICATE", f"exec {exec_id} runs")
            return
        process = FakeProcess(
            argv=[one if isinstance(one, str) else str(one) for one in asked["argv"]],
            env={**(self.env or {}), **(asked.get("env") or {})},
            exec_id=exec_id,
            stream=stream,
            emit=lambda kind, data: self._output(process, kind, data),
        )
        if not asked.get("stdin"):
            process.stdin.put_nowait(None)
        self._processes[exec_id] = process
        process.task = asyncio.create_task(self._run(process, asked.get("timeout_seconds")))

    async def _run(self, process: FakeProcess, timeout_seconds: float | None) -> None:
        began, result = time.monotonic_ns(), _result()
        command = self.commands.get(process.argv[0].rpartition("/")[2])
        if command is None:
            result |= {"exit_code": 127, "error": f"{process.argv[0]}: no such file", "error_errno": "ENOENT"}
        else:
            self._send_json(FrameType.STARTED, process.stream, {"pid": process.stream + 1})
            try:
                async with asyncio.timeout(timeout_seconds):
                    result["exit_code"] = await command(process)
            except TimeoutError:
                result |= {"signal": 9, "timed_out": True}
            except asyncio.CancelledError:
                if process.signal is None:
                    raise
                result["signal"] = process.signal
        result["duration_ns"] = time.monotonic_ns() - began
        for stream, total in process.totals.items():
            result |= {f"{stream}_total": total, f"{stream}_shipped": total}
        self._processes.pop(process.exec_id, None)
        self._ended.append(self._info(process, result))
        self._send_json(FrameType.EXITED, process.stream, result)

    def _output(self, process: FakeProcess, kind: FrameType, data: bytes) -> None:
        name = "stdout" if kind is FrameType.STDOUT else "stderr"
        self._send(kind, process.stream, data, offset=process.totals[name])
        process.totals[name] += len(data)

    def _stdin(self, frame: Frame) -> None:
        process = next((one for one in self._processes.values() if one.stream == frame.stream), None)
        if process is None:
            return
        if frame.payload:
            process.stdin.put_nowait(frame.payload)
        process.received = frame.offset + len(frame.payload)
        if frame.flags & FLAG_EOF:
            process.stdin.put_nowait(None)
        self._send(FrameType.STDIN_ACK, frame.stream, b"", offset=process.received)

    @staticmethod
    def _kill(process: FakeProcess, signo: int) -> None:
        process.signal = signo
        if process.task is not None:
            process.task.cancel()

    def _execs(self) -> list[dict[str, Any]]:
        return [self._info(process, None) for process in self._processes.values()] + self._ended

    @staticmethod
    def _info(process: FakeProcess, result: dict[str, Any] | None) -> dict[str, Any]:
        return {
            "exec_id": process.exec_id,
            "stream": process.stream,
            "pid": process.stream + 1,
            "stdout_total": process.totals["stdout"],
            "stderr_total": process.totals["stderr"],
            "stdin_received": process.received,
            "max_output_bytes": 1 << 20,
            "result": result,
        }

    def _reply(self, stream: int, answer: dict[str, Any]) -> None:
        self._send_json(FrameType.REPLY, stream, answer)

    def _fail(self, stream: int, code: str, message: str) -> None:
        self._send_json(FrameType.ERROR, stream, {"code": code, "message": message})

    def _refuse(self, stream: int, code: str, message: str) -> None:
        self._send_json(FrameType.REFUSED, stream, {"code": code, "message": message})

    def _send_json(self, kind: FrameType, stream: int, answer: dict[str, Any]) -> None:
        self._send(kind, stream, json.dumps(answer).encode())

    def _send(self, kind: FrameType, stream: int, payload: bytes, offset: int = 0) -> None:
        data = encode(Frame(kind, 0, stream, offset, payload))
        for transport in tuple(self.transports):
            transport.deliver(data)


def _result() -> dict[str, Any]:
    return {
        "exit_code": None,
        "signal": None,
        "timed_out": False,
        "error": None,
        "error_errno": None,
    }
