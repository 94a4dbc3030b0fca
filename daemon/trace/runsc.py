"""What the sink asks of runsc about a running container: attach a trace session, list processes with what they use.

Answers are read as untrusted text of bounded size. One program at a time: a look costs some ten milliseconds of CPU.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from daemon.trace.points import MAX_PID

DEFAULT_ROOT = Path("/var/run/docker/runtime-runc/moby")
SECONDS = 20.0
MAX_ANSWER_BYTES = 64 << 20
MAX_LISTED = 5_000
MAX_ARGUMENTS = 1_000
MAX_PATH = 4_096
_SMALL = re.compile(r"[0-9]{1,8}")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?")

log = structlog.get_logger(__name__)


class RunscError(Exception):
    """runsc refused or did not answer."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One process in a look: resident bytes or None; its start by the guest's wall clock, 0 when not said."""

    pid: int
    ppid: int
    argv: list[str]
    rss: int | None
    start_ns: int
    executable: str = ""


class Load(NamedTuple):
    """CPU use of a process: percent of its life (whole numbers, 99 at most), and milliseconds in the kernel."""

    percent: int
    system_ms: float

    def total_ms(self, life_ns: int) -> float:
        """CPU time of a life of that length. gVisor prints no sum; this is exact to one percent of the life."""
        return round(max(self.system_ms, self.percent * max(life_ns, 0) / 1e8), 3)


class Runsc:
    """runsc with the root in which the engine keeps its containers."""

    def __init__(self, program: Path, root: Path = DEFAULT_ROOT) -> None:
        self._program = program
        self._root = root
        self._one = asyncio.Semaphore(1)

    async def attach(self, container_id: str, session_file: Path, began: Callable[[int], None]) -> None:
        """Give a running container a new session in place of whatever it has. Raises RunscError.

        `began` is told the pid of the process that will connect.
        """
        await self._run("trace", "create", "--force", f"--config={session_file}", container_id, began=began)

    async def processes(self, container_id: str) -> list[Seen]:
        """Every process of a container, as the sentry tells. Raises RunscError."""
        return parse_procfs(await self._run("trace", "procfs", container_id))

    async def loads(self, container_id: str) -> dict[int, Load]:
        """CPU use by process. Raises RunscError."""
        return parse_ps(await self._run("ps", container_id))

    async def _run(self, *arguments: str, began: Callable[[int], None] | None = None) -> bytes:
        async with self._one:
            process = await asyncio.create_subprocess_exec(
                str(self._program),
                f"--root={self._root}",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=MAX_ANSWER_BYTES,
            )
            if began is not None:
                began(process.pid)
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                async with asyncio.timeout(SECONDS):
                    answer, words = await asyncio.gather(_all(process.stdout), _all(process.stderr))
                    code = await process.wait()
            except TimeoutError:
                raise RunscError(f"runsc {' '.join(arguments[:2])}: no answer within {SECONDS:g} s") from None
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        process.kill()
                    await process.wait()
        if code != 0:
            told = words[-500:].decode(errors="replace").strip()
            raise RunscError(f"runsc {' '.join(arguments[:2])} ended with {code}: {told or 'no word'}")
        return answer


async def _all(stream: asyncio.StreamReader) -> bytes:
    answer = bytearray()
    while piece := await stream.read(1 << 16):
        answer += piece
        if len(answer) > MAX_ANSWER_BYTES:
            raise RunscError(f"runsc answered with more than {MAX_ANSWER_BYTES} bytes")
    return bytes(answer)


def parse_procfs(answer: bytes) -> list[Seen]:
    """`runsc trace procfs`: one JSON object a line between other words. What is not understood is left out."""
    found: list[Seen] = []
    for line in answer.splitlines():
        if not line.startswith(b"{") or len(found) >= MAX_LISTED:
            continue
        try:
            seen = _seen(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError):
            continue  # a hostile sentry's line tells nothing
        found.append(seen)
    return found


def _seen(value: Any) -> Seen:
    status = value["status"]
    pid, ppid, kilobytes = status["pid"], status.get("ppid", 0), status.get("vm_rss")
    if not (type(pid) is int and 0 < pid <= MAX_PID and type(ppid) is int and 0 <= ppid <= MAX_PID):
        raise ValueError("no process id")
    known = type(kilobytes) is int and 0 <= kilobytes < 1 << 40
    start = value.get("clone_ts")
    start_ns = start if type(start) is int and 0 <= start < 1 << 63 else 0
    words = [word for word in (value.get("args") or [])[:MAX_ARGUMENTS] if isinstance(word, str)]
    executable = value.get("exe")
    path = executable[:MAX_PATH] if isinstance(executable, str) else ""
    return Seen(pid, ppid, words, kilobytes * 1024 if known else None, start_ns, path)


def parse_ps(answer: bytes) -> dict[int, Load]:
    """`runsc ps`'s table: UID PID PPID PGID C TTY STIME TIME CMD. TIME is the kernel's part alone."""
    found: dict[int, Load] = {}
    for line in answer.decode(errors="replace").splitlines()[1 : MAX_LISTED + 1]:
        columns = line.split(maxsplit=8)
        if len(columns) < 8 or not all(_SMALL.fullmatch(columns[place]) for place in (1, 4)):
            continue
        length = milliseconds(columns[7])
        if length is not None:
            found[int(columns[1])] = Load(min(int(columns[4]), 100), length)
    return found


def milliseconds(text: str) -> float | None:
    """A Go duration such as `20ms`, `1.02s`, `1m2.5s`; None for anything else."""
    parts = _DURATION.fullmatch(text[:32])
    if not text or parts is None:
        return 0.0 if text == "0" else None
    hours, minutes, seconds, thousandths = (float(part or 0) for part in parts.groups())
    return round((hours * 3600 + minutes * 60 + seconds) * 1000 + thousandths, 3)
