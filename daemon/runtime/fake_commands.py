"""The few commands that the fake PID 1 knows: `true false echo cat sleep env`, and `sh -c 'exit N'`.

Owns what a command sees of itself (`FakeProcess`); a test adds its own to a supervisor's `commands`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from daemon.supervisor.frames import FrameType


@dataclass
class FakeProcess:
    """One running command, as its implementation sees it."""

    argv: list[str]
    env: Mapping[str, str]
    exec_id: str
    stream: int
    emit: Callable[[FrameType, bytes], None]
    stdin: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    received: int = 0
    totals: dict[str, int] = field(default_factory=lambda: {"stdout": 0, "stderr": 0})
    signal: int | None = None
    task: asyncio.Task[None] | None = None

    def out(self, data: bytes) -> None:
        """Write to stdout."""
        self.emit(FrameType.STDOUT, data)

    def err(self, data: bytes) -> None:
        """Write to stderr."""
        self.emit(FrameType.STDERR, data)


Command = Callable[[FakeProcess], Awaitable[int]]


async def _true(_: FakeProcess) -> int:
    return 0


async def _false(_: FakeProcess) -> int:
    return 1


async def _echo(process: FakeProcess) -> int:
    process.out(" ".join(process.argv[1:]).encode() + b"\n")
    return 0


async def _env(process: FakeProcess) -> int:
    for name, value in sorted(process.env.items()):
        process.out(f"{name}={value}\n".encode())
    return 0


async def _cat(process: FakeProcess) -> int:
    while (data := await process.stdin.get()) is not None:
        process.out(data)
    return 0


async def _sleep(process: FakeProcess) -> int:
    await asyncio.sleep(float(process.argv[1]))
    return 0


async def _sh(process: FakeProcess) -> int:
    words = process.argv[2].split() if len(process.argv) == 3 and process.argv[1] == "-c" else []
    if len(words) == 2 and words[0] == "exit":
        return int(words[1])
    process.err(b"the fake shell only knows: exit N\n")
    return 2


COMMANDS: Mapping[str, Command] = {
    "true": _true,
    "false": _false,
    "echo": _echo,
    "env": _env,
    "cat": _cat,
    "sleep": _sleep,
    "sh": _sh,
}
